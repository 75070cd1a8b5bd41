use core::time::Duration;

const SHORTEST: Duration = Duration::from_micros(1);
/// Maximum of a time setting. Times computed from it never overflow.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Returns the name of the first setting that is neither zero nor between 1 us and 24 h.
pub(crate) fn out_of_bounds(times: &[(&'static str, Duration)]) -> Option<&'static str> {
    let is_out = |time: Duration| time > LONGEST || !time.is_zero() && time < SHORTEST;
    times.iter().find(|(_, time)| is_out(*time)).map(|(name, _)| *name)
}

pub(crate) fn check<E: Copy>(rules: &[(bool, E)]) -> Result<(), E> {
    let broken = rules.iter().find(|(is_broken, _)| *is_broken);
    broken.map_or(Ok(()), |(_, error)| Err(*error))
}
