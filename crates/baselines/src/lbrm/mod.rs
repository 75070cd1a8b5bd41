//! Log-Based Receiver-reliable Multicast: receivers request missing packets from logging servers.
//!
//! Source: H. W. Holbrook, S. K. Singhal, D. R. Cheriton, *Log-Based Receiver-Reliable Multicast
//! for Distributed Interactive Simulation*, ACM SIGCOMM 1995.
//!
//! | paper | here |
//! |---|---|
//! | variable heartbeats | `Lbrm::send_heartbeat` |
//! | a primary logger, a secondary one at each site | [`Hierarchy`](crate::domain::Hierarchy) |
//! | losses from gaps and heartbeats, requests to the site's logger | `Lbrm::send_nacks` |
//! | a logger that lacks the packet requests it from the one above | `domain/requests.rs` |
//! | unicast, or multicast at the site for many requests | [`RepairBy`](crate::domain::RepairBy) |
//! | a receiver without an answer turns to the logger above | `DomainConfig::climb_after` |
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted), from the
//! logger that sent the repair.
//!
//! Deviations from the paper:
//! - Loggers are declared, not discovered by the time to live of packets: see [`crate::domain`]. If
//!   none is declared, a source is the primary logger of its own packets. Otherwise, the topmost
//!   logger requests them from the source. The source therefore keeps packets for a bounded time,
//!   and needs no confirmation from the primary logger that it has logged them.
//! - More than two tiers of loggers are possible. The experiments have two, like the paper.
//! - Logs are kept for a bounded time and in bounded memory. The paper leaves the useful life of a
//!   packet to the application.
//! - There is no statistical acknowledgment, by which a source multicasts a packet again before it
//!   is requested if many sites have lost it. It is optional, and the RDCM paper, which this
//!   comparison reproduces, does not mention it.
//! - The primary logger has no replicas. When it leaves the view, requests go to the source.
//! - The time between requests for a packet follows the measured repair times of the same logger,
//!   and doubles, because repairs may wait in queues for longer than any fixed time. There is a
//!   minimum, because a repair that another receiver requested may arrive sooner and be measured.
//!   The paper leaves the time open.
//! - Heartbeats do not repeat the last message, because messages of the experiments fill a packet.
//! - [`Engine::confirm`](carom_proto::Engine::confirm) is not answered, because there are no
//!   acknowledgments.

mod config;
pub mod packet;

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{
    Destination, GroupId, NodeId, Origin, PacketId, Rng, SeqNo, Timers, ViewChange, Wakeup,
};
use zerocopy::byteorder::big_endian::U32;

pub use self::config::Config;
use self::packet::{NACK_BYTES, NUMBER_BYTES, Packet};
use crate::block::Block;
use crate::config::assert_valid;
use crate::domain::{Nak, Naks, RepairStore};
use crate::retained::Retained;
use crate::shell::{Context, Policy, Shell};
use crate::stream::Gap;

/// The policy of LBRM at one node.
#[derive(Debug)]
pub struct Lbrm {
    config: Config,
    store: RepairStore,
    naks: Naks,
    intervals: BTreeMap<GroupId, Duration>,
    heartbeats: Timers<GroupId>,
    counters: Counters,
}

carom_proto::counters! {
    struct Counters {
        nacks_sent,
        nacks_received,
        nobody_to_ask,
        heartbeats_sent,
    }
}

