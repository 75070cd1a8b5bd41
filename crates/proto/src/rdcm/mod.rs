//! Bulk delivery over a multicast tree with a backup overlay: RDCM.
//!
//! Source: D. Li, M. Xu, Y. Liu, X. Xie, Y. Cui, J. Wang, G. Chen, *Reliable Multicast in Data
//! Center Networks*, IEEE Transactions on Computers 63(8), 2014.
//!
//! | paper | here |
//! |---|---|
//! | 2.2 topologies, figures 2 to 4 | [`topology`] |
//! | 3.1 the multicast manager computes the tree | [`tree`] |
//! | 3.2 backup overlay, figure 8, Theorem 1 | [`overlay`] |
//! | 3.1, 3.4 joins, departures, dead links | [`multicast_manager`], [`seating`], `placing` |
//! | 3.1 one remote manager for all groups | [`manager_service`], [`asking`], `management` |
//! | 3.4 few rings change | `MulticastTree::graft`, `Overlay::of_tree` |
//! | 3.4 windows when receivers leave a ring | `reception::former`, [`successor`] |
//! | 3.3 acknowledgments | `acks`, `reception`, [`packet::RingAck`] |
//! | 3.3 packet repair: the repair window | [`having`], [`window`], [`successor`], `under_way` |
//! | 3.3 the sender multicasts again | `sending` |
//! | - (networks without multicast) | [`relays`], `placing::relaying`, `reception::relaying` |
//! | - (one sender at a time) | `ended`, `farewell` |
//! | 3.5 congestion control, BIC | [`congestion`], `tolerance`, `pacing`, `round_trip` |
//!
//! # Streams
//!
//! A group has one sender at a time: the first member that [sends](Engine::send). It gives each
//! other member a place in the overlay, and starts to multicast when all of them have taken their
//! places. A receiver acknowledges to its predecessors, which repair for it, and to its overlay
//! parents, which learn from it what its branch has and how much it expects. The application gets
//! messages in the order in which they were sent.
//!
//! # Deviations from the paper
//!
//! * The sender keeps a packet until every receiver has reported it, not until one overlay child
//!   has it. A receiver that no other receiver can repair, because the one that could has crashed,
//!   therefore gets the packet from the sender (3.4), and the application learns which packets each
//!   receiver has. The sender receives at most 10,000 reports per second for any group size.
//! * The manager runs in the membership service if that has the topology. It runs inside the sender
//!   otherwise, and whenever the service does not answer. Receivers get their places from the
//!   sender in both cases. If the network is unknown, hosts are assumed to be in racks of 32. The
//!   tree is then only a model, and the overlay bounds the load of each host.
//! * An acknowledgment states up to which packet the missing packets are known. Losses can then be
//!   distinguished from acknowledgments in flight. Only packets that are known to be missing are
//!   repaired soon. A receiver reports a gap at once.
//! * The branch of a proxy has a packet if the proxy or one of its overlay children has it, and
//!   lacks it if none of them does. A repair for the branch is sent only when the whole branch
//!   lacks the packet, so that it does not duplicate a repair from the proxy's own leaf ring.
//! * A receiver that is silent for [`Config::gone_after`], or stalls the others for
//!   [`Config::slow_after`], is evicted, and the others continue. It is readmitted when it is heard
//!   again, and its application is notified of what it lost.
//! * A window is not reduced for a few losses in a hundred ([`Config::tolerated_loss`]). Losses
//!   that repairs make up for are no reason to slow down, and BIC does so at 1 % loss.
//! * A window grows only while it is used, and a loss reduces the part that was in use. Each packet
//!   carries the number of packets in flight. With BIC alone, a receiver that is not the slowest
//!   has a window of thousands of packets when its links get busy, and needs dozens of losses to
//!   reduce it.
//! * Repairs in flight to one successor are bounded, as TCP bounds its packets in flight. The paper
//!   sends them at once, regardless of the outcome.
//! * Where multicast does not reach receivers ([`Rdcm::set_unreached`]), data goes to them down a
//!   tree of unicast copies, from receiver to receiver. Such data counts as received through the
//!   multicast tree.
//! * The sender paces packets within the window over the round trip. A whole window at once would
//!   overflow its own link.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::outbox::Outbox;
use crate::wire::Header;
use crate::{
    Class, Destination, Endpoint, Engine, Event, GroupId, GroupSettings, Hops, JoinError, NodeId,
    Origin, Profile, Rng, SendError, SendOptions, SeqNo, Time, Transmit, ViewChange,
    ViewChangeKind, Wakeup,
};

mod acks;
mod around;
pub mod asking;
mod assembly;
mod config;
pub mod congestion;
mod counters;
mod ended;
mod epochs;
mod farewell;
mod group;
pub mod having;
mod hosts;
mod limiting;
#[cfg(test)]
mod limits_tests;
mod line;
mod managed;
mod management;
pub mod manager_service;
pub mod multicast_manager;
pub mod overlay;
mod pacing;
pub mod packet;
mod placing;
mod reception;
pub mod relays;
mod round_trip;
pub mod seating;
mod sending;
mod sites;
mod slowest;
pub mod successor;
mod tolerance;
pub mod topology;
#[cfg(test)]
mod topology_of_tests;
pub mod tree;
mod under_way;
pub mod window;

