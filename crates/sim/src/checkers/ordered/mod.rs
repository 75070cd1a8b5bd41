//! Rules for every run of ordered groups. Each checker reads the [`Story`], the record of the run.
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
//! | handlers | `calls` |
//! | recovery once the faults have ended | `liveness`, `delivered` |
//! | bounded memory | `memory` |

mod calls;
mod delivered;
mod invention;
mod liveness;
mod locks;
mod majority;
mod memory;
mod once;
mod quorum;
mod resilience;
mod source_order;
mod story;
mod synchrony;
#[cfg(test)]
mod tests;
mod views;

use super::Violation;

pub use calls::reply_to;
pub use liveness::is_whole;
pub(crate) use quorum::PROCESSES_APART;
pub use story::{Life, Sent, Standing, Story};

/// Returns all violations of a run.
pub fn all(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    invention::check(story, &mut found);
    for accounts in story.accounts().values() {
        once::check(accounts, &mut found);
        views::check(accounts, &mut found);
        locks::check(accounts, &mut found);
        majority::check(accounts, &mut found);
        quorum::check(accounts, &mut found);
        source_order::check(story, accounts, &mut found);
        synchrony::check(accounts, &mut found);
        resilience::check(accounts, &mut found);
    }
    liveness::check(story, &mut found);
    delivered::check(story, &mut found);
    calls::check(story, &mut found);
    memory::check(story, &mut found);
    found
}
