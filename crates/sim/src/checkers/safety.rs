//! The rule that messages are confirmed to a sender only when they are settled at every member.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (node, id) in &ledger.not_safe {
        let what = format!("{id} was confirmed, but not settled at {node}");
        found.push(Violation::new("confirmed means settled", what));
    }
}
