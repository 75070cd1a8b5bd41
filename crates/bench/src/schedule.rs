use std::thread;
use std::time::{Duration, Instant};

/// The times at which a sender sends, at a fixed rate from its start.
///
/// A sender that is late sends at once and does not shift the later messages. Latencies begin at
/// the send call, so that a pause of the sender itself is not part of them.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    /// Messages per second. 0 means as fast as possible.
    rate: f64,
}

impl Schedule {
    /// Creates a schedule that starts at `start`. The rate is in messages per second; `None` means
    /// as fast as possible.
    pub fn new(start: Instant, rate: Option<f64>) -> Self {
        Self { start, rate: rate.unwrap_or(0.0) }
    }

    /// Returns the time at which message `number`, counted from 0, is due.
    pub fn due(&self, number: u32) -> Instant {
        self.start + offset(self.rate, number)
    }

    /// Returns the time from `now` until message `number` is due, or `None` if it is due.
    pub fn left(&self, number: u32, now: Instant) -> Option<Duration> {
        self.due(number).checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Sleeps until message `number` is due.
    pub fn wait(&self, number: u32) {
        if let Some(left) = self.left(number, Instant::now()) {
            thread::sleep(left);
        }
    }
}

/// Returns the time from the start until message `number` is due.
pub(crate) fn offset(rate: f64, number: u32) -> Duration {
    let seconds = if rate > 0.0 { f64::from(number) / rate } else { 0.0 };
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}

/// Bound that keeps times representable.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_the_rate_however_late_the_sender_is() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Some(1_000.0));
        assert_eq!(schedule.due(0), start);
        assert_eq!(schedule.due(2_500), start + Duration::from_millis(2_500));
        let late = start + Duration::from_millis(10);
        assert_eq!(Schedule::new(start, Some(3.0)).due(9_000), start + Duration::from_secs(3_000));
        assert_eq!(schedule.left(10, late), None);
        assert_eq!(schedule.left(12, late), Some(Duration::from_millis(2)));
    }

    #[test]
    fn without_a_rate_every_message_is_due_at_once() {
        let start = Instant::now();
        assert_eq!(Schedule::new(start, None).due(u32::MAX), start);
        assert_eq!(Schedule::new(start, Some(1e-300)).due(u32::MAX), start + LONGEST);
    }
}
