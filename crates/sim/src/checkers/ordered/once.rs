//! The rule that no member receives a message twice in one life, except unreliable ones.

use std::collections::BTreeSet;

use super::story::Account;
use crate::checkers::Violation;

pub(super) fn check(accounts: &[Account<'_>], found: &mut Vec<Violation>) {
    for account in accounts {
        let mut seen = BTreeSet::new();
        let heard = account.chapters.iter().flat_map(|chapter| &chapter.heard);
        for (number, _) in heard.filter(|(number, _)| !seen.insert(*number)) {
            let what = format!("{account} received message {number} twice");
            found.push(Violation::new("at most once", what));
        }
    }
}
