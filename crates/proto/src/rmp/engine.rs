use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::config::{self, Config};
use super::context::{Context, Timer};
use super::counters::Counters;
use super::group::Group;
use super::member::LocalMember;
use super::packet::fragment::PacketReassembly;
use super::packet::{self, NewList, NonMemberData, Packet};
use super::query::Queries;
use super::reach::Reach;
use super::ring::Snapshot;
use super::rpc::RequestNumbers;
use super::timing::Timing;
use crate::outbox::Outbox;
use crate::ring::{JoinOptions, Process, Qos};
use crate::wire::{self, Datagram, Header};
use crate::{
    Class, Destination, Engine, Event, GroupId, GroupSettings, JoinError, NetworkChange, NodeId,
    Origin, Profile, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange,
    Wakeup,
};

/// The RMP engine of one node.
pub struct Rmp {
    pub(super) id: NodeId,
    pub(super) origin: Origin,
    pub(super) config: Config,
    pub(super) max_mtu: u16,
    pub(super) rng: Rng,
    pub(super) groups: BTreeMap<GroupId, Slot>,
    pub(super) timers: Timers<(GroupId, Timer)>,
    pub(super) outbox: Outbox,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    pub(super) lives: u64,
    pub(super) join_options: JoinOptions,
    pub(super) requests: RequestNumbers,
    pub(super) parts: PacketReassembly,
    pub(super) queries: Queries,
    pub(super) ended: BTreeSet<GroupId>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) group: Group,
    reach: Reach,
    timing: Timing,
}

impl From<Group> for Slot {
    fn from(group: Group) -> Self {
        Self { group, reach: Reach::default(), timing: Timing::default() }
    }
}

impl Rmp {
    /// Creates the engine of the node `origin`. All random values are derived from `seed`.
    ///
    /// # Panics
    /// Panics if `config` is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        config.validate().expect("the settings of the engine must be valid");
        Self {
            id: origin.node,
            origin,
            max_mtu: config.path_mtu,
            config,
            rng: Rng::new(seed),
            groups: BTreeMap::new(),
            timers: Timers::new(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            lives: Process::lives_before(origin.incarnation),
            join_options: JoinOptions::default(),
            requests: RequestNumbers::new(origin),
            parts: PacketReassembly::default(),
            queries: Queries::default(),
            ended: BTreeSet::new(),
        }
    }

    pub(super) fn member(&self, group: GroupId) -> Option<&LocalMember> {
        self.groups.get(&group)?.group.member()
    }

    pub(super) fn is_in(&self, group: GroupId) -> bool {
        self.member(group).is_some_and(|member| !member.departure.is_leaving)
    }

    fn decode(&mut self, datagram: &Datagram<'_>) -> Option<Packet> {
        let decoded = datagram.body().and_then(|body| Packet::decode(datagram.header(), body));
        self.counters.malformed += u64::from(decoded.is_err());
        decoded.ok()
    }

    fn forward(&mut self, header: &Header, datagram: &[u8]) {
        if header.flags & packet::FORWARD != 0 && self.is_in(header.group) {
            self.counters.forwarded += 1;
            self.send_copy(Destination::Group(header.group), datagram);
        }
    }

    // A guest has no view, so the first member with multicast sends the copies.
    fn copy_of_guest(&mut self, group: GroupId, datagram: &[u8]) {
        let Some(Slot { group: state, reach, .. }) = self.groups.get(&group) else { return };
        let Some(ring) = state.member().and_then(LocalMember::ring) else { return };
        let mut members = ring.view().members.iter().filter(|member| member.is_multicast);
        if members.next().is_some_and(|member| member.process == ring.me()) {
            for node in reach.copies.clone() {
                self.send_copy(Destination::Node(node), datagram);
            }
        }
    }

    fn send_copy(&mut self, destination: Destination, datagram: &[u8]) {
        let transmit = Transmit { destination, class: Class::Data };
        self.outbox.push(transmit, |out| {
            let start = out.len();
            out.extend_from_slice(datagram);
            wire::clear_flags(out, start, packet::FORWARD);
        });
    }

    fn on_whole_list(&mut self, sender: NodeId, group: GroupId, snapshot: &Snapshot) -> bool {
        let was_asked = self.queries.on_snapshot(&mut self.counters, sender, group, snapshot);
        let is_for_group = self.has(group);
        self.counters.lists_unasked += u64::from(!was_asked && !is_for_group);
        is_for_group
    }

