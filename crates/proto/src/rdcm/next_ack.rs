//! Deadline of the next acknowledgment of an overlay child.
//!
//! A child whose acknowledgment is late does not limit the window of its branch. Otherwise a dead
//! child would stop the stream until it is evicted. The stream gets ahead of it until the receiver
//! that keeps packets for it has no room left. If that one is dead, too, the sender's buffer is the
//! bound.

use core::time::Duration;

use crate::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NextAck {
    /// Time of the latest acknowledgment, or of the first packet since, while one is awaited.
    awaited_since: Option<Time>,
    pub(super) is_late: bool,
}

impl NextAck {
    /// Begins to await an acknowledgment, because of a packet that the child has not reported.
    pub(super) fn await_from(&mut self, now: Time) {
        self.awaited_since.get_or_insert(now);
    }

    /// Records an acknowledgment. Another one is awaited if it does not account for all packets.
    pub(super) fn on_ack(&mut self, now: Time, accounts_for_all: bool) {
        *self = Self { awaited_since: (!accounts_for_all).then_some(now), is_late: false };
    }

    /// Returns the time at which the acknowledgment becomes late, or `None` if it is late already.
    pub(super) fn late_at(&self, late_after: Duration) -> Option<Time> {
        self.awaited_since.filter(|_| !self.is_late).map(|since| since + late_after)
    }

    /// Marks the acknowledgment as late if it is. Returns `true` if it was not late before.
    pub(super) fn find_late(&mut self, now: Time, late_after: Duration) -> bool {
        let has_become_late = self.late_at(late_after).is_some_and(|at| at <= now);
        self.is_late |= has_become_late;
        has_become_late
    }

    /// Excludes the time for which this node was suspended.
    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        self.awaited_since = self.awaited_since.map(|since| now.min(since + stopped_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LATE_AFTER: Duration = Duration::from_millis(24);

    #[test]
    fn acknowledgment_is_late_once_after_the_first_packet_it_owes() {
        let mut next = NextAck::default();
        let mut now = Time::ZERO + 500 * MS;
        assert_eq!(next.late_at(LATE_AFTER), None, "nothing was sent");
        next.await_from(now);
        next.await_from(now + 20 * MS);
        assert_eq!(next.late_at(LATE_AFTER), Some(now + LATE_AFTER));
        assert!(!next.find_late(now + 23 * MS, LATE_AFTER));
        assert!(next.find_late(now + 24 * MS, LATE_AFTER));
        assert!(!next.find_late(now + 25 * MS, LATE_AFTER), "once");
        assert!(next.is_late);
        now = now + 30 * MS;
        next.on_ack(now, false);
        assert!(!next.is_late);
        assert_eq!(next.late_at(LATE_AFTER), Some(now + LATE_AFTER), "it owes more");
        next.on_ack(now, true);
        assert!(!next.find_late(now + 900 * MS, LATE_AFTER), "it owes nothing");
    }

    #[test]
    fn suspension_of_this_node_does_not_make_a_child_late() {
        let mut next = NextAck::default();
        next.await_from(Time::ZERO);
        let now = Time::ZERO + 1000 * MS;
        next.make_up_for_stop(now, 990 * MS);
        assert!(!next.find_late(now, LATE_AFTER));
        assert_eq!(next.late_at(LATE_AFTER), Some(Time::ZERO + 990 * MS + LATE_AFTER));
    }
}
