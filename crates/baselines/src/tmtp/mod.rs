//! Tree-based Multicast Transport Protocol: requests and repairs within domains, acknowledgements
//! up the tree of their managers.
//!
//! Source: R. Yavatkar, J. Griffioen, M. Sudan, *A Reliable Dissemination Protocol for Interactive
//! Collaborative Applications*, ACM Multimedia 1995.
//!
//! | paper | here |
//! |---|---|
//! | a control tree of domain managers | [`Hierarchy`](crate::domain::Hierarchy) |
//! | requests to the domain, suppressed where one is heard | `Tmtp::send_nacks`, `Tmtp::on_nack` |
//! | repairs by multicast in the domain, at once | `domain/depot.rs` |
//! | periodic acknowledgements to the manager | `managing.rs`: `Tmtp::send_ack` |
//! | a manager sends again what is not acknowledged | `managing.rs`: `Tmtp::on_retransmit_due` |
//! | a window, which the slowest child of the sender holds | `domain/followers.rs` |
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted), by the
//! manager that sent it.
//!
//! Deviations, each with its reason:
//! - Managers are declared and not found by an expanding search, and domains have groups of their
//!   own and no time to live: see [`crate::domain`]. Who asks in vain several times, or whose
//!   manager has left the view, asks the next one above.
//! - Where a domain has no multicast of its own, requests and repairs go to each by unicast.
//! - Any member may send; the paper has one sender. A sender is above those who have nobody above
//!   them.
//! - A member asks again after a time that follows what repairs of the same manager were measured
//!   to take and that doubles: they may wait in queues for longer than any fixed time. A repair
//!   that another one asked for, or that was sent unasked, may come sooner and count, so there is a
//!   least time.
//! - A manager that waits for an acknowledgement sends the oldest packet that is lacking, and says
//!   how many there are: what else is lacking is asked for. The paper sends all of the window.
//! - A member acknowledges while packets come and when it is asked, and not for ever: groups here
//!   may be silent.
//! - There is no rate control: the application sets the rate. The window remains.
//! - A manager keeps packets for a bounded time and in bounded memory, and does not wait until its
//!   children have them: what is not there any more is lost to who still lacks it.
//! - A member that does not acknowledge holds the sender back for a
//!   [bounded time](Config::slow_after): one member could stop a group for ever otherwise.
//! - [`Engine::confirm`] is not answered: a sender hears of its own children alone.

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

/// What this node is as a member of one group.
#[derive(Debug)]
struct Member {
    /// Who acknowledges to this node, by source; its own stream is one of them.
    following: BTreeMap<NodeId, Following>,
}

#[derive(Debug)]
struct Following {
    followers: Followers,
    /// Whether the view has changed since it was looked who they are.
    is_stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Ack(GroupId, NodeId),
    Retransmit(GroupId, NodeId),
}

impl Tmtp {
    /// The engine of node `id`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("TMTP was given a configuration that cannot work: {error}");
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

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A packet came, by its sender's multicast or repaired by `from`.
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

    /// Asks for what was found to be missing, after a while that is drawn once for all of it:
    /// who lacks one of several packets that were lost together mostly lacks all.
    fn ask_for(&mut self, now: Time, group: GroupId, source: NodeId, gap: &Gap) {
        let spread = self.config.nack_spread.mul_f64(self.rng.fraction());
        let at = now + self.config.domains.detect_after + spread;
        self.asking.add_gap(&self.depot.reception, (group, source), gap, at);
        if !gap.missing.is_empty() {
            self.advance(now, group, source);
        }
    }

    /// Asks for what is missing, in the domain of its manager, or of those above it in turn.
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

    /// `whom` asks `to` for packets of a source, of which this node is told thereby. If it lacks
    /// them too and has the same manager, it need not ask itself.
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

    /// Not answered: see the module's deviations.
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
                assert!(!is_any_behind || is_watched, "who is behind is never told again");
            }
        }
        self.asking.check_asked(&self.depot.reception);
    }
}
