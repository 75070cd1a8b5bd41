//! Flow and congestion control (4.6): the number of bytes that may be in flight.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::SeqNo;
use crate::transport::RttEstimator;

/// The window algorithm that the paper proposes, after Van Jacobson.
///
/// In slow start, each ACK widens the window by one packet, up to half of the window at the last
/// congestion. Beyond that, the window grows by one packet per window. It does not grow while
/// packets wait in queues. A timeout, or the first NACK of a packet, halves it.
#[derive(Debug)]
pub(super) struct VanJacobson {
    limits: Limits,
    window: usize,
    threshold: usize,
    trip: RttEstimator,
    /// Shortest round-trip sample since the last timeout. The path may be longer after a timeout.
    shortest: Option<Duration>,
    backoff: u32,
    nacked: VecDeque<SeqNo>,
}

/// Bounds of the timeouts. The first timeout is the smoothed round-trip time plus the least timeout
/// or four times the mean deviation, whichever is larger (RFC 6298). It doubles with each try, up
/// to the largest timeout. A first timeout that is larger remains as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) least: Duration,
    /// Largest timeout on paths with a short round-trip time; the paper uses 2 s.
    pub(super) largest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) packet_bytes: usize,
    /// Maximum window for each 50 ms, or part thereof, of the shortest round-trip time.
    pub(super) window_bytes: usize,
    pub(super) timeouts: Timeouts,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentSizes {
    pub(super) least: usize,
    pub(super) largest: usize,
}

/// Number of packets whose NACKs are remembered (section 4.6: "the last three").
const NACK_CACHE: usize = 3;
/// Maximum time to an answer that counts as a measurement: the longest timeout of the paper (4.6).
pub(super) const MOST_LATE: Duration = Duration::from_secs(2);
/// Longest round-trip time for which a window of [`Limits::window_bytes`] is wide enough.
const WINDOW_SPAN: Duration = Duration::from_millis(50);
pub(super) const MAX_SPANS: usize = 10;
/// Initial window, in packets. With a smaller window, a megabyte over a path of 250 ms would take
/// three times the shortest possible time.
const FIRST_WINDOW: usize = 64;

impl Timeouts {
    pub(super) fn timeout(self, trip: &RttEstimator, backoff: u32) -> Duration {
        let base = self.first_timeout(trip);
        base.saturating_mul(1 << backoff.min(16)).min(self.largest_timeout(trip))
    }

    pub(super) fn largest_timeout(self, trip: &RttEstimator) -> Duration {
        self.largest.max(self.first_timeout(trip))
    }

    fn first_timeout(self, trip: &RttEstimator) -> Duration {
        let margin = (4 * trip.deviation()).max(self.least);
        trip.smoothed().map_or(self.least, |smoothed| smoothed + margin)
    }
}

impl VanJacobson {
    pub(super) fn new(limits: Limits) -> Self {
        let window = (FIRST_WINDOW * limits.packet_bytes).min(limits.window_bytes);
        Self {
            window: window.max(limits.packet_bytes),
            threshold: usize::MAX,
            limits,
            trip: RttEstimator::default(),
            shortest: None,
            backoff: 0,
            nacked: VecDeque::new(),
        }
    }

    /// Returns the maximum window, which grows with the round-trip time of a long path.
    fn widest(&self) -> usize {
        let trip = self.shortest.unwrap_or_default().as_nanos();
        let spans = trip.div_ceil(WINDOW_SPAN.as_nanos()) as usize;
        self.limits.window_bytes * spans.clamp(1, MAX_SPANS)
    }

    fn has_queue(&self) -> bool {
        let shortest = self.shortest.unwrap_or_default();
        let queueing = self.trip.smoothed().unwrap_or_default().saturating_sub(shortest);
        queueing > shortest.max(self.limits.timeouts.largest / 2)
    }

    fn halve(&mut self) {
        self.window = (self.window / 2).max(self.limits.packet_bytes);
        self.threshold = self.window;
    }

    pub(super) fn window_bytes(&self) -> usize {
        self.window
    }

    pub(super) fn timeout(&self) -> Duration {
        self.limits.timeouts.timeout(&self.trip, self.backoff)
    }

    /// Adjusts the window and the timeouts to an ACK. `after` is the time since the packet was
    /// sent, or `None` if the ACK may answer one of several copies (Karn's rule).
    pub(super) fn on_ack(&mut self, after: Option<Duration>) {
        self.backoff = 0;
        if let Some(sample) = after {
            self.trip.on_sample(sample);
            self.shortest = Some(self.shortest.map_or(sample, |shortest| shortest.min(sample)));
        }
        if self.has_queue() {
            return;
        }
        let packet = self.limits.packet_bytes;
        let growth = match self.window < self.threshold {
            true => packet,
            false => (packet * packet / self.window).max(1),
        };
        self.window = (self.window + growth).min(self.widest());
    }

    pub(super) fn on_nack(&mut self, seqno: SeqNo) {
        if self.nacked.contains(&seqno) {
            return;
        }
        if self.nacked.len() == NACK_CACHE {
            self.nacked.pop_front();
        }
        self.nacked.push_back(seqno);
        self.halve();
    }

    pub(super) fn on_timeout(&mut self) {
        self.backoff += 1;
        self.shortest = None;
        self.halve();
    }
}

