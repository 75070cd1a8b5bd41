//! Requests that were delivered to this member: the open ones, and the replies to them (4.5).

use alloc::vec::Vec;

use bytes::Bytes;

use super::RingNews;
use super::around::Around;
use super::calls::{
    ENVELOPE_BYTES, Envelope, Outcome, ReplyError, Request, RequestId, Seen, Sight,
};
use super::group::Group;
use super::locks::{Handler, LockName};
use super::log::Round;
use super::names::{Place, Process, Timestamp};
use super::packet::{DataPacket, NonMemberAck, NonMemberData, Packet};
use super::qos::Qos;
use super::ring::GuestArrival;
use super::sending::Outgoing;
use super::stream::{Arrival, Whole};
use crate::{NodeId, SeqNo};

impl Group {
    /// Handles a delivered message with an envelope.
    pub(super) fn on_call(
        &mut self,
        cx: &mut Around<'_>,
        source: Process,
        whole: Whole,
        round: Option<Timestamp>,
        place: Option<Place>,
    ) {
        let (handler, qos) = (whole.handler, whole.qos);
        let Some((envelope, payload)) = Envelope::open(whole.payload) else {
            cx.counters.malformed += 1;
            return;
        };
        match envelope {
            Envelope::Request { number, oldest } => {
                let id = RequestId { caller: source.node, number };
                match self.answering.note(id, oldest) {
                    Sight::Impossible => cx.counters.malformed += 1,
                    Sight::Over => cx.counters.requests_repeated += 1,
                    sight => {
                        let is_new = sight == Sight::New;
                        let place = place.filter(|_| is_new);
                        self.on_request_delivered(cx, id, handler, payload, place, is_new);
                        if handler.is_none() {
                            self.acknowledge(cx, id, qos, round);
                        }
                    }
                }
            }
            Envelope::Reply(id) => {
                self.answering.on_answered(id, source);
                if id.caller == cx.node {
                    self.on_answer(cx, id.number, Outcome::Reply { by: source.node, payload });
                }
            }
            Envelope::Answered(id) => self.answering.on_answered(id, source),
        }
    }

    fn on_request_delivered(
        &mut self,
        cx: &mut Around<'_>,
        id: RequestId,
        handler: Option<Handler>,
        payload: Bytes,
        place: Option<Place>,
        is_new: bool,
    ) {
        cx.counters.requests_delivered += u64::from(is_new);
        cx.counters.requests_repeated += u64::from(!is_new);
        let Some(handler) = handler else {
            if is_new {
                let (is_ours, is_again, may_be_done) = (false, false, false);
                let request =
                    Request { id, handler, payload, place, is_ours, is_again, may_be_done };
                cx.tell(RingNews::Request(request));
            }
            return;
        };
        if !is_new && self.reply_again(cx, id) {
            return;
        }
        let is_ours = self.answering.serving.contains(&handler);
        let holder = self.ring.as_ref().and_then(|it| it.view().locks.holder(handler.lock()));
        let is_held = holder.is_some_and(|holder| holder != self.me);
        let limit = cx.config.queue_bytes;
        let entry = self.answering.keep(id, handler, payload.clone(), limit);
        entry.was_held |= is_held;
        let is_told = entry.is_told;
        entry.is_told |= is_ours;
        if is_new || (is_ours && !is_told) {
            let handler = Some(handler);
            let (is_again, may_be_done) = (!is_new, !is_new);
            let request = Request { id, handler, payload, place, is_ours, is_again, may_be_done };
            cx.tell(RingNews::Request(request));
        }
    }

    /// Handles a repeated request that has an answer. Returns `true` if the request needs nothing
    /// else.
    fn reply_again(&mut self, cx: &mut Around<'_>, id: RequestId) -> bool {
        let is_member = self.is_member(id.caller);
        let Some(entry) = self.answering.entry(id) else { return false };
        if let Some(reply) = entry.reply.clone() {
            // The reply to a member may still be in flight to its place.
            if !is_member || entry.answered_by.is_some() {
                cx.counters.replies_resent += 1;
                self.send_reply(cx, id, &reply, 0);
            }
            return true;
        }
        let Some(by) = entry.answered_by else { return false };
        let is_there = self.ring.as_ref().is_some_and(|ring| ring.view().contains(by));
        if is_there && by != self.me {
            return true;
        }
        // The member that replied is gone, or no longer keeps the reply: the request is open again.
        (entry.answered_by, entry.is_told) = (None, false);
        false
    }

