//! Bulk delivery over a multicast tree with a backup overlay: RDCM.
//!
//! Source: D. Li, M. Xu, Y. Liu, X. Xie, Y. Cui, J. Wang, G. Chen, *Reliable Multicast in Data
//! Center Networks*, IEEE Transactions on Computers 63(8), 2014.
//!
//! | paper | here |
//! |---|---|
//! | 2.2 topologies, figures 2 to 4 | [`topology`] |
//! | 3.1 the multicast manager computes the tree | [`tree`], `manager/tree_manager` |
//! | 3.1 one remote manager for all groups | [`manager::service`], [`manager::messages`] |
//! | 3.1, 3.4 places of nodes, joins, departures | `manager/`, `sender/receivers` |
//! | 3.2 backup overlay, figure 8, Theorem 1 | `manager/overlay`, `manager/ring` |
//! | 3.3 acknowledgments | `receiver/feedback`, [`packet::RingAck`] |
//! | 3.3 packet repair: the repair window | `receiver/repair_window`, `successor/`, [`sack_set`] |
//! | 3.3 the sender multicasts again | `sender/children` |
//! | 3.4 few rings change | `MulticastTree::graft`, `Overlay::of_tree` |
//! | 3.4 windows when receivers leave a ring | `receiver/handover`, `successor/` |
//! | 3.4 packets that no receiver repairs | `receiver/repair_request` |
//! | 3.5 congestion control, BIC | `receiver/bic`, `receiver/rate_control`, `sender/pacer` |
//! | - (networks without multicast) | `sender/relay_tree`, `receiver/relay_queue` |
//! | - (one sender at a time) | `group`, `sender/farewell` |
//! | - (slow receivers) | `sender/waits`, `sender/stall`, [`Slowest`] |
//!
//! # Streams
//!
//! A group has one sender at a time: the first member that [sends](Engine::send). It assigns each
//! other member a place in the overlay, and starts to multicast when all of them have taken their
//! places, or after 500 ms. A receiver sends acknowledgments to its predecessors, which repair for
//! it, and to its overlay parents. The parents learn from them which packets the receiver's branch
//! has, and how many more it expects. The application gets the messages in the order of sending.
//!
//! # Deviations from the paper
//!
//! * The sender keeps a packet until every receiver has reported it, not only until one overlay
//!   child has it. If no other receiver can repair for a receiver, for example after a crash, the
//!   sender can therefore still send the packet (3.4). The application also learns which packets
//!   each receiver has. The sender receives at most 10,000 reports per second for any group size.
//! * The manager runs in the registry if the registry has the topology and answers. Otherwise, it
//!   runs inside the sender. In both cases, receivers get their places from the sender. If the
//!   network is unknown, hosts are assumed to be in racks of 32. The tree is then only a model, and
//!   the overlay bounds the load of each host.
//! * An acknowledgment contains the number below which all missing packets are known. Losses can
//!   then be distinguished from acknowledgments in flight. Only packets that are known to be
//!   missing are repaired soon. A receiver reports a gap at once.
//! * The branch of a proxy has a packet if the proxy or one of its overlay children has it, and
//!   lacks it if none of them does. A repair for the branch is sent only when the whole branch
//!   lacks the packet, so that it does not duplicate a repair from the proxy's own leaf ring.
//! * A receiver that is silent for [`Config::gone_after`], stalls the others for
//!   [`Config::slow_after`], or slows them down ([`Config::slowest`]), is evicted, and the others
//!   continue. Once heard again, it is readmitted, and its application is notified of losses.
//! * A receiver that has owed an acknowledgment for three times [`Config::resend_after`] no longer
//!   limits the window (`next_ack`). Otherwise, a failed receiver would stop the others until its
//!   eviction.
//! * A window is not reduced if only a few percent of the packets are lost
//!   ([`Config::tolerated_loss`]). Repairs make up for these losses, but BIC would slow down at a
//!   loss of 1 %.
//! * A window grows only while it is used, and a loss reduces the part that was in use. For this
//!   purpose, each packet carries the approximate number of packets in flight. With BIC alone, a
//!   receiver that is not the slowest would have a window of thousands of packets when its links
//!   get busy, and would need dozens of losses to reduce it.
//! * Repairs in flight to one successor are bounded, as TCP bounds its packets in flight. In the
//!   paper, they are sent at once, regardless of losses among them.
//! * Data to receivers that multicast does not reach ([`NetworkChange::Unreached`]) is sent down a
//!   tree of unicast copies, from receiver to receiver. Such data counts as received through the
//!   multicast tree.
//! * The sender spreads the packets of a window over the round-trip time. If it sent a whole window
//!   at once, it would overflow its own link.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::outbox::Outbox;
use crate::wire::{Datagram, Header};
use crate::{
    Class, Destination, Engine, Event, GroupId, GroupSettings, JoinError, ManagerNews,
    NetworkChange, NodeId, Origin, Profile, Rng, SendError, SendOptions, SeqNo, Time, Transmit,
    ViewChange, ViewChangeKind, Wakeup,
};

