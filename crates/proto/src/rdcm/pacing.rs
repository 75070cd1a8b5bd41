//! How fast the sender multicasts within its window: in bursts that the path carries, one round
//! trip's packets spread over the round trip.

use core::time::Duration;

use crate::Time;

/// A token bucket whose rate follows the window and the round trip, or is set.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Bytes that may be sent at once.
    burst: f64,
    /// Bytes that may be sent now; below zero a burst is still being paid for.
    tokens: f64,
    filled_at: Time,
    /// Bytes in a second that are never exceeded.
    most: Option<f64>,
    /// The smoothed time from a packet to its first acknowledgement.
    round_trip: Option<Duration>,
    /// The packet whose round trip is measured, and when it was sent.
    probe: Option<(u64, Time)>,
    slow_start: bool,
}

/// Faster than the window asks for, so that pacing never is what holds the window up.
const GAIN: f64 = 1.25;
/// As long as the window doubles in each round trip.
const START_GAIN: f64 = 2.0;
/// The part of a sample in the smoothed round trip, as TCP's (RFC 6298).
const SAMPLE_PART: u32 = 8;
/// A timer is not kept more exactly than so.
const LEAST_WAIT: Duration = Duration::from_micros(20);

impl Pacing {
    /// Bursts of `burst` bytes, and at most `most` bytes in a second.
    pub(super) fn new(now: Time, burst: usize, most: Option<u64>) -> Self {
        let burst = burst as f64;
        let most = most.map(|most| most as f64);
        let (round_trip, probe) = (None, None);
        Self { burst, tokens: burst, filled_at: now, most, round_trip, probe, slow_start: true }
    }

    /// Bytes in a second with a window of so many bytes; `None` if nothing bounds them.
    fn rate(&self, window: Option<u64>) -> Option<f64> {
        let gain = if self.slow_start { START_GAIN } else { GAIN };
        let paced = window.zip(self.round_trip).map(|(window, round_trip)| {
            gain * window as f64 / round_trip.max(LEAST_WAIT).as_secs_f64()
        });
        match (paced, self.most) {
            (Some(paced), Some(most)) => Some(paced.min(most)),
            (paced, most) => paced.or(most),
        }
    }

    /// When the next packet may be sent, with a window of so many bytes, or none.
    pub(super) fn next_at(&mut self, now: Time, window: Option<u64>) -> Time {
        let Some(rate) = self.rate(window) else { return now };
        let passed = now.since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(self.burst);
        self.filled_at = now;
        if self.tokens > 0.0 {
            return now;
        }
        // A whole burst at once: that is one system call.
        let wait = Duration::from_secs_f64((self.burst / 2.0 - self.tokens).max(1.0) / rate);
        now + wait.max(LEAST_WAIT)
    }

    /// A packet of so many bytes goes out.
    pub(super) fn on_sent(&mut self, now: Time, number: u64, bytes: usize) {
        // What went out before anything bounded the rate is not paid for later.
        self.tokens = (self.tokens - bytes as f64).max(-self.burst);
        self.probe.get_or_insert((number, now));
    }

    /// Packets below `known_to` are acknowledged or known to be missing at those who are furthest
    /// behind.
    pub(super) fn on_known(&mut self, now: Time, known_to: u64) {
        let Some((number, sent_at)) = self.probe else { return };
        if known_to <= number {
            return;
        }
        self.probe = None;
        let sample = now.since(sent_at);
        self.round_trip = Some(match self.round_trip {
            None => sample,
            Some(smoothed) => (smoothed * (SAMPLE_PART - 1) + sample) / SAMPLE_PART,
        });
    }

    /// Nobody acknowledges: whoever comes later does not tell how long the way is.
    pub(super) fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// The window has become smaller: it does not double any more.
    pub(super) fn on_reduction(&mut self) {
        self.slow_start = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are sent in a second of packets of 1000 bytes.
    fn sent(pacing: &mut Pacing, window: Option<u64>) -> usize {
        let end = Time::ZERO + Duration::from_secs(1);
        let (mut now, mut bytes) = (Time::ZERO, 0);
        while now < end {
            match pacing.next_at(now, window) {
                at if at <= now => {
                    pacing.on_sent(now, 0, 1000);
                    bytes += 1000;
                }
                at => now = at,
            }
        }
        bytes
    }

    #[test]
    fn a_set_rate_is_kept() {
        let mut pacing = Pacing::new(Time::ZERO, 48_000, Some(10_000_000));
        let bytes = sent(&mut pacing, None);
        assert!((9_900_000..10_100_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_window_is_spread_over_a_round_trip() {
        let mut pacing = Pacing::new(Time::ZERO, 10_000, None);
        pacing.on_sent(Time::ZERO, 7, 1000);
        pacing.on_known(Time(1_000_000), 7);
        assert_eq!(pacing.round_trip, None, "packet 7 is not known yet");
        pacing.on_known(Time(10_000_000), 8);
        pacing.on_reduction();
        pacing.probe = Some((0, Time::ZERO));
        let bytes = sent(&mut pacing, Some(100_000));
        assert!((12_400_000..12_700_000).contains(&bytes), "{bytes}: 1.25 windows in 10 ms");
    }
}
