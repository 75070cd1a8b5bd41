use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bytes::Bytes;

use super::dedup::RequestTable;
use super::envelope::{ENVELOPE_BYTES, Envelope};
use crate::ring::{
    Handler, LockName, Outcome, Process, Qos, ReplyError, Request, RequestId, RingNews, Timestamp,
};
use crate::rmp::context::Context;
use crate::rmp::packet::{NonMemberAck, Packet};
use crate::rmp::ring::{DeliveredMessage, Ring, Round};
use crate::rmp::seen::{Seen, Sight};
use crate::rmp::sender::{Outgoing, Sender};
use crate::{NodeId, SeqNo};

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) requests: RequestTable,
    serving: BTreeSet<Handler>,
}

impl Server {
    pub(crate) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        sender: &mut Sender,
        message: DeliveredMessage,
    ) -> Option<(u32, Outcome)> {
        let DeliveredMessage { source, data, round, place } = message;
        let (handler, qos) = (data.handler, data.qos);
        let Some((envelope, payload)) = Envelope::open(data.payload) else {
            cx.counters.malformed += 1;
            return None;
        };
        match envelope {
            Envelope::Request { number, oldest } => {
                let id = RequestId { caller: source.node, number };
                let is_new = match self.requests.record(id, oldest) {
                    Sight::New => true,
                    Sight::Again => false,
                    Sight::Impossible => {
                        cx.counters.malformed += 1;
                        return None;
                    }
                    Sight::Over => {
                        cx.counters.requests_repeated += 1;
                        return None;
                    }
                };
                cx.counters.requests_delivered += u64::from(is_new);
                cx.counters.requests_repeated += u64::from(!is_new);
                let (is_ours, is_again, may_be_done) = (false, !is_new, !is_new);
                let place = place.filter(|_| is_new);
                let request =
                    Request { id, handler, payload, place, is_ours, is_again, may_be_done };
                match handler {
                    None => {
                        if is_new {
                            cx.report(RingNews::Request(request));
                        }
                        acknowledge(cx, ring, id, qos, round)
                    }
                    Some(handler) => {
                        if is_new || !self.reply_again(cx, ring, sender, id) {
                            self.on_request(cx, ring, handler, request);
                        }
                        None
                    }
                }
            }
            Envelope::Reply(id) => {
                self.requests.on_answered(id, source);
                let outcome = Outcome::Reply { by: source.node, payload };
                (id.caller == cx.node).then_some((id.number, outcome))
            }
            Envelope::Answered(id) => {
                self.requests.on_answered(id, source);
                None
            }
        }
    }

    fn on_request(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        handler: Handler,
        request: Request,
    ) {
        let is_ours = self.serving.contains(&handler);
        let holder = ring.view().locks.holder(handler.lock());
        let limit = cx.config.queue_bytes;
        let entry = self.requests.keep(request.id, handler, request.payload.clone(), limit);
        entry.was_held |= holder.is_some_and(|holder| holder != ring.me());
        let is_reported = entry.is_reported;
        entry.is_reported |= is_ours;
        if !request.is_again || (is_ours && !is_reported) {
            cx.report(RingNews::Request(Request { is_ours, ..request }));
        }
    }

    fn reply_again(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        sender: &mut Sender,
        id: RequestId,
    ) -> bool {
        let Some(entry) = self.requests.entry(id) else { return false };
        if let Some(reply) = entry.reply.clone() {
            // The reply to a member may still be waiting for its place.
            if !is_member(Some(ring), id.caller) || entry.answered_by.is_some() {
                cx.counters.replies_resent += 1;
                send_reply(cx, Some(ring), sender, id, &reply, 0);
            }
            return true;
        }
        let Some(by) = entry.answered_by else { return false };
        if ring.view().contains(by) && by != ring.me() {
            return true;
        }
        // The member that replied is gone or no longer keeps the reply: the request is open again.
        (entry.answered_by, entry.is_reported) = (None, false);
        false
    }

    pub(crate) fn reply(
        &mut self,
        cx: &mut Context<'_>,
        ring: Option<&Ring>,
        sender: &mut Sender,
        id: RequestId,
        payload: Bytes,
    ) -> Result<(), ReplyError> {
        let limit = cx.config.message_bytes - ENVELOPE_BYTES;
        if payload.len() > limit {
            return Err(ReplyError::TooLarge { bytes: payload.len(), limit });
        }
        let full = sender.full_with(payload.len(), cx.config.queue_bytes);
        if let Some(waiting_bytes) = full {
            return Err(ReplyError::QueueFull { waiting_bytes });
        }
        let Some(entry) = self.requests.entry(id) else { return Err(ReplyError::NotOpen) };
        if !entry.is_reported || entry.answered_by.is_some() || entry.reply.is_some() {
            return Err(ReplyError::NotOpen);
        }
        let limit = cx.config.reply_bytes;
        cx.counters.replies_forgotten += self.requests.keep_reply(id, payload.clone(), limit);
        cx.counters.replies_sent += 1;
        send_reply(cx, ring, sender, id, &payload, 0);
        if !is_member(ring, id.caller) {
            push_envelope(sender, Envelope::Answered(id), &[]);
        }
        Ok(())
    }

    pub(crate) fn on_pull(
        &mut self,
        cx: &mut Context<'_>,
        ring: Option<&Ring>,
        sender: &mut Sender,
        id: RequestId,
        offset: u32,
    ) {
        let reply = self.requests.entry(id).and_then(|entry| entry.reply.clone());
        match reply {
            Some(reply) if !is_member(ring, id.caller) => {
                send_reply(cx, ring, sender, id, &reply, offset as usize);
            }
            _ => cx.counters.calls_foreign += 1,
        }
    }

    pub(crate) fn seen_for_joiner(&self, ring: &Ring) -> Vec<(NodeId, Seen)> {
        let mut seen = self.requests.seen();
        for (source, head) in ring.calls_in_queue() {
            let Some((Envelope::Request { number, oldest }, _)) = Envelope::open(head) else {
                continue;
            };
            let known = seen
                .iter()
                .position(|(node, seen)| *node == source.node && seen.is_of_same_start(number));
            let known = known.map(|position| seen.remove(position).1);
            let mut it = known.unwrap_or(Seen::before(oldest));
            it.forget_before(oldest);
            it.record(number);
            seen.push((source.node, it));
        }
        seen
    }

    pub(crate) fn begin_serving(&mut self, cx: &mut Context<'_>, name: LockName) {
        let Some(handler) = name.handler() else { return };
        self.serving.insert(handler);
        for (id, payload, may_be_done) in self.requests.open(handler) {
            if let Some(entry) = self.requests.entry(id) {
                entry.is_reported = true;
            }
            let (handler, place, is_ours, is_again) = (Some(handler), None, true, true);
            let request = Request { id, handler, payload, place, is_ours, is_again, may_be_done };
            cx.report(RingNews::Request(request));
        }
    }

    pub(crate) fn end_serving(&mut self, name: LockName) {
        if let Some(handler) = name.handler() {
            self.serving.remove(&handler);
        }
    }
}