use self::around::Around;
pub use self::config::{Config, ConfigError, Congestion, MAX_MESSAGE_BYTES, MAX_PORTS, Network};
pub use self::counters::Counters;
use self::group::{Group, Role};
pub use self::hosts::Hosts;
pub use self::limiting::Limiting;
use self::line::Line;
pub use self::managed::ManagedBy;
use self::packet::{Packet, Place};
pub use self::placing::ReceiverState;
use self::relays::RelayTree;
pub use self::slowest::{NotSlowest, Slowest};
use self::tree::MulticastTree;

/// The RDCM engine of one node.
pub struct Rdcm {
    id: NodeId,
    origin: Origin,
    config: Config,
    /// Path MTU that the settings allow, in bytes.
    most_mtu: u16,
    rng: Rng,
    groups: BTreeMap<GroupId, Group>,
    outbox: Outbox,
    events: VecDeque<Event>,
    counters: Counters,
    line: Line,
    /// Number of the stream that began last, in any group. Numbering starts at a different value on
    /// each node, so that repairs and acknowledgments of one stream are not mistaken for those of
    /// another.
    streams: u32,
    /// Time of the last call.
    now: Time,
    /// When the first group needs to be called.
    due: Time,
    /// `true` while the network accepts no data.
    is_blocked: bool,
    /// Nodes that multicast from this node does not reach.
    unreached: BTreeSet<NodeId>,
}

impl Rdcm {
    /// Creates the engine of the node `id`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// Panics if `config` is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        config.validate().expect("valid settings");
        let streams = config.first_stream.unwrap_or_else(|| first_stream(origin, seed));
        Self {
            id: origin.node,
            origin,
            most_mtu: config.path_mtu,
            config,
            rng: Rng::new(seed),
            groups: BTreeMap::new(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            line: Line::default(),
            streams,
            now: Time::ZERO,
            due: Time::MAX,
            is_blocked: false,
            unreached: BTreeSet::new(),
        }
    }