mod config;
mod context;
mod counters;
mod epoch;
mod group;
mod limits;
mod link_speed;
pub mod manager;
mod network;
mod next_ack;
pub mod packet;
mod receiver;
pub mod sack_set;
mod sender;
mod slowest;
mod successor;
#[cfg(test)]
mod tests;
pub mod topology;

pub use self::config::{Config, ConfigError, Congestion};
use self::context::Context;
pub use self::counters::Counters;
use self::group::Group;
use self::limits::MIN_MTU;
pub use self::limits::{MAX_MESSAGE_BYTES, MAX_PORTS};
use self::manager::ManagerRequests;
use self::manager::messages::Answer;
pub use self::manager::tree;
use self::manager::tree::MulticastTree;
pub use self::network::{Hosts, Network};
use self::packet::{Packet, Place};
use self::receiver::Receiver;
pub use self::sender::{ManagedBy, ReceiverState, RelayTree};
use self::sender::{ManagerEvent, Sender};
pub use self::slowest::{NotSlowest, Slowest};

/// The RDCM engine of one node.
pub struct Rdcm {
    origin: Origin,
    config: Config,
    most_mtu: u16,
    rng: Rng,
    groups: BTreeMap<GroupId, Group>,
    outbox: Outbox,
    events: VecDeque<Event>,
    counters: Counters,
    manager: ManagerRequests,
    /// Number of the last stream that was started, in any group. The first number differs on each
    /// node, so that repairs and acknowledgments of different streams cannot be confused.
    streams: u32,
    now: Time,
    due: Time,
    is_blocked: bool,
    unreached: BTreeSet<NodeId>,
}

impl Rdcm {
    /// Creates the engine of a node, which draws all random values from `seed`.
    ///
    /// # Panics
    /// Panics if `config` is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        config.validate().expect("valid settings");
        Self {
            origin,
            most_mtu: config.path_mtu,
            streams: config.number_before_streams(origin, seed),
            config,
            rng: Rng::new(seed),
            groups: BTreeMap::new(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            manager: ManagerRequests::default(),
            now: Time::ZERO,
            due: Time::MAX,
            is_blocked: false,
            unreached: BTreeSet::new(),
        }
    }

    fn set_unreached(&mut self, now: Time, nodes: &BTreeSet<NodeId>) {
        if *nodes != self.unreached {
            self.unreached.clone_from(nodes);
            self.for_each(now, Group::on_reach);
        }
    }

    fn set_blocked(&mut self, is_blocked: bool) {
        let was_blocked = core::mem::replace(&mut self.is_blocked, is_blocked);
        if was_blocked && !is_blocked {
            self.due = self.now;
        }
    }

    fn on_answer(&mut self, now: Time, bytes: &[u8]) {
        let Ok(answer) = Answer::decode(bytes) else {
            self.counters.manager_malformed += 1;
            return;
        };
        let (group, event) = (answer.group, ManagerEvent::Answer(answer));
        let known = self.with(now, group, |state, cx| state.on_manager(cx, event));
        self.counters.manager_late += u64::from(known.is_none());
    }

    /// Returns the location of the manager of this node's stream in a group, or `None` if the node
    /// sends nothing there.
    pub fn managed_by(&self, group: GroupId) -> Option<ManagedBy> {
        Some(self.sender_in(group)?.receivers.manager.managed_by())
    }

    /// Returns the counters of the engine, summed over all groups.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the other node that sends in a group, or `None` if no sender is known or if this
    /// node is the sender.
    pub fn sender(&self, group: GroupId) -> Option<NodeId> {
        self.groups.get(&group)?.sender(self.now, &self.config)
    }