impl Lbrm {
    /// Creates the engine of the node `origin`, whose randomness comes from `seed`. Panics if
    /// the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Shell<Self> {
        assert_valid("LBRM", config.validate());
        let (terms, hash_seed) = (config.domains.terms(), Rng::new(seed).next_u64());
        let limit = config.domains.payload_limit();
        let policy = Self {
            store: RepairStore::new(&config.domains, Some(config.repair_by), hash_seed),
            naks: Naks::new(config.nack_timeouts),
            config,
            intervals: BTreeMap::new(),
            heartbeats: Timers::new(),
            counters: Counters::default(),
        };
        Shell::new(origin, terms, limit, policy)
    }

    fn request(&mut self, cx: &Context, group: GroupId, source: NodeId, gap: &Gap) {
        let at = cx.now + self.config.domains.detect_after;
        self.naks.add_gap(&cx.reception, (group, source), gap, at);
    }

    fn send_naks(&mut self, cx: &mut Context) {
        let domains = &self.config.domains;
        let room = (domains.streams.max_datagram_bytes() - NACK_BYTES) / NUMBER_BYTES;
        for nak in self.naks.due(cx, &self.store, domains.climb_after) {
            let Nak { group, source, to, seqnos } = nak;
            let Some(parent) = to else {
                self.counters.nobody_to_ask += seqnos.len() as u64;
                continue;
            };
            for seqnos in seqnos.chunks(room) {
                self.counters.nacks_sent += 1;
                let nack = Packet::Nack { source, seqnos };
                cx.transmit(Destination::Node(parent), group, nack);
            }
        }
    }

    fn on_nack(
        &mut self,
        cx: &mut Context,
        (group, source): (GroupId, NodeId),
        whom: NodeId,
        seqnos: &[U32],
    ) {
        self.counters.nacks_received += 1;
        let numbers = seqnos.iter().map(|seqno| SeqNo(seqno.get()));
        if source != cx.id
            && let Some(last) = numbers.clone().reduce(SeqNo::later)
        {
            let gap = cx.reception.on_reported(cx.now, group, source, last.next());
            self.request(cx, group, source, &gap);
        }
        for seqno in numbers {
            self.store.on_request(cx, PacketId { sender: source, group, seqno }, whom);
        }
    }

    fn send_heartbeat(&mut self, cx: &mut Context, group: GroupId) {
        let Some(next) = cx.next_seqno(group, cx.id) else { return };
        let Some(interval) = self.intervals.get_mut(&group) else { return };
        *interval = interval.mul_f64(self.config.backoff).min(self.config.max_heartbeat);
        self.heartbeats.set(group, cx.now + *interval);
        self.counters.heartbeats_sent += 1;
        cx.transmit(Destination::Group(group), group, Packet::Heartbeat { next });
    }
}

impl Policy for Lbrm {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, _: &mut Context, group: GroupId) {
        self.intervals.insert(group, self.config.first_heartbeat);
    }

    fn leave(&mut self, _: &mut Context, group: GroupId) {
        self.intervals.remove(&group);
        self.heartbeats.cancel(group);
        self.naks.leave(group);
        self.store.leave(group);
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block) {
        self.store.keep(cx.now, id, block);
        let interval = self.config.first_heartbeat;
        self.intervals.insert(id.group, interval);
        self.heartbeats.set(id.group, cx.now + interval);
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, from: Option<NodeId>) {
        if let Some(gap) = self.store.arrive(cx, id, block, from) {
            self.naks.settle(cx.now, id, from);
            self.request(cx, id.group, id.sender, &gap);
        }
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        match packet {
            Packet::Nack { source, seqnos } => self.on_nack(cx, (group, source), from, seqnos),
            Packet::Heartbeat { next } => {
                let gap = cx.reception.on_announced(cx.now, group, from, next);
                self.request(cx, group, from, &gap);
            }
        }
    }

    fn on_view(&mut self, cx: &mut Context, change: &ViewChange, _is_new: bool) {
        self.naks.handle_view(cx.now, change);
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        self.store.evict_old(cx.now);
        while let Some(group) = self.heartbeats.pop_due(cx.now) {
            self.send_heartbeat(cx, group);
        }
        self.send_naks(cx);
        self.store.send_repairs::<Packet<'_>>(cx);
    }

    fn wakeup(&self) -> Option<Wakeup> {
        let heartbeat = self.heartbeats.next_due().map(|at| Wakeup { at, reason: "a heartbeat" });
        let nak = self.naks.next_due().map(|at| Wakeup { at, reason: "request a packet" });
        Wakeup::earlier(Wakeup::earlier(heartbeat, nak), self.store.wakeup())
    }

    fn retained(&self) -> Option<&Retained> {
        Some(self.store.retained())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn repair_counters(&self) -> Vec<(&'static str, u64)> {
        self.store.counters()
    }

    fn check(&self, cx: &Context) {
        self.store.check();
        self.naks.check();
        assert!(cx.reception.groups().eq(self.intervals.keys().copied()), "groups differ");
        self.naks.check_requested(&cx.reception);
    }
}
