//! The timeout, from the round trips that were measured (Jacobson 1988).

use core::time::Duration;

use super::config::Config;

/// The timeout, from the round trips that were measured.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    /// Smoothed round trip and its mean deviation, seconds.
    measured: Option<(f64, f64)>,
}

impl RoundTrips {
    pub(super) fn measure(&mut self, round_trip: Duration) {
        let newest = round_trip.as_secs_f64();
        self.measured = Some(match self.measured {
            None => (newest, newest / 2.0),
            Some((smoothed, deviation)) => {
                let error = newest - smoothed;
                (smoothed + error / 8.0, deviation + (error.abs() - deviation) / 4.0)
            }
        });
    }

    pub(super) fn timeout(&self, config: &Config) -> Duration {
        let (least, most) = config.timeouts;
        self.measured.map_or(config.initial_timeout, |(smoothed, deviation)| {
            Duration::from_secs_f64(smoothed + 4.0 * deviation).clamp(least, most)
        })
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
        round_trips.measure(millis(40));
        assert_eq!(round_trips.timeout(&config), millis(120));
        (0..100).for_each(|_| round_trips.measure(millis(40)));
        assert!(round_trips.timeout(&config) < millis(41));
        (0..100).for_each(|at| round_trips.measure(millis(20 + at % 2 * 40)));
        assert!(round_trips.timeout(&config) > millis(100));
        (0..100).for_each(|_| round_trips.measure(Duration::from_secs(60)));
        assert_eq!(round_trips.timeout(&config), config.timeouts.1);
    }
}
