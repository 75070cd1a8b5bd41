//! Sender-based forward error correction.
//!
//! Source: the baseline that Slingshot (section 2) and Ricochet (section 2, "Sender-based FEC")
//! describe, after C. Huitema, *The Case for Packet Level FEC*, 1996. For every r data packets, the
//! sender multicasts c parity packets of an erasure code. Any r of the r + c packets suffice to
//! decode all of them.
//!
//! | scheme | here |
//! |---|---|
//! | sets of r data packets of one sender in one group | `SenderFec::send`, [`packet::Set`] |
//! | c parity packets by an erasure code | `parity.rs`: `parity_of` |
//! | any r of r + c suffice | `parity.rs`: `PendingSet` |
//!
//! A decoded message is delivered as [`How::Recovered`], from its sender.
//!
//! Deviations, and choices that the scheme leaves open:
//! - The code is the Reed-Solomon code of `reed-solomon-simd`, over the field of 2^16 elements.
//! - A partly filled set is flushed ([`Config::flush_after`]), and an idle sender announces the end
//!   of its stream ([`Config::heartbeat`]), because a receiver could not detect the loss of a last
//!   message otherwise. Both can be disabled.
//! - A packet that is not recovered within [`Config::give_up_after`] of the detection of its loss
//!   is reported as lost: there is no second phase. The loss of a last message is detected by the
//!   first heartbeat that arrives, and the interval of heartbeats grows to 64 times the first one.
//!   Deadlines have no effect, because nothing is retransmitted.
//! - [`Engine::confirm`] is not answered, because receivers send nothing to the sender.

pub mod config;
mod counters;
pub mod packet;
mod parity;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, How, JoinError, NodeId, Origin, PacketId,
    Profile, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange, Wakeup,
};

pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
use self::packet::{Packet, Set};
use self::parity::{PendingSet, parity_of};
use crate::block::Block;
use crate::guest::GuestPacket;
use crate::outbox::Outbox;
use crate::reception::{Reception, Terms};
use crate::retained::Retained;

/// The engine of sender-based FEC of one node.
#[derive(Debug)]
pub struct SenderFec {
    id: NodeId,
    origin: Origin,
    config: Config,
    reception: Reception,
    retained: Retained,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    outbox: Outbox,
    counters: Counters,
}

/// State of this node as a member of one group.
#[derive(Debug, Default)]
struct Member {
    /// Symbols of this node's own set that is not full.
    filling: Vec<Block>,
    heartbeat: Duration,
    /// Incomplete sets of the other senders, oldest first.
    pending: BTreeMap<NodeId, VecDeque<PendingSet>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Flush(GroupId),
    Heartbeat(GroupId),
}

/// Maximum growth of the interval of heartbeats, as a multiple of its first value.
const HEARTBEAT_GROWTH: u32 = 64;

