use std::time::{Instant, SystemTime, UNIX_EPOCH};

use carom_proto::Time;

/// A clock in nanoseconds since the Unix epoch, set once from the system's clock and advanced by
/// the monotonic clock, so that it never steps back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    anchor: Instant,
    epoch_ns: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX / 2);
        Self { anchor: Instant::now(), epoch_ns }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.epoch_ns) + self.anchor.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_starts_at_the_systems_and_never_steps_back() {
        let system = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let clock = Clock::new();
        let first = clock.now();
        assert!(first.0 >= u64::try_from(system.as_nanos()).expect("before 2554"));
        assert!(clock.now() >= first);
    }
}
