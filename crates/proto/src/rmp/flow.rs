//! Flow and congestion control (4.6): the number of bytes that may be in flight.
//!
//! The policy is [`VanJacobson`]. The sender uses only its methods, so that no other file depends
//! on how the window is computed.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::SeqNo;
use crate::transport::RttEstimator;

/// The modified window algorithm after Van Jacobson that the paper proposes.
///
/// - The timeout is that of [`RoundTrip`]: it follows the measured round trip.
/// - Slow start: each ACK widens the window by one packet, up to half of the window at the last
///   congestion. Beyond that, the window grows by one packet per window.
/// - The window stops growing while the smoothed round trip exceeds the shortest one since the last
///   timeout by more than that shortest one and by more than half of the largest timeout.
///   Additional packets would only wait in a queue.
/// - A timeout, or the first NACK of a packet, halves the window. A cache of the last three NACKed
///   packets prevents several NACKs of one loss from halving it several times.
#[derive(Debug)]
pub(super) struct VanJacobson {
    limits: Limits,
    window: usize,
    threshold: usize,
    trip: RoundTrip,
    /// Shortest sample since the last timeout. It is reset because the path may have become longer.
    shortest: Option<Duration>,
    backoff: u32,
    nacked: VecDeque<SeqNo>,
}

/// Estimate of a round-trip time and of its variance (RFC 6298).
///
/// The first timeout is the smoothed time plus four times the mean deviation, or plus the least
/// timeout if that is more. It doubles with each try. It is bounded by the largest timeout or, on a
/// longer path, by the first timeout.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    rtt: RttEstimator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) least: Duration,
    /// Maximum timeout on paths with short round trips; the paper uses 2 s.
    pub(super) largest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Packet size in bytes: the minimum window, and the step by which it grows.
    pub(super) packet_bytes: usize,
    /// Maximum window in bytes, for each started 50 ms of the shortest round trip.
    pub(super) window_bytes: usize,
    pub(super) timeouts: Timeouts,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentSizes {
    pub(super) least: usize,
    pub(super) largest: usize,
}

/// Number of NACKed packets that are remembered (4.6: "the last three").
const NACK_CACHE: usize = 3;
/// Time after which an answer is not measured. It is the longest timeout of the paper (4.6).
pub(super) const MOST_LATE: Duration = Duration::from_secs(2);
/// Round-trip time for which a window of [`Limits::window_bytes`] is wide enough.
const WINDOW_SPAN: Duration = Duration::from_millis(50);
/// Maximum factor by which a window exceeds [`Limits::window_bytes`].
pub(super) const MAX_SPANS: usize = 10;
/// Number of packets in the first window. With fewer, a megabyte over 250 ms would take three times
/// the shortest possible time.
const FIRST_WINDOW: usize = 64;

impl RoundTrip {
    pub(super) fn sample(&mut self, after: Duration) {
        self.rtt.on_sample(after);
    }

    pub(super) fn timeout(&self, bounds: Timeouts, backoff: u32) -> Duration {
        let base = self.first_timeout(bounds);
        base.saturating_mul(1 << backoff.min(16)).min(self.largest_timeout(bounds))
    }

    pub(super) fn largest_timeout(&self, bounds: Timeouts) -> Duration {
        bounds.largest.max(self.first_timeout(bounds))
    }

    pub(super) fn is_measured(&self) -> bool {
        self.rtt.smoothed().is_some()
    }

    pub(super) fn smoothed(&self) -> Duration {
        self.rtt.smoothed().unwrap_or_default()
    }

    fn first_timeout(&self, bounds: Timeouts) -> Duration {
        let margin = (4 * self.rtt.deviation()).max(bounds.least);
        self.rtt.smoothed().map_or(bounds.least, |smoothed| smoothed + margin)
    }
}

impl VanJacobson {
    /// Creates a window of 64 packets, or of the maximum width if that is less.
    pub(super) fn new(limits: Limits) -> Self {
        let window = (FIRST_WINDOW * limits.packet_bytes).min(limits.window_bytes);
        Self {
            window: window.max(limits.packet_bytes),
            threshold: usize::MAX,
            limits,
            trip: RoundTrip::default(),
            shortest: None,
            backoff: 0,
            nacked: VecDeque::new(),
        }
    }

    /// Returns the maximum window: `window_bytes` for each started 50 ms of the shortest round
    /// trip, so that a long path does not limit the throughput.
    fn widest(&self) -> usize {
        let trip = self.shortest.unwrap_or_default().as_nanos();
        let spans = trip.div_ceil(WINDOW_SPAN.as_nanos()) as usize;
        self.limits.window_bytes * spans.clamp(1, MAX_SPANS)
    }

    /// Returns `true` if packets wait in queues for longer than the shortest round trip and half of
    /// the largest timeout.
    fn has_queue(&self) -> bool {
        let shortest = self.shortest.unwrap_or_default();
        let queueing = self.trip.smoothed().saturating_sub(shortest);
        queueing > shortest.max(self.limits.timeouts.largest / 2)
    }

    fn halve(&mut self) {
        self.window = (self.window / 2).max(self.limits.packet_bytes);
        self.threshold = self.window;
    }

    /// Returns the number of bytes that may be in flight, without a place in the order.
    pub(super) fn window_bytes(&self) -> usize {
        self.window
    }

    /// Returns the time for which the sender waits for an ACK before it retransmits.
    pub(super) fn timeout(&self) -> Duration {
        self.trip.timeout(self.limits.timeouts, self.backoff)
    }

    /// Handles the first ACK of a packet that was sent `after` before it; `None` if the packet was
    /// sent more than once, because the ACK may answer either copy (Karn's rule).
    pub(super) fn on_ack(&mut self, after: Option<Duration>) {
        self.backoff = 0;
        if let Some(sample) = after {
            self.trip.sample(sample);
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

/// Returns the size of the next packet (figure 4.2); `None` if the sender has to wait for an ACK
/// (the "silly window").
///
/// `offered` bytes wait, and `available` of the `window` are free. At most half of the window goes
/// into one packet, until packets have their maximum size.
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
        let mut trip = RoundTrip::default();
        assert_eq!(
            [0, 1, 3].map(|tries| trip.timeout(timeouts, tries)),
            [20, 40, 100].map(|it| it * MS)
        );
        trip.sample(MS);
        assert_eq!(trip.timeout(timeouts, 9), 100 * MS);
        (0..100).for_each(|_| trip.sample(600 * MS));
        assert!((619 * MS..621 * MS).contains(&trip.timeout(timeouts, 0)));
        assert_eq!(trip.timeout(timeouts, 9), trip.timeout(timeouts, 0));
    }

    #[test]
    fn packet_size_is_at_most_half_the_window_or_the_maximum() {
        let size = |offered, available, window| packet_bytes(offered, available, window, 100, 1400);
        assert_eq!(size(9000, 400, 400), Some(200));
        assert_eq!(size(9000, 8000, 8000), Some(1400));
        assert_eq!(size(9000, 120, 400), Some(120), "no more than is free");
        assert_eq!(size(9000, 80, 400), None, "a silly window");
        assert_eq!(size(30, 8000, 8000), Some(30), "no more than is there");
        assert_eq!(size(9000, 100, 100), Some(100));
    }
}
