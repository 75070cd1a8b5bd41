//! The clocks of a benchmark.

use nix::sys::resource::{UsageWho, getrusage};
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

/// Returns the processor time of this process in microseconds: user and system, all threads.
pub fn cpu_us() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may query its own usage");
    let total = usage.user_time() + usage.system_time();
    total.num_microseconds().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_with_work() {
        let (time, cpu) = (monotonic_ns(), cpu_us());
        let mut sum = 0_u64;
        while cpu_us() == cpu {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        assert!(monotonic_ns() > time);
    }
}
