//! What must hold of every run of a bulk group. Each checker reads the [`Story`] in which the run
//! was written down.
//!
//! | promise | rules |
//! |---|---|
//! | each message once, in order, as it was sent; gaps are told exactly | `order` |
//! | who loses something was left behind, or its sender is gone | `causes` |
//! | what is confirmed is with everybody | `confirmations` |
//! | one sender, and everybody gets everything once the faults have stopped | `healed` |
//! | Theorem 1 | `rings` |
//! | who follows another sender is told the end of the stream that it left | `ends` |
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

/// Everything that does not hold of the run.
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
        let what = format!("{most} bytes were kept, {limit} are allowed");
        found.push(Violation::new("memory is bounded", what));
    }
    found
}
