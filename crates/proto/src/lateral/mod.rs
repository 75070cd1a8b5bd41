//! The lateral engine: Ricochet and Slingshot in one protocol.
//!
//! Data packets are sent by multicast. Receivers send each other XORs of the packets that they
//! received. A lost packet is therefore repaired after the next few packets of a node's *whole*
//! traffic, not only of the same sender in the same group.
//!
//! # Papers and code
//!
//! | paper | here |
//! |---|---|
//! | Slingshot 3.1, algorithm 1 | `receiving` (lines 9-27, 34-36), [`phase2`](self) (37-40) |
//! | Slingshot 3.2, pending repairs | `pending` with [`Solver::Peeling`] |
//! | Slingshot 3.3, partial views | `groups`, [`Config::partial_view`] |
//! | Slingshot 3.4, analysis | [`model`] |
//! | Ricochet 3, packet structure (figure 3) | [`packet`], [`symbol`] |
//! | Ricochet 3.1.1, 3.1.2, algorithm 1 | `regions`, `chain` |
//! | Ricochet 3.2.1, 3.2.4, repair bins, pre-computed targets | `bins` |
//! | Ricochet 3.2.2, multi-group views | `regions`, `groups` |
//! | Ricochet 3.2.5, buffering and loss control | [`crate::inbox`] |
//! | Ricochet slides, staggering | the lanes of `bins` |
//!
//! # Differences from the papers
//!
//! * Own packets enter the bins, because the sender is the most reliable source of its packets
//!   ([`Config::own_packets`]).
//! * Partly filled batches are flushed, and heartbeats follow the last packet of a stream. The
//!   papers protect a packet only if enough others follow ([`Config::flush_after`],
//!   [`Config::heartbeat`]).
//! * Pending repairs are solved together as equations ([`Solver::Elimination`]).
//! * A batch does not draw a node that another open batch of the same region holds while it can
//!   wait for one: "exactly one repair packet that includes d" (Ricochet 3); see `bins`.
//! * A receiver queries each sender for the first position that it is owed (`Open`). A loss right
//!   after a join is noticed, and no packet from before the join is requested.
//! * A sender is held back by members that are a whole window behind ([`Config::window`]).
//! * A message may be larger than a packet. It is split into fragments, each a packet with its own
//!   sequence number, and reassembled by its receivers; see `cutting` and `assembly`.
//!
//! [`Config::as_in_the_papers`] disables the differences that affect measurements.

use alloc::collections::VecDeque;

use bytes::Bytes;

use crate::{
    Destination, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Origin, PacketId,
    Profile, RateOfFire, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange,
    Wakeup,
};

mod config;
mod context;
mod counters;
mod delivery;
mod groups;
mod left_groups;
pub mod model;
mod outbox;
pub mod packet;
mod prefetch;
mod receiver;
mod recovery;
mod repair;
mod repairs;
mod sender;
mod streams;

pub use config::{AskFirst, Config, ConfigError, NakConfig, RepairScope, Solver, StreamStart};
pub use counters::Counters;

use context::TimerKey;
use delivery::reassembly::Reassembly;
use groups::{Group, GroupIx, Groups};
use left_groups::{LeftGroup, LeftGroups, least_position};
use outbox::Outbox;
use packet::Packet;
use packet::symbol::{Arena, Symbol};
use receiver::sender_query::Heartbeat;
use recovery::cookies::Cookies;
use recovery::nak_targets::RateLimit;
use repair::bins::Bins;
use repair::pending_repairs::PendingRepairs;
use sender::fragmentation::Fragmenter;
use streams::Streams;
use streams::loss_list::LossList;

