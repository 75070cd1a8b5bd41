//! This node's own requests to a group, as a member or not (4.5).
//!
//! A member's request is one of its messages. A node that is not a member, a *guest*, sends Non
//! Member Data packets to the group. They name the group, and also the ring once an answer has
//! contained its epoch. The guest repeats them until they have places in the order, under the same
//! flow control as a member. A caller that gets no answer in time repeats the request under the
//! same number. Members that have it recognize the number, and the member that keeps the reply
//! sends it again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::RingNews;
use super::around::{Around, Timer};
use super::calls::{Answer, Envelope, Outcome, RequestId, RequestOptions};
use super::group::Group;
use super::names::{Epoch, Process};
use super::packet::{DataPacket, NON_MEMBER_BYTES, NonMemberAck, NonMemberData, Packet};
use super::qos::Qos;
use super::sending::{Outgoing, Sizes};
use super::stream::Data;
use crate::{NodeId, SeqNo, Time};

/// Requests of this node to one group.
#[derive(Debug, Default)]
pub(super) struct Calling {
    pending: BTreeMap<u32, Pending>,
    /// A member that forwards packets, named by the application.
    via: Option<NodeId>,
    /// State of a caller that is not a member.
    pub(super) guest: Option<Guest>,
}

#[derive(Debug)]
struct Pending {
    options: RequestOptions,
    payload: Bytes,
    /// The last message that contained it.
    message: SeqNo,
    deadline: Time,
    retry_at: Time,
    tries: u32,
    arriving: Option<Arriving>,
}

/// A reply of which a part has arrived.
#[derive(Debug)]
struct Arriving {
    from: NodeId,
    total: u32,
    pieces: BTreeMap<u32, Bytes>,
}

/// State of a caller that is not a member.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// The ring that answered; `None` before the first answer: any ring of the group.
    epoch: Option<Epoch>,
    /// Packets without a place, by number.
    packets: BTreeMap<u32, Data>,
    /// Node of the last answer.
    heard: Option<NodeId>,
}

impl Calling {
    /// Creates the state of a node that calls a group without being a member.
    pub(super) fn of_guest() -> Self {
        Self { guest: Some(Guest::default()), ..Self::default() }
    }

    /// Returns the requests of a caller that has become a member.
    pub(super) fn of_member(self) -> Self {
        Self { guest: None, ..self }
    }

    /// Returns the number of requests that wait for their answers.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the oldest number among the requests that wait for their answers and `number`.
    pub(super) fn oldest(&self, number: u32) -> u32 {
        // Numbers wrap around, and some of the waiting requests may be later than `number`.
        let waiting = self.pending.keys().copied().chain([number]);
        waiting.min_by_key(|other| other.wrapping_sub(number) as i32).unwrap_or(number)
    }

    fn due(&self) -> Option<Time> {
        self.pending.values().map(|it| it.deadline.min(it.retry_at)).min()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.pending.values().map(|it| it.payload.len()).sum()
    }
}

impl Arriving {
    /// Returns the offset of the first missing byte.
    fn received_to(&self) -> u32 {
        let mut end = 0;
        for (offset, bytes) in &self.pieces {
            if *offset > end {
                break;
            }
            end = end.max(offset + bytes.len() as u32);
        }
        end
    }

    fn whole(&self) -> Bytes {
        let mut whole = Vec::with_capacity(self.total as usize);
        for (offset, bytes) in &self.pieces {
            let known = whole.len().saturating_sub(*offset as usize).min(bytes.len());
            whole.extend_from_slice(&bytes[known..]);
        }
        whole.into()
    }
}

impl Group {
    pub(super) fn request(
        &mut self,
        cx: &mut Around<'_>,
        number: u32,
        payload: Bytes,
        options: RequestOptions,
    ) {
        let patience = options.patience.unwrap_or(cx.config.call_patience);
        let pending = Pending {
            options,
            payload,
            message: cx.config.first_number,
            deadline: cx.now + patience,
            retry_at: cx.now,
            tries: 0,
            arriving: None,
        };
        cx.counters.calls_made += 1;
        cx.cancel(Timer::Forget);
        self.calling.via = options.via.or(self.calling.via);
        self.calling.pending.insert(number, pending);
        self.make(cx, number);
        self.advance(cx, None);
        self.watch_calls(cx);
    }

    /// Sends a request, possibly again.
    fn make(&mut self, cx: &mut Around<'_>, number: u32) {
        let oldest = self.calling.oldest(number);
        let Some(pending) = self.calling.pending.get_mut(&number) else { return };
        let RequestOptions { handler, qos, .. } = pending.options;
        let payload = Envelope::Request { number, oldest }.wrap(&pending.payload);
        let doubled = cx.config.call_retry.saturating_mul(1 << pending.tries.min(16));
        pending.retry_at = cx.now + doubled.min(MOST_RETRY);
        pending.arriving = None;
        pending.message = self.sending.push(Outgoing { qos, handler, is_call: true, payload });
    }

