//! Bimodal Multicast (pbcast).
//!
//! Source: K. Birman, M. Hayden, O. Ozkasap, Z. Xiao, M. Budiu, Y. Minsky, *Bimodal Multicast*, ACM
//! Transactions on Computer Systems 17(2), 1999.
//!
//! | paper | here |
//! |---|---|
//! | 3 optimistic dissemination: an unreliable multicast | `shell.rs` |
//! | 3 two-phase anti-entropy: rounds, a digest to a random member | `Bimodal::begin_round` |
//! | 3 solicitation of messages that a digest shows to be missing | `Bimodal::on_digest` |
//! | 3 garbage collection after a number of rounds | `history.rs` |
//! | 3.1 loss notification | [`Config::give_up_rounds`] |
//! | 4 soft failures: solicitations of a past round are not served | `Bimodal::on_solicit` |
//! | 4 round retransmission limit | [`Config::retransmissions_per_round`] |
//! | 4 most-recent-first transmission | `Bimodal::on_digest` |
//!
//! A message recovered by gossip is delivered as [`How::Retransmitted`] by the gossiping member.
//!
//! Deviations from the paper:
//! - Messages are delivered at once, not in sender order. The other engines do the same, and
//!   ordering would add to every delay that is compared.
//! - A message's age in rounds counts from its arrival, not from its multicast, which saves a field
//!   on the wire. Together with the limit on losses, the only difference is that a message that
//!   arrived late is gossiped about for longer.
//! - Empty digests are not sent. Members that send messages gossip like all others.
//! - A digest that would exceed the path MTU lists the most recent ranges.
//! - The optimizations of section 4 for wide-area networks (cyclic retransmissions, independent
//!   numbering, random graphs, multicast of often-solicited messages) are omitted: they have no
//!   effect in a rack.
//! - [`Engine::confirm`](carom_proto::Engine::confirm) is not answered, because members send no
//!   acknowledgments.

mod config;
mod history;
pub mod packet;

use std::collections::BTreeMap;

use carom_proto::{
    Destination, GroupId, How, NodeId, Origin, PacketId, Rng, SeqNo, Timers, Wakeup,
};

pub use self::config::Config;
use self::history::History;
use self::packet::{DIGEST_BYTES, Packet, RANGE_BYTES, Range};
use crate::block::Block;
use crate::config::assert_valid;
use crate::guest::Datagram;
use crate::reception::Terms;
use crate::shell::{Context, Policy, Shell};

/// The policy of Bimodal Multicast at one node.
#[derive(Debug)]
pub struct Bimodal {
    config: Config,
    rng: Rng,
    members: BTreeMap<GroupId, Member>,
    rounds: Timers<GroupId>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Member {
    history: History,
    round: u32,
    retransmissions: u32,
}

carom_proto::counters! {
    struct Counters {
        /// Gossip rounds, including rounds without a digest.
        rounds,
        digests_sent,
        digests_received,
        solicits_sent,
        messages_solicited,
        retransmissions_sent,
        /// Solicited messages that were not sent because the limit of the round was reached.
        retransmissions_limited,
        /// Solicited messages that are not kept, or whose deadline has passed.
        solicits_unanswerable,
        /// Solicitations that arrived too late, because they answer the digest of an earlier round.
        solicits_stale,
        history_dropped,
    }
}

impl Bimodal {
    /// Creates the engine of the node `origin`, whose randomness comes from `seed`. Panics if
    /// the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Shell<Self> {
        assert_valid("Bimodal Multicast", config.validate());
        let give_up_after = config.round.saturating_mul(config.give_up_rounds);
        let terms = Terms { streams: config.streams, give_up_after };
        let (rng, members, rounds) = (Rng::new(seed), BTreeMap::new(), Timers::new());
        let limit = config.payload_limit();
        let policy = Self { config, rng, members, rounds, counters: Counters::default() };
        Shell::new(origin, terms, limit, policy)
    }

    fn keep(&mut self, id: PacketId, block: Block) {
        let max = self.config.max_history;
        if let Some(Member { history, round, .. }) = self.members.get_mut(&id.group) {
            self.counters.history_dropped +=
                history.insert(*round, id.sender, id.seqno, block, max);
        }
    }

    fn max_ranges(&self) -> usize {
        (self.config.streams.max_datagram_bytes() - DIGEST_BYTES) / RANGE_BYTES
    }

