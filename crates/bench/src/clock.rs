//! The clocks of a benchmark.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};

/// Returns `CLOCK_MONOTONIC` in nanoseconds. All processes of a machine share this clock, also
/// across network namespaces.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Returns the time of day minus [`monotonic_ns`], in nanoseconds. It converts the time stamps of
/// packet logs.
pub fn realtime_offset_ns() -> u64 {
    // The smallest of a few differences has the shortest pause between the two readings.
    let differences = (0..8).map(|_| {
        let monotonic = monotonic_ns();
        read(ClockId::CLOCK_REALTIME).saturating_sub(monotonic)
    });
    differences.min().unwrap_or_default()
}

/// Returns the processor time of this process in microseconds: user and system, all threads.
pub fn cpu_us() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may query its own usage");
    let total = usage.user_time() + usage.system_time();
    total.num_microseconds().try_into().unwrap_or_default()
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("Linux and all BSDs have this clock");
    now.num_nanoseconds().try_into().unwrap_or_default()
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

    #[test]
    fn offset_converts_to_the_time_of_day() {
        let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later");
        let converted = u128::from(monotonic_ns() + realtime_offset_ns());
        let difference = converted.abs_diff(since_1970.as_nanos());
        assert!(difference < 10_000_000_000, "{difference} ns");
    }
}
