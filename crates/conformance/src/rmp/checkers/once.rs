//! The rule that no member receives a message twice in one life. Unreliable messages are exempt.

use std::collections::BTreeSet;

use crate::findings::Findings;
use crate::rmp::history::Account;

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    for account in accounts {
        let mut seen = BTreeSet::new();
        let heard = account.periods.iter().flat_map(|period| &period.heard);
        for (number, _) in heard.filter(|(number, _)| !seen.insert(*number)) {
            found.add("at most once", format!("{account} received message {number} twice"));
        }
    }
}
