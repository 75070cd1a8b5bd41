use std::time::{Duration, Instant};

/// A rate limit with small batches. The credit never exceeds 20 ms, or one message if that is more,
/// so that no burst follows a pause.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Option<f64>,
    credit: f64,
    last: Instant,
}

impl Pace {
    pub(crate) fn new(rate: Option<f64>, now: Instant) -> Self {
        Self { rate, credit: 1.0, last: now }
    }

    pub(crate) fn due(&mut self, now: Instant) -> usize {
        let Some(rate) = self.rate else { return UNLIMITED_BATCH };
        let passed = now.saturating_duration_since(self.last);
        self.last = now;
        let most = (rate * MOST_SAVED.as_secs_f64()).max(1.0);
        self.credit = (self.credit + rate * passed.as_secs_f64()).min(most);
        self.credit as usize
    }

    pub(crate) fn took_one(&mut self) {
        self.credit -= 1.0;
    }

    /// Discards the credit that accumulated without input, except for one message.
    pub(crate) fn idle(&mut self, now: Instant) {
        self.last = now;
        self.credit = self.credit.min(1.0);
    }
}

const UNLIMITED_BATCH: usize = 64;
const MOST_SAVED: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_follows_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(20_000.0), start);
        let mut sent = 0;
        for tick in 0..=1_000 {
            for _ in 0..pace.due(start + Duration::from_millis(tick)) {
                pace.took_one();
                sent += 1;
            }
        }
        assert!((20_000..=20_001).contains(&sent), "{sent} messages in a second");
    }

    #[test]
    fn a_pause_is_not_made_up_for_in_one_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(20_000.0), start);
        assert_eq!(pace.due(start + Duration::from_secs(60)), 400);
        pace.idle(start + Duration::from_secs(61));
        assert_eq!(pace.due(start + Duration::from_secs(61)), 1);
    }

    #[test]
    fn a_slow_rate_lets_the_first_message_go_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(0.5), start);
        assert_eq!(pace.due(start), 1);
        pace.took_one();
        assert_eq!(pace.due(start + Duration::from_secs(1)), 0);
        assert_eq!(pace.due(start + Duration::from_secs(2)), 1);
    }
}