fn is_member(ring: Option<&Ring>, node: NodeId) -> bool {
    ring.is_some_and(|ring| ring.view().process_of(node).is_some())
}

// Only the member that assigned a place to the request acknowledges it.
fn acknowledge(
    cx: &mut Context<'_>,
    ring: &Ring,
    id: RequestId,
    qos: Qos,
    round: Option<Timestamp>,
) -> Option<(u32, Outcome)> {
    if id.caller == cx.node {
        return Some((id.number, Outcome::Acknowledged));
    }
    let round = round.and_then(|at| ring.log().at(at));
    let site = round.map_or(ring.token(), |round| round.site);
    let is_placed_soon = !qos.is_ordered() && qos != Qos::Unreliable;
    if site == ring.me() && !is_placed_soon && !is_member(Some(ring), id.caller) {
        cx.counters.calls_acknowledged += 1;
        let ack = NonMemberAck::Delivered { epoch: ring.epoch(), number: id.number };
        cx.unicast(id.caller, &Packet::NonMemberAck(ack));
    }
    None
}

// To a guest, only the first fragments are sent. The guest requests the others.
fn send_reply(
    cx: &mut Context<'_>,
    ring: Option<&Ring>,
    sender: &mut Sender,
    id: RequestId,
    reply: &Bytes,
    from: usize,
) {
    if is_member(ring, id.caller) {
        return push_envelope(sender, Envelope::Reply(id), reply);
    }
    let Some(epoch) = ring.map(Ring::epoch) else { return };
    let (size, total) = (cx.config.fragment_bytes() - REPLY_HEAD_BYTES, reply.len());
    let (mut offset, end) = (from.min(total), total.min(from + size * FRAGMENTS_AT_ONCE));
    loop {
        let to = end.min(offset + size);
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

fn push_envelope(sender: &mut Sender, envelope: Envelope, payload: &[u8]) {
    let payload = envelope.wrap(payload);
    let qos = Qos::TotallyOrdered;
    sender.push(Outgoing { qos, handler: None, is_call: true, payload });
}

pub(crate) fn notify_guests(cx: &mut Context<'_>, ring: &Ring, round: &Round) {
    for run in round.runs().iter().filter(|run| !ring.view().contains(run.source)) {
        notify_placed(cx, ring, run.source, run.end());
    }
}

// Only the token site notifies a guest that has repeated packet `seqno`.
pub(crate) fn notify_guest_again(cx: &mut Context<'_>, ring: &Ring, source: Process, seqno: SeqNo) {
    let to = ring.sources().get(source).map_or(seqno, |stream| stream.ordered_to());
    if to.is_after(seqno) && ring.token() == ring.me() {
        notify_placed(cx, ring, source, to);
    }
}

fn notify_placed(cx: &mut Context<'_>, ring: &Ring, guest: Process, to: SeqNo) {
    let ack = NonMemberAck::Placed { epoch: ring.epoch(), life: guest.life, to };
    cx.unicast(guest.node, &Packet::NonMemberAck(ack));
}

const REPLY_HEAD_BYTES: usize = 24;
const FRAGMENTS_AT_ONCE: usize = 32;
