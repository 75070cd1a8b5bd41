//! The rule that everything works again within a bound once the faults have ended: no sender is
//! held back, and messages are delivered to all receivers that are owed them, and confirmed.

use super::{Ledger, Violation};

const RULE: &str = "live after recovery";

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    let Some(healed) = ledger.healed else { return };
    for (node, group) in &ledger.held_back {
        found.push(Violation::new(RULE, format!("{node} still cannot send in {group}")));
    }
    for node in &ledger.unsettled {
        let what = format!("{node} is not connected to its membership service");
        found.push(Violation::new(RULE, what));
    }
    for ((node, group), _) in ledger.awaited.iter().filter(|(_, awaited)| !awaited.is_there) {
        let what = format!("{node} in {group} got no confirmation");
        found.push(Violation::new(RULE, what));
    }
    for (id, sent) in ledger.sent.iter().filter(|(_, sent)| sent.at >= healed) {
        if sent.has_deadline || !ledger.must_deliver {
            continue;
        }
        for node in ledger.owed(id, sent) {
            let got = ledger.got.get(&(node, *id)).copied().unwrap_or_default();
            if got.delivered == 0 {
                found.push(Violation::new(RULE, format!("{node}: {id} was not delivered")));
            }
        }
    }
}
