//! The rule that a membership service acknowledges a join only after storing it.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (group, node) in &ledger.unstored {
        let what = format!("{node}: join of {group} was acknowledged, but not stored");
        found.push(Violation::new("joins are stored before acknowledgment", what));
    }
}
