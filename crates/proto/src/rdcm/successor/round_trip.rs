//! Round-trip time of acknowledgments, including all delays on the way.

use core::time::Duration;

use crate::Time;
use crate::transport::RttEstimator;

/// Time from a packet to its first acknowledgment. One packet is measured at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    rtt: RttEstimator,
    probe: Option<(u64, Time)>,
}

impl RoundTrip {
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.smoothed().map_or(Duration::ZERO, |smoothed| smoothed + 4 * self.rtt.deviation())
    }

    pub(super) fn on_sent(&mut self, now: Time, number: u64) {
        self.probe.get_or_insert((number, now));
    }

    pub(super) fn on_known(&mut self, now: Time, known_to: u64) {
        if let Some((_, sent_at)) = self.probe.take_if(|(number, _)| *number < known_to) {
            self.rtt.on_sample(now.since(sent_at));
        }
    }

    /// Discards the measurement of a packet that was acknowledged for a reason other than its
    /// arrival.
    pub(super) fn forget_known(&mut self, known_to: u64) {
        self.probe.take_if(|(number, _)| *number < known_to);
    }

    /// Discards the measurement, because the next acknowledgment would not measure the path.
    pub(crate) fn forget_probe(&mut self) {
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_packet_at_a_time_is_measured_until_all_know_of_it() {
        let mut round_trip = RoundTrip::default();
        round_trip.on_sent(Time::ZERO, 7);
        round_trip.on_sent(Time(MS), 8);
        round_trip.on_known(Time(2 * MS), 7);
        assert_eq!(round_trip.smoothed(), None, "packet 7 is not known yet");
        round_trip.on_known(Time(10 * MS), 8);
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(10)));
        round_trip.on_known(Time(20 * MS), 9);
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(10)), "8 was not measured");
        round_trip.on_sent(Time(20 * MS), 9);
        round_trip.forget_probe();
        round_trip.on_known(Time(90 * MS), 10);
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(10)));
        round_trip.on_sent(Time(90 * MS), 10);
        round_trip.forget_known(10);
        round_trip.forget_known(11);
        round_trip.on_known(Time(190 * MS), 11);
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(10)), "10 was repaired");
    }

    #[test]
    fn the_timeout_follows_a_queue_that_builds_up() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.timeout(), Duration::ZERO);
        let mut now = Time::ZERO;
        for number in 0..60 {
            let takes = Duration::from_millis(1 + number.min(40));
            assert!(number < 2 || round_trip.timeout() > takes, "packet {number}");
            round_trip.on_sent(now, number);
            now = now + takes;
            round_trip.on_known(now, number + 1);
        }
        assert!(round_trip.timeout() < Duration::from_millis(60));
    }
}