    /// Returns the multicast tree of this node's stream in a group. Returns `None` if the node
    /// sends nothing there, or if the registry manages the multicast.
    pub fn tree(&self, group: GroupId) -> Option<&MulticastTree> {
        self.sender_in(group)?.receivers.manager.tree()
    }

    /// Returns the relay tree of this node's stream in a group, or `None` if there is no stream.
    pub fn relays(&self, group: GroupId) -> Option<&RelayTree> {
        Some(&self.sender_in(group)?.receivers.relays.tree)
    }

    /// Returns the receivers of this node's stream in a group, with their progress.
    pub fn receivers(&self, group: GroupId) -> Vec<(NodeId, ReceiverState)> {
        let sender = self.sender_in(group).into_iter();
        let receivers = sender.flat_map(|sender| sender.receivers.all());
        receivers.map(|(node, state)| (node, *state)).collect()
    }

    /// Returns `true` unless this node sends in a group, and some receivers have not taken their
    /// places or the manager has not answered. Evicted receivers do not count.
    pub fn is_settled(&self, group: GroupId) -> bool {
        self.sender_in(group).is_none_or(|sender| sender.receivers.are_settled())
    }

    /// Returns the place of this node as a receiver in a group, if it has one.
    pub fn place(&self, group: GroupId) -> Option<&Place> {
        self.receiver_in(group).map(|receiver| &receiver.place)
    }

    /// Returns the number of the stream that this node last sent or received in a group, or 0.
    pub fn stream(&self, group: GroupId) -> u32 {
        self.groups.get(&group).map_or(0, Group::stream)
    }

    /// Returns the number of packets that arrived through the tree, and of those that arrived as
    /// repairs or were multicast again, or `None` if this node is not a receiver in the group.
    pub fn arrived(&self, group: GroupId) -> Option<(u64, u64)> {
        self.receiver_in(group).map(|receiver| (receiver.by_tree, receiver.by_repair))
    }

    /// Returns the number of farewells that this node still repeats: one for each stream that it
    /// has given up in the group and each member that has not acknowledged its end.
    pub fn pending_farewells(&self, group: GroupId) -> usize {
        self.groups.get(&group).map_or(0, |state| state.farewells.pending())
    }

    fn sender_in(&self, group: GroupId) -> Option<&Sender> {
        self.groups.get(&group)?.as_sender()
    }

    fn receiver_in(&self, group: GroupId) -> Option<&Receiver> {
        self.groups.get(&group)?.as_receiver()
    }

    fn for_each(&mut self, now: Time, call: impl Fn(&mut Group, &mut Context<'_>)) {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.with(now, group, &call);
        }
    }

    fn with<T>(
        &mut self,
        now: Time,
        group: GroupId,
        call: impl FnOnce(&mut Group, &mut Context<'_>) -> T,
    ) -> Option<T> {
        self.now = now;
        let state = self.groups.get_mut(&group)?;
        let mut cx = Context {
            now,
            is_blocked: self.is_blocked,
            node: self.origin.node,
            origin: self.origin,
            group,
            stream: state.stream(),
            config: &self.config,
            unreached: &self.unreached,
            outbox: &mut self.outbox,
            events: &mut self.events,
            counters: &mut self.counters,
            rng: &mut self.rng,
            manager: &mut self.manager,
        };
        let result = call(state, &mut cx);
        self.due = self.due.min(state.poll_timeout(now, &self.config, self.is_blocked));
        Some(result)
    }
}

impl Engine for Rdcm {
    fn join(
        &mut self,
        _now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        if settings.profile != Profile::Bulk {
            return Err(JoinError::NoEngine { profile: settings.profile });
        }
        if self.groups.contains_key(&group) {
            return Err(JoinError::AlreadyJoined);
        }
        self.groups.insert(group, Group::default());
        Ok(())
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.with(now, group, Group::close);
        self.groups.remove(&group);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        if let Some(qos) = options.qos {
            return Err(SendError::Qos { asked: qos });
        }
        let limit = self.config.message_bytes;
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let stream = self.streams.wrapping_add(1);
        let sent = self.with(now, group, |state, cx| {
            let sent = state.send(cx, stream, &payload);
            (sent, state.stream() == stream)
        });
        let Some((sent, has_begun)) = sent else { return Err(SendError::NotJoined) };
        if has_begun {
            self.streams = stream;
        }
        sent
    }