    /// Acknowledges the delivery of a request. Only the member that assigned its place does.
    fn acknowledge(
        &mut self,
        cx: &mut Around<'_>,
        id: RequestId,
        qos: Qos,
        round: Option<Timestamp>,
    ) {
        if id.caller == cx.node {
            return self.on_answer(cx, id.number, Outcome::Acknowledged);
        }
        let Some(ring) = &self.ring else { return };
        let said = round.and_then(|at| ring.log().range(at, at.plus(1)).next());
        let site = said.map_or(ring.token(), |round| round.site);
        let is_placed_soon = !qos.is_ordered() && qos != Qos::Unreliable;
        if site == self.me && !is_placed_soon && ring.view().process_of(id.caller).is_none() {
            let (epoch, number) = (ring.view().epoch, id.number);
            cx.counters.calls_acknowledged += 1;
            let ack = NonMemberAck::Delivered { epoch, number };
            cx.unicast(id.caller, &Packet::NonMemberAck(ack));
        }
    }

    /// Sends the application's reply.
    pub(super) fn reply(
        &mut self,
        cx: &mut Around<'_>,
        id: RequestId,
        payload: Bytes,
    ) -> Result<(), ReplyError> {
        let limit = cx.config.message_bytes - ENVELOPE_BYTES;
        if payload.len() > limit {
            return Err(ReplyError::TooLarge { bytes: payload.len(), limit });
        }
        let full = self.sending.full_with(payload.len(), cx.config.queue_bytes);
        if let Some(waiting_bytes) = full {
            return Err(ReplyError::QueueFull { waiting_bytes });
        }
        let Some(entry) = self.answering.entry(id) else { return Err(ReplyError::NotOpen) };
        if !entry.is_told || entry.answered_by.is_some() || entry.reply.is_some() {
            return Err(ReplyError::NotOpen);
        }
        let limit = cx.config.reply_bytes;
        cx.counters.replies_forgotten += self.answering.keep_reply(id, payload.clone(), limit);
        cx.counters.replies_sent += 1;
        self.send_reply(cx, id, &payload, 0);
        if !self.is_member(id.caller) {
            self.say_envelope(Envelope::Answered(id), &[]);
        }
        self.advance(cx, None);
        Ok(())
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.view().process_of(node).is_some())
    }

    /// Sends a reply: to a member through the group, to any other caller by unicast. By unicast it
    /// sends the first fragments, and the others on request.
    pub(super) fn send_reply(
        &mut self,
        cx: &mut Around<'_>,
        id: RequestId,
        reply: &Bytes,
        from: usize,
    ) {
        if self.is_member(id.caller) {
            return self.say_envelope(Envelope::Reply(id), reply);
        }
        let Some(epoch) = self.epoch() else { return };
        let (piece, total) = (cx.config.piece_bytes() - REPLY_HEAD_BYTES, reply.len());
        let (mut offset, end) = (from.min(total), total.min(from + piece * PIECES_AT_ONCE));
        loop {
            let to = end.min(offset + piece);
            let is_end = to == end;
            let ack = NonMemberAck::Reply {
                epoch,
                number: id.number,
                total: total as u32,
                offset: offset as u32,
                is_end,
                bytes: reply.slice(offset..to),
            };
            cx.unicast(id.caller, &Packet::NonMemberAck(ack));
            if is_end {
                return;
            }
            offset = to;
        }
    }

    /// Handles the request of a caller for more of a reply.
    pub(super) fn on_pull(&mut self, cx: &mut Around<'_>, id: RequestId, offset: u32) {
        let reply = self.answering.entry(id).and_then(|entry| entry.reply.clone());
        match reply {
            Some(reply) if !self.is_member(id.caller) => {
                self.send_reply(cx, id, &reply, offset as usize);
            }
            _ => cx.counters.calls_foreign += 1,
        }
    }

    fn say_envelope(&mut self, envelope: Envelope, payload: &[u8]) {
        let payload = envelope.wrap(payload);
        let qos = Qos::TotallyOrdered;
        self.sending.push(Outgoing { qos, handler: None, is_call: true, payload });
    }

    /// Handles a packet of a node that is not a member.
    pub(super) fn on_non_member_data(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        packet: NonMemberData,
    ) {
        let (epoch, is_first, data) = match packet {
            NonMemberData::Pull { number, offset } => {
                return self.on_pull(cx, RequestId { caller: sender, number }, offset);
            }
            NonMemberData::Data { epoch, is_first, data } => (epoch, is_first, data),
        };
        let DataPacket { source, seqno, data } = data;
        let is_allowed = self.terms.allows(data.qos);
        let Some(ring) = &mut self.ring else { return };
        let ours = ring.view().epoch;
        if epoch.is_some_and(|epoch| epoch != ours && !self.reforming.is_ancestor(epoch)) {
            cx.counters.calls_foreign += 1;
            return;
        }
        let is_refused = self.reforming.is_minority() || !is_allowed || !data.is_call;
        if is_refused || ring.view().contains(source) {
            cx.counters.calls_refused += 1;
            return;
        }
        cx.counters.data_received += 1;
        if data.qos == Qos::Unreliable {
            return self.on_unreliable(cx, source, data);
        }
        match ring.insert_of_guest(source, seqno, data, is_first) {
            GuestArrival::Kept(Arrival::New) => self.advance(cx, Some((source, seqno))),
            GuestArrival::Kept(Arrival::Duplicate) => {
                cx.counters.data_duplicate += 1;
                self.tell_guest_again(cx, source, seqno);
            }
            GuestArrival::Kept(Arrival::TooFar) => cx.counters.data_too_far += 1,
            GuestArrival::Unknown => cx.counters.calls_unknown += 1,
            GuestArrival::Replayed => cx.counters.calls_replayed += 1,
            GuestArrival::Full => cx.counters.calls_refused += 1,
        }
    }

    /// Notifies guests that a round of this member has assigned places to their packets.
    pub(super) fn tell_guests(&mut self, cx: &mut Around<'_>, round: &Round) {
        let Some(ring) = &self.ring else { return };
        let epoch = ring.view().epoch;
        for run in round.runs().iter().filter(|run| !ring.view().contains(run.source)) {
            let ack = NonMemberAck::Placed { epoch, life: run.source.life, to: run.end() };
            cx.unicast(run.source.node, &Packet::NonMemberAck(ack));
        }
    }

    /// Notifies a guest again that its packets have places, since it repeats them. Only the token
    /// site does.
    fn tell_guest_again(&mut self, cx: &mut Around<'_>, source: Process, seqno: SeqNo) {
        let Some(ring) = &self.ring else { return };
        let to = ring.stream(source).map_or(seqno, |stream| stream.ordered_to());
        if to.is_after(seqno) && ring.token() == self.me {
            let epoch = ring.view().epoch;
            let ack = NonMemberAck::Placed { epoch, life: source.life, to };
            cx.unicast(source.node, &Packet::NonMemberAck(ack));
        }
    }

    /// Returns the requests that were delivered or already have places, for a joiner.
    pub(super) fn seen_for_joiner(&self) -> Vec<(NodeId, Seen)> {
        let mut seen = self.answering.seen();
        let Some(ring) = &self.ring else { return seen };
        for (source, head) in ring.calls_in_queue() {
            let Some((Envelope::Request { number, oldest }, _)) = Envelope::open(head) else {
                continue;
            };
            let known = seen
                .iter()
                .position(|(node, seen)| *node == source.node && seen.is_of_same_start(number));
            let known = known.map(|place| seen.remove(place).1);
            let mut it = known.unwrap_or(Seen::before(oldest));
            it.forget_before(oldest);
            it.note(number);
            seen.push((source.node, it));
        }
        seen
    }

    /// Handles the grant of a lock. If it is a handler's, this member has to reply to the open
    /// requests.
    pub(super) fn begin_serving(&mut self, cx: &mut Around<'_>, name: LockName) {
        let Some(handler) = name.handler() else { return };
        self.answering.serving.insert(handler);
        for (id, payload, may_be_done) in self.answering.open(handler) {
            if let Some(entry) = self.answering.entry(id) {
                entry.is_told = true;
            }
            let (handler, place, is_ours, is_again) = (Some(handler), None, true, true);
            let request = Request { id, handler, payload, place, is_ours, is_again, may_be_done };
            cx.tell(RingNews::Request(request));
        }
    }

    /// Handles the loss or the release of a lock.
    pub(super) fn end_serving(&mut self, name: LockName) {
        if let Some(handler) = name.handler() {
            self.answering.serving.remove(&handler);
        }
    }
}

/// Size in bytes of the header of a reply fragment, beyond that of a data packet.
const REPLY_HEAD_BYTES: usize = 24;
/// Maximum number of reply fragments that are sent before the caller has to request more.
const PIECES_AT_ONCE: usize = 32;