impl SenderFec {
    /// Creates the engine of the node `origin`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid sender-based FEC configuration: {error}");
        }
        let terms = Terms {
            owed: config.owed,
            max_missing: config.max_missing,
            max_streams: config.max_streams,
            give_up_after: config.give_up_after,
        };
        let retained =
            Retained::new(config.retain_bytes, config.give_up_after, Rng::new(seed).next_u64());
        Self {
            id,
            origin,
            reception: Reception::new(id, terms),
            retained,
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

    fn on_data(&mut self, now: Time, id: PacketId, bytes: &[u8]) {
        let Ok(block) = Block::copy(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if self.reception.on_data(now, id, &block).is_some() {
            self.retained.insert(now, id, block);
            self.solve(now, id.group, id.sender, Some(id.seqno));
        }
    }

    fn on_parity(
        &mut self,
        now: Time,
        group: GroupId,
        sender: NodeId,
        (set, index): (Set, u8),
        shard: &[u8],
    ) {
        self.counters.parity_received += 1;
        self.reception.on_announced(now, group, sender, set.end());
        let (max_sets, max_streams) = (self.config.max_sets, self.config.max_streams);
        let is_missing = |seqno| self.reception.is_missing(PacketId { sender, group, seqno });
        if !set.seqnos().any(is_missing) {
            self.counters.parity_redundant += 1;
            return;
        }
        let Some(member) = self.members.get_mut(&group) else { return };
        if member.pending.len() >= max_streams && !member.pending.contains_key(&sender) {
            let gone = member.pending.pop_first();
            self.counters.sets_dropped += gone.map_or(0, |(_, sets)| sets.len() as u64);
        }
        let pending = member.pending.entry(sender).or_default();
        let known = pending.iter_mut().find(|it| it.fits(set, shard.len()));
        match known {
            Some(known) => known.add(index, shard),
            None => {
                if pending.len() >= max_sets {
                    pending.pop_front();
                    self.counters.sets_dropped += 1;
                }
                let mut new = PendingSet::new(set, shard.len());
                new.add(index, shard);
                pending.push_back(new);
            }
        }
        self.solve(now, group, sender, None);
    }

    /// Decodes the sender's sets that can be decoded: those that contain packet `of`, or all.
    fn solve(&mut self, now: Time, group: GroupId, sender: NodeId, of: Option<SeqNo>) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(pending) = member.pending.get_mut(&sender) else { return };
        let id = |seqno| PacketId { sender, group, seqno };
        let mut solved = Vec::new();
        pending.retain(|waiting| {
            let set = waiting.set;
            if of.is_some_and(|seqno| !set.contains(seqno)) {
                return true;
            }
            if !set.seqnos().any(|seqno| self.reception.is_missing(id(seqno))) {
                // All packets have arrived or were given up.
                return false;
            }
            let result = waiting.solve(|seqno| self.retained.get(&id(seqno)));
            let is_waiting = result.is_none();
            solved.extend(result.into_iter().flatten());
            is_waiting
        });
        if pending.is_empty() {
            member.pending.remove(&sender);
        }
        for block in solved {
            match block {
                Ok((seqno, block)) => {
                    let how = How::Recovered(sender);
                    if self.reception.on_block(now, id(seqno), &block, how).is_some() {
                        self.retained.insert(now, id(seqno), block);
                    }
                }
                Err(_) => self.counters.parity_contradictory += 1,
            }
        }
    }

    /// Sends the parity of this node's own set, full or not.
    fn send_parity(&mut self, group: GroupId) {
        self.timers.cancel(TimerKey::Flush(group));
        let (r, c) = (usize::from(self.config.r), usize::from(self.config.c));
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group(group))
        else {
            return;
        };
        let blocks = core::mem::take(&mut member.filling);
        let count = (c * blocks.len()).div_ceil(r);
        if count == 0 {
            return;
        }
        if blocks.len() < r {
            self.counters.sets_flushed += 1;
        }
        let first = joined.next.minus(blocks.len() as u32);
        let set = Set { first, data: blocks.len() as u8, parity: count as u8 };
        for (index, shard) in parity_of(&blocks, set.parity).iter().enumerate() {
            self.counters.parity_sent += 1;
            self.multicast(group, Packet::Parity { set, index: index as u8, shard });
        }
    }

    fn send_heartbeat(&mut self, now: Time, group: GroupId) {
        let (Some(first), Some(member), Some(joined)) =
            (self.config.heartbeat, self.members.get_mut(&group), self.reception.group(group))
        else {
            return;
        };
        let next = joined.next;
        member.heartbeat = (member.heartbeat * 2).min(first * HEARTBEAT_GROWTH);
        self.timers.set(TimerKey::Heartbeat(group), now + member.heartbeat);
        self.counters.heartbeats_sent += 1;
        self.multicast(group, Packet::Heartbeat { next });
    }

    fn multicast(&mut self, group: GroupId, packet: Packet<'_>) {
        let view = self.reception.view_version(group);
        let destination = Destination::Group(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Member {
    /// Returns the size of this node's own set and of the pending parity, in bytes.
    fn bytes(&self) -> usize {
        let filling: usize = self.filling.iter().map(|block| block.bytes().len()).sum();
        let pending = self.pending.values().flatten().map(PendingSet::bytes);
        filling + pending.sum::<usize>()
    }
}

impl Engine for SenderFec {
    fn join(
        &mut self,
        _now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.reception.join(group, &settings)?;
        self.members.insert(group, Member::default());
        Ok(())
    }

    /// Sends the parity of the partly filled set before the node leaves.
    fn leave(&mut self, _now: Time, group: GroupId) {
        self.send_parity(group);
        if self.members.remove(&group).is_some() {
            self.timers.cancel(TimerKey::Heartbeat(group));
            self.reception.leave(group);
            self.retained.forget_group(group);
        }
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let limit = self.config.payload_limit();
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group_mut(group))
        else {
            return Err(SendError::NotJoined);
        };
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        let block = Block::of_message(now, options.deadline, &payload);
        member.filling.push(block.clone());
        let is_full = member.filling.len() >= usize::from(self.config.r);
        if let Some(interval) = self.config.heartbeat {
            member.heartbeat = interval;
            self.timers.set(TimerKey::Heartbeat(group), now + interval);
        }
        if let Some(flush_after) = self.config.flush_after {
            self.timers.set_no_later(TimerKey::Flush(group), now + flush_after);
        }
        self.counters.data_sent += 1;
        self.multicast(group, Packet::Data { seqno, block: block.bytes() });
        if is_full {
            self.send_parity(group);
        }
        Ok(seqno)
    }

    /// Does nothing: see the deviations in the module documentation.
    fn confirm(&mut self, _now: Time, _group: GroupId) {}

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let Ok((header, packet)) = Packet::decode(datagram) else {
            self.counters.malformed += 1;
            return None;
        };
        let (group, sender) = (header.group, header.sender);
        if sender == self.id || !self.members.contains_key(&group) {
            self.counters.foreign += 1;
            return None;
        }
        match packet {
            Packet::Data { seqno, block } => {
                self.on_data(now, PacketId { sender, group, seqno }, block);
            }
            Packet::Parity { set, index, shard } => {
                self.on_parity(now, group, sender, (set, index), shard);
            }
            Packet::Heartbeat { next } => {
                self.reception.on_announced(now, group, sender, next);
            }
        }
        Some(sender)
    }

    fn handle_view(&mut self, _now: Time, change: &ViewChange) {
        self.reception.handle_view(change);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reception.handle_timeout(now);
        self.retained.evict_old(now);
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Flush(group) => self.send_parity(group),
                TimerKey::Heartbeat(group) => self.send_heartbeat(now, group),
            }
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due();
        let own = own.map(|at| Wakeup { at, reason: "flush a set, or a heartbeat" });
        let lost = self.reception.next_due().map(|at| Wakeup { at, reason: "give up a packet" });
        Wakeup::earlier(own, lost)
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.config.payload_limit() } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.retained.bytes() + self.members.values().map(Member::bytes).sum::<usize>()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let own = self.counters.named();
        let stats = own.into_iter().chain(self.reception.named()).chain(self.retained.named());
        stats.chain(self.outbox.named()).collect()
    }

    fn check(&self) {
        self.reception.check();
        self.retained.check();
        assert!(self.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            assert!(member.filling.len() < usize::from(self.config.r), "a full set is kept");
            let is_flushed = self.config.flush_after.is_some();
            let is_set = self.timers.is_set(TimerKey::Flush(*group));
            assert!(member.filling.is_empty() || !is_flushed || is_set, "a set has no flush timer");
            assert!(
                member.pending.len() <= self.config.max_streams,
                "sets of too many senders are pending"
            );
            for sets in member.pending.values() {
                assert!(
                    (1..=self.config.max_sets).contains(&sets.len()),
                    "too many sets are pending"
                );
                let is_sound =
                    |it: &PendingSet| (1..=usize::from(it.set.parity)).contains(&it.shards());
                assert!(sets.iter().all(is_sound), "a pending set has too much parity");
            }
        }
    }
}
