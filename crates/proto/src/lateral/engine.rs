use alloc::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::config::{Config, MIN_PATH_MTU};
use super::context::{Context, TimerKey};
use super::counters::Counters;
use super::groups::{Groups, TargetChange};
use super::index::GroupIx;
use super::left_groups::{LeftGroup, LeftGroups, least_position};
use super::packet::symbol::{Arena, Symbol};
use super::packet::{Packet, WireId};
use super::prefetch::prefetch;
use super::receiver::{Heartbeat, Outcome, Receiver};
use super::recovery::{NakRecovery, Step};
use super::repair::{Bins, Decoder, Repair};
use super::sender::{OwnStream, Sender};
use crate::outbox::Outbox;
use crate::wire::Datagram;
use crate::{
    Destination, Engine, Event, GroupId, GroupSettings, How, JoinError, NetworkChange, NodeId,
    Origin, PacketId, Profile, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit,
    ViewChange, ViewChangeKind, Wakeup,
};

/// The lateral engine of one node, which serves all of its groups.
#[derive(Debug)]
pub struct Lateral {
    cx: Context,
    /// Configured path MTU, which is the upper bound for [`NetworkChange::PathMtu`].
    max_path_mtu: u16,
    sender: Sender,
    receiver: Receiver,
    bins: Bins,
    decoder: Decoder,
    recovery: NakRecovery,
    left: LeftGroups,
}

