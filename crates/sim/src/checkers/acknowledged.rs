//! A membership service acknowledges a join when it has stored it, and not before.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (group, node) in &ledger.unstored {
        let what = format!("{node} was told that it is in {group}, which is not stored");
        found.push(Violation::new("acknowledged when stored", what));
    }
}
