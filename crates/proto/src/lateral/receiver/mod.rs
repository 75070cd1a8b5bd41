//! Handling of received data packets and repairs (Slingshot, algorithm 1, lines 9 to 27).

pub(crate) mod sender_query;

use core::time::Duration;

use crate::lateral::groups::GroupIx;
use crate::lateral::packet::symbol::{Symbol, xor_into};
use crate::lateral::packet::{ID_BYTES, REPAIR_BYTES, WireId};
use crate::lateral::receiver::sender_query::CREDIBLE_STEP;
use crate::lateral::recovery::nak_targets;
use crate::lateral::streams::data_buffer::Arrival;
use crate::lateral::streams::loss_list::{Missing, MissingIx};
use crate::lateral::streams::{Place, Slot, StreamIx};
use crate::lateral::{Lateral, StreamStart, TimerKey};
use crate::wire::MAX_DATAGRAM_BYTES;
use crate::{How, LossCause, NodeId, Origin, PacketId, RateOfFire, SeqNo, Time};

impl Lateral {
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        from: Origin,
        group: GroupIx,
        seqno: SeqNo,
        confirm: bool,
        symbol: &[u8],
    ) {
        if !self.fits_repairs(symbol) {
            self.counters.malformed += 1;
            return;
        }
        let Some(stream) = self.direct_stream_of(now, group, from, seqno) else { return };
        let Ok(symbol) = Symbol::from_datagram(&mut self.arena, symbol) else {
            self.counters.malformed += 1;
            return;
        };
        match self.take_in(now, stream, seqno, &symbol, How::Direct) {
            Intake::New => {
                self.take_in_all_solved(now);
                self.counters.data_received += 1;
                let id = self.streams.get(stream).id(seqno);
                self.account(now, group, id, &symbol);
            }
            Intake::Known => self.on_known_data(now, stream, seqno),
            Intake::Doubted => {}
        }
        if confirm {
            self.acknowledge(now, stream);
        }
    }

    /// Handles a multicast of a known packet: a duplicate, or the first multicast of a packet that
    /// was repaired. In the latter case it enters the bins now, like all data packets (Slingshot,
    /// algorithm 1, line 12).
    fn on_known_data(&mut self, now: Time, ix: StreamIx, seqno: SeqNo) {
        match self.streams.mark_multicast(ix, seqno) {
            None | Some((Arrival::Multicast, _)) => self.counters.duplicates += 1,
            Some((came, symbol)) => {
                self.counters.data_received += 1;
                self.counters.overtaken += u64::from(came == Arrival::Repair);
                let stream = self.streams.get(ix);
                let (group, id) = (stream.group, stream.id(seqno));
                self.account(now, group, id, &symbol);
            }
        }
    }

    pub(crate) fn on_retransmission(
        &mut self,
        now: Time,
        from: NodeId,
        group: GroupIx,
        origin: NodeId,
        seqno: SeqNo,
        symbol: &[u8],
    ) {
        if !self.may_know(group, from, origin) {
            self.counters.from_strangers += 1;
            return;
        }
        let wanted = self.streams.find(group, origin).filter(|_| origin != self.id);
        let Some(stream) = wanted.filter(|ix| self.streams.get(*ix).missing(seqno).is_some())
        else {
            self.counters.duplicates += 1;
            return;
        };
        match Symbol::from_datagram(&mut self.arena, symbol) {
            Ok(symbol) if self.fits_repairs(symbol.bytes()) => {
                self.take_in(now, stream, seqno, &symbol, How::Retransmitted(from));
                self.take_in_all_solved(now);
            }
            _ => self.counters.malformed += 1,
        }
    }

    pub(crate) fn on_repair(&mut self, now: Time, from: NodeId, ids: &[WireId], sum: &[u8]) {
        self.counters.repairs_received += 1;
        if self.holds_all(ids) {
            self.counters.repairs_redundant += 1;
            return;
        }
        let mut missing = Vec::new();
        let mut usable = true;
        for id in ids.iter().map(|id| PacketId::from(*id)) {
            match self.notice_in_repair(now, from, id) {
                Known::Held => {}
                Known::Missing if missing.contains(&id) => {
                    // The equations assume that a packet occurs once in an XOR.
                    self.counters.repairs_contradictory += 1;
                    return;
                }
                Known::Missing => missing.push(id),
                Known::Useless => usable = false,
            }
        }
        if !usable {
            self.counters.repairs_unusable += 1;
            return;
        }
        if missing.is_empty() {
            self.counters.repairs_redundant += 1;
            return;
        }
        let Some(rest) = self.subtract_held(ids, sum) else {
            self.counters.repairs_contradictory += 1;
            return;
        };
        if let [id] = missing[..] {
            self.take_in_solved(now, from, id, &rest);
        } else {
            self.counters.repairs_pending += 1;
            self.pending.insert(now, from, missing, rest);
        }
        self.take_in_all_solved(now);
    }

    /// Returns the stream that a packet belongs to, a new one if it is the first heard of it.
    /// Returns `None` if there is no room for it, or if it seems to belong to a former incarnation.
    pub(crate) fn stream_of(
        &mut self,
        now: Time,
        group: GroupIx,
        sender: NodeId,
        base: SeqNo,
    ) -> Option<StreamIx> {
        if let Some(ix) = self.streams.find(group, sender) {
            if !self.streams.get(ix).opened {
                self.ask_again_to_open(now, ix);
            }
            return Some(ix);
        }
        if self.groups.get(group).heard.is_late(now, sender, base) {
            self.counters.other_incarnations += 1;
            return None;
        }
        let is_full = self.groups.get(group).streams >= self.config.streams_per_group;
        if is_full && !self.forget_a_departed_sender(group) {
            self.counters.streams_refused += 1;
            return None;
        }
        let joined = self.groups.get_mut(group);
        joined.streams += 1;
        let from_first = self.config.stream_start == StreamStart::FromFirst;
        let base = if from_first { self.config.first_number } else { base };
        let (id, heard) = (joined.id, joined.heard.take_near(sender, base));
        let ix = self.streams.open(sender, group, id, base, from_first);
        if let Some((incarnation, to)) = heard {
            let stream = self.streams.get_mut(ix);
            stream.resume_at(to);
            stream.incarnation = incarnation;
        }
        if !from_first {
            self.ask_to_open(now, ix);
        }
        Some(ix)
    }

    /// Forgets a sender of the group that is not a member and has no packet held or missing, to
    /// make room for another one. Returns `false` if there is none.
    fn forget_a_departed_sender(&mut self, group: GroupIx) -> bool {
        let members = &self.groups.get(group).members;
        let departed = |sender| sender != self.id && !members.contains(sender);
        let Some(ix) = self.streams.next_silent(group, departed) else { return false };
        self.cancel_open(ix);
        self.end_messages_of(ix, LossCause::DeadlinePassed);
        let end = self.streams.get(ix).end();
        let to = self.forget_messages_of(ix, end);
        let stream = self.streams.remove(ix);
        let joined = self.groups.get_mut(group);
        joined.streams -= 1;
        let limit = self.config.streams_per_group;
        joined.heard.leave(stream.sender, stream.incarnation, to, limit);
        true
    }

    /// Records every unknown number of the stream before `end` as missing. Returns `false` if `end`
    /// is not believed: a jump needs the sender's confirmation.
    pub(crate) fn notice_up_to(&mut self, now: Time, ix: StreamIx, end: SeqNo) -> bool {
        let stream = self.streams.get(ix);
        let ahead = end.distance_from(stream.end());
        let credible = CREDIBLE_STEP.min(self.config.max_gap) as i32;
        let is_large = ahead > credible && !stream.is_vouched(end.minus(1));
        if is_large && !self.is_believed(now, ix) {
            let max_gap = self.config.max_gap as i32;
            let stream = self.streams.get_mut(ix);
            let agrees = |doubted: &SeqNo| (0..=max_gap).contains(&end.distance_from(*doubted));
            stream.doubted = stream.doubted.filter(agrees).or(Some(end));
            self.counters.jumps_doubted += 1;
            self.want_word(now, ix);
            return false;
        }
        if is_large && self.config.stream_start == StreamStart::AskSender {
            // The number may belong to another incarnation, which is as unconfirmed as the jump.
            self.streams.get_mut(ix).incarnation = None;
        }
        self.notice_believed(now, ix, end)
    }

    /// Like [`Self::notice_up_to`], for numbers that the sender has confirmed or that are believed.
    pub(crate) fn notice_believed(&mut self, now: Time, ix: StreamIx, end: SeqNo) -> bool {
        let stream = self.streams.get_mut(ix);
        let ahead = end.distance_from(stream.end());
        if ahead <= 0 {
            return true;
        }
        if ahead as u32 > self.config.max_gap {
            return self.on_jump(now, ix, end);
        }
        stream.doubted = None;
        if self.missing.len() + ahead as usize > MAX_MISSING {
            self.skip_to(ix, end);
            return true;
        }
        for _ in 0..ahead {
            self.notice_next(now, ix);
        }
        true
    }

    /// Records the packets from `first` to the known start of the stream as missing, because they
    /// are owed too. If they are too many, they are reported as lost.
    pub(crate) fn notice_down_to(&mut self, now: Time, ix: StreamIx, first: SeqNo) {
        let stream = self.streams.get(ix);
        let first = stream.owed_from(first);
        let before = stream.start().distance_from(first);
        if before <= 0 {
            return;
        }
        if before as u32 > self.config.max_gap
            || !stream.reaches_back()
            || self.missing.len() + before as usize > MAX_MISSING
        {
            self.counters.missing += before as u64;
            let last = stream.start().minus(1);
            self.lose(ix, first, last, LossCause::TooFarBehind);
            return;
        }
        for _ in 0..before {
            let seqno = self.streams.get(ix).start().minus(1);
            let missing = self.record_missing(now, ix, seqno);
            self.streams.get_mut(ix).push_missing_before(missing);
        }
    }

    fn notice_next(&mut self, now: Time, ix: StreamIx) {
        let seqno = self.streams.get(ix).end();
        if self.reassembly.is_unwanted(ix, seqno) {
            self.streams.push_settled(ix);
            self.reassembly.forget_unwanted_before(ix, seqno.next());
            return;
        }
        let missing = self.record_missing(now, ix, seqno);
        self.streams.get_mut(ix).push_missing(missing);
    }

    fn record_missing(&mut self, now: Time, stream: StreamIx, seqno: SeqNo) -> MissingIx {
        self.counters.missing += 1;
        let missing =
            Missing { stream, seqno, noticed_at: now, attempts: 0, holders: Default::default() };
        let wait = match &self.config.nak {
            Some(nak) => nak.after + nak_targets::jitter(nak, &mut self.rng),
            None => self.config.give_up_after,
        };
        self.missing.insert(missing, now + wait.min(self.config.give_up_after))
    }

    /// Gives up everything of the stream before `end` that is missing.
    pub(crate) fn skip_to(&mut self, ix: StreamIx, end: SeqNo) {
        self.end_messages_of(ix, LossCause::TooFarBehind);
        for (seqno, missing) in self.streams.get(ix).all_missing() {
            self.missing.remove(missing);
            self.lose(ix, seqno, seqno, LossCause::TooFarBehind);
        }
        let known_to = self.streams.get(ix).end();
        // Packets beyond the end that belong to a message which is over were reported with it.
        let first = self.reassembly.unwanted_to(ix).map_or(known_to, |to| to.later(known_to));
        if end.is_after(first) {
            self.counters.missing += end.distance_from(first) as u64;
            self.lose(ix, first, end.minus(1), LossCause::TooFarBehind);
        }
        self.streams.skip_to(ix, end);
        self.reassembly.forget_unwanted_before(ix, end);
    }

    /// Returns the stream of the packet, if it is known.
    pub(crate) fn stream_with(&self, id: PacketId) -> Option<StreamIx> {
        self.groups.ix(id.group).and_then(|ix| self.streams.find(ix, id.sender))
    }

    /// Accepts a packet, whatever the path by which it arrived. Packets that it solves are queued.
    fn take_in(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        symbol: &Symbol,
        how: How,
    ) -> Intake {
        let stream = self.streams.get(ix);
        let overtaken_by = stream.start().distance_from(seqno);
        let is_near = overtaken_by > 0 && overtaken_by as u32 <= self.config.max_gap;
        if is_near && !stream.opened && stream.reaches_back() {
            // The packet was overtaken by the one that this node took for the first of the stream.
            self.notice_down_to(now, ix, seqno);
        }
        let record = match self.streams.get(ix).place(seqno) {
            Place::Before if how == How::Direct => {
                self.on_number_before(now, ix, seqno);
                return Intake::Known;
            }
            Place::Before | Place::At(Slot::Held(_) | Slot::Settled) => return Intake::Known,
            Place::At(Slot::Missing(missing)) => Some(missing),
            Place::Ahead => {
                if !self.notice_up_to(now, ix, seqno) {
                    return Intake::Doubted;
                }
                None
            }
        };
        let missing_for = record
            .map_or(Duration::ZERO, |record| now.since(self.missing.remove(record).noticed_at));
        let came = match how {
            How::Direct => Arrival::Multicast,
            How::Recovered(_) => Arrival::Repair,
            How::Retransmitted(_) => Arrival::Retransmission,
        };
        self.streams.hold(now, ix, seqno, symbol.clone(), came);
        self.count_arrival(record.is_some(), how, missing_for);
        self.deliver(now, ix, seqno, symbol, how, missing_for);
        if record.is_some() {
            self.pending.on_packet(self.streams.get(ix).id(seqno), symbol.bytes());
        }
        Intake::New
    }

    /// Handles a packet whose number lies before the window. If it lies far before, this node may
    /// have believed numbers that were never sent, and queries the sender.
    fn on_number_before(&mut self, now: Time, ix: StreamIx, seqno: SeqNo) {
        let behind = self.streams.get(ix).settled_to().distance_from(seqno);
        let is_far = !(0..=self.config.max_gap as i32).contains(&behind);
        if is_far && !self.is_believed(now, ix) {
            self.want_word(now, ix);
        }
    }

    fn count_arrival(&mut self, was_missing: bool, how: How, missing_for: Duration) {
        let wait_ns = missing_for.as_nanos() as u64;
        match how {
            How::Direct => self.counters.late += u64::from(was_missing),
            How::Recovered(_) => {
                self.counters.recovered += 1;
                self.counters.recovered_wait_ns += wait_ns;
            }
            How::Retransmitted(_) => {
                self.counters.retransmitted += 1;
                self.counters.retransmitted_wait_ns += wait_ns;
            }
        }
    }

    /// Returns `true` if all these packets are held, as for most repairs. The function only reads.
    /// Each look-up waits for memory, and the processor can overlap several of them.
    fn holds_all(&self, ids: &[WireId]) -> bool {
        ids.iter().map(|id| PacketId::from(*id)).all(|id| {
            let stream = self.stream_with(id);
            stream.is_some_and(|ix| self.streams.get(ix).holds(id.seqno))
        })
    }

    /// Returns `true` if `node` may repair or retransmit packets of `sender` in this group. Only
    /// members and the sender itself may; others could inject anything.
    pub(crate) fn may_know(&self, group: GroupIx, node: NodeId, sender: NodeId) -> bool {
        node == sender || self.groups.get(group).members.contains(node)
    }

    /// Returns what is known of a packet in a repair. An unknown packet is recorded as missing.
    fn notice_in_repair(&mut self, now: Time, from: NodeId, id: PacketId) -> Known {
        let Some(group) = self.groups.ix(id.group) else { return Known::Useless };
        if !self.may_know(group, from, id.sender) {
            self.counters.from_strangers += 1;
            return Known::Useless;
        }
        if id.sender == self.id {
            let own = self.streams.find(group, self.id);
            let held = own.is_some_and(|ix| self.streams.get(ix).holds(id.seqno));
            return if held { Known::Held } else { Known::Useless };
        }
        let Some(ix) = self.stream_of(now, group, id.sender, id.seqno.next()) else {
            return Known::Useless;
        };
        if !self.notice_up_to(now, ix, id.seqno.next()) {
            return Known::Useless;
        }
        match self.streams.get(ix).place(id.seqno) {
            Place::At(Slot::Held(_)) => Known::Held,
            Place::At(Slot::Missing(missing)) => {
                self.missing.get_mut(missing).holders.add(from);
                Known::Missing
            }
            _ => Known::Useless,
        }
    }

    /// Returns the rest of a repair's XOR without the packets that are held. Returns `None` if one
    /// of them is longer than the XOR, which does not occur in a correct repair.
    fn subtract_held(&self, ids: &[WireId], sum: &[u8]) -> Option<Vec<u8>> {
        let mut rest = sum.to_vec();
        for id in ids.iter().map(|id| PacketId::from(*id)) {
            if let Some(held) = self.streams.held(self.stream_with(id)?, id.seqno) {
                let symbol = held.symbol().bytes();
                if symbol.len() > rest.len() {
                    return None;
                }
                xor_into(&mut rest, symbol);
            }
        }
        Some(rest)
    }

    /// Accepts solved packets, and those solved by them in turn. The number is limited so that
    /// sockets are served in time; the rest is accepted at the next call.
    pub(crate) fn take_in_all_solved(&mut self, now: Time) {
        for _ in 0..MAX_SOLVED_AT_ONCE {
            let Some(solved) = self.pending.pop_solved() else { return };
            self.take_in_solved(now, solved.from, solved.id, &solved.sum);
        }
    }

    fn take_in_solved(&mut self, now: Time, from: NodeId, id: PacketId, sum: &[u8]) {
        let symbol = Symbol::from_repair(&mut self.arena, sum).ok();
        let Some(symbol) = symbol.filter(|symbol| self.fits_repairs(symbol.bytes())) else {
            self.counters.repairs_contradictory += 1;
            return;
        };
        let stream = self.stream_with(id);
        // The packet may have been given up, or its group left, while the equation was pending.
        let missing = stream.filter(|ix| self.streams.get(*ix).missing(id.seqno).is_some());
        if let Some(ix) = missing {
            self.take_in(now, ix, id.seqno, &symbol, How::Recovered(from));
        }
    }

    /// Returns `true` if a repair or a retransmission of the symbol fits a UDP datagram. Symbols of
    /// correct senders do, because all groups of a node have the same r.
    fn fits_repairs(&self, symbol: &[u8]) -> bool {
        let ids = usize::from(self.r.unwrap_or(RateOfFire::MAX_R)) * ID_BYTES;
        REPAIR_BYTES + ids + symbol.len() <= MAX_DATAGRAM_BYTES
    }

    pub(crate) fn cancel_open(&mut self, ix: StreamIx) {
        self.timers.cancel(TimerKey::Open(ix));
    }
}

/// Outcome of a packet that arrived.
enum Intake {
    New,
    /// The packet was held or settled already.
    Known,
    /// The number is too far ahead to be believed.
    Doubted,
}

/// State of a packet that is named in a repair.
enum Known {
    /// In the data buffer.
    Held,
    /// Missing.
    Missing,
    /// Neither, and without use.
    Useless,
}

/// Maximum number of solved packets accepted at once.
const MAX_SOLVED_AT_ONCE: usize = 16;

/// Maximum number of missing packets. A node with more cannot catch up.
const MAX_MISSING: usize = 1 << 18;