impl Lateral {
    /// Creates the engine of the node `origin`. All random values are derived from `seed`.
    ///
    /// # Panics
    /// Panics if the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        if let Err(error) = config.validate() {
            panic!("the configuration of the lateral engine is invalid: {error}");
        }
        let mut rng = Rng::new(seed);
        let mut nonces = Rng::new(seed ^ NONCE_SEED);
        let bins = Bins::new(&config, rng.fork(1));
        let [groups_seed, streams_seed, pending_seed] = [(); 3].map(|()| rng.next_u64());
        let recovery = NakRecovery::new(config.nak.as_ref(), &mut nonces);
        Self {
            max_path_mtu: config.path_mtu,
            sender: Sender::new(config.pace_bytes_per_second),
            receiver: Receiver::new(&config, streams_seed, nonces),
            bins,
            decoder: Decoder::new(&config, pending_seed),
            recovery,
            left: LeftGroups::default(),
            cx: Context {
                now: Time::ZERO,
                origin: origin.into(),
                arena: Arena::for_bytes(config.buffer_bytes),
                config,
                groups: Groups::new(groups_seed),
                rng,
                timers: Timers::new(),
                outbox: Outbox::keeping(KEPT_BYTES),
                events: VecDeque::new(),
                counters: Counters::default(),
            },
        }
    }

    /// Returns the counters, which are 0 when the engine is created.
    pub fn counters(&self) -> Counters {
        let mut counters = self.cx.counters;
        let bins = self.bins.counts;
        counters.targets_short = bins.targets_short;
        counters.targets_shared = bins.targets_shared;
        counters.bins_flushed = bins.flushed;
        counters.repairs_cut_short = bins.cut_short;
        let evictions = self.receiver.streams.evictions();
        (counters.evicted_by_age, counters.evicted_by_bytes) = evictions;
        counters.repairs_dropped = self.decoder.pending.dropped;
        counters.repairs_over_budget = self.decoder.pending.over_budget;
        counters
    }

    /// Returns the number of bytes in the data buffer, at most [`Config::buffer_bytes`].
    pub fn buffer_bytes(&self) -> usize {
        self.receiver.streams.bytes()
    }

    /// Returns the number of repair bins and the number of missing packets.
    pub fn bins_and_missing(&self) -> (usize, usize) {
        (self.bins.len(), self.receiver.streams.losses.len())
    }

    fn multicast(&mut self, ix: GroupIx, symbol: &Symbol) -> SeqNo {
        let (seqno, confirm) = self.sender.number_packet(&self.cx.config, ix);
        let id = self.receiver.hold_own(&self.cx, ix, seqno, symbol);
        let packet = Packet::Data { seqno, confirm, symbol: symbol.bytes() };
        self.cx.transmit(Destination::Group(id.group), ix, packet);
        self.cx.counters.data_sent += 1;
        if self.cx.config.own_packets {
            self.bin(ix, id, symbol);
        }
        self.sender.restart_heartbeats(&mut self.cx, ix);
        seqno
    }

    fn send_queued(&mut self) {
        while let Some((ix, symbol)) = self.sender.next_packet(&mut self.cx) {
            self.multicast(ix, &symbol);
        }
    }

    fn bin(&mut self, group: GroupIx, id: PacketId, symbol: &Symbol) {
        let Self { cx, bins, .. } = self;
        cx.counters.packets_binned += 1;
        bins.accept(cx.now, group, id, symbol, |repair: Repair<'_>| repair.send(cx));
    }

    fn on_data(
        &mut self,
        from: Origin,
        group: GroupIx,
        (seqno, confirm): (SeqNo, bool),
        symbol: &[u8],
    ) {
        let Self { cx, receiver, decoder, .. } = self;
        if !cx.fits_repair(symbol) {
            cx.counters.malformed += 1;
            return;
        }
        let Some(ix) = receiver.direct_stream_of(cx, group, from, seqno) else { return };
        let Ok(symbol) = Symbol::from_datagram(&mut cx.arena, symbol) else {
            cx.counters.malformed += 1;
            return;
        };
        match decoder.accept(cx, receiver, (ix, seqno), &symbol, How::Direct) {
            Outcome::New | Outcome::Repaired => {
                decoder.accept_all_solved(cx, receiver);
                cx.counters.data_received += 1;
                let id = receiver.streams.get(ix).id(seqno);
                self.bin(group, id, &symbol);
            }
            Outcome::Known => {
                if let Some((id, symbol)) = receiver.on_known_data(cx, (ix, seqno)) {
                    cx.counters.data_received += 1;
                    self.bin(group, id, &symbol);
                }
            }
            Outcome::Doubted => {}
        }
        if confirm {
            self.receiver.acknowledge(&mut self.cx, ix);
        }
    }

    fn on_retransmission(
        &mut self,
        from: NodeId,
        group: GroupIx,
        (origin, seqno): (NodeId, SeqNo),
        symbol: &[u8],
    ) {
        let Self { cx, receiver, decoder, .. } = self;
        let Some(ix) = receiver.missing_in(cx, from, group, (origin, seqno)) else { return };
        match Symbol::from_datagram(&mut cx.arena, symbol) {
            Ok(symbol) if cx.fits_repair(symbol.bytes()) => {
                let how = How::Retransmitted(from);
                decoder.accept(cx, receiver, (ix, seqno), &symbol, how);
                decoder.accept_all_solved(cx, receiver);
            }
            _ => cx.counters.malformed += 1,
        }
    }

    fn on_ack(&mut self, from: NodeId, ix: GroupIx, position: (SeqNo, u32)) {
        self.sender.on_ack(&self.cx, ix, from, position);
        self.sender.report_confirmation(&mut self.cx, ix);
        self.resume_sending(ix);
    }

    fn resume_sending(&mut self, ix: GroupIx) {
        if self.sender.resume(&mut self.cx, ix) {
            self.send_queued();
        }
    }

    fn recover_missing(&mut self) {
        let Self { cx, receiver, recovery, .. } = self;
        let mut requests: BTreeMap<NodeId, Vec<WireId>> = BTreeMap::new();
        while let Some((ix, missing)) = receiver.next_due(cx) {
            let stream = receiver.streams.get(missing.stream);
            let step = recovery.next_step(cx, &missing, stream);
            if let Step::Request { target, .. } = step {
                requests.entry(target).or_default().push(stream.id(missing.seqno).into());
            }
            receiver.apply(cx, ix, step);
        }
        recovery.request(cx, requests);
    }

    fn on_timer(&mut self, key: TimerKey) {
        let cx = &mut self.cx;
        match key {
            TimerKey::Heartbeat(ix) => self.sender.on_heartbeat_due(cx, ix),
            TimerKey::Patience(ix) => {
                self.sender.on_patience_ended(cx, ix);
                self.resume_sending(ix);
            }
            TimerKey::Open(ix) => self.receiver.on_open_due(cx, ix),
            TimerKey::Reassembly(ix) => self.receiver.delivery(cx).end_overdue_messages(ix),
            TimerKey::Pace => self.send_queued(),
            TimerKey::Joiners(ix) => self.sender.on_joiners_due(cx, ix),
        }
    }

    fn on_view_change(&mut self, ix: GroupIx, change: &ViewChange) {
        let Self { cx, sender, receiver, bins, .. } = self;
        let (node, has_joined) = (change.node, change.kind == ViewChangeKind::Joined);
        let group = cx.groups.get_mut(ix);
        group.view_version = change.version;
        let targets = if has_joined {
            group.add_member(cx.now, node, &mut cx.rng)
        } else {
            group.remove_member(node, &mut cx.rng)
        };
        receiver.on_view_change(cx, ix, (node, !has_joined));
        let Some(TargetChange { added, removed }) = targets else { return };
        sender.on_view_change(ix, node, has_joined);
        removed.into_iter().for_each(|node| bins.remove_node(node, ix));
        added.into_iter().for_each(|node| bins.add_node(node, ix));
        sender.report_confirmation(cx, ix);
        self.resume_sending(ix);
        if has_joined {
            self.sender.on_joined(&mut self.cx, ix, node);
        }
    }

    fn on_packet(&mut self, from: Origin, group: Option<GroupIx>, packet: Packet<'_>) {
        let Self { cx, sender, receiver, decoder, recovery, .. } = self;
        let node = from.node;
        match (packet, group) {
            (Packet::Data { seqno, confirm, symbol }, Some(ix)) => {
                self.on_data(from, ix, (seqno, confirm), symbol);
            }
            (Packet::Repair { ids, sum }, _) => decoder.on_repair(cx, receiver, node, (ids, sum)),
            (Packet::Nak { cookie, ids }, _) => {
                recovery.on_nak(cx, &receiver.streams, node, (cookie, ids));
            }
            (Packet::Challenge { cookie, ids }, _) => {
                recovery.on_challenge(cx, &receiver.streams, node, (cookie, ids));
            }
            (Packet::Retransmission { origin, seqno, symbol }, Some(ix)) => {
                self.on_retransmission(node, ix, (origin, seqno), symbol);
            }
            (Packet::HaveNot { ids, expired }, _) => {
                receiver.on_have_not(cx, node, (ids, expired));
            }
            (Packet::Heartbeat { next, first, nonce, confirm }, Some(ix)) => {
                receiver.on_heartbeat(cx, from, ix, Heartbeat { next, first, nonce, confirm });
            }
            (Packet::Ack { to, .. }, Some(_)) if to != cx.origin => {
                cx.counters.other_incarnations += 1;
            }
            (Packet::Ack { settled_to, lost, .. }, Some(ix)) => {
                self.on_ack(node, ix, (settled_to, lost));
            }
            (Packet::Open { nonce }, Some(ix)) => sender.on_open(cx, ix, node, nonce),
            (_, None) => cx.counters.malformed += 1,
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
        let ix = self.cx.groups.join(group, rate, self.cx.config.partial_view)?;
        self.bins.set_r(rate.r);
        self.bins.set_c(ix, rate.c);
        let least = least_position(group, self.cx.origin.incarnation, &self.cx.config);
        let mut own = OwnStream::new(self.left.first_position(least));
        if let Some(left) = self.left.take(group) {
            own.resume_at(left.start, left.next);
            self.receiver.join(ix, left.former);
        }
        self.sender.join(ix, own);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        let Self { cx, sender, receiver, bins, left, .. } = self;
        let Some(ix) = cx.groups.ix(group) else { return };
        let former = receiver.leave(cx, ix);
        let own = sender.leave(cx, ix);
        let group_left = cx.groups.leave(ix);
        group_left.targets().iter().for_each(|node| bins.remove_node(*node, ix));
        // The bins are rebuilt now, while the remaining members can still use the packets.
        bins.rebuild(&mut |repair: Repair<'_>| repair.send(cx));
        let least = least_position(group, cx.origin.incarnation, &cx.config);
        left.insert(group, LeftGroup::new(&own, least, former));
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let Self { cx, sender, .. } = self;
        cx.now = now;
        let ix = cx.groups.ix(group).ok_or(SendError::NotJoined)?;
        if let Some(asked) = options.qos {
            return Err(SendError::Qos { asked });
        }
        let limit = cx.config.payload_limit(cx.groups.get(ix).rate);
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        sender.check_window(cx, ix)?;
        if sender.must_queue(cx, ix, payload.len()) {
            let seqno = sender.enqueue(cx, ix, payload, options)?;
            self.send_queued();
            return Ok(seqno);
        }
        let symbol = Symbol::of_message(&mut cx.arena, now, options.deadline, &payload);
        Ok(self.multicast(ix, &symbol))
    }

    fn confirm(&mut self, now: Time, group: GroupId) {
        self.cx.now = now;
        if let Some(ix) = self.cx.groups.ix(group) {
            self.sender.confirm(&mut self.cx, ix);
        }
    }

    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) -> Option<NodeId> {
        self.cx.now = now;
        let header = datagram.header();
        let packet = datagram.body().and_then(|body| Packet::decode_body(header, body));
        let Ok(packet) = packet else {
            self.cx.counters.malformed += 1;
            return None;
        };
        self.decoder.pending.renew_work();
        let (from, group) = (header.sender, self.cx.groups.ix(header.group));
        let (node, kind, bytes) = (self.cx.id(), header.kind, datagram.bytes().len());
        tracing::trace!(%node, %from, group = %header.group, kind, bytes, "datagram");
        if from == node {
            return None;
        }
        self.on_packet(header.origin(), group, packet);
        Some(from)
    }

    fn look_ahead(&self, waiting: &[Datagram<'_>]) {
        prefetch(&self.cx.groups, &self.receiver.streams, &self.bins, waiting);
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        self.cx.now = now;
        if let Some(ix) = self.cx.groups.ix(change.group)
            && change.node != self.cx.id()
        {
            self.on_view_change(ix, change);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let Self { cx, receiver, decoder, bins, .. } = self;
        cx.now = now;
        decoder.pending.renew_work();
        decoder.accept_all_solved(cx, receiver);
        bins.flush_due(now, |repair: Repair<'_>| repair.send(cx));
        self.recover_missing();
        while let Some(key) = self.cx.timers.pop_due(now) {
            self.on_timer(key);
        }
        self.receiver.streams.evict_old(now);
        if self.buffer_bytes() == 0 {
            self.cx.arena.release();
        }
        self.decoder.pending.drop_old(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.cx.outbox.pop(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.cx.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let timer = self.cx.timers.first();
        let streams = &self.receiver.streams;
        let due = [
            (self.bins.next_flush(), "flush a repair bin"),
            (streams.losses.next_due(), "missing packet"),
            (timer.map(|(at, _)| at), timer.map_or("", |(_, key)| key.reason())),
            (streams.next_eviction(), "evict from the data buffer"),
            (self.decoder.pending.next_due(), "pending repair"),
        ];
        let wakeups = due.into_iter().filter_map(|(at, reason)| Some(Wakeup { at: at?, reason }));
        wakeups.min_by_key(|wakeup| wakeup.at)
    }

    fn handle_network(&mut self, _now: Time, change: &NetworkChange) {
        if let NetworkChange::PathMtu(bytes) = change {
            self.cx.config.path_mtu = (*bytes).min(self.max_path_mtu).max(MIN_PATH_MTU);
        }
    }

    /// Includes members that have not confirmed a queued message.
    fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        self.cx.groups.ix(group).map(|ix| self.sender.unconfirmed(ix)).unwrap_or_default()
    }

    /// Returns 0 for a profile of another engine.
    fn payload_limit(&self, profile: Profile) -> usize {
        match profile {
            Profile::TimeCritical(rate) => self.cx.config.payload_limit(rate),
            Profile::Ordered(_) | Profile::Bulk | Profile::Guest => 0,
        }
    }

    fn held_bytes(&self) -> usize {
        let pending = self.decoder.pending.bytes();
        self.receiver.bytes() + pending + self.sender.bytes() + self.left.bytes()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.counters().by_name().collect()
    }

    fn check(&self) {
        self.bins.check();
        self.receiver.check();
        self.decoder.pending.check();
        self.sender.check();
        self.cx.groups.check();
        self.left.check();
    }
}

const KEPT_BYTES: usize = 1 << 20;
/// Mask of the seed that separates the nonces from all other random values.
const NONCE_SEED: u64 = 0x6e6f_6e63_6573_2121;

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
