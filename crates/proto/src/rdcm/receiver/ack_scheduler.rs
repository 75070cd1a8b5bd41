//! Timing of acknowledgments (section 3.3): many packets together, and gaps at once.

use core::time::Duration;

use crate::Time;

#[derive(Debug, Default)]
pub(super) struct AckScheduler {
    packets: u32,
    pub(super) due: Option<Time>,
}

impl AckScheduler {
    pub(super) fn on_packet(&mut self, now: Time, every: u32, delay: Duration) {
        self.packets += 1;
        match self.packets >= every {
            true => self.at_once(now),
            false => self.within(now, delay),
        }
    }

    pub(super) fn at_once(&mut self, now: Time) {
        self.due = Some(now);
    }

    pub(super) fn within(&mut self, now: Time, delay: Duration) {
        let at = now + delay;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_for_each_other_and_a_gap_for_nothing() {
        let (now, delay) = (Time(1000), Duration::from_nanos(50));
        let mut acks = AckScheduler::default();
        assert_eq!(acks.due, None);
        acks.on_packet(now, 3, delay);
        acks.on_packet(now + delay / 2, 3, delay);
        assert_eq!(acks.due, Some(now + delay), "the first one counts");
        assert!(!acks.take_due(now));
        acks.on_packet(now, 3, delay);
        assert!(acks.take_due(now), "three are enough");
        assert_eq!(acks.due, None);
        acks.on_packet(now, 3, delay);
        acks.at_once(now);
        assert!(acks.take_due(now));
    }
}
