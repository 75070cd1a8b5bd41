//! Members come and go: what SWIM finds out, what they say themselves, and suspicions.

use alloc::collections::{BTreeMap, VecDeque};

use super::identity::Identity;
use super::packet::Packet;
use super::table::{Difference, Table};
use super::{Challenge, Config, Gossip, Peer, Timer};
use crate::membership::MembershipEvent;
use crate::{Destination, Incarnation, NodeId, Origin, Time, ViewChangeKind};

/// The nodes that said goodbye last: what is still told of them is old.
#[derive(Default)]
pub(super) struct Departed {
    /// With the start that is over.
    pub(super) nodes: BTreeMap<NodeId, Incarnation>,
    order: VecDeque<NodeId>,
}

/// How many of those who have just heard a suspected node ask it to defend itself, on average.
const ADVOCATES: usize = 3;
/// Members that hear of a departure first hand and pass it on, each to so many others.
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
            incarnation: None,
            table: Table::default(),
            confirmed: None,
            patience,
        });
        peer.identity = identity;
        let known: Vec<_> = peer.table.subscriptions().collect();
        self.views.events.push_back(MembershipEvent::Met(node, identity.endpoint));
        for (group, subscription) in known {
            self.learn(now, node, Difference { group, now: Some(subscription) });
        }
        self.greet(now, node);
        self.contact_up(now, node);
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

    /// A live peer is one no longer.
    fn part(&mut self, now: Time, node: NodeId, kind: ViewChangeKind) {
        self.live.retain(|live| *live != node);
        let groups = self.peers[&node].table.subscriptions().map(|(group, _)| group);
        self.views.remove_node(node, groups, kind);
        self.views.events.push_back(MembershipEvent::Parted(node));
        self.challenges.remove(&node);
        for timer in [Timer::Confirm(node), Timer::Challenge(node)] {
            self.timers.cancel(timer);
        }
        self.stop_pull(node);
        self.start_pulls(now);
        self.contact_down(now, node);
    }

    /// A live peer's subscription of a group is different now.
    pub(super) fn learn(&mut self, now: Time, node: NodeId, difference: Difference) {
        if self.views.apply(node, difference) {
            self.own.change(difference.group, None);
            self.push_soon(now);
        }
    }

    /// Another node suspects `suspect`. If this one has just heard it, it is not dead: it is asked
    /// to say so, by few of those who know better.
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

    /// Asks a suspected node for a proof of life.
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

    /// A node that was only slow takes the suspicion back, and tells the one who has it first.
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

    /// A start of a node is over. Another one may have been heard by now.
    pub(super) fn on_goodbye(&mut self, now: Time, sender: NodeId, over: Origin) {
        let node = over.node;
        let known = self.peers.get(&node).and_then(|peer| peer.incarnation);
        if node == self.id
            || known.is_some_and(|known| known != over.incarnation)
            || !self.departed.insert(over, self.config.max_nodes)
        {
            return;
        }
        let Some(peer) = self.peers.get(&node) else { return };
        let identity = peer.identity;
        if self.is_live(node) {
            self.counters.nodes_left += 1;
            self.part(now, node, ViewChangeKind::Left);
        }
        self.peers.remove(&node);
        self.swim.bury(now, identity);
        let mut others: Vec<NodeId> =
            self.live.iter().copied().filter(|other| *other != sender).collect();
        self.rng.choose_to_front(&mut others, GOODBYE_FANOUT);
        for other in others.into_iter().take(GOODBYE_FANOUT) {
            self.send_to(other, &Packet::Goodbye(over));
        }
    }
}

impl Departed {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Whether a datagram of this origin is of a node that has left. Another start of it has not.
    pub(super) fn has_left(&mut self, origin: Origin) -> bool {
        let Some(over) = self.nodes.get(&origin.node) else { return false };
        if *over == origin.incarnation {
            return true;
        }
        self.nodes.remove(&origin.node);
        self.order.retain(|node| *node != origin.node);
        false
    }

    /// Says whether the node is new among the `capacity` last ones.
    fn insert(&mut self, over: Origin, capacity: usize) -> bool {
        let Origin { node, incarnation } = over;
        if self.contains(node) {
            return false;
        }
        self.nodes.insert(node, incarnation);
        self.order.push_back(node);
        if self.order.len() > capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
        true
    }
}
