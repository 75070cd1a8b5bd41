//! Pacer of the sender's multicast, which spreads the packets of a window over a round trip.

use core::time::Duration;

use crate::Time;

/// A token bucket. Its rate is fixed, or follows the window and the round-trip time.
#[derive(Debug)]
pub(super) struct Pacer {
    burst: f64,
    /// Bytes that may be sent now. Negative after a burst that exceeds the allowance.
    tokens: f64,
    filled_at: Time,
    due: Option<Time>,
    most: Option<f64>,
    slow_start: bool,
    /// `true` from the time at which the bucket is empty until it holds enough tokens for a batch.
    is_filling: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) window: u64,
    pub(super) round_trip: Duration,
}

/// Factor by which the pacer is faster than the window requires, so that the window is the limit.
const GAIN: f64 = 1.25;
const START_GAIN: f64 = 2.0;
/// Resolution of timers.
const LEAST_WAIT: Duration = Duration::from_micros(20);
/// Maximum delay for which the pacer compensates. A busy thread may be late by milliseconds.
const MADE_UP: Duration = Duration::from_millis(8);
/// Maximum time for which packets are batched into one system call.
const BATCH: Duration = Duration::from_micros(500);

impl Pacer {
    pub(super) fn new(now: Time, burst: usize, most: Option<u64>) -> Self {
        let burst = burst as f64;
        let most = most.map(|most| most as f64);
        let (tokens, filled_at, due) = (burst, now, None);
        Self { burst, tokens, filled_at, due, most, slow_start: true, is_filling: false }
    }

    fn rate(&self, span: Option<Span>) -> Option<f64> {
        let gain = if self.slow_start { START_GAIN } else { GAIN };
        let paced = span.map(|Span { window, round_trip }| {
            gain * window as f64 / round_trip.max(LEAST_WAIT).as_secs_f64()
        });
        match (paced, self.most) {
            (Some(paced), Some(most)) => Some(paced.min(most)),
            (paced, most) => paced.or(most),
        }
    }

    pub(super) fn next_at(&mut self, now: Time, span: Option<Span>) -> Time {
        let Some(rate) = self.rate(span) else { return now };
        let passed = now.since(self.filled_at).as_secs_f64();
        let late = self.due.take().map_or(Duration::ZERO, |due| now.since(due)).min(MADE_UP);
        let room = (self.burst + late.as_secs_f64() * rate).max(self.tokens);
        self.tokens = (self.tokens + passed * rate).min(room);
        self.filled_at = now;
        let batch = (self.burst / 2.0).min(rate * BATCH.as_secs_f64()).max(1.0);
        let enough = if self.is_filling { batch } else { 0.0 };
        self.is_filling = self.tokens <= enough;
        if !self.is_filling {
            return now;
        }
        let wait = Duration::from_secs_f64((batch - self.tokens).max(1.0) / rate);
        let due = now + wait.max(LEAST_WAIT);
        self.due = Some(due);
        due
    }

    /// Pauses until there is a packet to send. The pacer does not compensate for this time.
    pub(super) fn rest(&mut self) {
        self.due = None;
    }

    pub(super) fn on_sent(&mut self, bytes: usize) {
        // Bytes that were sent before the rate was limited are not charged later.
        self.tokens = (self.tokens - bytes as f64).max(-self.burst);
    }

    pub(super) fn on_reduction(&mut self) {
        self.slow_start = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pacer: &mut Pacer, span: Option<Span>) -> usize {
        let end = Time::ZERO + Duration::from_secs(1);
        let (mut now, mut bytes) = (Time::ZERO, 0);
        while now < end {
            match pacer.next_at(now, span) {
                at if at <= now => {
                    pacer.on_sent(1000);
                    bytes += 1000;
                }
                at => now = at,
            }
        }
        bytes
    }

    #[test]
    fn a_set_rate_is_kept() {
        let mut pacer = Pacer::new(Time::ZERO, 48_000, Some(10_000_000));
        let bytes = sent(&mut pacer, None);
        assert!((9_900_000..10_100_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_late_call_is_made_up_for_and_idle_time_is_not() {
        let sent_after = |late: Duration, rests: bool| {
            let mut pacer = Pacer::new(Time::ZERO, 50_000, Some(100_000_000));
            let (mut now, mut bytes) = (Time::ZERO, 0);
            for _ in 0..100 {
                while pacer.next_at(now, None) <= now {
                    pacer.on_sent(1000);
                    bytes += 1000;
                }
                if rests {
                    pacer.rest();
                }
                now = pacer.due.unwrap_or(now) + late;
            }
            bytes as f64 / now.since(Time::ZERO).as_secs_f64()
        };
        for late_us in [0, 100, 2000, 7000] {
            let rate = sent_after(Duration::from_micros(late_us), false);
            assert!((0.98..1.03).contains(&(rate / 1e8)), "{late_us} us late: {rate} bytes in 1 s");
        }
        let rested = sent_after(Duration::from_millis(7), true);
        assert!(rested < 1e8 / 10.0, "{rested} bytes in 1 s");
    }

    #[test]
    fn a_window_is_spread_over_a_round_trip() {
        let mut pacer = Pacer::new(Time::ZERO, 10_000, None);
        pacer.on_reduction();
        let span = Span { window: 100_000, round_trip: Duration::from_millis(10) };
        let bytes = sent(&mut pacer, Some(span));
        assert!((12_400_000..12_700_000).contains(&bytes), "{bytes}: 1.25 windows in 10 ms");
    }

    #[test]
    fn packets_leave_together_however_often_it_is_called() {
        let mut pacer = Pacer::new(Time::ZERO, 50_000, Some(60_000_000));
        let (mut batches, mut bytes) = (0, 0);
        for us in 0..100_000 {
            let now = Time(us * 1000);
            batches += usize::from(pacer.next_at(now, None) <= now);
            while pacer.next_at(now, None) <= now {
                pacer.on_sent(1000);
                bytes += 1000;
            }
        }
        assert!((5_900_000..6_100_000).contains(&bytes), "{bytes} in 100 ms");
        assert!(bytes / batches > 20_000, "{batches} batches");
    }
}
