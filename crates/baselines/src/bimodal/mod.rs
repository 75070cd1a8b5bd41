//! Bimodal Multicast (pbcast).
//!
//! Source: K. Birman, M. Hayden, O. Ozkasap, Z. Xiao, M. Budiu, Y. Minsky, *Bimodal Multicast*, ACM
//! Transactions on Computer Systems 17(2), 1999.
//!
//! | paper | here |
//! |---|---|
//! | 3 optimistic dissemination: an unreliable multicast | `Bimodal::send` |
//! | 3 two-phase anti-entropy: rounds, a digest to a random member | `Bimodal::begin_round` |
//! | 3 solicitation of messages that a digest shows to be missing | `Bimodal::on_digest` |
//! | 3 garbage collection after a number of rounds | `history.rs` |
//! | 3.1 loss notification | [`Config::give_up_rounds`] |
//! | 4 soft failures: solicitations of a past round are not served | `Bimodal::on_solicit` |
//! | 4 round retransmission limit | [`Config::retransmissions_per_round`] |
//! | 4 most-recent-first transmission | `Bimodal::on_digest` |
//!
//! A message that was recovered by gossip is delivered as [`How::Retransmitted`], from the
//! gossiping member.
//!
//! Deviations from the paper:
//! - Messages are delivered at once, not in sender order. The other engines do the same, and
//!   ordering would add to every delay that is compared.
//! - A message's age in rounds counts from its arrival here, not from its multicast, which saves a
//!   field on the wire. Together with the limit on losses, the only difference is that a message
//!   that arrived late is gossiped about for longer.
//! - Empty digests are not sent. Members that multicast gossip like all others.
//! - A digest that would exceed the path MTU lists the most recent ranges.
//! - The optimizations of section 4 for wide-area networks (cyclic retransmissions, independent
//!   numbering, random graphs, multicast of often-solicited messages) are omitted: they have no
//!   effect in a rack.
//! - [`Engine::confirm`] is not answered, because members send no acknowledgments.

mod config;
mod counters;
mod history;
pub mod packet;

use std::collections::BTreeMap;

use bytes::Bytes;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, How, JoinError, NodeId, Origin, PacketId,
    Profile, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange, Wakeup,
};

pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
use self::history::History;
use self::packet::{DIGEST_BYTES, Packet, RANGE_BYTES, Range};
use crate::block::Block;
use crate::guest::GuestPacket;
use crate::outbox::Outbox;
use crate::reception::{Reception, Terms};

/// The Bimodal Multicast engine of one node.
#[derive(Debug)]
pub struct Bimodal {
    id: NodeId,
    origin: Origin,
    config: Config,
    rng: Rng,
    reception: Reception,
    members: BTreeMap<GroupId, Member>,
    /// Round timers of the groups. Each group has its own phase.
    rounds: Timers<GroupId>,
    outbox: Outbox,
    counters: Counters,
}

/// State of this node as a member of one group.
#[derive(Debug)]
struct Member {
    history: History,
    round: u32,
    /// Number of messages retransmitted in this round.
    retransmissions: u32,
}

