use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    started: Instant,
    time: Option<Duration>,
}

impl Limit {
    pub(crate) fn new(time: Option<Duration>) -> Self {
        Self { started: Instant::now(), time }
    }

    pub(super) fn of_ring(self, now: Instant) -> Option<Instant> {
        Some(self.end()?.max(now + FORMS_WITHIN))
    }

    /// Returns the end of a wait that begins at `now`, once this node is in the ring. A limit below
    /// 3 s is counted from `now`, because the wait for the ring had its own 3 s. With any other
    /// limit, at least 1 s is left for a query.
    pub(crate) fn of_rest(self, now: Instant) -> Option<Instant> {
        match self.time? {
            time if time < FORMS_WITHIN => Some(now + time),
            _ => Some(self.end()?.max(now + ANSWERS_WITHIN)),
        }
    }

    fn end(self) -> Option<Instant> {
        self.started.checked_add(self.time?)
    }
}

/// Minimum wait for a ring. A ring of running hosts forms in less than a second.
pub(super) const FORMS_WITHIN: Duration = Duration::from_secs(3);
/// Minimum wait in the ring. A working ring answers in less time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_is_that_of_the_ring_and_the_rest_together() {
        let limit = Limit::new(Some(Duration::from_secs(10)));
        let end = Some(limit.started + Duration::from_secs(10));
        let later = limit.started + Duration::from_secs(2);
        assert_eq!((limit.of_ring(limit.started), limit.of_rest(later)), (end, end));
    }

    #[test]
    fn a_ring_that_has_used_up_the_time_is_asked_all_the_same() {
        let limit = Limit::new(Some(FORMS_WITHIN));
        let now = limit.started + FORMS_WITHIN + Duration::from_secs(2);
        assert_eq!(limit.of_rest(now), Some(now + ANSWERS_WITHIN));
    }

    #[test]
    fn a_short_time_begins_when_the_ring_is_there() {
        let time = Duration::from_millis(300);
        let limit = Limit::new(Some(time));
        let now = limit.started + Duration::from_secs(1);
        assert_eq!(limit.of_ring(now), Some(now + FORMS_WITHIN));
        assert_eq!(limit.of_rest(now), Some(now + time));
    }

    #[test]
    fn no_time_and_one_without_end_are_no_limit() {
        for limit in [Limit::new(None), Limit::new(Some(Duration::MAX))] {
            let now = limit.started;
            assert_eq!((limit.of_ring(now), limit.of_rest(now)), (None, None));
        }
    }
}
