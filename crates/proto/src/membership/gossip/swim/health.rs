//! Local health: a slow node distrusts its own findings first.
//!
//! Dadgar, Phillips, Currey, Lifeguard (2018): most false suspicions are raised by nodes that are
//! slow themselves. The worse the score of a node, the longer it waits for answers and for
//! suspicions to expire.
//!
//! Deviations from Lifeguard:
//! - A failed probe counts once its suspicion turns out to be wrong, so no NACKs are needed.
//! - A suspicion shared by several nodes is not shortened: the healthiest node whose probe of the
//!   member fails decides.
//! - A call that comes much later than requested is this node's own delay, for which the detector's
//!   time stands still. A suspicion therefore needs little extension.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::{IdMap, NodeId, Time};

#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    score: u32,
    limit: u32,
}

impl Health {
    pub(super) fn new(limit: u32) -> Self {
        Self { score: 0, limit }
    }

    pub(super) fn score(&self) -> u32 {
        self.score
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.limit > 0
    }

    pub(super) fn worsen(&mut self, by: u32) {
        self.score = self.score.saturating_add(by).min(self.limit);
    }

    pub(super) fn improve(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    pub(super) fn for_probe(&self, span: Duration) -> Duration {
        span.saturating_mul(self.score + 1)
    }

    /// Returns the duration of a suspicion, which is `span` for a healthy node.
    ///
    /// With a score of 3, a node must detect a crash within 24 probe periods: 8 until its probe has
    /// failed, and 15 for the suspicion.
    pub(super) fn for_suspicion(&self, span: Duration) -> Duration {
        span + span * self.score / 12
    }
}

#[derive(Debug)]
pub(super) struct SignsOfLife {
    last: IdMap<NodeId, Time>,
    counted: bool,
}

impl SignsOfLife {
    pub(super) fn new(counted: bool, seed: u64) -> Self {
        Self { last: IdMap::new(seed), counted }
    }

    pub(super) fn expect(&mut self, node: NodeId) {
        self.last.get_or_insert_with(node, || Time::ZERO);
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        self.last.remove(&node);
    }

    pub(super) fn hear(&mut self, now: Time, node: NodeId) {
        if self.counted
            && let Some(last) = self.last.get_mut(&node)
        {
            *last = now;
        }
    }

    pub(super) fn any_after(&self, node: NodeId, time: Time) -> bool {
        self.last.get(&node).is_some_and(|last| *last > time)
    }

    pub(super) fn len(&self) -> usize {
        self.last.len()
    }
}

pub(super) fn postpone<V>(timetable: &mut BTreeMap<(Time, u64), V>, span: Duration) {
    let old = core::mem::take(timetable);
    timetable.extend(old.into_iter().map(|((at, number), due)| ((at + span, number), due)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_bounded_and_mends() {
        let mut health = Health::new(3);
        let second = Duration::from_secs(1);
        assert_eq!((health.for_probe(second), health.for_suspicion(second)), (second, second));
        health.worsen(2);
        health.worsen(u32::MAX);
        assert_eq!((health.score(), health.for_probe(second)), (3, 4 * second));
        assert_eq!(health.for_suspicion(second), Duration::from_millis(1250));
        (0..5).for_each(|_| health.improve());
        assert_eq!(health.score(), 0);
        let mut careless = Health::new(0);
        careless.worsen(9);
        assert_eq!((careless.for_probe(second), careless.is_enabled()), (second, false));
    }

    #[test]
    fn signs_are_kept_of_members_only_and_must_be_newer() {
        let mut signs = SignsOfLife::new(true, 1);
        let [member, stranger] = [NodeId(1), NodeId(2)];
        signs.expect(member);
        signs.hear(Time(5), member);
        signs.hear(Time(5), stranger);
        signs.expect(member);
        assert!(signs.any_after(member, Time(4)) && !signs.any_after(member, Time(5)));
        assert!(!signs.any_after(stranger, Time::ZERO));
        signs.forget(member);
        assert!(!signs.any_after(member, Time::ZERO));
        assert_eq!(signs.len(), 0);
    }

    #[test]
    fn what_is_postponed_keeps_its_order() {
        let mut timetable = BTreeMap::from([((Time(7), 1), 'b'), ((Time(7), 0), 'a')]);
        postpone(&mut timetable, Duration::from_nanos(3));
        assert!(timetable.iter().eq([(&(Time(10), 0), &'a'), (&(Time(10), 1), &'b')]));
    }
}
