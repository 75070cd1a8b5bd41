//! The rule that no engine holds more bytes than its settings allow.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    if let Some((bytes, limit)) = ledger.memory.filter(|(bytes, limit)| bytes > limit) {
        let what = format!("{bytes} bytes are held: at most {limit} are allowed");
        found.push(Violation::new("memory is bounded", what));
    }
}
