//! The clocks of a benchmark.

use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};

/// Returns `CLOCK_MONOTONIC` in nanoseconds. All processes of a machine share this clock, also
/// across network namespaces.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux and all BSDs have this clock");
    now.num_nanoseconds().try_into().unwrap_or_default()
}

/// Returns the nanoseconds since `time`, a time of `CLOCK_REALTIME`. `None` if it is in the future.
#[cfg(all(feature = "lab", target_os = "linux"))]
pub(crate) fn ns_since(time: nix::sys::time::TimeSpec) -> Option<u64> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok()?;
    (now - time).num_nanoseconds().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances() {
        let start = monotonic_ns();
        while monotonic_ns() == start {
            std::hint::spin_loop();
        }
        assert!(monotonic_ns() > start);
    }
}
