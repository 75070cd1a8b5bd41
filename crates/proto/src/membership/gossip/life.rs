//! Lifecycle of members: findings of SWIM, goodbyes, restarts and suspicions.

use alloc::collections::{BTreeMap, VecDeque};

use super::hearsay::Rejoins;
use super::identity::Identity;
use super::packet::Packet;
use super::table::{Difference, Table};
use super::{Challenge, Config, Gossip, Peer, Timer};
use crate::incarnations::{Incarnations, Start};
use crate::membership::MembershipEvent;
use crate::{Destination, Endpoint, Incarnation, NodeId, Origin, Time, ViewChangeKind};

/// Nodes that recently sent a goodbye. Reports about them are outdated. A later start of such a
/// node has another incarnation.
#[derive(Default)]
pub(super) struct Departed {
    nodes: BTreeMap<NodeId, (Incarnation, Time)>,
    order: VecDeque<NodeId>,
}

/// Mean number of nodes that request a refutation from a suspected member that they have just
/// heard.
const ADVOCATES: usize = 3;
/// Number of members to which a node that receives a goodbye directly forwards it.
const GOODBYE_FANOUT: usize = 3;

impl Gossip {
    pub(super) fn on_up(&mut self, now: Time, identity: Identity) {
        let node = identity.node;
        if node == self.id || self.is_live(node) {
            return;
        }
        if self.departed.contains(node) {
            self.swim.bury(now, identity);
            return;
        }
        if self.peers.len() >= self.config.max_nodes && !self.peers.contains_key(&node) {
            self.counters.nodes_refused += 1;
            return;
        }
        self.counters.nodes_up += 1;
        let place = self.live.partition_point(|live| *live < node);
        self.live.insert(place, node);
        let patience = self.config.retry_after;
        let peer = self.peers.entry(node).or_insert_with(|| Peer {
            identity,
            incarnations: Incarnations::default(),
            claim: None,
            bumps: Rejoins::new(now),
            table: Table::default(),
            confirmed: None,
            patience,
        });
        if peer.identity.endpoint != identity.endpoint {
            peer.table.doubt();
        }
        peer.identity = identity;
        let known: Vec<_> = peer.table.subscriptions().collect();
        self.views.events.push_back(MembershipEvent::Met(node, identity.endpoint));
        for (group, subscription) in known {
            self.learn(now, node, Difference { group, now: Some(subscription) });
        }
        self.greet(now, node);
        self.contact_up(now, node);
    }

