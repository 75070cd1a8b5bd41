//! The rule that every message owed to a receiver is delivered to it or reported as lost.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (id, sent) in &ledger.sent {
        for node in ledger.owed(id, sent) {
            if !ledger.got.contains_key(&(node, *id)) {
                let what = format!("{node}: {id} was neither delivered nor reported as lost");
                found.push(Violation::new("delivered or reported lost", what));
            }
        }
    }
}
