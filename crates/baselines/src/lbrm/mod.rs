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
//! | a logger that lacks the packet requests it from the one above | `domain/serving.rs` |
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
//! - [`Engine::confirm`] is not answered, because there are no acknowledgments.

mod config;
mod counters;
pub mod packet;

use core::time::Duration;
use std::collections::BTreeMap;

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
use crate::domain::{Asked, Asking, Depot, Repair};
use crate::guest::GuestPacket;
use crate::outbox::Outbox;
use crate::stream::Gap;

/// The LBRM engine of one node.
#[derive(Debug)]
pub struct Lbrm {
    id: NodeId,
    origin: Origin,
    config: Config,
    depot: Depot,
    asking: Asking,
    /// Current interval of heartbeats in each group that this node has joined.
    pauses: BTreeMap<GroupId, Duration>,
    /// Times of the next heartbeats.
    heartbeats: Timers<GroupId>,
    outbox: Outbox,
    counters: Counters,
}

impl Lbrm {
    /// Creates the engine of the node `origin`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid LBRM configuration: {error}");
        }
        let hash_seed = Rng::new(seed).next_u64();
        Self {
            id,
            origin,
            depot: Depot::new(id, &config.domains, Some(config.repair_by), hash_seed),
            asking: Asking::new(config.nack_timeouts),
            config,
            pauses: BTreeMap::new(),
            heartbeats: Timers::new(),
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
            }
            Ok(None) => {}
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Schedules the requests for newly missing packets, after the detection delay.
    fn ask_for(&mut self, now: Time, group: GroupId, source: NodeId, gap: &Gap) {
        let at = now + self.config.domains.detect_after;
        self.asking.add_gap(&self.depot.reception, (group, source), gap, at);
    }

    /// Sends the NAKs that are due: to the logger of the site first, then to those above it in
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
            let Some(parent) = of else {
                self.counters.nobody_to_ask += seqnos.len() as u64;
                continue;
            };
            let seqnos: Vec<U32> = seqnos.into_iter().map(|seqno| U32::new(seqno.0)).collect();
            for seqnos in seqnos.chunks(room) {
                self.counters.nacks_sent += 1;
                self.transmit(Destination::Node(parent), group, Packet::Nack { source, seqnos });
            }
        }
    }

    /// Processes a NAK of `whom`. It may also reveal packets that are unknown to this node.
    fn on_nack(&mut self, now: Time, group: GroupId, source: NodeId, whom: NodeId, seqnos: &[U32]) {
        self.counters.nacks_received += 1;
        let numbers = seqnos.iter().map(|seqno| SeqNo(seqno.get()));
        if source != self.id
            && let Some(last) = numbers.clone().reduce(SeqNo::later)
        {
            let gap = self.depot.reception.on_reported(now, group, source, last.next());
            self.ask_for(now, group, source, &gap);
        }
        for seqno in numbers {
            self.depot.asked(now, PacketId { sender: source, group, seqno }, whom);
        }
    }

    /// Announces the end of this node's stream to the group, and lengthens the interval.
    fn send_heartbeat(&mut self, now: Time, group: GroupId) {
        let (Some(next), Some(pause)) =
            (self.depot.next_number(group, self.id), self.pauses.get_mut(&group))
        else {
            return;
        };
        *pause = pause.mul_f64(self.config.backoff).min(self.config.max_heartbeat);
        self.heartbeats.set(group, now + *pause);
        self.counters.heartbeats_sent += 1;
        self.transmit(Destination::Group(group), group, Packet::Heartbeat { next });
    }

    fn send_repairs(&mut self, now: Time) {
        while let Some(Repair { id, block, destinations }) = self.depot.next_repair(now) {
            let PacketId { sender: source, group, seqno } = id;
            let packet = Packet::Repair { source, seqno, block: block.bytes() };
            for destination in destinations {
                self.transmit(destination, group, packet);
            }
        }
    }

    fn transmit(&mut self, destination: Destination, group: GroupId, packet: Packet<'_>) {
        let view = self.depot.reception.view_version(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Engine for Lbrm {
    fn join(&mut self, _: Time, group: GroupId, settings: GroupSettings) -> Result<(), JoinError> {
        self.depot.join(group, &settings)?;
        self.pauses.insert(group, self.config.first_heartbeat);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        self.pauses.remove(&group);
        self.heartbeats.cancel(group);
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
        let joined = self.depot.reception.group_mut(group).ok_or(SendError::NotJoined)?;
        let limit = self.config.domains.payload_limit();
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        let block = Block::of_message(now, options.deadline, &payload);
        self.counters.data_sent += 1;
        let packet = Packet::Data { seqno, block: block.bytes() };
        self.transmit(Destination::Group(group), group, packet);
        self.depot.keep(now, PacketId { sender: self.id, group, seqno }, block);
        let pause = self.config.first_heartbeat;
        self.pauses.insert(group, pause);
        self.heartbeats.set(group, now + pause);
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
        if from == self.id || !self.pauses.contains_key(&group) {
            self.counters.foreign += 1;
            return None;
        }
        match packet {
            Packet::Data { seqno, block } => {
                self.on_block(now, PacketId { sender: from, group, seqno }, block, None);
            }
            Packet::Nack { source, seqnos } => self.on_nack(now, group, source, from, seqnos),
            Packet::Repair { source, seqno, block } => {
                self.on_block(now, PacketId { sender: source, group, seqno }, block, Some(from));
            }
            Packet::Heartbeat { next } => {
                let gap = self.depot.reception.on_announced(now, group, from, next);
                self.ask_for(now, group, from, &gap);
            }
        }
        Some(from)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        self.depot.reception.handle_view(change);
        self.asking.handle_view(now, change);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.depot.handle_timeout(now);
        while let Some(group) = self.heartbeats.pop_due(now) {
            self.send_heartbeat(now, group);
        }
        self.send_nacks(now);
        self.send_repairs(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.depot.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let heartbeat = self.heartbeats.next_due().map(|at| Wakeup { at, reason: "a heartbeat" });
        let asking = self.asking.next_due().map(|at| Wakeup { at, reason: "ask for a packet" });
        Wakeup::earlier(Wakeup::earlier(heartbeat, asking), self.depot.wakeup())
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
        assert!(self.depot.reception.groups().eq(self.pauses.keys().copied()), "groups differ");
        self.asking.check_asked(&self.depot.reception);
    }
}
