//! The timeout, from the round trips that were measured (Jacobson 1988, Karn and Partridge 1987).

use core::time::Duration;

use super::config::Config;

/// The timeout, from the round trips that were measured.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    /// Smoothed round trip and its mean deviation, seconds.
    measured: Option<(f64, f64)>,
    /// How often the timeout of what is sent next is doubled.
    doublings: u32,
}

/// More would be longer than any timeout may be.
const MAX_DOUBLINGS: u32 = 20;

impl RoundTrips {
    pub(super) fn measure(&mut self, round_trip: Duration) {
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

    /// A message was sent again for the `times`th time. What was sent again measures nothing, so
    /// what follows waits as long until a round trip is measured: a timeout below the round trip
    /// would have everything sent again, and nothing measured, for ever (Karn).
    pub(super) fn back_off(&mut self, times: u32) {
        self.doublings = self.doublings.max(times);
    }

    /// How long a new message waits.
    pub(super) fn timeout(&self, config: &Config) -> Duration {
        self.timeout_after(self.doublings, config)
    }

    /// How long a message waits that was sent again so many times.
    pub(super) fn timeout_after(&self, retransmissions: u32, config: &Config) -> Duration {
        let (least, most) = config.timeouts;
        let once = self.measured.map_or(config.initial_timeout, |(smoothed, deviation)| {
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
        let config = Config::default();
        let millis = Duration::from_millis;
        let mut round_trips = RoundTrips::default();
        assert_eq!(round_trips.timeout(&config), config.initial_timeout);
        round_trips.back_off(2);
        round_trips.back_off(1);
        assert_eq!(round_trips.timeout(&config), config.initial_timeout * 4);
        round_trips.measure(millis(40));
        assert_eq!(round_trips.timeout(&config), millis(120));
        assert_eq!(round_trips.timeout_after(1, &config), millis(240));
        assert_eq!(round_trips.timeout_after(u32::MAX, &config), config.timeouts.1);
        (0..100).for_each(|_| round_trips.measure(millis(40)));
        assert!(round_trips.timeout(&config) < millis(41));
        (0..100).for_each(|at| round_trips.measure(millis(20 + at % 2 * 40)));
        assert!(round_trips.timeout(&config) > millis(100));
        (0..100).for_each(|_| round_trips.measure(Duration::from_secs(60)));
        assert_eq!(round_trips.timeout(&config), config.timeouts.1);
    }
}