impl Bimodal {
    /// Creates the engine of the node `origin`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid Bimodal Multicast configuration: {error}");
        }
        let terms = Terms {
            owed: config.owed,
            max_missing: config.max_missing,
            max_streams: config.max_streams,
            give_up_after: config.round.saturating_mul(config.give_up_rounds),
        };
        Self {
            id,
            origin,
            config,
            rng: Rng::new(seed),
            reception: Reception::new(id, terms),
            members: BTreeMap::new(),
            rounds: Timers::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn on_data(&mut self, now: Time, id: PacketId, bytes: &[u8]) {
        let Ok(block) = Block::copy(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if self.reception.on_data(now, id, &block).is_some() {
            self.keep(id, block);
        }
    }

    fn on_retransmission(&mut self, now: Time, id: PacketId, gossiper: NodeId, bytes: &[u8]) {
        let Ok(block) = Block::copy(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let how = How::Retransmitted(gossiper);
        if self.reception.on_block(now, id, &block, how).is_some() {
            self.keep(id, block);
        }
    }

    fn keep(&mut self, id: PacketId, block: Block) {
        let max = self.config.max_history;
        if let Some(member) = self.members.get_mut(&id.group) {
            let Member { history, round, .. } = member;
            self.counters.history_dropped +=
                history.insert(*round, id.sender, id.seqno, block, max);
        }
    }

    /// Begins a gossip round: sends a digest of the history to one random member.
    fn begin_round(&mut self, now: Time, group: GroupId) {
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group(group))
        else {
            return;
        };
        self.rounds.set(group, now + self.config.round);
        self.counters.rounds += 1;
        member.round = member.round.saturating_add(1);
        member.retransmissions = 0;
        member.history.collect_garbage(member.round.saturating_sub(self.config.history_rounds));
        let members = joined.view.members();
        if members.is_empty() {
            return;
        }
        let target = members[self.rng.below(members.len())];
        let room = (self.config.max_datagram_bytes() - DIGEST_BYTES) / RANGE_BYTES;
        let (round, ranges) = (member.round, member.history.digest(room));
        if !ranges.is_empty() {
            self.counters.digests_sent += 1;
            self.transmit(target, group, Packet::Digest { round, ranges: &ranges });
        }
    }

    /// Processes a member's digest: solicits the packets that are missing here, most recent first.
    fn on_digest(
        &mut self,
        now: Time,
        group: GroupId,
        gossiper: NodeId,
        round: u32,
        ranges: &[Range],
    ) {
        self.counters.digests_received += 1;
        let room = (self.config.max_datagram_bytes() - DIGEST_BYTES) / RANGE_BYTES;
        let limit = room.min(self.config.solicited_per_digest as usize);
        let mut lacking: Vec<(NodeId, SeqNo)> = Vec::new();
        for range in ranges {
            let sender = range.sender();
            if sender == self.id {
                continue;
            }
            self.reception.on_announced(now, group, sender, range.last().next());
            let Some(stream) = self.reception.stream(group, sender) else { continue };
            let missing = stream.missing().rev().filter(|seqno| range.contains(*seqno));
            lacking.extend(missing.take(limit).map(|seqno| (sender, seqno)));
        }
        if lacking.is_empty() {
            return;
        }
        // Most recent packets first. Packets of different senders alternate.
        let newest = |sender: NodeId, seqno: SeqNo| {
            let next = self.reception.stream(group, sender).map_or(seqno, |stream| stream.next());
            next.distance_from(seqno)
        };
        lacking.sort_by_key(|(sender, seqno)| (newest(*sender, *seqno), *sender));
        // Ranges may overlap.
        lacking.dedup();
        lacking.truncate(limit);
        self.counters.solicits_sent += 1;
        self.counters.messages_solicited += lacking.len() as u64;
        let range = |(sender, seqno)| Range::new(sender, seqno, seqno);
        let ranges: Vec<Range> = lacking.into_iter().map(range).collect();
        self.transmit(gossiper, group, Packet::Solicit { round, ranges: &ranges });
    }

    /// Retransmits solicited messages up to the round's limit, if the solicitation answers this
    /// round's digest.
    fn on_solicit(
        &mut self,
        now: Time,
        group: GroupId,
        node: NodeId,
        round: u32,
        ranges: &[Range],
    ) {
        let limit = self.config.retransmissions_per_round;
        let Some(member) = self.members.get_mut(&group) else { return };
        if round != member.round {
            self.counters.solicits_stale += 1;
            return;
        }
        let mut found = Vec::new();
        for range in ranges {
            let count = range.last().distance_from(range.first()).unsigned_abs().saturating_add(1);
            let room = limit - member.retransmissions;
            self.counters.retransmissions_limited += u64::from(count.saturating_sub(room));
            for place in 0..count.min(room) {
                let seqno = range.first().plus(place);
                match member.history.get(range.sender(), seqno) {
                    Some(block) if !block.is_expired(now) => {
                        member.retransmissions += 1;
                        found.push((range.sender(), seqno, block.clone()));
                    }
                    _ => self.counters.solicits_unanswerable += 1,
                }
            }
        }
        for (origin, seqno, block) in found {
            self.counters.retransmissions_sent += 1;
            let packet = Packet::Retransmission { origin, seqno, block: block.bytes() };
            self.transmit(node, group, packet);
        }
    }

    fn transmit(&mut self, node: NodeId, group: GroupId, packet: Packet<'_>) {
        self.transmit_to(Destination::Node(node), group, packet);
    }

    fn transmit_to(&mut self, destination: Destination, group: GroupId, packet: Packet<'_>) {
        let view = self.reception.view_version(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Engine for Bimodal {
    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.reception.join(group, &settings)?;
        let member = Member { history: History::default(), round: 0, retransmissions: 0 };
        self.members.insert(group, member);
        // Rounds are not synchronized: each member has its own phase.
        let phase = self.config.round.mul_f64(self.rng.fraction());
        self.rounds.set(group, now + phase);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        if self.members.remove(&group).is_some() {
            self.rounds.cancel(group);
            self.reception.leave(group);
        }
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let joined = self.reception.group_mut(group).ok_or(SendError::NotJoined)?;
        let limit = self.config.payload_limit();
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        let block = Block::of_message(now, options.deadline, &payload);
        self.counters.data_sent += 1;
        let packet = Packet::Data { seqno, block: block.bytes() };
        self.transmit_to(Destination::Group(group), group, packet);
        self.keep(PacketId { sender: self.id, group, seqno }, block);
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
                self.on_data(now, PacketId { sender: from, group, seqno }, block);
            }
            Packet::Digest { round, ranges } => self.on_digest(now, group, from, round, ranges),
            Packet::Solicit { round, ranges } => self.on_solicit(now, group, from, round, ranges),
            Packet::Retransmission { origin, seqno, block } => {
                let id = PacketId { sender: origin, group, seqno };
                self.on_retransmission(now, id, from, block);
            }
        }
        Some(from)
    }

    fn handle_view(&mut self, _now: Time, change: &ViewChange) {
        self.reception.handle_view(change);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reception.handle_timeout(now);
        while let Some(group) = self.rounds.pop_due(now) {
            self.begin_round(now, group);
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.rounds.next_due().map(|at| Wakeup { at, reason: "a round of gossip" });
        let lost = self.reception.next_due().map(|at| Wakeup { at, reason: "give up a packet" });
        Wakeup::earlier(own, lost)
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.config.payload_limit() } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.members.values().map(|member| member.history.bytes()).sum()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let own = self.counters.named();
        own.into_iter().chain(self.reception.named()).chain(self.outbox.named()).collect()
    }

    fn check(&self) {
        self.reception.check();
        assert!(self.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            assert!(self.rounds.is_set(*group), "no gossip round is scheduled");
            member.history.check(self.config.max_history);
            let limit = self.config.retransmissions_per_round;
            assert!(member.retransmissions <= limit, "a round exceeds its retransmission limit");
        }
    }
}