/// Lateral engine of one node, for all its groups.
#[derive(Debug)]
pub struct Lateral {
    id: NodeId,
    origin: Origin,
    config: Config,
    /// Upper bound for [`Config::path_mtu`], which [`Engine::set_path_mtu`] lowers and raises.
    most_mtu: u16,
    rng: Rng,
    /// Source of nonces. All other draws use another generator, so that nonces cannot be inferred
    /// from observable random choices.
    nonces: Rng,
    cookies: Cookies,
    groups: Groups,
    /// The r of all groups; `None` while there is no group.
    r: Option<u8>,
    /// Positions of streams in groups that this node has left: no sequence number is reused, and no
    /// message is delivered twice.
    left: LeftGroups,
    bins: Bins,
    streams: Streams,
    missing: LossList,
    pending: PendingRepairs,
    arena: Arena,
    reassembly: Reassembly,
    fragmenter: Fragmenter,
    timers: Timers<TimerKey>,
    nak_limit: RateLimit,
    answer_limit: RateLimit,
    outbox: Outbox,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Lateral {
    /// Creates the engine of the node `origin`. All its randomness derives from `seed`.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("the configuration of the lateral engine is invalid: {error}");
        }
        let mut rng = Rng::new(seed);
        let mut nonces = Rng::new(seed ^ NONCE_SEED);
        let bins = Bins::new(config.scope, config.stagger, config.flush_after, rng.fork(1));
        let (ids, answers) =
            config.nak.as_ref().map_or((0, 0), |nak| (nak.ids_per_second, nak.answers_per_second));
        Self {
            id,
            origin,
            groups: Groups::new(rng.next_u64()),
            r: None,
            left: LeftGroups::default(),
            bins,
            streams: Streams::new(rng.next_u64(), config.buffer_bytes, config.buffer_age),
            missing: LossList::default(),
            pending: PendingRepairs::new(
                config.solver,
                config.pending_repairs,
                config.pending_age,
                rng.next_u64(),
            ),
            arena: Arena::for_bytes(config.buffer_bytes),
            reassembly: Reassembly::new(config.assembly_limit()),
            fragmenter: Fragmenter::new(config.pace_bytes_per_second),
            timers: Timers::new(),
            nak_limit: RateLimit::new(ids),
            answer_limit: RateLimit::new(answers),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            rng,
            cookies: Cookies::new(&mut nonces),
            nonces,
            most_mtu: config.path_mtu,
            config,
        }
    }

    /// Returns the counters: totals since the engine was created.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        let bins = self.bins.counts();
        counters.targets_short = bins.targets_short;
        counters.targets_shared = bins.targets_shared;
        counters.bins_flushed = bins.flushed;
        counters.repairs_cut_short = bins.cut_short;
        (counters.evicted_by_age, counters.evicted_by_bytes) = self.streams.evictions();
        counters.repairs_dropped = self.pending.dropped();
        counters.repairs_over_budget = self.pending.over_budget();
        counters.outbox_dropped = self.outbox.dropped();
        counters.bytes_sent = self.outbox.sent_bytes();
        counters
    }

    /// Returns the members of `group` that have not confirmed everything accepted from this node
    /// there, queued messages included. Empty if this node has not joined the group.
    pub fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        let Some(ix) = self.groups.ix(group) else { return Vec::new() };
        let own = &self.groups.get(ix).own;
        own.unconfirmed(own.taken_to).collect()
    }

    /// Returns the number of bytes in the data buffer, at most [`Config::buffer_bytes`].
    pub fn buffer_bytes(&self) -> usize {
        self.streams.bytes()
    }

    /// Returns the number of repair bins and the number of missing packets.
    pub fn bins_and_missing(&self) -> (usize, usize) {
        (self.bins.len(), self.missing.len())
    }

    /// Adds a packet to the repair bins, and sends the repairs that it completes.
    fn account(&mut self, now: Time, group: GroupIx, id: PacketId, symbol: &Symbol) {
        self.counters.packets_binned += 1;
        let Self { bins, outbox, counters, .. } = self;
        bins.accept(now, group, id, symbol, |repair| {
            repairs::send(self.origin, &repair, outbox, counters);
        });
    }

    fn flush_bins(&mut self, now: Time) {
        let Self { bins, outbox, counters, .. } = self;
        bins.flush_due(now, |repair| repairs::send(self.origin, &repair, outbox, counters));
    }

    fn transmit(&mut self, destination: Destination, group: GroupId, packet: Packet<'_>) {
        let view = self.groups.ix(group).map_or(0, |ix| self.groups.get(ix).view_version);
        self.outbox.push(packet.class(), [destination], |out| {
            packet.encode(self.origin, group, view, out)
        });
    }

    fn on_timer(&mut self, now: Time, key: TimerKey) {
        match key {
            TimerKey::Heartbeat(ix) => self.on_heartbeat_due(now, ix),
            TimerKey::Patience(ix) => self.on_patience_ended(now, ix),
            TimerKey::Open(ix) => self.ask_to_open(now, ix),
            TimerKey::Reassembly(ix) => self.look_after_messages_of(now, ix),
            TimerKey::Pace => self.send_what_waits(now),
            TimerKey::Joiners(ix) => self.on_joiners_due(now, ix),
        }
    }

    fn admit(&self, group: GroupId, rate: RateOfFire) -> Result<(), JoinError> {
        rate.validate()?;
        if self.groups.ix(group).is_some() {
            return Err(JoinError::AlreadyJoined);
        }
        match self.r {
            Some(existing) if existing != rate.r => {
                Err(JoinError::DifferentR { given: rate.r, existing })
            }
            _ => Ok(()),
        }
    }
}

