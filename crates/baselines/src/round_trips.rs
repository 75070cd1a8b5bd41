//! Retransmission timeouts from measured round trips (Jacobson 1988, Karn and Partridge 1987).

use core::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    /// Smoothed round trip and its mean deviation, in seconds.
    measured: Option<(f64, f64)>,
    doublings: u32,
}

/// The bounds of a timeout that follows the round trips and doubles with each retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout before any round trip is measured, between `least` and `most`.
    pub initial: Duration,
    /// Minimum timeout, above 0.
    pub least: Duration,
    /// Maximum timeout.
    pub most: Duration,
}

impl Timeouts {
    pub(crate) const fn from_least(least: Duration, most: Duration) -> Self {
        Self { initial: least, least, most }
    }

    pub(crate) fn are_valid(&self) -> bool {
        !self.least.is_zero() && (self.least..=self.most).contains(&self.initial)
    }
}

/// Maximum number of doublings, so that the factor fits in 32 bits.
const MAX_DOUBLINGS: u32 = 20;

impl RoundTrips {
    pub(crate) fn measure(&mut self, round_trip: Duration) {
        self.doublings = 0;
        let newest = round_trip.as_secs_f64();
        self.measured = Some(match self.measured {
            None => (newest, newest / 2.0),
            Some((smoothed, deviation)) => {
                let error = newest - smoothed;
                (smoothed + error / 8.0, deviation + (error.abs() - deviation) / 4.0)
            }
        });
    }

    /// Records the `times`th retransmission of a message.
    ///
    /// A retransmitted message yields no round trip, so the next messages keep the backoff until a
    /// round trip is measured. Without it, a timeout below the round trip would retransmit
    /// everything and never measure anything (Karn).
    pub(crate) fn back_off(&mut self, times: u32) {
        self.doublings = self.doublings.max(times);
    }

    pub(crate) fn timeout(&self, timeouts: &Timeouts) -> Duration {
        self.timeout_after(self.doublings, timeouts)
    }

    pub(crate) fn timeout_after(&self, retransmissions: u32, timeouts: &Timeouts) -> Duration {
        let Timeouts { initial, least, most } = *timeouts;
        let once = self.measured.map_or(initial, |(smoothed, deviation)| {
            Duration::from_secs_f64(smoothed + 4.0 * deviation).clamp(least, most)
        });
        once.saturating_mul(1 << retransmissions.min(MAX_DOUBLINGS)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trips_and_their_spread() {
        let millis = Duration::from_millis;
        let timeouts = Timeouts { initial: millis(100), least: millis(1), most: millis(2000) };
        let mut round_trips = RoundTrips::default();
        assert_eq!(round_trips.timeout(&timeouts), timeouts.initial);
        round_trips.back_off(2);
        round_trips.back_off(1);
        assert_eq!(round_trips.timeout(&timeouts), timeouts.initial * 4);
        round_trips.measure(millis(40));
        assert_eq!(round_trips.timeout(&timeouts), millis(120));
        assert_eq!(round_trips.timeout_after(1, &timeouts), millis(240));
        assert_eq!(round_trips.timeout_after(u32::MAX, &timeouts), timeouts.most);
        (0..100).for_each(|_| round_trips.measure(millis(40)));
        assert!(round_trips.timeout(&timeouts) < millis(41));
        (0..100).for_each(|at| round_trips.measure(millis(20 + at % 2 * 40)));
        assert!(round_trips.timeout(&timeouts) > millis(100));
        (0..100).for_each(|_| round_trips.measure(Duration::from_secs(60)));
        assert_eq!(round_trips.timeout(&timeouts), timeouts.most);
    }
}
