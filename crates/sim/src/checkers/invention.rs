//! The rule that a delivered message was sent with the same bytes, and that a message reported as
//! lost was sent.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for ((node, id), got) in &ledger.got {
        let was_sent = ledger.sent.contains_key(id);
        if !was_sent {
            let what = format!("{node}: {id} was never sent");
            found.push(Violation::new("no invention", what));
        } else if got.is_altered {
            let what = format!("{node}: {id} was delivered with a different payload");
            found.push(Violation::new("no invention", what));
        }
        if id.sender.node == node.node {
            let what = format!("{node}: received its own {id}");
            found.push(Violation::new("no invention", what));
        }
    }
}
