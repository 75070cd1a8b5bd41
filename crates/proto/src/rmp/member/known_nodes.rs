use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::rmp::context::{Context, Timer};
use crate::rmp::ring::Ring;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct KnownNodes {
    pub(super) nodes: BTreeSet<NodeId>,
    notices: NoticeLimiter,
}

impl KnownNodes {
    pub(super) fn strangers(&self, ring: &Ring) -> Vec<NodeId> {
        let nodes = self.nodes.iter().copied();
        nodes.filter(|node| ring.view().process_of(*node).is_none()).collect()
    }

    pub(super) fn set_timer(&self, cx: &mut Context<'_>, ring: Option<&Ring>) {
        match ring.is_some_and(|ring| !self.strangers(ring).is_empty()) {
            true => cx.set_no_later(Timer::Announce, cx.config.announce),
            false => cx.cancel(Timer::Announce),
        }
    }

    pub(super) fn may_notify(&mut self, cx: &Context<'_>, to: NodeId) -> bool {
        self.notices.may_send(cx.now, cx.config.least_timeout, to)
    }
}

/// Rate limit of notices (4.3), separate for each node. With a shared limit, a joiner that received
/// no notice because others just did would conclude that the ring is gone.
#[derive(Debug, Default)]
struct NoticeLimiter {
    sent: VecDeque<(NodeId, Time)>,
}

impl NoticeLimiter {
    fn may_send(&mut self, now: Time, pause: Duration, to: NodeId) -> bool {
        while self.sent.front().is_some_and(|(_, at)| now.since(*at) >= pause) {
            self.sent.pop_front();
        }
        let is_soon = self.sent.iter().any(|(node, _)| *node == to);
        if is_soon || self.sent.len() >= MAX_SENT {
            return false;
        }
        self.sent.push_back((to, now));
        true
    }
}

const MAX_SENT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_limited_for_each_node_on_its_own() {
        let pause = Duration::from_millis(20);
        let at = |ms: u64| Time(1_000_000_000) + Duration::from_millis(ms);
        let mut notices = NoticeLimiter::default();
        assert!(notices.may_send(at(0), pause, NodeId(1)));
        assert!(notices.may_send(at(0), pause, NodeId(2)));
        assert!(!notices.may_send(at(19), pause, NodeId(1)));
        assert!(notices.may_send(at(20), pause, NodeId(1)));
        assert!(!notices.may_send(at(21), pause, NodeId(1)));
    }

    #[test]
    fn number_of_notified_nodes_is_bounded() {
        let mut notices = NoticeLimiter::default();
        let mut notify =
            |node, at| notices.may_send(Time(at), Duration::from_nanos(9), NodeId(node));
        assert!((0..MAX_SENT as u64).all(|node| notify(node, 1)));
        assert!(!notify(MAX_SENT as u64, 1));
        assert!(notify(MAX_SENT as u64, 10));
    }
}
