//! Admission to a ring (4.3): a node requests to join until it is admitted or creates a ring.

use alloc::collections::BTreeMap;

use super::known_nodes::KnownNodes;
use crate::ring::{Epoch, ListChange, ListChangeKind};
use crate::rmp::context::{Context, Timer};
use crate::rmp::flow::MOST_LATE;
use crate::rmp::packet::{Packet, Snapshot};
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Ring that this node requests to join. `None` stands for any ring.
    target: Option<Epoch>,
    pub(super) elsewhere: Option<Time>,
    /// Known nodes that have requested to join, with the time of the last request. Nodes that may
    /// create a ring and have a smaller id than this node are omitted.
    joiners: BTreeMap<NodeId, Time>,
    tries: u32,
    is_in_line: bool,
    tries_in_line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinTimeout {
    Repeated,
    MayNotCreate,
    Create,
}

impl Admission {
    pub(super) fn retarget(&mut self, now: Time, target: Option<Epoch>) {
        (self.target, self.elsewhere) = (target, Some(now));
    }

    pub(super) fn begin(&mut self, cx: &mut Context<'_>, join: ListChange) {
        (self.tries, self.tries_in_line) = (0, 0);
        self.request(cx, join);
    }

    pub(super) fn request(&mut self, cx: &mut Context<'_>, join: ListChange) {
        cx.counters.requests_sent += 1;
        cx.multicast(&Packet::ListChangeRequest { epoch: self.target, change: join });
        let retry = cx.timing.join_retry(cx.config);
        let mut wait = retry + cx.random(retry / 4);
        if core::mem::take(&mut self.is_in_line) {
            // The ring has the request, which is only repeated in case the ring loses it.
            self.tries_in_line = self.tries_in_line.saturating_add(1);
            let doublings = (self.tries_in_line / TRIES_PER_DOUBLING).min(MOST_DOUBLINGS);
            wait *= PAUSE_IN_LINE;
            wait = wait.max((wait * (1 << doublings)).min(MOST_LATE / 2));
        }
        cx.set(Timer::Join, wait);
    }

    pub(super) fn on_timer(
        &mut self,
        cx: &mut Context<'_>,
        known: &KnownNodes,
        join: ListChange,
        may_create: bool,
    ) -> JoinTimeout {
        self.tries += 1;
        if self.tries < cx.config.join_tries {
            self.request(cx, join);
            return JoinTimeout::Repeated;
        }
        // A ring that does not answer `join_tries` requests is no obstacle to another ring.
        self.tries_in_line = 0;
        let patience = cx.config.patience;
        let is_elsewhere = self.elsewhere.is_some_and(|at| cx.now.since(at) < patience)
            && !self.is_first_of_joiners(cx.now, known);
        // The target may have become another ring, or may not receive this node's packets.
        let waits = self.target.take().is_some() || is_elsewhere;
        if !waits && may_create {
            return JoinTimeout::Create;
        }
        self.tries = 0;
        self.request(cx, join);
        if waits { JoinTimeout::Repeated } else { JoinTimeout::MayNotCreate }
    }

    // All known nodes wait for a ring that is gone, and none of them creates one before this node.
    fn is_first_of_joiners(&self, now: Time, known: &KnownNodes) -> bool {
        let is_joining = |node| self.joiners.get(node).is_some_and(|at| now.since(*at) < MOST_LATE);
        !known.nodes.is_empty() && known.nodes.iter().all(is_joining)
    }

    pub(super) fn on_other_joiner(
        &mut self,
        cx: &Context<'_>,
        known: &KnownNodes,
        sender: NodeId,
        change: ListChange,
    ) {
        // Of several nodes that start together, the one with the smallest id creates the ring.
        let creates = matches!(change.kind, ListChangeKind::Join { member, .. }
            if member.is_voter || member.quorum.required_voters().is_none());
        if creates && sender < cx.node {
            self.tries = 0;
        } else if known.nodes.contains(&sender) {
            self.joiners.insert(sender, cx.now);
        }
    }

    // A ring exists, so this node need not create one. The target may nevertheless be gone.
    pub(super) fn on_snapshot(&mut self, now: Time, sender: NodeId, snapshot: &Snapshot) {
        let epoch = snapshot.view.epoch;
        self.target = self.target.map(|it| if it.creator.node == sender { epoch } else { it });
        // A ring that does not work may never admit a member.
        if self.target.is_none_or(|target| target == epoch && snapshot.is_working) {
            self.tries = 0;
        }
        self.is_in_line = true;
        if snapshot.is_working {
            self.tries_in_line = 0;
        }
        self.elsewhere = Some(now);
        self.joiners.remove(&sender);
    }

    pub(super) fn on_node_down(&mut self, known: &KnownNodes, node: NodeId) {
        self.joiners.remove(&node);
        // Without other nodes, no ring can exist elsewhere.
        self.elsewhere = self.elsewhere.filter(|_| !known.nodes.is_empty());
    }
}

/// Number of requests to a ring that does not work after which a joiner doubles the interval.
const TRIES_PER_DOUBLING: u32 = 16;
const MOST_DOUBLINGS: u32 = 5;
const PAUSE_IN_LINE: u32 = 4;