    /// Repeats all requests that wait. The members have nothing of the messages of the former life.
    pub(super) fn make_all_again(&mut self, cx: &mut Around<'_>) {
        let numbers: Vec<u32> = self.calling.pending.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.make(cx, number));
        self.watch_calls(cx);
    }

    pub(super) fn watch_calls(&mut self, cx: &mut Around<'_>) {
        match self.calling.due() {
            Some(at) => cx.timers.set((cx.group, Timer::Call), at.max(cx.now)),
            None => {
                cx.cancel(Timer::Call);
                if self.calling.guest.is_some() {
                    cx.set_no_later(Timer::Forget, cx.config.call_forget);
                }
            }
        }
    }

    pub(super) fn on_call_timer(&mut self, cx: &mut Around<'_>) {
        let numbers: Vec<u32> = self.calling.pending.keys().copied().collect();
        for number in numbers {
            let Some(pending) = self.calling.pending.get(&number) else { continue };
            if pending.deadline <= cx.now {
                self.on_answer(cx, number, Outcome::Unanswered);
            } else if pending.retry_at <= cx.now {
                self.retry(cx, number);
            }
        }
        self.advance(cx, None);
        self.watch_calls(cx);
    }

    fn retry(&mut self, cx: &mut Around<'_>, number: u32) {
        let is_under_way = {
            let unplaced = self.sending.unplaced_from();
            let message = self.calling.pending.get(&number).map(|pending| pending.message);
            unplaced.zip(message).is_some_and(|(first, it)| it.distance_from(first) >= 0)
        };
        let Some(pending) = self.calling.pending.get_mut(&number) else { return };
        pending.tries += 1;
        if pending.arriving.is_some() && pending.tries % 4 != 0 {
            return self.pull(cx, number);
        }
        if is_under_way {
            // The packets are retransmitted until they have their places.
            pending.retry_at = cx.now + cx.config.call_retry;
            return;
        }
        cx.counters.calls_repeated += 1;
        self.make(cx, number);
    }

    /// Requests the next bytes of a reply.
    fn pull(&mut self, cx: &mut Around<'_>, number: u32) {
        let Some(pending) = self.calling.pending.get_mut(&number) else { return };
        let Some(arriving) = &pending.arriving else { return };
        pending.retry_at = cx.now + cx.config.largest_timeout;
        let (from, offset) = (arriving.from, arriving.received_to());
        cx.unicast(from, &Packet::NonMemberData(NonMemberData::Pull { number, offset }));
    }

    /// Completes a request with its outcome.
    pub(super) fn on_answer(&mut self, cx: &mut Around<'_>, number: u32, outcome: Outcome) {
        if self.calling.pending.remove(&number).is_none() {
            cx.counters.answers_duplicate += 1;
            return;
        }
        match outcome {
            Outcome::Reply { .. } => cx.counters.calls_replied += 1,
            Outcome::Acknowledged => {}
            Outcome::Unanswered => cx.counters.calls_unanswered += 1,
        }
        let id = RequestId { caller: cx.node, number };
        cx.tell(RingNews::Answer(Answer { id, outcome }));
        self.watch_calls(cx);
    }

    /// Ends all requests of this node without an answer.
    pub(super) fn give_up_calls(&mut self, cx: &mut Around<'_>) {
        let numbers: Vec<u32> = self.calling.pending.keys().copied().collect();
        for number in numbers {
            self.on_answer(cx, number, Outcome::Unanswered);
        }
    }

    /// Handles a packet from a member of the group that this node has called.
    pub(super) fn on_non_member_ack(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        ack: NonMemberAck,
    ) {
        let epoch = ack.epoch();
        if let Some(guest) = &mut self.calling.guest {
            guest.heard = Some(sender);
            guest.epoch = Some(epoch);
        }
        match ack {
            NonMemberAck::Placed { life, to, .. } => self.on_placed(cx, life, to),
            NonMemberAck::Delivered { number, .. } => {
                self.on_answer(cx, number, Outcome::Acknowledged);
            }
            NonMemberAck::Reply { number, total, offset, is_end, bytes, .. } => {
                self.on_reply_piece(cx, sender, number, total, offset, bytes, is_end);
            }
        }
    }

    fn on_placed(&mut self, cx: &mut Around<'_>, life: u64, to: SeqNo) {
        let Some(guest) = &mut self.calling.guest else { return };
        if life != self.me.life {
            cx.counters.calls_foreign += 1;
            return;
        }
        self.sending.on_ordered(cx.now, to);
        guest.packets.retain(|seqno, _| SeqNo(*seqno).distance_from(to) >= 0);
        let first = self.sending.unplaced_from();
        let is_placed = |message: SeqNo| first.is_none_or(|first| first.is_after(message));
        let is_done = |pending: &Pending| {
            let RequestOptions { handler, qos, .. } = pending.options;
            let is_early = qos == Qos::Unordered || qos == Qos::SourceOrdered;
            handler.is_none() && is_early && is_placed(pending.message)
        };
        let pending = self.calling.pending.iter();
        let done: Vec<u32> =
            pending.filter(|(_, it)| is_done(it)).map(|(number, _)| *number).collect();
        for number in done {
            self.on_answer(cx, number, Outcome::Acknowledged);
        }
        self.advance(cx, None);
    }

    #[expect(clippy::too_many_arguments, reason = "these are the fields of the packet")]
    fn on_reply_piece(
        &mut self,
        cx: &mut Around<'_>,
        from: NodeId,
        number: u32,
        total: u32,
        offset: u32,
        bytes: Bytes,
        is_end: bool,
    ) {
        let Some(pending) = self.calling.pending.get_mut(&number) else {
            cx.counters.answers_duplicate += 1;
            return;
        };
        if total as usize > cx.config.message_bytes {
            cx.counters.malformed += 1;
            return;
        }
        let known = pending.arriving.take();
        let known = known.filter(|it| it.from == from && it.total == total);
        let mut arriving = known.unwrap_or(Arriving { from, total, pieces: BTreeMap::new() });
        // Fragments may be ahead by `REPLY_WINDOW_BYTES` at most, which bounds the kept bytes.
        let is_next = offset <= arriving.received_to() + REPLY_WINDOW_BYTES;
        if is_next && !bytes.is_empty() {
            arriving.pieces.insert(offset, bytes);
        }
        pending.retry_at = cx.now + cx.config.largest_timeout;
        if arriving.received_to() == total {
            let payload = arriving.whole();
            return self.on_answer(cx, number, Outcome::Reply { by: from, payload });
        }
        pending.arriving = Some(arriving);
        if is_end {
            self.pull(cx, number);
        }
        self.watch_calls(cx);
    }

    /// Sends the packets that the window allows, as a guest.
    pub(super) fn advance_as_guest(&mut self, cx: &mut Around<'_>) {
        let sizes = cx.sizes();
        let sizes = Sizes { largest: sizes.largest - NON_MEMBER_BYTES, ..sizes };
        while let Some(data) = self.sending.next_unreliable() {
            let packet = self.guest_packet(data.message, data);
            self.send_as_guest(cx, &packet, false);
        }
        while let Some((seqno, data)) = self.sending.next_packet(cx.now, sizes) {
            let packet = self.guest_packet(seqno, data.clone());
            if let Some(guest) = &mut self.calling.guest {
                guest.packets.insert(seqno.0, data);
            }
            cx.counters.data_sent += 1;
            self.send_as_guest(cx, &packet, false);
        }
        match self.sending.due(&self.pace, cx.config) {
            Some(at) => cx.timers.set((cx.group, Timer::Retransmit), at.max(cx.now)),
            None => cx.cancel(Timer::Retransmit),
        }
    }

    pub(super) fn guest_packet(&self, seqno: SeqNo, data: Data) -> Packet {
        let epoch = self.calling.guest.as_ref().and_then(|guest| guest.epoch);
        let is_first = seqno == self.sending.first_number() && data.qos != Qos::Unreliable;
        let data = DataPacket { source: self.me, seqno, data };
        Packet::NonMemberData(NonMemberData::Data { epoch, is_first, data })
    }

    /// Sends a packet to the group. It also sends it to a member that forwards it, if it is a
    /// retransmission or the caller has named such a member.
    pub(super) fn send_as_guest(&mut self, cx: &mut Around<'_>, packet: &Packet, is_again: bool) {
        cx.multicast(packet);
        let heard = self.calling.guest.as_ref().and_then(|guest| guest.heard);
        let known = self.known.iter().next().copied();
        let via = self.calling.via.or(heard.or(known).filter(|_| is_again));
        if let Some(node) = via {
            cx.unicast_to_forward(node, packet);
        }
    }

    pub(super) fn on_guest_retransmit_timer(&mut self, cx: &mut Around<'_>) {
        if self.sending.due(&self.pace, cx.config).is_none_or(|due| due > cx.now) {
            return self.advance_as_guest(cx);
        }
        let (again, tries) = self.sending.on_timeout(cx.now, PACKETS_AT_ONCE);
        if tries > cx.config.tries {
            return self.begin_again_as_guest(cx);
        }
        let guest = self.calling.guest.as_ref();
        let packets = again.into_iter().filter_map(|seqno| {
            let data = guest?.packets.get(&seqno.0)?.clone();
            Some(self.guest_packet(seqno, data))
        });
        for packet in packets.collect::<Vec<_>>() {
            cx.counters.data_resent += 1;
            self.send_as_guest(cx, &packet, true);
        }
        self.advance_as_guest(cx);
    }

    /// Begins a new life, because the ring has flushed this guest or is another one. The guest
    /// introduces itself again, by the group's name.
    fn begin_again_as_guest(&mut self, cx: &mut Around<'_>) {
        *cx.lives += 1;
        self.me = Process { node: cx.node, life: *cx.lives };
        self.sending = Self::sending(cx.config);
        self.calling.guest = Some(Guest::default());
        self.make_all_again(cx);
        self.advance_as_guest(cx);
    }
}

/// Maximum interval between two repetitions of a request.
const MOST_RETRY: Duration = Duration::from_secs(2);
/// Maximum number of packets that are retransmitted at once after a timeout.
const PACKETS_AT_ONCE: usize = 8;
/// Maximum distance of a reply fragment from the first missing byte.
const REPLY_WINDOW_BYTES: u32 = 128 << 10;
