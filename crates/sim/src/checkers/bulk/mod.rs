//! Rules for every run of a bulk group. Each checker reads the [`Story`], the record of the run.
//!
//! | promise | rules |
//! |---|---|
//! | each message once, in order and as it was sent; gaps are reported exactly | `order` |
//! | losses only after an eviction or the end of the sender | `causes` |
//! | confirmed messages are at every receiver | `confirmations` |
//! | one sender, and everything is delivered once the faults have ended | `healed` |
//! | Theorem 1 | `rings` |
//! | a receiver that follows another sender gets the end of the stream that it left | `ends` |
//! | bounded memory | `memory` |

mod causes;
mod confirmations;
mod ends;
mod healed;
mod order;
mod rings;
mod story;
#[cfg(test)]
mod tests;

use super::Violation;

pub use story::{Healed, Mark, Position, Story, StreamId};

/// Returns all violations of a run.
pub fn all(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    order::check(story, &mut found);
    causes::check(story, &mut found);
    confirmations::check(story, &mut found);
    healed::check(story, &mut found);
    rings::check(story, &mut found);
    ends::check(story, &mut found);
    let (most, limit) = story.memory;
    if most > limit {
        let what = format!("{most} bytes are held: at most {limit} are allowed");
        found.push(Violation::new("memory is bounded", what));
    }
    found
}
