//! Rules that every run of a bulk group must obey. Each rule checks the [`History`] of the run.
//!
//! | promise | rules |
//! |---|---|
//! | each message once, in order and as it was sent; gaps are reported exactly | `order` |
//! | losses only after an eviction or the end of the sender | `causes` |
//! | confirmed messages are at every receiver | `confirmations` |
//! | one sender, and everything is delivered once the faults have ended | `healed` |
//! | Theorem 1 | `rings` |
//! | a receiver that follows another sender gets the end of the stream that it left | `ends` |

mod causes;
mod confirmations;
mod ends;
mod healed;
mod order;
mod rings;
#[cfg(test)]
mod tests;

use carom_sim::scenario::Violation;

use super::history::History;
use crate::findings::Findings;

pub(crate) use self::order::position;

pub(super) fn all(history: &History) -> Vec<Violation> {
    let mut found = Findings::default();
    order::check(history, &mut found);
    causes::check(history, &mut found);
    confirmations::check(history, &mut found);
    healed::check(history, &mut found);
    rings::check(history, &mut found);
    ends::check(history, &mut found);
    history.memory.check(&mut found);
    found.0
}
