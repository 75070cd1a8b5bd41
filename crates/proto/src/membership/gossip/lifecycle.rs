use super::Gossip;
use super::exchange::Difference;
use super::identity::Identity;
use super::packet::Packet;
use crate::incarnations::Start;
use crate::membership::MembershipEvent;
use crate::{Endpoint, Incarnation, NodeId, Origin, ViewChangeKind};

const GOODBYE_FANOUT: usize = 3;

impl Gossip {
    pub(super) fn on_up(&mut self, identity: Identity) {
        let node = identity.node;
        if node == self.cx.origin.node || self.peers.is_live(node) {
            return;
        }
        if self.departed.contains(node) {
            self.swim.bury(self.cx.now, identity);
            return;
        }
        if self.peers.len() >= self.cx.config.max_nodes && !self.peers.contains(node) {
            self.cx.counters.nodes_refused += 1;
            return;
        }
        self.cx.counters.nodes_up += 1;
        let former = self.peers.mark_up(self.cx.now, identity);
        let has_moved = former.is_some_and(|former| former.endpoint != identity.endpoint);
        self.exchange.add(node, has_moved);
        let known: Vec<_> = self.exchange.subscriptions(node).collect();
        self.cx.events.push_back(MembershipEvent::Met(node, identity.endpoint));
        for (group, subscription) in known {
            self.learn(node, Difference { group, now: Some(subscription) });
        }
        self.greet(node);
        let own = self.exchange.own_entry(self.swim.identity());
        self.contact.on_up(&mut self.cx, own, identity);
    }

    /// Reports a new address. The subscriptions become doubtful: another node may have sent them.
    pub(super) fn on_moved(&mut self, identity: Identity) {
        let Identity { node, endpoint, .. } = identity;
        self.exchange.stop_pull(&mut self.cx, &self.peers, node);
        self.exchange.add(node, true);
        if self.peers.is_live(node) {
            self.cx.events.push_back(MembershipEvent::Met(node, endpoint));
            self.greet(node);
        }
    }

    pub(super) fn on_down(&mut self, identity: Identity, found_here: bool) {
        if !self.peers.is_live(identity.node) {
            return;
        }
        self.cx.counters.nodes_failed += 1;
        self.part(identity.node, ViewChangeKind::Failed);
        if found_here {
            for to in self.peers.live_identities() {
                let payload = self.swim.obituary(to, identity);
                self.cx.send(to.endpoint, &Packet::Swim(payload));
            }
        }
    }

    fn part(&mut self, node: NodeId, kind: ViewChangeKind) {
        let me = self.swim.identity();
        let Self { cx, peers, exchange, contact, .. } = self;
        peers.mark_down(node);
        let groups = exchange.subscriptions(node).map(|(group, _)| group);
        self.views.remove_node(cx, node, groups, kind);
        cx.events.push_back(MembershipEvent::Parted(node));
        self.challenges.cancel(cx, node);
        self.reports.cancel(cx, node);
        exchange.on_down(cx, peers, node);
        contact.on_down(cx, peers, exchange, (me, node));
    }

    pub(super) fn remove_peer(&mut self, node: NodeId) {
        self.peers.remove(node);
        self.exchange.remove(node);
    }

    pub(super) fn learn(&mut self, node: NodeId, difference: Difference) {
        if self.views.apply(&mut self.cx, node, difference) {
            self.exchange.change_own(&mut self.cx, &self.peers, difference.group, None);
        }
    }

    pub(super) fn on_suspicion(&mut self, by: Identity, suspect: Identity, incarnation: u16) {
        if suspect.node != self.cx.origin.node || !by.is_reachable() {
            self.cx.counters.datagrams_malformed += 1;
            return;
        }
        if suspect == self.swim.identity() {
            self.swim.refute(self.cx.now, incarnation);
        }
        self.swim.announce(self.cx.now, by);
    }

    pub(super) fn on_goodbye(&mut self, source: Endpoint, origin: Origin, node: NodeId) {
        let known = self.peers.identity(node);
        if node == origin.node {
            // If the node is unknown, any other node could have sent the goodbye.
            if let Some(identity) = known.filter(|known| known.endpoint == source) {
                self.depart(identity, origin.incarnation);
            }
        } else if let Some(identity) = self.peers.live_identity(node) {
            self.reports.add(&mut self.cx, identity, ViewChangeKind::Left);
        }
    }

    /// Queries a peer that was reported as stopped or failed. Removes it if no query is answered.
    ///
    /// Unlike a peer that sent its own goodbye, it can come back, since the report may be old.
    pub(super) fn on_report_timeout(&mut self, node: NodeId) {
        let me = self.swim.identity();
        let Self { cx, peers, paths, reports, .. } = self;
        let Some(report) = reports.on_timeout(cx, peers, paths, (me, node)) else { return };
        if report.kind == ViewChangeKind::Left {
            self.leave_views(node);
        }
        self.swim.bury(self.cx.now, report.identity);
    }

    fn leave_views(&mut self, node: NodeId) {
        self.cx.counters.nodes_left += 1;
        self.part(node, ViewChangeKind::Left);
    }

    /// Removes a node that sent a goodbye, and forwards the goodbye.
    fn depart(&mut self, identity: Identity, incarnation: Incarnation) {
        let (now, node) = (self.cx.now, identity.node);
        if !self.departed.insert(now, node, incarnation, self.cx.config.max_nodes) {
            return;
        }
        if self.peers.is_live(node) {
            self.leave_views(node);
        }
        self.remove_peer(node);
        self.swim.bury(now, identity);
        let mut others: Vec<Identity> = self.peers.live_identities().collect();
        self.cx.rng.choose_to_front(&mut others, GOODBYE_FANOUT);
        for other in others.into_iter().take(GOODBYE_FANOUT) {
            self.cx.send(other.endpoint, &Packet::Goodbye(node));
        }
    }

    /// Returns `false` if the incarnation is over. A new one becomes current, except by a goodbye.
    pub(super) fn is_current(&mut self, origin: Origin, packet: &Packet) -> bool {
        let begins = !matches!(packet, Packet::Goodbye(node) if *node == origin.node);
        match self.peers.classify_start(self.cx.now, origin, begins) {
            Start::Known => true,
            Start::Over => false,
            Start::New => {
                self.cx.counters.restarts += 1;
                self.forget_start(origin.node);
                true
            }
        }
    }

    fn forget_start(&mut self, node: NodeId) {
        self.exchange.stop_pull(&mut self.cx, &self.peers, node);
        let groups = self.exchange.restart(node);
        if self.peers.is_live(node) {
            let groups = groups.into_iter();
            self.views.remove_node(&mut self.cx, node, groups, ViewChangeKind::Failed);
            self.greet(node);
        }
    }
}
