//! Sender-based forward error correction.
//!
//! Source: the baseline that Slingshot (section 2) and Ricochet (section 2, "Sender-based FEC")
//! describe, after C. Huitema, *The Case for Packet Level FEC*, 1996. For every r data packets, the
//! sender multicasts c parity packets of an erasure code. Any r of the r + c packets suffice to
//! decode all of them.
//!
//! | scheme | here |
//! |---|---|
//! | sets of r data packets of one sender in one group | `SenderFec::on_sent`, [`packet::Set`] |
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
//! - [`Engine::confirm`](carom_proto::Engine::confirm) is not answered, because receivers send
//!   nothing to the sender.

mod config;
pub mod packet;
mod parity;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use carom_proto::{
    Destination, GroupId, How, NodeId, Origin, PacketId, Rng, SeqNo, Timers, Wakeup,
};

pub use self::config::Config;
use self::packet::{Packet, Set};
use self::parity::{PendingSet, parity_of};
use crate::block::Block;
use crate::config::assert_valid;
use crate::reception::Terms;
use crate::retained::Retained;
use crate::shell::{Context, Policy, Shell};

/// The policy of sender-based FEC at one node.
#[derive(Debug)]
pub struct SenderFec {
    config: Config,
    retained: Retained,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Member {
    filling: Vec<Block>,
    heartbeat: Duration,
    pending: BTreeMap<NodeId, VecDeque<PendingSet>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Flush(GroupId),
    Heartbeat(GroupId),
}

carom_proto::counters! {
    struct Counters {
        parity_sent,
        sets_flushed,
        heartbeats_sent,
        parity_received,
        /// Parity packets of sets without missing packets.
        parity_redundant,
        /// Decoded symbols that are invalid because the parity contradicts the known symbols.
        parity_contradictory,
        sets_dropped,
    }
}

/// Maximum interval of heartbeats, as a multiple of its first value.
const HEARTBEAT_GROWTH: u32 = 64;

impl SenderFec {
    /// Creates the engine of the node `origin`, whose randomness comes from `seed`. Panics if
    /// the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Shell<Self> {
        assert_valid("sender-based FEC", config.validate());
        let terms = Terms { streams: config.streams, give_up_after: config.give_up_after };
        let hash_seed = Rng::new(seed).next_u64();
        let limit = config.payload_limit();
        let policy = Self {
            retained: Retained::new(config.retain_bytes, config.give_up_after, hash_seed),
            config,
            members: BTreeMap::new(),
            timers: Timers::new(),
            counters: Counters::default(),
        };
        Shell::new(origin, terms, limit, policy)
    }

    fn on_parity(
        &mut self,
        cx: &mut Context,
        (group, sender): (GroupId, NodeId),
        (set, index): (Set, u8),
        shard: &[u8],
    ) {
        self.counters.parity_received += 1;
        cx.reception.on_announced(cx.now, group, sender, set.end());
        let is_missing = |seqno| cx.reception.is_missing(PacketId { sender, group, seqno });
        if !set.seqnos().any(is_missing) {
            self.counters.parity_redundant += 1;
            return;
        }
        let Some(member) = self.members.get_mut(&group) else { return };
        let is_known = member.pending.contains_key(&sender);
        if member.pending.len() >= self.config.streams.max_streams && !is_known {
            let gone = member.pending.pop_first();
            self.counters.sets_dropped += gone.map_or(0, |(_, sets)| sets.len() as u64);
        }
        let pending = member.pending.entry(sender).or_default();
        let known = pending.iter_mut().find(|it| it.fits(set, shard.len()));
        match known {
            Some(known) => known.add(index, shard),
            None => {
                if pending.len() >= self.config.max_sets {
                    pending.pop_front();
                    self.counters.sets_dropped += 1;
                }
                let mut new = PendingSet::new(set, shard.len());
                new.add(index, shard);
                pending.push_back(new);
            }
        }
        self.solve(cx, group, sender, None);
    }

