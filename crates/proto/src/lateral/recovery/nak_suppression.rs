//! Suppression of NAKs: waiting times and a rate limit. A NAK is not sent while a repair may still
//! recover the packet, while an earlier NAK may still be answered, or while the rate limit is
//! exhausted. NAKs are unicast, so a node does not receive those of other members and cannot
//! suppress its own because of them.

use core::time::Duration;

use crate::lateral::config::NakConfig;
use crate::{Rng, Time};

pub(crate) fn first_wait(nak: &NakConfig, rng: &mut Rng) -> Duration {
    nak.after + jitter(nak, rng)
}

pub(super) fn retry_wait(nak: &NakConfig, attempts: u8, rng: &mut Rng) -> Duration {
    let most = if attempts <= 8 { 2 } else { 4 };
    let doublings = u32::from(attempts.saturating_sub(1)).min(most);
    nak.retry * (1 << doublings) + jitter(nak, rng)
}

fn jitter(nak: &NakConfig, rng: &mut Rng) -> Duration {
    nak.jitter.mul_f64(rng.fraction())
}

/// Rate limit that permits a burst of the allowance for 100 ms. It uses the generic cell rate
/// algorithm: `used_up_to` may run ahead of the clock by the length of the burst.
#[derive(Debug)]
pub(super) struct RateLimit {
    interval_ns: u64,
    used_up_to: Time,
}

impl RateLimit {
    /// Creates a limit of `per_second` permits per second. 0 permits nothing.
    pub(super) fn new(per_second: u32) -> Self {
        let interval_ns = 1_000_000_000_u64.checked_div(u64::from(per_second)).unwrap_or(u64::MAX);
        Self { interval_ns, used_up_to: Time::ZERO }
    }

    pub(super) fn take(&mut self, now: Time) -> bool {
        let interval = Duration::from_nanos(self.interval_ns);
        let used_up_to = self.used_up_to.max(now) + interval;
        let allowed = used_up_to <= now + BURST.max(interval) && self.interval_ns != u64::MAX;
        if allowed {
            self.used_up_to = used_up_to;
        }
        allowed
    }

    pub(super) fn next_at(&self, now: Time) -> Time {
        (self.used_up_to + Duration::from_nanos(self.interval_ns)).before(BURST).max(now)
    }
}

const BURST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_allows_its_rate_and_a_short_burst() {
        let mut limit = RateLimit::new(1000);
        let start = Time(1_000_000_000);
        let at_once = (0..500).filter(|_| limit.take(start)).count();
        assert_eq!(at_once, 100);
        assert_eq!(limit.next_at(start), start + Duration::from_millis(1));
        let over_a_second =
            (1..=1000).filter(|ms| limit.take(start + Duration::from_millis(*ms))).count();
        assert_eq!(over_a_second, 1000);
        assert!(!RateLimit::new(0).take(start));
    }
}