    pub(super) fn with<T>(
        &mut self,
        now: Time,
        group: GroupId,
        call: impl FnOnce(&mut Group, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let Slot { group: state, reach, timing } = self.groups.get_mut(&group)?;
        let mut cx = Context {
            now,
            node: self.id,
            origin: self.origin,
            group,
            version: state.version(),
            config: &self.config,
            timers: &mut self.timers,
            outbox: &mut self.outbox,
            events: &mut self.events,
            counters: &mut self.counters,
            rng: &mut self.rng,
            lives: &mut self.lives,
            reach,
            timing,
        };
        let result = call(state, &mut cx);
        if state.end_if_over(&mut cx) {
            let was_member = state.member().is_some();
            self.groups.remove(&group);
            if was_member {
                self.ended.insert(group);
            }
        }
        Some(result)
    }
}

const MAX_TOKEN_PAUSE: Duration = Duration::from_millis(100);

impl Engine for Rmp {
    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.join_with(now, group, settings, self.join_options)
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.with(now, group, Group::leave);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let member = self.member(group).filter(|member| !member.departure.is_leaving);
        let member = member.ok_or(SendError::NotJoined)?;
        let qos = options.qos.unwrap_or_default();
        if !member.terms.allows(qos) {
            return Err(SendError::Qos { asked: qos });
        }
        let limit = match qos {
            Qos::Unreliable => self.unreliable_limit(),
            _ => self.config.message_bytes,
        };
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let sender = &member.application.sender;
        if let Some(waiting_bytes) = sender.full_with(payload.len(), self.config.queue_bytes) {
            return Err(SendError::QueueFull { waiting_bytes });
        }
        self.act(now, group, SendError::NotJoined, |it, _, _| Ok(it.send(qos, payload)))
    }

    /// A repeated call before the confirmation extends it to all messages sent before that call.
    fn confirm(&mut self, now: Time, group: GroupId) {
        _ = self.act(now, group, (), |it, _, _| {
            it.confirm();
            Ok(())
        });
    }

    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) -> Option<NodeId> {
        let (header, mut packet) = (datagram.header(), self.decode(datagram)?);
        let sender = header.sender;
        if sender == self.id {
            return None;
        }
        self.forward(header, datagram.bytes());
        if matches!(packet, Packet::NonMemberData(NonMemberData::Data { .. })) {
            self.copy_of_guest(header.group, datagram.bytes());
        }
        if let Packet::Part(part) = packet {
            let Some(whole) = self.parts.insert(sender, part) else { return Some(sender) };
            let is_of = |it: &Header| (it.sender, it.group) == (sender, header.group);
            let whole = Datagram::parse(&whole).ok().filter(|it| is_of(it.header()));
            let Some(whole) = whole else {
                self.counters.malformed += 1;
                return None;
            };
            packet = self.decode(&whole)?;
        }
        if let Packet::NewList(NewList::Whole(snapshot)) = &packet
            && !self.on_whole_list(sender, header.group, snapshot)
        {
            return Some(sender);
        }
        self.with(now, header.group, |state, cx| {
            let author = packet.author().map_or(sender, |author| author.node);
            let ring = state.member().and_then(LocalMember::ring);
            // Only members repeat packets of other nodes.
            if author == sender || ring.is_none_or(|it| it.view().process_of(sender).is_some()) {
                state.on_packet(cx, sender, packet);
            } else {
                cx.counters.foreign += 1;
            }
        });
        Some(sender)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        let ViewChange { node, kind, .. } = *change;
        self.with(now, change.group, |state, cx| state.on_node(cx, node, kind));
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((group, timer)) = self.timers.pop_due(now) {
            self.with(now, group, |state, cx| state.on_timer(cx, timer));
        }
        self.repeat_queries(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.pop(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let rings = self.timers.next_due().map(|at| Wakeup { at, reason: "token ring" });
        let queries = self.queries.due().map(|at| Wakeup { at, reason: "query a ring" });
        Wakeup::earlier(rings, queries)
    }

    fn handle_network(&mut self, _now: Time, change: &NetworkChange) {
        if let NetworkChange::PathMtu(bytes) = change {
            self.config.path_mtu = (*bytes).min(self.max_mtu).max(config::LEAST_MTU as u16);
        }
    }

    fn set_backpressure(&mut self, _now: Time, group: GroupId, backlog: f64) {
        self.slow_down(group, MAX_TOKEN_PAUSE.mul_f64(backlog));
    }

    fn abandon(&mut self, now: Time, group: GroupId) {
        self.with(now, group, Group::abandon);
    }

    /// Returns `true` also for a node that only queries the group's rings, until the query ends.
    fn calls(&self, group: GroupId) -> bool {
        let is_guest = self.groups.contains_key(&group) && !self.has(group);
        is_guest || self.queries.is_open(group)
    }

    fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        let member = self.member(group);
        let known = member.and_then(|it| Some((it.ring()?, it.application.last_place())));
        known.map_or_else(Vec::new, |(ring, place)| ring.standings().others_before(place).collect())
    }

    fn payload_limit(&self, _profile: Profile) -> usize {
        self.config.message_bytes
    }

    fn held_bytes(&self) -> usize {
        self.groups.values().map(|slot| slot.group.held_bytes()).sum()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn check(&self) {
        self.groups.values().for_each(|slot| slot.group.check());
    }
}