/// Returns the size of the next packet (figure 4.2), or `None` if the sender must wait for an ACK.
/// It waits to avoid a "silly window". A packet takes at most half of the window, or the minimum
/// size if that is larger.
pub(super) fn packet_bytes(
    offered: usize,
    available: usize,
    window: usize,
    least: usize,
    largest: usize,
) -> Option<usize> {
    if available < least && available < window {
        return None;
    }
    let half = offered.min(window / 2);
    Some(half.max(least).min(available).min(largest).min(offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        packet_bytes: 1000,
        window_bytes: 128_000,
        timeouts: Timeouts { least: Duration::from_millis(10), largest: Duration::from_secs(2) },
    };
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn window_grows_by_a_packet_per_ack_up_to_last_congestion() {
        let mut flow = VanJacobson::new(LIMITS);
        assert_eq!(flow.window_bytes(), 64_000, "the first window");
        (0..8).for_each(|_| flow.on_ack(Some(MS)));
        assert_eq!(flow.window_bytes(), 72_000);
        flow.on_timeout();
        assert_eq!(flow.window_bytes(), 36_000);
        (0..20).for_each(|_| flow.on_ack(Some(MS)));
        assert!((36_500..=36_600).contains(&flow.window_bytes()), "{}", flow.window_bytes());
    }

    #[test]
    fn window_stops_growing_when_queues_take_half_the_timeout() {
        let mut flow = VanJacobson::new(LIMITS);
        flow.on_ack(Some(MS));
        (0..40).for_each(|_| flow.on_ack(Some(1500 * MS)));
        let window = flow.window_bytes();
        (0..40).for_each(|_| flow.on_ack(Some(1500 * MS)));
        assert_eq!(flow.window_bytes(), window);
        (0..40).for_each(|_| flow.on_ack(Some(MS)));
        assert!(flow.window_bytes() > window, "the queues are empty again");
    }

    #[test]
    fn window_of_a_long_path_grows_by_its_round_trip() {
        let widest = |trip: Duration| {
            let mut flow = VanJacobson::new(LIMITS);
            (0..2000).for_each(|_| flow.on_ack(Some(trip)));
            flow.window_bytes()
        };
        assert_eq!([MS, 50 * MS, 200 * MS].map(widest), [128_000, 128_000, 512_000]);
        assert_eq!([500 * MS, 5000 * MS].map(widest), [1_280_000, 1_280_000]);
    }

    #[test]
    fn several_nacks_of_one_packet_halve_the_window_once() {
        let mut flow = VanJacobson::new(LIMITS);
        assert_eq!(flow.window_bytes(), 64_000);
        (0..4).for_each(|_| flow.on_nack(SeqNo(7)));
        assert_eq!(flow.window_bytes(), 32_000);
        [8, 9, 10].map(SeqNo).into_iter().for_each(|seqno| flow.on_nack(seqno));
        assert_eq!(flow.window_bytes(), 4000);
        flow.on_nack(SeqNo(7));
        assert_eq!(flow.window_bytes(), 2000, "the cache holds three, and 7 is not among them");
    }

    #[test]
    fn timeouts_follow_the_round_trip_and_back_off_to_two_seconds() {
        let mut flow = VanJacobson::new(LIMITS);
        assert_eq!(flow.timeout(), 10 * MS);
        (0..100).for_each(|_| flow.on_ack(Some(40 * MS)));
        assert!((50 * MS..51 * MS).contains(&flow.timeout()), "{:?}", flow.timeout());
        let before = flow.timeout();
        flow.on_timeout();
        assert_eq!(flow.timeout(), before * 2);
        (0..20).for_each(|_| flow.on_timeout());
        assert_eq!(flow.timeout(), Duration::from_secs(2));
        flow.on_ack(None);
        assert_eq!(flow.timeout(), before, "an ACK ends the back-off");
    }

    #[test]
    fn timeouts_of_a_long_path_may_be_longer_than_the_largest() {
        let timeouts = Timeouts { least: 20 * MS, largest: 100 * MS };
        let mut trip = RttEstimator::default();
        let unmeasured = [0, 1, 3].map(|tries| timeouts.timeout(&trip, tries));
        assert_eq!(unmeasured, [20, 40, 100].map(|it| it * MS));
        trip.on_sample(MS);
        assert_eq!(timeouts.timeout(&trip, 9), 100 * MS);
        (0..100).for_each(|_| trip.on_sample(600 * MS));
        assert!((619 * MS..621 * MS).contains(&timeouts.timeout(&trip, 0)));
        assert_eq!(timeouts.timeout(&trip, 9), timeouts.timeout(&trip, 0));
    }

    #[test]
    fn packet_size_is_at_most_half_the_window_or_the_maximum() {
        let size = |offered, available, window| packet_bytes(offered, available, window, 100, 1400);
        assert_eq!(size(9000, 400, 400), Some(200));
        assert_eq!(size(9000, 8000, 8000), Some(1400));
        assert_eq!(size(9000, 120, 400), Some(120), "no more than is free");
        assert_eq!(size(9000, 80, 400), None, "a silly window");
        assert_eq!(size(30, 8000, 8000), Some(30), "no more than is offered");
        assert_eq!(size(9000, 100, 100), Some(100));
    }
}
