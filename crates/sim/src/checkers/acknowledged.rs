//! The rule that a membership service acknowledges a join only after storing it.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (group, node) in &ledger.unstored {
        let what = format!("{node} was told that it is in {group}, which is not stored");
        found.push(Violation::new("acknowledged when stored", what));
    }
}
