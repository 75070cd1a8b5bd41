//! Rules for every run of ordered groups. Each rule checks the [`History`] of the run.
//!
//! | promise | rules |
//! |---|---|
//! | no duplicates, no inventions | `once`, `invention` |
//! | source order, atomicity | `source_order` |
//! | total order, virtual synchrony | `synchrony`, `views` |
//! | K, majority and total resilience | `resilience` |
//! | at most one partition continues; one order for all partitions | `majority` |
//! | at most one ring of an electorate orders messages, or grants locks | `quorum` |
//! | locks | `locks` |
//! | handlers | `requests` |
//! | recovery once the faults have ended | `liveness`, `delivered` |
//! | bounded memory | `MemoryUse` |

mod delivered;
mod invention;
mod liveness;
mod locks;
mod majority;
mod once;
mod quorum;
mod requests;
mod resilience;
mod source_order;
mod synchrony;
#[cfg(test)]
mod tests;
mod views;

use carom_sim::scenario::Violation;

use super::history::History;
use crate::findings::Findings;

pub use self::liveness::is_whole;
pub use self::requests::reply_to;

/// Returns the violations of all rules in a run.
pub fn all(history: &History) -> Vec<Violation> {
    let mut found = Findings::default();
    invention::check(history, &mut found);
    for accounts in history.accounts().values() {
        once::check(accounts, &mut found);
        views::check(accounts, &mut found);
        locks::check(accounts, &mut found);
        majority::check(accounts, &mut found);
        quorum::check(accounts, &mut found);
        source_order::check(history, accounts, &mut found);
        synchrony::check(accounts, &mut found);
        resilience::check(accounts, &mut found);
    }
    liveness::check(history, &mut found);
    delivered::check(history, &mut found);
    requests::check(history, &mut found);
    history.memory.check(&mut found);
    found.0
}

/// Returns `true` if no member lacks a message, a report or an answer that it is owed.
pub fn is_all_delivered(history: &History) -> bool {
    let mut found = Findings::default();
    delivered::check(history, &mut found);
    requests::check(history, &mut found);
    found.0.is_empty()
}