    /// Decodes the sender's decodable sets that contain packet `of`, or all of them.
    fn solve(&mut self, cx: &mut Context, group: GroupId, sender: NodeId, of: Option<SeqNo>) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(pending) = member.pending.get_mut(&sender) else { return };
        let id = |seqno| PacketId { sender, group, seqno };
        let mut solved = Vec::new();
        pending.retain(|waiting| {
            let set = waiting.set;
            if of.is_some_and(|seqno| !set.contains(seqno)) {
                return true;
            }
            if !set.seqnos().any(|seqno| cx.reception.is_missing(id(seqno))) {
                // All packets have arrived or are lost.
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
                    if cx.reception.on_block(cx.now, id(seqno), &block, how).is_some() {
                        self.retained.insert(cx.now, id(seqno), block);
                    }
                }
                Err(_) => self.counters.parity_contradictory += 1,
            }
        }
    }

    fn send_parity(&mut self, cx: &mut Context, group: GroupId) {
        self.timers.cancel(TimerKey::Flush(group));
        let (r, c) = (usize::from(self.config.r), usize::from(self.config.c));
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(joined) = cx.reception.group(group) else { return };
        let blocks = core::mem::take(&mut member.filling);
        let count = (c * blocks.len()).div_ceil(r);
        if count == 0 {
            return;
        }
        if blocks.len() < r {
            self.counters.sets_flushed += 1;
        }
        let first = joined.next().minus(blocks.len() as u32);
        let set = Set { first, data: blocks.len() as u8, parity: count as u8 };
        for (index, shard) in parity_of(&blocks, set.parity).iter().enumerate() {
            self.counters.parity_sent += 1;
            let parity = Packet::Parity { set, index: index as u8, shard };
            cx.transmit(Destination::Group(group), group, parity);
        }
    }

    fn send_heartbeat(&mut self, cx: &mut Context, group: GroupId) {
        let Some(first) = self.config.heartbeat else { return };
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(next) = cx.next_seqno(group, cx.id) else { return };
        member.heartbeat = (member.heartbeat * 2).min(first * HEARTBEAT_GROWTH);
        self.timers.set(TimerKey::Heartbeat(group), cx.now + member.heartbeat);
        self.counters.heartbeats_sent += 1;
        cx.transmit(Destination::Group(group), group, Packet::Heartbeat { next });
    }
}

impl Member {
    fn bytes(&self) -> usize {
        let filling: usize = self.filling.iter().map(|block| block.bytes().len()).sum();
        let pending = self.pending.values().flatten().map(PendingSet::bytes);
        filling + pending.sum::<usize>()
    }

    fn check(&self, config: &Config) {
        assert!(self.filling.len() < usize::from(config.r), "a full set is kept");
        assert!(
            self.pending.len() <= config.streams.max_streams,
            "sets of too many senders are pending"
        );
        for sets in self.pending.values() {
            assert!((1..=config.max_sets).contains(&sets.len()), "too many sets are pending");
            let is_sound =
                |it: &PendingSet| (1..=usize::from(it.set.parity)).contains(&it.shards());
            assert!(sets.iter().all(is_sound), "a pending set has too much parity");
        }
    }
}

impl Policy for SenderFec {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, _: &mut Context, group: GroupId) {
        self.members.insert(group, Member::default());
    }

    /// Sends the parity of the partly filled set before the node leaves.
    fn leave(&mut self, cx: &mut Context, group: GroupId) {
        self.send_parity(cx, group);
        self.members.remove(&group);
        self.timers.cancel(TimerKey::Heartbeat(group));
        self.retained.forget_group(group);
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block) {
        let group = id.group;
        let Some(member) = self.members.get_mut(&group) else { return };
        member.filling.push(block);
        if let Some(interval) = self.config.heartbeat {
            member.heartbeat = interval;
            self.timers.set(TimerKey::Heartbeat(group), cx.now + interval);
        }
        if let Some(flush_after) = self.config.flush_after {
            self.timers.set_no_later(TimerKey::Flush(group), cx.now + flush_after);
        }
        if member.filling.len() >= usize::from(self.config.r) {
            self.send_parity(cx, group);
        }
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, _: Option<NodeId>) {
        if cx.reception.on_data(cx.now, id, &block).is_some() {
            self.retained.insert(cx.now, id, block);
            self.solve(cx, id.group, id.sender, Some(id.seqno));
        }
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        match packet {
            Packet::Parity { set, index, shard } => {
                self.on_parity(cx, (group, from), (set, index), shard);
            }
            Packet::Heartbeat { next } => {
                cx.reception.on_announced(cx.now, group, from, next);
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        self.retained.evict_old(cx.now);
        while let Some(key) = self.timers.pop_due(cx.now) {
            match key {
                TimerKey::Flush(group) => self.send_parity(cx, group),
                TimerKey::Heartbeat(group) => self.send_heartbeat(cx, group),
            }
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        let due = self.timers.next_due();
        due.map(|at| Wakeup { at, reason: "flush a set, or a heartbeat" })
    }

    fn retained(&self) -> Option<&Retained> {
        Some(&self.retained)
    }

    fn held_bytes(&self) -> usize {
        self.members.values().map(Member::bytes).sum()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn check(&self, cx: &Context) {
        assert!(cx.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            member.check(&self.config);
            let is_flushed = self.config.flush_after.is_some();
            let is_set = self.timers.is_set(TimerKey::Flush(*group));
            assert!(member.filling.is_empty() || !is_flushed || is_set, "a set has no flush timer");
        }
    }
}
