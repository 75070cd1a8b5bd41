//! Rate limit of notices about the ring to nodes that are not in it (4.3).

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::{NodeId, Time};

/// Recent notices. The limit applies to each node on its own: a joiner that received no notice
/// because others just did would conclude that the ring is gone, and create another.
#[derive(Debug, Default)]
pub(super) struct Notices {
    told: VecDeque<(NodeId, Time)>,
}

impl Notices {
    /// Returns `true` and records a notice to `to` if it has received none for `pause`.
    pub(super) fn may_go(&mut self, now: Time, pause: Duration, to: NodeId) -> bool {
        while self.told.front().is_some_and(|(_, at)| now.since(*at) >= pause) {
            self.told.pop_front();
        }
        let is_soon = self.told.iter().any(|(node, _)| *node == to);
        if is_soon || self.told.len() >= MAX_TOLD {
            return false;
        }
        self.told.push_back((to, now));
        true
    }
}

/// Maximum number of nodes that receive a notice within one pause.
const MAX_TOLD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_told_once_in_a_while_whoever_else_is_told() {
        let pause = Duration::from_millis(20);
        let at = |ms: u64| Time(1_000_000_000) + Duration::from_millis(ms);
        let mut notices = Notices::default();
        assert!(notices.may_go(at(0), pause, NodeId(1)));
        assert!(notices.may_go(at(0), pause, NodeId(2)));
        assert!(!notices.may_go(at(19), pause, NodeId(1)));
        assert!(notices.may_go(at(20), pause, NodeId(1)));
        assert!(!notices.may_go(at(21), pause, NodeId(1)));
    }

    #[test]
    fn there_is_a_bound_for_all_who_are_told() {
        let mut notices = Notices::default();
        let mut tell = |node, at| notices.may_go(Time(at), Duration::from_nanos(9), NodeId(node));
        assert!((0..MAX_TOLD as u64).all(|node| tell(node, 1)));
        assert!(!tell(MAX_TOLD as u64, 1));
        assert!(tell(MAX_TOLD as u64, 10));
    }
}