    /// Processes the new address of a peer. Another node may have answered in its name while it was
    /// silent.
    pub(super) fn on_moved(&mut self, now: Time, identity: Identity) {
        let Identity { node, endpoint, .. } = identity;
        self.stop_pull(node);
        self.start_pulls(now);
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.table.doubt();
        }
        if self.is_live(node) {
            self.views.events.push_back(MembershipEvent::Met(node, endpoint));
            self.greet(now, node);
        }
    }

    pub(super) fn on_down(&mut self, now: Time, identity: Identity, found_here: bool) {
        if !self.is_live(identity.node) {
            return;
        }
        self.counters.nodes_failed += 1;
        self.part(now, identity.node, ViewChangeKind::Failed);
        if found_here {
            for node in self.live.clone() {
                let payload = self.swim.obituary(self.peers[&node].identity, identity);
                self.send_to(node, &Packet::Swim(payload));
            }
        }
    }

    /// Removes a live peer.
    fn part(&mut self, now: Time, node: NodeId, kind: ViewChangeKind) {
        self.live.retain(|live| *live != node);
        let groups = self.peers[&node].table.subscriptions().map(|(group, _)| group);
        self.views.remove_node(node, groups, kind);
        self.views.events.push_back(MembershipEvent::Parted(node));
        self.challenges.remove(&node);
        self.reports.remove(&node);
        for timer in [Timer::Confirm(node), Timer::Challenge(node), Timer::Report(node)] {
            self.timers.cancel(timer);
        }
        self.stop_pull(node);
        self.start_pulls(now);
        self.contact_down(now, node);
    }

    /// Applies a change of a live peer's subscription.
    pub(super) fn learn(&mut self, now: Time, node: NodeId, difference: Difference) {
        if self.views.apply(now, node, difference) {
            self.own.change(difference.group, None);
            self.push_soon(now);
        }
    }

    /// Processes a suspicion of another node about `suspect`.
    ///
    /// If this node has just heard the member, the member is not dead. A few such nodes request a
    /// refutation from it.
    pub(super) fn on_hearsay(&mut self, now: Time, suspect: Identity, incarnation: u16) {
        let lately = now.before(self.config.freshness());
        if self.is_live(suspect.node)
            && self.swim.is_suspected(suspect, incarnation)
            && self.swim.has_heard(suspect.node, lately)
            && self.rng.below(self.live.len()) < ADVOCATES
        {
            self.counters.hearsay_challenged += 1;
            self.begin_challenge(now, suspect, incarnation, false);
        }
    }

    pub(super) fn begin_challenge(
        &mut self,
        now: Time,
        identity: Identity,
        incarnation: u16,
        own: bool,
    ) {
        let asks_left = if own { self.swim.asks() } else { Config::CHALLENGES };
        let challenge = Challenge { identity, incarnation, own, asks_left };
        self.challenges.insert(identity.node, challenge);
        self.timers.set(Timer::Challenge(identity.node), now);
    }

    /// Requests a proof of life from a suspected node.
    pub(super) fn challenge(&mut self, now: Time, node: NodeId) {
        let Some(challenge) = self.challenges.get_mut(&node) else { return };
        let Challenge { identity: suspect, incarnation, own, asks_left } = *challenge;
        challenge.asks_left = asks_left.saturating_sub(1);
        let is_suspected = self.swim.is_suspected(suspect, incarnation);
        if !is_suspected && own {
            self.counters.suspicions_refuted += 1;
            self.swim.was_wrong();
        }
        if !is_suspected || asks_left == 0 {
            self.challenges.remove(&node);
            return;
        }
        let by = self.swim.identity();
        let packet = Packet::Suspicion { by, suspect, incarnation };
        self.transmit(Destination::Endpoint(suspect.endpoint), &packet);
        self.timers.set(Timer::Challenge(node), now + self.config.challenge_period());
    }

    /// Refutes a suspicion of this node, and contacts the node that reported it.
    pub(super) fn on_suspicion(
        &mut self,
        now: Time,
        by: Identity,
        suspect: Identity,
        incarnation: u16,
    ) {
        if suspect.node != self.id || !by.is_reachable() {
            self.counters.datagrams_malformed += 1;
            return;
        }
        if suspect == self.swim.identity() {
            self.swim.refute(now, incarnation);
        }
        self.swim.announce(now, by);
    }

    /// Processes a goodbye of a node, sent by itself or forwarded.
    pub(super) fn on_goodbye(&mut self, now: Time, source: Endpoint, origin: Origin, node: NodeId) {
        if node == origin.node {
            // For a node that is not known yet, any node could have sent it.
            let known = self.peers.get(&node).map(|peer| peer.identity);
            if let Some(identity) = known.filter(|known| known.endpoint == source) {
                self.depart(now, identity, origin.incarnation);
            }
        } else if self.is_live(node) {
            self.on_report(now, node, ViewChangeKind::Left);
        }
    }

    /// Removes a live peer that does not answer and whose goodbye was reported by another node.
    ///
    /// The goodbye may be that of a former incarnation. The peer can therefore come back, unlike
    /// one that sent the goodbye itself.
    pub(super) fn leave_unheard(&mut self, now: Time, node: NodeId) {
        self.counters.nodes_left += 1;
        self.part(now, node, ViewChangeKind::Left);
    }

    /// Removes a node that has left. Later reports about it do not bring it back.
    fn depart(&mut self, now: Time, identity: Identity, incarnation: Incarnation) {
        let node = identity.node;
        if !self.departed.insert(now, node, incarnation, self.config.max_nodes) {
            return;
        }
        if self.is_live(node) {
            self.counters.nodes_left += 1;
            self.part(now, node, ViewChangeKind::Left);
        }
        self.peers.remove(&node);
        self.swim.bury(now, identity);
        let mut others = self.live.clone();
        self.rng.choose_to_front(&mut others, GOODBYE_FANOUT);
        for other in others.into_iter().take(GOODBYE_FANOUT) {
            self.send_to(other, &Packet::Goodbye(node));
        }
    }

    /// Returns `true` if a datagram of `origin` is from the current incarnation of its node.
    ///
    /// A new incarnation ends the former one, with everything known about it. A goodbye does not
    /// begin one.
    pub(super) fn is_current(&mut self, now: Time, origin: Origin, packet: &Packet) -> bool {
        let begins = !matches!(packet, Packet::Goodbye(node) if *node == origin.node);
        let Some(peer) = self.peers.get_mut(&origin.node) else { return true };
        match peer.incarnations.look(now, origin.incarnation, || begins) {
            Start::Known => true,
            Start::Over => false,
            Start::New => {
                self.counters.restarts += 1;
                self.forget_start(now, origin.node);
                true
            }
        }
    }

    /// Forgets the subscriptions of a node that has restarted, whether it is live or not.
    fn forget_start(&mut self, now: Time, node: NodeId) {
        self.stop_pull(node);
        self.start_pulls(now);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let table = core::mem::take(&mut peer.table);
        if self.is_live(node) {
            let groups = table.subscriptions().map(|(group, _)| group);
            self.views.remove_node(node, groups, ViewChangeKind::Failed);
            self.greet(now, node);
        }
    }

    /// Records the incarnation of `origin`, whose datagram may have made its node known.
    pub(super) fn note_incarnation(&mut self, now: Time, origin: Origin) {
        if let Some(peer) = self.peers.get_mut(&origin.node) {
            peer.incarnations.look(now, origin.incarnation, || true);
        }
    }
}

impl Departed {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Returns `true` if a datagram of `origin` was sent before its goodbye.
    ///
    /// Another incarnation is a new start of the node, which is then removed from the departed
    /// ones. So is a node that is heard although it left before `since`: another node sent the
    /// goodbye in its name.
    pub(super) fn is_late(&mut self, since: Time, origin: Origin) -> bool {
        let Some((left, at)) = self.nodes.get(&origin.node) else { return false };
        let is_late = *left == origin.incarnation && *at >= since;
        if !is_late {
            self.nodes.remove(&origin.node);
            self.order.retain(|node| *node != origin.node);
        }
        is_late
    }

    /// Adds a node and evicts the oldest beyond `capacity`. Returns `false` if the node was
    /// present.
    fn insert(
        &mut self,
        now: Time,
        node: NodeId,
        incarnation: Incarnation,
        capacity: usize,
    ) -> bool {
        if self.nodes.contains_key(&node) {
            return false;
        }
        self.nodes.insert(node, (incarnation, now));
        self.order.push_back(node);
        if self.order.len() > capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
        true
    }
}
