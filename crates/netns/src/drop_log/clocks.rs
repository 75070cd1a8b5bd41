use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::error::Error;

/// The readings of two clocks at the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) monotonic: Duration,
    pub(super) real: Duration,
}

impl Clocks {
    pub(super) fn read() -> Result<Self, Error> {
        let read = |clock| {
            let now = clock_gettime(clock);
            now.map(Duration::from).map_err(|errno| Error::system("cannot read the clock", errno))
        };
        let before = read(ClockId::CLOCK_MONOTONIC)?;
        let real = read(ClockId::CLOCK_REALTIME)?;
        let after = read(ClockId::CLOCK_MONOTONIC)?;
        Ok(Self { monotonic: before + (after - before) / 2, real })
    }

    /// Converts an earlier time of `CLOCK_REALTIME` to one of `CLOCK_MONOTONIC`.
    pub(super) fn monotonic_at(self, real: Duration) -> Duration {
        (self.monotonic + real).saturating_sub(self.real).min(self.monotonic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_is_converted_by_the_difference_of_the_clocks() {
        let seconds = Duration::from_secs;
        let clocks = Clocks { monotonic: seconds(100), real: seconds(1_000_000) };
        assert_eq!(clocks.monotonic_at(seconds(999_995)), seconds(95));
        // The system's clock was set back in between.
        assert_eq!(clocks.monotonic_at(seconds(1_000_005)), seconds(100));
        assert_eq!(clocks.monotonic_at(seconds(1)), seconds(0));
    }
}
