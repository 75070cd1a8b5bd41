//! Variation of intervals.

use core::time::Duration;

use crate::Rng;

/// Returns three to five quarters of `pause`, so that nodes do not act at the same time.
pub(super) fn jittered(rng: &mut Rng, pause: Duration) -> Duration {
    let quarter = u64::try_from(pause.as_nanos() / 4).unwrap_or(u64::MAX / 8);
    let random = rng.below(2 * quarter as usize + 1) as u64;
    Duration::from_nanos(3 * quarter + random)
}