impl Engine for Lateral {
    fn join(
        &mut self,
        _now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        let Profile::TimeCritical(rate) = settings.profile else {
            return Err(JoinError::NoEngine { profile: settings.profile });
        };
        self.admit(group, rate)?;
        if self.r.is_none() {
            self.r = Some(rate.r);
            self.bins.set_r(rate.r);
        }
        let least = least_position(group, self.origin.incarnation, &self.config);
        let start = self.left.first_position(least);
        let mut joined =
            Group::new(group, rate, start, self.config.partial_view, self.groups.seed());
        if let Some(left) = self.left.take(group) {
            joined.own.resume_at(left.start, left.next);
            joined.heard = left.heard;
        }
        let ix = self.groups.insert(joined);
        self.bins.set_c(ix, rate.c);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        let Some(ix) = self.groups.ix(group) else { return };
        self.bid_farewell(ix);
        self.drop_what_waits(ix);
        let mut heard = core::mem::take(&mut self.groups.get_mut(ix).heard);
        for (stream_ix, stream) in self.streams.remove_group(ix) {
            self.timers.cancel(TimerKey::Open(stream_ix));
            let to = self.forget_messages_of(stream_ix, stream.told_to());
            heard.leave(stream.sender, stream.incarnation, to, self.config.streams_per_group);
            for (_, missing) in stream.all_missing() {
                self.missing.remove(missing);
            }
        }
        self.timers.cancel(TimerKey::Heartbeat(ix));
        self.timers.cancel(TimerKey::Joiners(ix));
        self.timers.cancel(TimerKey::Patience(ix));
        let left = self.groups.remove(ix).expect("the index was looked up just now");
        left.sampled().iter().for_each(|node| self.bins.remove_node(*node, ix));
        // The bins of the group are rebuilt now, while members that stay can still use its packets.
        let Self { bins, outbox, counters, .. } = self;
        bins.rebuild(&mut |repair| repairs::send(self.origin, &repair, outbox, counters));
        let least = least_position(group, self.origin.incarnation, &self.config);
        self.left.insert(group, LeftGroup::new(&left.own, least, heard));
        if self.groups.is_empty() {
            self.r = None;
        }
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let ix = self.groups.ix(group).ok_or(SendError::NotJoined)?;
        if let Some(asked) = options.qos {
            return Err(SendError::Qos { asked });
        }
        let rate = self.groups.get(ix).rate;
        let limit = self.config.payload_limit(rate);
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let window = self.config.window;
        if let Some((by, behind)) = self.groups.get_mut(ix).own.held_back_by(window) {
            self.on_held_back(now, ix);
            return Err(SendError::HeldBack { by, behind });
        }
        if self.fragmenter.holds(ix) || payload.len() > self.config.packet_limit(rate) {
            return self.send_in_turn(now, ix, payload, options);
        }
        let symbol = Symbol::of_message(&mut self.arena, now, options.deadline, &payload);
        Ok(self.multicast(now, ix, symbol))
    }

