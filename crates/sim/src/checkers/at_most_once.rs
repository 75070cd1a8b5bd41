//! The rule that a message is delivered or reported as lost at most once, and never both.
//!
//! If a part of it is reported as lost, it is not delivered.

use super::{Got, Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for ((node, id), got) in &ledger.got {
        let Got { delivered, lost, .. } = *got;
        if delivered + lost > 1 {
            let what =
                format!("{node}: {id} was delivered {delivered} times and lost {lost} times");
            found.push(Violation::new(RULE, what));
        }
    }
    for ((node, id), pieces) in &ledger.lost_pieces {
        if let Some((number, count)) = pieces.iter().find(|(_, count)| **count > 1) {
            let what = format!("{node}: #{number} of {id} was lost {count} times");
            found.push(Violation::new(RULE, what));
        }
        let got = ledger.got.get(&(*node, *id)).copied().unwrap_or_default();
        if got.delivered > 0 {
            let what = format!("{node}: {id} was delivered, but fragments of it were lost");
            found.push(Violation::new(RULE, what));
        }
    }
}

const RULE: &str = "at most once";
