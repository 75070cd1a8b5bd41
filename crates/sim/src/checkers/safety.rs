//! The rule that messages are confirmed to a sender only when they are settled at every member.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (node, id) in &ledger.not_safe {
        let what = format!("{id} was called settled at {node}, which had not got it");
        found.push(Violation::new("confirmed means settled", what));
    }
}