    /// Sets the nodes that multicast from this node does not reach, as the driver has determined.
    /// Data goes to them from receiver to receiver. Initially multicast is assumed to reach every
    /// node.
    pub fn set_unreached(&mut self, now: Time, nodes: BTreeSet<NodeId>) {
        if nodes == self.unreached {
            return;
        }
        self.unreached = nodes;
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.with(now, group, Group::on_reach);
        }
    }

    /// Sets whether the driver's network currently accepts no data. Data then waits in the engine,
    /// where it is bounded, instead of being lost in the driver. Other packets are still sent.
    pub fn set_blocked(&mut self, is_blocked: bool) {
        let was_blocked = core::mem::replace(&mut self.is_blocked, is_blocked);
        if was_blocked && !is_blocked {
            self.due = self.now;
        }
    }

    /// Records that `node` can be reached at `endpoint`. This determines its host, if the
    /// [network](Config::network) maps addresses to hosts.
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        self.line.meet(node, endpoint);
        self.config.network.meet(node, endpoint);
    }

    /// Records that `node` is gone.
    pub fn part(&mut self, node: NodeId) {
        self.line.part(node);
        self.config.network.part(node);
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the other node that sends in a group. Returns `None` if no sender is known here, or
    /// if this node is the sender.
    pub fn sender(&self, group: GroupId) -> Option<NodeId> {
        self.groups.get(&group)?.sender(self.now, &self.config)
    }

    /// Returns the multicast tree of this node's stream in a group. Returns `None` if it sends
    /// nothing there, or if the membership service manages the multicast.
    pub fn tree(&self, group: GroupId) -> Option<&MulticastTree> {
        match &self.groups.get(&group)?.role {
            Role::Sending(sending) => sending.placing.tree(),
            Role::Waiting | Role::Receiving(_) => None,
        }
    }

    /// Returns the relay tree of this node's stream in a group. Returns `None` if it sends nothing
    /// there.
    pub fn relays(&self, group: GroupId) -> Option<&RelayTree> {
        match &self.groups.get(&group)?.role {
            Role::Sending(sending) => Some(sending.placing.relays()),
            Role::Waiting | Role::Receiving(_) => None,
        }
    }

    /// Returns the receivers of this node's stream in a group, with their progress.
    pub fn receivers(&self, group: GroupId) -> Vec<(NodeId, ReceiverState)> {
        match self.groups.get(&group).map(|state| &state.role) {
            Some(Role::Sending(sending)) => {
                sending.placing.all().map(|(node, state)| (node, *state)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns `true` if all receivers of this node's stream in a group, except for evicted ones,
    /// have taken the places that they were assigned. Also returns `true` if this node sends
    /// nothing there.
    pub fn is_settled(&self, group: GroupId) -> bool {
        match self.groups.get(&group).map(|state| &state.role) {
            Some(Role::Sending(sending)) => sending.placing.is_settled(),
            _ => true,
        }
    }

    /// Returns the place of this node as a receiver in a group.
    pub fn place(&self, group: GroupId) -> Option<&Place> {
        match &self.groups.get(&group)?.role {
            Role::Receiving(reception) => Some(reception.place()),
            Role::Waiting | Role::Sending(_) => None,
        }
    }

    /// Returns the number of the stream that this node sends or receives in a group, or of its last
    /// one.
    pub fn stream(&self, group: GroupId) -> u32 {
        self.groups.get(&group).map_or(0, |state| state.stream)
    }

    /// Returns the number of packets of the stream that arrived here through the tree, and as
    /// repairs.
    pub fn arrived(&self, group: GroupId) -> Option<(u64, u64)> {
        match &self.groups.get(&group)?.role {
            Role::Receiving(reception) => Some(reception.arrived()),
            Role::Waiting | Role::Sending(_) => None,
        }
    }

    /// Sets whether the application of a group accepts no messages at the moment. Messages that it
    /// does not accept are kept while there is room. After that the sender waits.
    pub fn hold(&mut self, now: Time, group: GroupId, is_held: bool) {
        self.with(now, group, |state, around| state.hold(around, is_held));
    }

    /// Returns the sequence number that a confirmation contains if this node has sent nothing in
    /// the group: the one before its first.
    pub fn before_first(&self) -> SeqNo {
        self.config.first_number.minus(1)
    }

    /// Returns the receivers that are not known to have everything that this node has sent in the
    /// group.
    pub fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        match self.groups.get(&group).map(|state| &state.role) {
            Some(Role::Sending(sending)) => sending.unconfirmed(),
            _ => Vec::new(),
        }
    }

    /// Returns the number of farewells that members have not acknowledged: one per member and per
    /// stream that this node gave up in the group.
    pub fn pending_farewells(&self, group: GroupId) -> usize {
        self.groups.get(&group).map_or(0, Group::pending_farewells)
    }

    /// Calls a group with its context.
    fn with<T>(
        &mut self,
        now: Time,
        group: GroupId,
        call: impl FnOnce(&mut Group, &mut Around<'_>) -> T,
    ) -> Option<T> {
        self.now = now;
        let state = self.groups.get_mut(&group)?;
        let mut around = Around {
            now,
            is_blocked: self.is_blocked,
            node: self.id,
            origin: self.origin,
            group,
            stream: state.stream,
            config: &self.config,
            unreached: &self.unreached,
            outbox: &mut self.outbox,
            events: &mut self.events,
            counters: &mut self.counters,
            rng: &mut self.rng,
            line: &mut self.line,
        };
        let result = call(state, &mut around);
        self.due = self.due.min(state.poll_timeout(now, &self.config, self.is_blocked));
        Some(result)
    }
}

/// Returns the number before that of a node's first stream. It differs after each start, even with
/// the same seed.
fn first_stream(origin: Origin, seed: u64) -> u32 {
    let Origin { node, incarnation } = origin;
    (Rng::new(seed ^ incarnation.0 ^ node.0.rotate_left(32)).next_u64() >> 32) as u32
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
        self.groups.insert(group, Group::new());
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
        let sent = self.with(now, group, |state, around| {
            let sent = state.send(around, stream, payload);
            (sent, state.stream == stream)
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

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let decoded = Header::decode(datagram)
            .and_then(|(header, body)| Ok((header, Packet::decode(&header, body)?)));
        self.counters.malformed += u64::from(decoded.is_err());
        let (header, packet) = decoded.ok()?;
        let Header { sender, view: stream, group, .. } = header;
        if sender == self.id {
            return None;
        }
        self.with(now, group, |state, around| state.on_packet(around, sender, stream, packet));
        Some(sender)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        let ViewChange { node, kind, .. } = *change;
        self.with(now, change.group, |state, around| match kind {
            ViewChangeKind::Joined => state.on_joined(around, node),
            ViewChangeKind::Left | ViewChangeKind::Failed => state.on_gone(around, node),
        });
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.due > now {
            return;
        }
        self.due = Time::MAX;
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.with(now, group, Group::handle_timeout);
        }
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
            let sent = self.with(now, group, |state, around| state.poll_data(around, out));
            if sent == Some(true) {
                let destination = Destination::Tree(group);
                return Some(Transmit { destination, class: Class::Data });
            }
        }
        None
    }

    fn hops(&self, group: GroupId) -> Hops<'_> {
        let nobody = Hops { by_multicast: false, relays: &[] };
        self.groups.get(&group).map_or(nobody, Group::hops)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        (self.due < Time::MAX).then_some(Wakeup { at: self.due, reason: "bulk delivery" })
    }

    fn set_path_mtu(&mut self, bytes: u16) {
        self.config.path_mtu = bytes.min(self.most_mtu).max(config::LEAST_MTU as u16);
    }

    fn payload_limit(&self, _profile: Profile) -> usize {
        self.config.message_bytes
    }

    fn held_bytes(&self) -> usize {
        self.groups.values().map(Group::held_bytes).sum()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().chain([("manager_requests_dropped", self.line.dropped)]).collect()
    }

    fn check(&self) {
        self.groups.iter().for_each(|(group, state)| state.check(&self.config, *group));
    }
}
