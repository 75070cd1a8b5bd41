//! The rule that no member receives a message twice in one life, except unreliable ones.

use std::collections::BTreeSet;

use carom_sim::scenario::Violation;

use crate::rmp::history::Account;

pub(super) fn check(accounts: &[Account<'_>], found: &mut Vec<Violation>) {
    for account in accounts {
        let mut seen = BTreeSet::new();
        let heard = account.periods.iter().flat_map(|period| &period.heard);
        for (number, _) in heard.filter(|(number, _)| !seen.insert(*number)) {
            let what = format!("{account} received message {number} twice");
            found.push(Violation::new("at most once", what));
        }
    }
}
