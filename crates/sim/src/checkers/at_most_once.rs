//! A message is delivered or reported lost at most once, and never both.

use super::{Got, Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for ((node, id), got) in &ledger.got {
        let Got { delivered, lost, .. } = *got;
        if delivered + lost > 1 {
            let what = format!("{node}: {id} was delivered {delivered} times, lost {lost} times");
            found.push(Violation::new("at most once", what));
        }
    }
}