    fn confirm(&mut self, now: Time, group: GroupId) {
        self.with(now, group, Group::confirm);
    }

    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) -> Option<NodeId> {
        let header = datagram.header();
        let decoded = datagram.body().and_then(|body| Packet::decode(header, body));
        self.counters.malformed += u64::from(decoded.is_err());
        let packet = decoded.ok()?;
        let Header { sender, view: stream, group, .. } = *header;
        if sender == self.origin.node {
            return None;
        }
        self.with(now, group, |state, cx| state.on_packet(cx, sender, stream, packet));
        Some(sender)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        let ViewChange { node, kind, .. } = *change;
        self.with(now, change.group, |state, cx| match kind {
            ViewChangeKind::Joined => state.on_joined(cx, node),
            ViewChangeKind::Left | ViewChangeKind::Failed => state.on_gone(cx, node),
        });
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.due > now {
            return;
        }
        self.due = Time::MAX;
        self.for_each(now, Group::handle_timeout);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(transmit) = self.outbox.pop(out) {
            return Some(transmit);
        }
        if self.is_blocked {
            return None;
        }
        let now = self.now;
        let may_have = self.groups.iter().filter(|(_, state)| state.may_have_data());
        let may_have: smallvec::SmallVec<[GroupId; 4]> =
            may_have.map(|(group, _)| *group).collect();
        for group in may_have {
            let sent = self.with(now, group, |state, cx| state.poll_data(cx, out));
            if let Some(hops) = sent.flatten() {
                let destination = Destination::Tree(group, hops);
                return Some(Transmit { destination, class: Class::Data });
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        (self.due < Time::MAX).then_some(Wakeup { at: self.due, reason: "bulk delivery" })
    }

    fn handle_network(&mut self, now: Time, change: &NetworkChange) {
        match change {
            NetworkChange::PathMtu(bytes) => {
                self.config.path_mtu = (*bytes).min(self.most_mtu).max(MIN_MTU as u16);
            }
            NetworkChange::Blocked(is_blocked) => self.set_blocked(*is_blocked),
            NetworkChange::Unreached(nodes) => self.set_unreached(now, nodes),
            // If the network maps addresses to hosts, the endpoint determines the node's host.
            NetworkChange::Met(node, endpoint) => {
                self.manager.endpoints.insert(*node, *endpoint);
                self.config.network.node_up(*node, *endpoint);
            }
            NetworkChange::Parted(node) => {
                self.manager.endpoints.remove(node);
                self.config.network.node_down(*node);
            }
        }
    }

    /// Holds back received messages while the application has a backlog.
    fn set_backpressure(&mut self, now: Time, group: GroupId, backlog: f64) {
        self.with(now, group, |state, cx| state.hold(cx, backlog > 0.0));
    }

    fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        self.sender_in(group).map_or_else(Vec::new, Sender::unconfirmed)
    }

    fn poll_manager_request(&mut self) -> Option<Vec<u8>> {
        self.manager.queue.pop_front().map(|request| request.encode())
    }

    /// Switches senders to the registry's manager or to their own, or passes on an answer.
    fn handle_manager(&mut self, now: Time, news: &ManagerNews) {
        let event = match news {
            ManagerNews::Reached => {
                self.manager.is_reachable = true;
                ManagerEvent::Reachable
            }
            ManagerNews::Lost => {
                self.manager.set_unreachable();
                ManagerEvent::Unreachable
            }
            ManagerNews::Answered(bytes) => return self.on_answer(now, bytes),
        };
        self.for_each(now, |state, cx| state.on_manager(cx, event.clone()));
    }

    fn poll_manager_lost(&mut self) -> Option<GroupId> {
        self.manager.lost.pop_first()
    }

    fn payload_limit(&self, _profile: Profile) -> usize {
        self.config.message_bytes
    }

    fn held_bytes(&self) -> usize {
        self.groups.values().map(Group::held_bytes).sum()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.counters
            .by_name()
            .chain([("manager_requests_dropped", self.manager.dropped())])
            .collect()
    }

    fn check(&self) {
        self.groups.iter().for_each(|(group, state)| state.check(&self.config, *group));
    }
}
