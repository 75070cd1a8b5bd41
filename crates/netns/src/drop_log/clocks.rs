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
        Self::closest(|| {
            let before = now(ClockId::CLOCK_MONOTONIC)?;
            let real = now(ClockId::CLOCK_REALTIME)?;
            Ok([before, real, now(ClockId::CLOCK_MONOTONIC)?])
        })
    }

    /// Returns the closest of several readings of the monotonic clock, the real one, and the
    /// monotonic one again. A thread that is preempted between the readings makes the others wrong
    /// by up to its pause.
    fn closest(mut sample: impl FnMut() -> Result<[Duration; 3], Error>) -> Result<Self, Error> {
        let gap = |[before, _, after]: [Duration; 3]| after - before;
        let mut best = sample()?;
        for _ in 1..SAMPLES {
            let next = sample()?;
            if gap(next) < gap(best) {
                best = next;
            }
        }
        let [before, real, after] = best;
        Ok(Self { monotonic: before + (after - before) / 2, real })
    }

    /// Converts an earlier time of `CLOCK_REALTIME` to one of `CLOCK_MONOTONIC`.
    pub(super) fn monotonic_at(self, real: Duration) -> Duration {
        (self.monotonic + real).saturating_sub(self.real).min(self.monotonic)
    }
}

fn now(clock: ClockId) -> Result<Duration, Error> {
    let now = clock_gettime(clock).map(Duration::from);
    now.map_err(|errno| Error::system("cannot read the clock", errno))
}

/// A thread is rarely preempted in each of these, which take less than 1 µs.
const SAMPLES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_between_the_readings_does_not_move_the_clocks() {
        let micros = Duration::from_micros;
        // By the real clock, which is 500 µs ahead, the thread pauses before and after a reading.
        let mut samples = [[10, 9_510, 9_011], [9_020, 9_521, 9_022], [9_030, 9_531, 12_000]]
            .map(|sample| sample.map(micros))
            .into_iter()
            .cycle();
        let clocks = Clocks::closest(|| Ok(samples.next().expect("it is a cycle")));
        let Clocks { monotonic, real } = clocks.expect("no reading fails");
        assert_eq!((monotonic, real), (micros(9_021), micros(9_521)));
    }

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
