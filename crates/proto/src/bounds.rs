//! Bounds that the settings of all engines have.

use core::time::Duration;

/// The shortest time of a setting that is not zero: shorter pauses are none.
const SHORTEST: Duration = Duration::from_micros(1);
/// The longest time of a setting: what is computed from it never overflows.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Returns the name of the first of these settings that is neither zero nor from 1 us to 24 h.
pub(crate) fn out_of_bounds(times: &[(&'static str, Duration)]) -> Option<&'static str> {
    let is_out = |time: Duration| time > LONGEST || !time.is_zero() && time < SHORTEST;
    times.iter().find(|(_, time)| is_out(*time)).map(|(name, _)| *name)
}
