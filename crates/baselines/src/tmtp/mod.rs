//! Tree-based Multicast Transport Protocol: NAKs and repairs within domains, acknowledgments up the
//! tree of their managers.
//!
//! Source: R. Yavatkar, J. Griffioen, M. Sudan, *A Reliable Dissemination Protocol for Interactive
//! Collaborative Applications*, ACM Multimedia 1995.
//!
//! | paper | here |
//! |---|---|
//! | a control tree of domain managers | [`Hierarchy`](crate::domain::Hierarchy) |
//! | NAKs to the domain, with suppression | `Tmtp::send_nacks`, `Tmtp::on_nack` |
//! | repairs by multicast in the domain, at once | `domain/depot.rs` |
//! | periodic acknowledgments to the manager | `managing.rs`: `Tmtp::send_ack` |
//! | a manager retransmits what is not acknowledged | `managing.rs`: `Tmtp::on_retransmit_due` |
//! | a window, held back by the slowest child of the sender | `domain/followers.rs` |
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted), from the
//! manager that sent the repair.
//!
//! Deviations from the paper:
//! - Managers are declared, not discovered by an expanding search, and domains have groups of their
//!   own instead of a time to live: see [`crate::domain`]. A member turns to the next manager above
//!   after several NAKs without a repair, or when its manager has left the view.
//! - If a domain has no multicast of its own, a NAK goes to the manager and a repair to each
//!   receiver by unicast.
//! - Any member may send; the paper has one sender. A sender is the parent of the members that have
//!   no manager.
//! - The time between NAKs for a packet follows the measured repair times of the same manager, and
//!   doubles, because repairs may wait in queues for longer than any fixed time. There is a
//!   minimum, because a repair that another member requested, or an unsolicited one, may arrive
//!   sooner and be measured.
//! - A manager that waits for an acknowledgment retransmits the oldest missing packet and sends the
//!   end of the stream. The other missing packets are requested by NAKs. The paper retransmits the
//!   whole window.
//! - A member acknowledges while packets arrive and on request, not forever, because groups here
//!   may be idle.
//! - There is no rate control: the application sets the rate. The window remains.
//! - A manager keeps packets for a bounded time and in bounded memory, and does not wait until its
//!   children have them. A child that still lacks an evicted packet loses it.
//! - A member that does not acknowledge holds back the sender for a [bounded
//!   time](Config::slow_after). Otherwise, one member could stall a group forever.
//! - [`Engine::confirm`] is not answered, because a sender gets acknowledgments only from its own
//!   children.

mod config;
mod counters;
mod managing;
pub mod packet;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Origin, PacketId,
    Profile, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange, Wakeup,
};
use zerocopy::byteorder::big_endian::U32;

pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
use self::packet::{NACK_BYTES, NUMBER_BYTES, Packet};
use crate::block::Block;
use crate::domain::{Asked, Asking, Depot, Followers};
use crate::guest::GuestPacket;
use crate::outbox::Outbox;
use crate::stream::Gap;

/// The TMTP engine of one node.
#[derive(Debug)]
pub struct Tmtp {
    id: NodeId,
    origin: Origin,
    config: Config,
    rng: Rng,
    depot: Depot,
    asking: Asking,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    outbox: Outbox,
    counters: Counters,
}

/// State of this node as a member of one group.
#[derive(Debug)]
struct Member {
    /// Children that acknowledge to this node, by source. Includes this node's own stream.
    following: BTreeMap<NodeId, Following>,
}

#[derive(Debug)]
struct Following {
    followers: Followers,
    /// `true` if the view has changed since the children were last determined.
    is_stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Ack(GroupId, NodeId),
    Retransmit(GroupId, NodeId),
}