    fn begin_round(&mut self, cx: &mut Context, group: GroupId) {
        let max_ranges = self.max_ranges();
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(joined) = cx.reception.group(group) else { return };
        self.rounds.set(group, cx.now + self.config.round);
        self.counters.rounds += 1;
        member.round = member.round.saturating_add(1);
        member.retransmissions = 0;
        member.history.collect_garbage(member.round.saturating_sub(self.config.history_rounds));
        let members = joined.view.members();
        if members.is_empty() {
            return;
        }
        let target = members[self.rng.below(members.len())];
        let (round, ranges) = (member.round, member.history.digest(max_ranges));
        if !ranges.is_empty() {
            self.counters.digests_sent += 1;
            let digest = Packet::Digest { round, ranges: &ranges };
            cx.transmit(Destination::Node(target), group, digest);
        }
    }

    fn on_digest(
        &mut self,
        cx: &mut Context,
        (group, gossiper): (GroupId, NodeId),
        round: u32,
        ranges: &[Range],
    ) {
        self.counters.digests_received += 1;
        let limit = self.max_ranges().min(self.config.solicited_per_digest as usize);
        let mut lacking: Vec<(NodeId, SeqNo)> = Vec::new();
        for range in ranges.iter().filter(|range| range.sender() != cx.id) {
            let sender = range.sender();
            cx.reception.on_announced(cx.now, group, sender, range.last().next());
            let Some(stream) = cx.reception.stream(group, sender) else { continue };
            let missing = stream.missing().rev().filter(|seqno| range.contains(*seqno));
            lacking.extend(missing.take(limit).map(|seqno| (sender, seqno)));
        }
        if lacking.is_empty() {
            return;
        }
        // The most recent packets come first, and packets of different senders alternate.
        let newest = |sender: NodeId, seqno: SeqNo| {
            let next = cx.reception.stream(group, sender).map_or(seqno, |stream| stream.next());
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
        let solicit = Packet::Solicit { round, ranges: &ranges };
        cx.transmit(Destination::Node(gossiper), group, solicit);
    }

    /// Retransmits up to the limit of the round. Ignores solicitations for other rounds.
    fn on_solicit(
        &mut self,
        cx: &mut Context,
        (group, node): (GroupId, NodeId),
        round: u32,
        ranges: &[Range],
    ) {
        let limit = self.config.retransmissions_per_round;
        let Some(member) = self.members.get_mut(&group) else { return };
        if round != member.round {
            self.counters.solicits_stale += 1;
            return;
        }
        for range in ranges {
            let count = range.last().distance_from(range.first()).unsigned_abs().saturating_add(1);
            let room = limit - member.retransmissions;
            self.counters.retransmissions_limited += u64::from(count.saturating_sub(room));
            for place in 0..count.min(room) {
                let (source, seqno) = (range.sender(), range.first().plus(place));
                match member.history.get(source, seqno) {
                    Some(block) if !block.is_expired(cx.now) => {
                        member.retransmissions += 1;
                        self.counters.retransmissions_sent += 1;
                        let block = block.bytes();
                        let repair: Datagram<'_, Packet<'_>> =
                            Datagram::Repair { source, seqno, block };
                        cx.push(Destination::Node(node), group, repair);
                    }
                    _ => self.counters.solicits_unanswerable += 1,
                }
            }
        }
    }
}

impl Policy for Bimodal {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, cx: &mut Context, group: GroupId) {
        self.members.insert(group, Member::default());
        // Rounds are not synchronized: each member has its own phase.
        let phase = self.config.round.mul_f64(self.rng.fraction());
        self.rounds.set(group, cx.now + phase);
    }

    fn leave(&mut self, _: &mut Context, group: GroupId) {
        self.members.remove(&group);
        self.rounds.cancel(group);
    }

    fn on_sent(&mut self, _: &mut Context, id: PacketId, block: Block) {
        self.keep(id, block);
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, from: Option<NodeId>) {
        let gap = match from {
            None => cx.reception.on_data(cx.now, id, &block),
            Some(gossiper) => {
                cx.reception.on_block(cx.now, id, &block, How::Retransmitted(gossiper))
            }
        };
        if gap.is_some() {
            self.keep(id, block);
        }
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        match packet {
            Packet::Digest { round, ranges } => {
                self.on_digest(cx, (group, from), round, ranges);
            }
            Packet::Solicit { round, ranges } => {
                self.on_solicit(cx, (group, from), round, ranges);
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        while let Some(group) = self.rounds.pop_due(cx.now) {
            self.begin_round(cx, group);
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        self.rounds.next_due().map(|at| Wakeup { at, reason: "a round of gossip" })
    }

    fn held_bytes(&self) -> usize {
        self.members.values().map(|member| member.history.bytes).sum()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn check(&self, cx: &Context) {
        assert!(cx.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            assert!(self.rounds.is_set(*group), "no gossip round is scheduled");
            member.history.check(self.config.max_history);
            let limit = self.config.retransmissions_per_round;
            assert!(member.retransmissions <= limit, "a round exceeds its retransmission limit");
        }
    }
}