    fn confirm(&mut self, now: Time, group: GroupId) {
        if let Some(ix) = self.groups.ix(group) {
            let own = &mut self.groups.get_mut(ix).own;
            own.confirm = Some(own.taken_to);
            own.heartbeat_interval = CONFIRM_INTERVAL;
            if !self.look_whether_safe(now, ix) {
                self.on_heartbeat_due(now, ix);
            }
        }
    }

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let Ok((header, packet)) = Packet::decode(datagram) else {
            self.counters.malformed += 1;
            return None;
        };
        self.pending.renew_work();
        let (from, group) = (header.sender, self.groups.ix(header.group));
        let (node, kind, bytes) = (self.id, header.kind, datagram.len());
        tracing::trace!(%node, %from, group = %header.group, kind, bytes, "datagram");
        if from == self.id {
            return None;
        }
        match (packet, group) {
            (Packet::Data { seqno, confirm, symbol }, Some(ix)) => {
                self.on_data(now, header.origin(), ix, seqno, confirm, symbol);
            }
            (Packet::Repair { ids, sum }, _) => self.on_repair(now, from, ids, sum),
            (Packet::Nak { cookie, ids }, _) => self.on_nak(now, from, cookie, ids),
            (Packet::Challenge { cookie, ids }, _) => self.on_challenge(now, from, cookie, ids),
            (Packet::Retransmission { origin, seqno, symbol }, Some(ix)) => {
                self.on_retransmission(now, from, ix, origin, seqno, symbol);
            }
            (Packet::HaveNot { ids, expired }, _) => self.on_have_not(now, from, ids, expired),
            (Packet::Heartbeat { next, first, nonce, confirm }, Some(ix)) => {
                let heartbeat = Heartbeat { next, first, nonce, confirm };
                self.on_heartbeat(now, header.origin(), ix, heartbeat);
            }
            (Packet::Ack { to, .. }, Some(_)) if to != self.origin => {
                self.counters.other_incarnations += 1;
            }
            (Packet::Ack { settled_to, lost, .. }, Some(ix)) => {
                self.on_ack(now, from, ix, settled_to, lost);
            }
            (Packet::Open { nonce }, Some(ix)) => self.on_open(from, ix, nonce),
            (
                Packet::Data { .. }
                | Packet::Retransmission { .. }
                | Packet::Heartbeat { .. }
                | Packet::Ack { .. }
                | Packet::Open { .. },
                None,
            ) => self.counters.malformed += 1,
        }
        Some(from)
    }

    fn look_ahead(&self, waiting: &mut dyn Iterator<Item = &[u8]>) {
        self.look_where_these_lead(waiting);
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        if let Some(ix) = self.groups.ix(change.group) {
            self.on_view_change(now, ix, change);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.pending.renew_work();
        self.take_in_all_solved(now);
        self.flush_bins(now);
        self.look_after_missing(now);
        while let Some(key) = self.timers.pop_due(now) {
            self.on_timer(now, key);
        }
        self.streams.evict_old(now);
        if self.streams.bytes() == 0 {
            self.arena.release();
        }
        self.pending.drop_old(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let timer = self.timers.first();
        let due = [
            (self.bins.next_flush(), "flush a repair bin"),
            (self.missing.next_due(), "missing packet"),
            (timer.map(|(at, _)| at), timer.map_or("", |(_, key)| key.reason())),
            (self.streams.next_eviction(), "evict from the data buffer"),
            (self.pending.next_due(), "pending repair"),
        ];
        let wakeups = due.into_iter().filter_map(|(at, reason)| Some(Wakeup { at: at?, reason }));
        wakeups.min_by_key(|wakeup| wakeup.at)
    }

    fn set_path_mtu(&mut self, bytes: u16) {
        self.config.path_mtu = bytes.min(self.most_mtu).max(config::MIN_PATH_MTU);
    }

    /// Returns 0 for a profile of another engine.
    fn payload_limit(&self, profile: Profile) -> usize {
        match profile {
            Profile::TimeCritical(rate) => self.config.payload_limit(rate),
            Profile::Ordered(_) | Profile::Bulk | Profile::Guest => 0,
        }
    }

    fn held_bytes(&self) -> usize {
        let kept = self.streams.bytes() + self.reassembly.bytes();
        kept + self.pending.bytes() + self.fragmenter.bytes() + self.left.bytes()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.counters().named()
    }

    fn check(&self) {
        self.bins.check();
        self.missing.check();
        self.streams.check(self.missing.len());
        self.pending.check();
        self.reassembly.check();
        self.fragmenter.check();
        self.groups.check();
        self.left.check();
    }
}

/// Separates the nonces from all other draws.
const NONCE_SEED: u64 = 0x6e6f_6e63_6573_2121;

/// Time from a request for acknowledgments to its first repetition. The interval doubles up to 16
/// times this value.
const CONFIRM_INTERVAL: core::time::Duration = core::time::Duration::from_millis(20);