impl Tmtp {
    /// Creates the engine of the node `origin`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid TMTP configuration: {error}");
        }
        let mut rng = Rng::new(seed);
        Self {
            id,
            origin,
            depot: Depot::new(id, &config.domains, None, rng.next_u64()),
            rng,
            asking: Asking::new(config.nack_timeouts),
            config,
            members: BTreeMap::new(),
            timers: Timers::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Processes a packet that its sender multicast, or that `from` repaired.
    fn on_block(&mut self, now: Time, id: PacketId, bytes: &[u8], from: Option<NodeId>) {
        match self.depot.arrive(now, id, bytes, from) {
            Ok(Some(gap)) => {
                self.asking.settle(now, id, from);
                self.ask_for(now, id.group, id.sender, &gap);
                self.owe_ack(now + self.config.ack_interval, id.group, id.sender);
                self.advance(now, id.group, id.sender);
            }
            Ok(None) => {}
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Schedules the NAKs for newly missing packets, after a delay that is drawn once for all of
    /// them: a member that lacks one of several packets lost together usually lacks all of them.
    fn ask_for(&mut self, now: Time, group: GroupId, source: NodeId, gap: &Gap) {
        let spread = self.config.nack_spread.mul_f64(self.rng.fraction());
        let at = now + self.config.domains.detect_after + spread;
        self.asking.add_gap(&self.depot.reception, (group, source), gap, at);
        if !gap.missing.is_empty() {
            self.advance(now, group, source);
        }
    }

    /// Sends the NAKs that are due, in the domain of this node's manager, or in those above it in
    /// turn.
    fn send_nacks(&mut self, now: Time) {
        let reception = &self.depot.reception;
        let is_missing = |id| reception.is_missing(id);
        let room = (self.config.domains.max_datagram_bytes() - NACK_BYTES) / NUMBER_BYTES;
        let parent = |group, source, tries| {
            self.depot.parent(group, source, tries / self.config.domains.climb_after)
        };
        for asked in self.asking.pop_due(now, is_missing, parent) {
            let Asked { group, source, of, seqnos } = asked;
            let Some(to) = of else {
                self.counters.nobody_to_ask += seqnos.len() as u64;
                continue;
            };
            let destination = self.depot.domain_of(group, to);
            let seqnos: Vec<U32> = seqnos.into_iter().map(|seqno| U32::new(seqno.0)).collect();
            for seqnos in seqnos.chunks(room) {
                self.counters.nacks_sent += 1;
                self.transmit(destination, group, Packet::Nack { source, to, seqnos });
            }
        }
    }

    /// Processes a NAK of `whom` to the manager `to`. It may reveal packets that are unknown to
    /// this node. If this node lacks them too and has the same manager, it postpones its own NAK.
    fn on_nack(
        &mut self,
        now: Time,
        (group, source): (GroupId, NodeId),
        (whom, to): (NodeId, NodeId),
        seqnos: &[U32],
    ) {
        self.counters.nacks_received += 1;
        let numbers = seqnos.iter().map(|seqno| SeqNo(seqno.get()));
        if source != self.id
            && let Some(last) = numbers.clone().reduce(SeqNo::later)
        {
            let gap = self.depot.reception.on_reported(now, group, source, last.next());
            self.ask_for(now, group, source, &gap);
        }
        let ids = numbers.map(|seqno| PacketId { sender: source, group, seqno });
        if to == self.id {
            ids.for_each(|id| self.depot.asked(now, id, whom));
        } else if self.depot.parent(group, source, 0) == Some(to) {
            let spread = self.config.nack_spread.mul_f64(self.rng.fraction());
            let put_off = ids.filter(|id| self.asking.put_off(now, *id, to, spread));
            self.counters.nacks_suppressed += put_off.count() as u64;
        }
    }

    fn transmit(&mut self, destination: Destination, group: GroupId, packet: Packet<'_>) {
        let view = self.depot.reception.view_version(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Engine for Tmtp {
    fn join(&mut self, _: Time, group: GroupId, settings: GroupSettings) -> Result<(), JoinError> {
        self.depot.join(group, &settings)?;
        let next = self.depot.next_number(group, self.id).unwrap_or(SeqNo::FIRST);
        let own = Following { followers: Followers::new(next), is_stale: true };
        self.members.insert(group, Member { following: [(self.id, own)].into() });
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        let joined = self.depot.reception.group(group).into_iter();
        let streams = joined.flat_map(|it| it.streams()).map(|(source, _)| source);
        let sources: BTreeSet<NodeId> = streams.chain(left.following.into_keys()).collect();
        for source in sources {
            self.timers.cancel(TimerKey::Ack(group, source));
            self.timers.cancel(TimerKey::Retransmit(group, source));
        }
        self.asking.leave(group);
        self.depot.leave(group);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        self.look_who_follows(now, group, self.id);
        let own = self.members.get(&group).and_then(|member| member.following.get(&self.id));
        let (Some(own), Some(joined)) = (own, self.depot.reception.group_mut(group)) else {
            return Err(SendError::NotJoined);
        };
        let limit = self.config.domains.payload_limit();
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        if own.followers.behind() >= self.config.window
            && let Some((by, behind)) = own.followers.furthest_behind()
        {
            self.counters.held_back += 1;
            return Err(SendError::HeldBack { by, behind });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        let block = Block::of_message(now, options.deadline, &payload);
        self.counters.data_sent += 1;
        let packet = Packet::Data { seqno, block: block.bytes() };
        self.transmit(Destination::Group(group), group, packet);
        self.depot.keep(now, PacketId { sender: self.id, group, seqno }, block);
        self.advance(now, group, self.id);
        Ok(seqno)
    }

    /// Does nothing: see the deviations in the module documentation.
    fn confirm(&mut self, _now: Time, _group: GroupId) {}

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let Ok((header, packet)) = Packet::decode(datagram) else {
            self.counters.malformed += 1;
            return None;
        };
        let (group, from) = (header.group, header.sender);
        if from == self.id || !self.members.contains_key(&group) {
            self.counters.foreign += 1;
            return None;
        }
        match packet {
            Packet::Data { seqno, block } => {
                self.on_block(now, PacketId { sender: from, group, seqno }, block, None);
            }
            Packet::Nack { source, to, seqnos } => {
                self.on_nack(now, (group, source), (from, to), seqnos);
            }
            Packet::Repair { source, seqno, block } => {
                self.on_block(now, PacketId { sender: source, group, seqno }, block, Some(from));
            }
            Packet::Ack { source, settled_to } => {
                self.on_ack(now, (group, source), from, settled_to);
            }
            Packet::Status { source, next } => self.on_status(now, (group, source), from, next),
        }
        Some(from)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        self.asking.handle_view(now, change);
        if self.depot.reception.handle_view(change)
            && let Some(member) = self.members.get_mut(&change.group)
        {
            member.following.values_mut().for_each(|following| following.is_stale = true);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.depot.handle_timeout(now);
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Ack(group, source) => self.send_ack(group, source),
                TimerKey::Retransmit(group, source) => self.on_retransmit_due(now, group, source),
            }
        }
        self.send_nacks(now);
        while let Some(repair) = self.depot.next_repair(now) {
            self.send_repair(&repair);
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.depot.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "a TMTP timer" });
        let asking = self.asking.next_due().map(|at| Wakeup { at, reason: "ask for a packet" });
        Wakeup::earlier(Wakeup::earlier(own, asking), self.depot.wakeup())
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.config.domains.payload_limit() } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.depot.held_bytes()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let own = self.counters.named();
        own.into_iter().chain(self.depot.named()).chain(self.outbox.named()).collect()
    }

    fn check(&self) {
        self.depot.check();
        self.asking.check();
        assert!(self.depot.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            for (source, following) in &member.following {
                following.followers.check();
                let is_watched = self.timers.is_set(TimerKey::Retransmit(*group, *source));
                let is_any_behind = following.followers.is_any_behind();
                assert!(!is_any_behind || is_watched, "no timer for a child that is behind");
            }
        }
        self.asking.check_asked(&self.depot.reception);
    }
}
