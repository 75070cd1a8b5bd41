//! Receiver of the streams of other nodes (Slingshot, algorithm 1, lines 9 to 27).

mod answers;
mod gaps;
mod sender_queries;

use core::time::Duration;

use super::config::{Config, StreamStart};
use super::context::{Context, TimerKey};
use super::delivery::{Delivery, Reassembly};
use super::index::{GroupIx, StreamIx};
use super::packet::WireId;
use super::packet::symbol::Symbol;
use super::recovery::Step;
use super::streams::{
    Arrival, FormerStream, FormerStreams, Missing, MissingIx, Place, Slot, Stream, Streams,
};
use crate::{Destination, How, LossCause, NodeId, Origin, PacketId, Rng, SeqNo};
use sender_queries::SenderQueries;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) streams: Streams,
    reassembly: Reassembly,
    queries: SenderQueries,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    pub(super) next: SeqNo,
    pub(super) first: Option<SeqNo>,
    pub(super) nonce: u64,
    pub(super) confirm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    New,
    /// The packet is new and had been missing.
    Repaired,
    Known,
    Doubted,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Held,
    Missing,
    Useless,
}

impl Receiver {
    pub(super) fn new(config: &Config, seed: u64, nonces: Rng) -> Self {
        Self {
            streams: Streams::new(seed, config.buffer_bytes, config.buffer_age),
            reassembly: Reassembly::new(config.assembly_bytes.min(config.buffer_bytes / 2)),
            queries: SenderQueries::new(nonces),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.streams.bytes() + self.reassembly.bytes()
    }

    pub(super) fn check(&self) {
        self.streams.check();
        self.reassembly.check();
    }

    pub(super) fn join(&mut self, ix: GroupIx, former: FormerStreams) {
        *self.streams.former_mut(ix) = former;
    }

    /// Removes the streams of the group. A final acknowledgment reports losses to each sender.
    pub(super) fn leave(&mut self, cx: &mut Context, ix: GroupIx) -> FormerStreams {
        let id = cx.id();
        for stream in self.streams.of_group(ix) {
            if stream.opened && stream.sender != id {
                send_ack(cx, stream);
            }
        }
        let (streams, mut former) = self.streams.remove_group(ix);
        for (ix, stream) in streams {
            cx.timers.cancel(TimerKey::Open(ix));
            let end = stream.window.reported_to();
            let to = self.delivery(cx).forget_messages(ix, end);
            let (limit, left) =
                (cx.config.streams_per_group, FormerStream { to, over_since: None });
            former.note(stream.sender, stream.incarnation, left, limit);
        }
        former
    }

    pub(super) fn hold_own(
        &mut self,
        cx: &Context,
        group: GroupIx,
        seqno: SeqNo,
        symbol: &Symbol,
    ) -> PacketId {
        let own = self.streams.find(group, cx.id());
        let ix = own.unwrap_or_else(|| {
            let id = cx.groups.get(group).id;
            self.streams.open(cx.id(), group, id, seqno, true)
        });
        self.streams.hold(cx.now, ix, seqno, symbol.clone(), Arrival::Multicast);
        self.streams.get(ix).id(seqno)
    }

    pub(super) fn accept(
        &mut self,
        cx: &mut Context,
        (ix, seqno): (StreamIx, SeqNo),
        symbol: &Symbol,
        how: How,
    ) -> Outcome {
        let stream = self.streams.get(ix);
        let overtaken_by = stream.window.start().distance_from(seqno);
        let is_near = overtaken_by > 0 && overtaken_by as u32 <= cx.config.max_gap;
        if is_near && !stream.opened && stream.window.reaches_back() {
            // The packet was overtaken by the one that was taken for the first of the stream.
            self.notice_down_to(cx, ix, seqno);
        }
        let record = match self.streams.get(ix).window.place(seqno) {
            Place::Before if how == How::Direct => {
                self.on_number_before(cx, ix, seqno);
                return Outcome::Known;
            }
            Place::Before | Place::At(Slot::Held(_) | Slot::Settled) => return Outcome::Known,
            Place::At(Slot::Missing(missing)) => Some(missing),
            Place::Ahead => {
                if !self.notice_up_to(cx, ix, seqno) {
                    return Outcome::Doubted;
                }
                None
            }
        };
        let missing_for = record.map_or(Duration::ZERO, |missing| {
            cx.now.since(self.streams.losses.remove(missing).noticed_at)
        });
        let arrival = match how {
            How::Direct => Arrival::Multicast,
            How::Recovered(_) => Arrival::Repair,
            How::Retransmitted(_) => Arrival::Retransmission,
        };
        self.streams.hold(cx.now, ix, seqno, symbol.clone(), arrival);
        count_arrival(cx, record.is_some(), how, missing_for);
        self.delivery(cx).deliver((ix, seqno), symbol, (how, missing_for));
        if record.is_some() { Outcome::Repaired } else { Outcome::New }
    }

    /// Queries the sender if the number is far before the window. This node may have accepted
    /// numbers that were never sent.
    fn on_number_before(&mut self, cx: &mut Context, ix: StreamIx, seqno: SeqNo) {
        let stream = self.streams.get(ix);
        let behind = stream.window.settled_to().distance_from(seqno);
        let is_far = !(0..=cx.config.max_gap as i32).contains(&behind);
        if is_far && !stream.is_believed(cx.now, &cx.config) {
            self.query_sender(cx, ix);
        }
    }

    /// Returns a repaired packet when its multicast arrives for the first time. The packet enters
    /// the bins at that time, like all data packets (Slingshot, algorithm 1, line 12).
    pub(super) fn on_known_data(
        &mut self,
        cx: &mut Context,
        (ix, seqno): (StreamIx, SeqNo),
    ) -> Option<(PacketId, Symbol)> {
        match self.streams.mark_multicast(ix, seqno) {
            None | Some((Arrival::Multicast, _)) => {
                cx.counters.duplicates += 1;
                None
            }
            Some((arrival, symbol)) => {
                cx.counters.overtaken += u64::from(arrival == Arrival::Repair);
                Some((self.streams.get(ix).id(seqno), symbol))
            }
        }
    }

    pub(super) fn missing_in(
        &self,
        cx: &mut Context,
        from: NodeId,
        group: GroupIx,
        (sender, seqno): (NodeId, SeqNo),
    ) -> Option<StreamIx> {
        if !cx.groups.may_know(group, from, sender) {
            cx.counters.from_strangers += 1;
            return None;
        }
        let stream = self.streams.find(group, sender).filter(|_| sender != cx.id());
        let missing = |ix: &StreamIx| self.streams.get(*ix).window.missing(seqno).is_some();
        let found = stream.filter(missing);
        cx.counters.duplicates += u64::from(found.is_none());
        found
    }

    /// Returns the state of a packet in a repair. An unknown packet is recorded as missing.
    pub(super) fn notice_in_repair(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        id: PacketId,
    ) -> Known {
        let Some(group) = cx.groups.ix(id.group) else { return Known::Useless };
        if !cx.groups.may_know(group, from, id.sender) {
            cx.counters.from_strangers += 1;
            return Known::Useless;
        }
        if id.sender == cx.id() {
            let own = self.streams.find(group, id.sender);
            let held = own.is_some_and(|ix| self.streams.get(ix).window.holds(id.seqno));
            return if held { Known::Held } else { Known::Useless };
        }
        let Some(ix) = self.stream_of(cx, group, id.sender, id.seqno.next()) else {
            return Known::Useless;
        };
        if !self.notice_up_to(cx, ix, id.seqno.next()) {
            return Known::Useless;
        }
        match self.streams.get(ix).window.place(id.seqno) {
            Place::At(Slot::Held(_)) => Known::Held,
            Place::At(Slot::Missing(missing)) => {
                self.streams.losses.get_mut(missing).holders.add(from);
                Known::Missing
            }
            _ => Known::Useless,
        }
    }

    pub(super) fn on_have_not(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        (ids, expired): (&[WireId], bool),
    ) {
        cx.counters.have_nots_received += 1;
        for id in ids.iter().map(|id| PacketId::from(*id)) {
            let Some(ix) = self.streams.find_packet(&cx.groups, id) else { continue };
            let stream = self.streams.get(ix);
            if !cx.groups.may_know(stream.group, from, id.sender) {
                cx.counters.from_strangers += 1;
                continue;
            }
            match stream.window.missing(id.seqno) {
                Some(missing) if expired => self.give_up(cx, missing, LossCause::DeadlinePassed),
                // Without the delay, two nodes that lack the packet would keep querying each other.
                Some(missing) => {
                    let losses = &mut self.streams.losses;
                    let end = losses.get(missing).noticed_at + cx.config.give_up_after;
                    let next = cx.now + Duration::from_millis(1);
                    losses.set_due(missing, next.min(end));
                }
                None => {}
            }
        }
    }

    /// Returns the next missing packet that is due and need not wait for its sender's answer.
    pub(super) fn next_due(&mut self, cx: &mut Context) -> Option<(MissingIx, Missing)> {
        while let Some(ix) = self.streams.losses.pop_due(cx.now) {
            let missing = *self.streams.losses.get(ix);
            let is_spent =
                cx.config.nak.as_ref().is_some_and(|nak| missing.attempts >= nak.attempts);
            let is_over = is_spent || cx.now >= missing.noticed_at + cx.config.give_up_after;
            let (stream_ix, packet) = (missing.stream, (missing.seqno, is_over));
            let stream = self.streams.get_mut(stream_ix);
            match self.queries.verify(cx, stream_ix, stream, packet) {
                Some(wait) => self.streams.losses.set_due(ix, cx.now + wait),
                None => return Some((ix, missing)),
            }
        }
        None
    }

    pub(super) fn apply(&mut self, cx: &mut Context, ix: MissingIx, step: Step) {
        let losses = &mut self.streams.losses;
        match step {
            Step::GiveUp(cause) => self.give_up(cx, ix, cause),
            Step::WaitUntil(at) => losses.set_due(ix, at),
            Step::PauseUntil(at) => losses.pause(cx.now, ix, at),
            Step::Request { retry_at, .. } => {
                losses.get_mut(ix).attempts += 1;
                losses.set_due(ix, retry_at);
            }
        }
    }

    fn give_up(&mut self, cx: &mut Context, missing: MissingIx, cause: LossCause) {
        let Missing { stream, seqno, .. } = *self.streams.losses.get(missing);
        self.delivery(cx).give_up(stream, seqno, cause);
    }

    pub(super) fn on_open_due(&mut self, cx: &mut Context, ix: StreamIx) {
        self.queries.send_open(cx, ix, self.streams.get_mut(ix));
    }

    pub(super) fn on_view_change(
        &mut self,
        cx: &mut Context,
        group: GroupIx,
        (node, has_left): (NodeId, bool),
    ) {
        let Some(ix) = self.streams.find(group, node) else { return };
        let was_claimed = self.streams.get_mut(ix).on_view_change(has_left);
        if was_claimed && cx.config.stream_start == StreamStart::AskSender {
            // Claims in the sender's name were believed while it was not a member.
            self.query_sender(cx, ix);
        }
    }

    pub(super) fn acknowledge(&mut self, cx: &mut Context, ix: StreamIx) {
        let stream = self.streams.get_mut(ix);
        if stream.opened {
            send_ack(cx, stream);
        } else {
            self.queries.on_heard(cx, ix, stream);
        }
    }

    /// Finds or opens the stream. Returns `None` if there is no room, or if the packet seems to be
    /// of a former incarnation.
    #[inline]
    fn stream_of(
        &mut self,
        cx: &mut Context,
        group: GroupIx,
        sender: NodeId,
        base: SeqNo,
    ) -> Option<StreamIx> {
        if let Some(ix) = self.streams.find(group, sender) {
            let stream = self.streams.get_mut(ix);
            if !stream.opened {
                self.queries.on_heard(cx, ix, stream);
            }
            return Some(ix);
        }
        if self.streams.is_late(cx.now, group, sender, base) {
            cx.counters.other_incarnations += 1;
            return None;
        }
        let others = self.streams.count_others(group, cx.id());
        let is_full = others >= cx.config.streams_per_group;
        if is_full && !self.forget_departed_sender(cx, group) {
            cx.counters.streams_refused += 1;
            return None;
        }
        let from_first = cx.config.stream_start == StreamStart::FromFirst;
        let base = if from_first { cx.config.first_number } else { base };
        let former = self.streams.former_mut(group).take_near(sender, base);
        let id = cx.groups.get(group).id;
        let ix = self.streams.open(sender, group, id, base, from_first);
        let stream = self.streams.get_mut(ix);
        if let Some((incarnation, to)) = former {
            stream.window.resume_at(to);
            stream.incarnation = incarnation;
        }
        if !from_first {
            self.queries.send_open(cx, ix, stream);
        }
        Some(ix)
    }

    /// Like [`Self::stream_of`], but for a packet from the sender itself. If the packet is of
    /// another incarnation, queries the sender, or restarts the stream of a silent one.
    #[inline]
    pub(super) fn direct_stream_of(
        &mut self,
        cx: &mut Context,
        group: GroupIx,
        from: Origin,
        base: SeqNo,
    ) -> Option<StreamIx> {
        let ix = self.stream_of(cx, group, from.node, base)?;
        let from_first = cx.config.stream_start == StreamStart::FromFirst;
        let stream = self.streams.get_mut(ix);
        // A stream known only from repairs has no incarnation, and may belong to any incarnation.
        let is_its = match stream.incarnation {
            Some(known) => known == from.incarnation,
            None => from_first || stream.can_be_at(base),
        };
        if is_its {
            stream.incarnation = Some(from.incarnation);
            return Some(ix);
        }
        cx.counters.other_incarnations += 1;
        if !stream.is_silent(cx.now, &cx.config) {
            self.queries.query(cx, ix, stream);
            return None;
        }
        if !from_first && stream.can_be_at(base) {
            stream.incarnation = Some(from.incarnation);
        } else {
            self.restart_stream(cx, ix, from.incarnation, base);
            self.queries.send_open(cx, ix, self.streams.get_mut(ix));
        }
        Some(ix)
    }

    fn forget_departed_sender(&mut self, cx: &mut Context, group: GroupIx) -> bool {
        let members = &cx.groups.get(group).members;
        let departed = |sender| sender != cx.id() && !members.contains(sender);
        let Some(ix) = self.streams.next_idle(group, departed) else { return false };
        cx.timers.cancel(TimerKey::Open(ix));
        self.delivery(cx).end_messages(ix, LossCause::DeadlinePassed);
        let end = self.streams.get(ix).window.end();
        let to = self.delivery(cx).forget_messages(ix, end);
        let stream = self.streams.remove(ix);
        let (limit, left) = (cx.config.streams_per_group, FormerStream { to, over_since: None });
        self.streams.former_mut(group).note(stream.sender, stream.incarnation, left, limit);
        true
    }

    pub(super) fn delivery<'a>(&'a mut self, cx: &'a mut Context) -> Delivery<'a> {
        Delivery { cx, streams: &mut self.streams, reassembly: &mut self.reassembly }
    }

    fn query_sender(&mut self, cx: &mut Context, ix: StreamIx) {
        self.queries.query(cx, ix, self.streams.get_mut(ix));
    }
}

fn send_ack(cx: &mut Context, stream: &Stream) {
    if let Some(packet) = stream.ack() {
        cx.counters.acks_sent += 1;
        cx.transmit(Destination::Node(stream.sender), stream.group, packet);
    }
}

fn count_arrival(cx: &mut Context, was_missing: bool, how: How, missing_for: Duration) {
    let wait_ns = missing_for.as_nanos() as u64;
    match how {
        How::Direct => cx.counters.late += u64::from(was_missing),
        How::Recovered(_) => {
            cx.counters.recovered += 1;
            cx.counters.recovered_wait_ns += wait_ns;
        }
        How::Retransmitted(_) => {
            cx.counters.retransmitted += 1;
            cx.counters.retransmitted_wait_ns += wait_ns;
        }
    }
}
