//! Requests of this node to a group, as a member or as a guest (4.5).
//!
//! A caller that gets no answer in time repeats the request with the same number. Members that have
//! the request recognize the number, and the member that keeps the reply sends it again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use rangemap::RangeSet;

use super::envelope::Envelope;
use crate::ring::{Answer, Outcome, Qos, RequestId, RequestOptions, RingNews};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::{NonMemberAck, NonMemberData, Packet};
use crate::rmp::sender::{Outgoing, Sender};
use crate::{NodeId, SeqNo, Time};

#[derive(Debug, Default)]
pub(crate) struct Client {
    pending: BTreeMap<u32, Pending>,
    pub(super) via: Option<NodeId>,
}

#[derive(Debug)]
struct Pending {
    options: RequestOptions,
    payload: Bytes,
    message: SeqNo,
    deadline: Time,
    retry_at: Time,
    tries: u32,
    arriving: Option<ReplyReassembly>,
}

#[derive(Debug)]
struct ReplyReassembly {
    from: NodeId,
    total: u32,
    bytes: Vec<u8>,
    received: RangeSet<u32>,
}

impl ReplyReassembly {
    fn received_to(&self) -> u32 {
        self.received.get(&0).map_or(0, |range| range.end)
    }

    fn insert(&mut self, offset: u32, fragment: &[u8]) {
        let end = offset + fragment.len() as u32;
        self.bytes.resize(self.bytes.len().max(end as usize), 0);
        self.bytes[offset as usize..end as usize].copy_from_slice(fragment);
        self.received.insert(offset..end);
    }
}

impl Client {
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn oldest(&self, number: u32) -> u32 {
        // Numbers wrap around, and some of the waiting requests may be later than `number`.
        let waiting = self.pending.keys().copied().chain([number]);
        waiting.min_by_key(|other| other.wrapping_sub(number) as i32).unwrap_or(number)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let of_request = |request: &Pending| {
            let arrived = request.arriving.as_ref().map_or(0, |reply| reply.bytes.len());
            request.payload.len() + arrived
        };
        self.pending.values().map(of_request).sum()
    }

    pub(crate) fn request(
        &mut self,
        cx: &mut Context<'_>,
        sender: &mut Sender,
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
        self.via = options.via.or(self.via);
        self.pending.insert(number, pending);
        self.queue(cx, sender, number);
    }

    fn queue(&mut self, cx: &Context<'_>, sender: &mut Sender, number: u32) {
        let oldest = self.oldest(number);
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let RequestOptions { handler, qos, .. } = pending.options;
        let payload = Envelope::Request { number, oldest }.wrap(&pending.payload);
        let doubled = cx.config.call_retry.saturating_mul(1 << pending.tries.min(16));
        pending.retry_at = cx.now + doubled.min(MOST_RETRY);
        pending.arriving = None;
        pending.message = sender.push(Outgoing { qos, handler, is_call: true, payload });
    }

    // The members have no part of the former life's messages.
    pub(crate) fn queue_all(&mut self, cx: &mut Context<'_>, sender: &mut Sender) {
        let numbers: Vec<u32> = self.pending.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.queue(cx, sender, number));
        self.set_timer(cx);
    }

    pub(crate) fn set_timer(&self, cx: &mut Context<'_>) {
        match self.pending.values().map(|it| it.deadline.min(it.retry_at)).min() {
            Some(at) => cx.set_at(Timer::Call, at),
            None => cx.cancel(Timer::Call),
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Context<'_>, sender: &mut Sender) {
        let numbers: Vec<u32> = self.pending.keys().copied().collect();
        for number in numbers {
            let Some(pending) = self.pending.get(&number) else { continue };
            if pending.deadline <= cx.now {
                self.on_answer(cx, number, Outcome::Unanswered);
            } else if pending.retry_at <= cx.now {
                self.retry(cx, sender, number);
            }
        }
    }

    fn retry(&mut self, cx: &mut Context<'_>, sender: &mut Sender, number: u32) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let is_in_flight =
            sender.unplaced_from().is_some_and(|first| pending.message.distance_from(first) >= 0);
        pending.tries += 1;
        if pending.arriving.is_some() && pending.tries % 4 != 0 {
            return self.pull(cx, number);
        }
        if is_in_flight {
            // The packets are retransmitted until they have their places.
            pending.retry_at = cx.now + cx.config.call_retry;
            return;
        }
        cx.counters.calls_repeated += 1;
        self.queue(cx, sender, number);
    }

    fn pull(&mut self, cx: &mut Context<'_>, number: u32) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let Some(arriving) = &pending.arriving else { return };
        pending.retry_at = cx.now + cx.config.largest_timeout;
        let (from, offset) = (arriving.from, arriving.received_to());
        cx.unicast(from, &Packet::NonMemberData(NonMemberData::Pull { number, offset }));
    }

    pub(crate) fn on_answer(&mut self, cx: &mut Context<'_>, number: u32, outcome: Outcome) {
        if self.pending.remove(&number).is_none() {
            cx.counters.answers_duplicate += 1;
            return;
        }
        match outcome {
            Outcome::Reply { .. } => cx.counters.calls_replied += 1,
            Outcome::Acknowledged => {}
            Outcome::Unanswered => cx.counters.calls_unanswered += 1,
        }
        let id = RequestId { caller: cx.node, number };
        cx.report(RingNews::Answer(Answer { id, outcome }));
        self.set_timer(cx);
    }

    pub(crate) fn give_up_all(&mut self, cx: &mut Context<'_>) {
        let numbers: Vec<u32> = self.pending.keys().copied().collect();
        for number in numbers {
            self.on_answer(cx, number, Outcome::Unanswered);
        }
    }

    // `first` is the first message without a place, or `None` if all messages have one.
    pub(super) fn on_placed(&mut self, cx: &mut Context<'_>, first: Option<SeqNo>) {
        let is_done = |pending: &Pending| {
            let RequestOptions { handler, qos, .. } = pending.options;
            let is_early = qos == Qos::Unordered || qos == Qos::SourceOrdered;
            let is_placed = first.is_none_or(|first| first.is_after(pending.message));
            handler.is_none() && is_early && is_placed
        };
        let pending = self.pending.iter();
        let done: Vec<u32> =
            pending.filter(|(_, it)| is_done(it)).map(|(number, _)| *number).collect();
        for number in done {
            self.on_answer(cx, number, Outcome::Acknowledged);
        }
    }

    pub(crate) fn on_ack(&mut self, cx: &mut Context<'_>, from: NodeId, ack: NonMemberAck) {
        match ack {
            NonMemberAck::Placed { .. } => {}
            NonMemberAck::Delivered { number, .. } => {
                self.on_answer(cx, number, Outcome::Acknowledged);
            }
            NonMemberAck::Reply { number, total, offset, is_end, bytes, .. } => {
                let Some(pending) = self.pending.get_mut(&number) else {
                    cx.counters.answers_duplicate += 1;
                    return;
                };
                if total as usize > cx.config.message_bytes {
                    cx.counters.malformed += 1;
                    return;
                }
                let arriving = pending.arriving.take();
                let arriving = arriving.filter(|it| it.from == from && it.total == total);
                let mut arriving = arriving.unwrap_or_else(|| ReplyReassembly {
                    from,
                    total,
                    bytes: Vec::new(),
                    received: RangeSet::new(),
                });
                // This distance bounds the bytes that are kept.
                let is_next = offset <= arriving.received_to() + REPLY_WINDOW_BYTES;
                if is_next && !bytes.is_empty() {
                    arriving.insert(offset, &bytes);
                }
                pending.retry_at = cx.now + cx.config.largest_timeout;
                if arriving.received_to() == total {
                    let payload = arriving.bytes.into();
                    return self.on_answer(cx, number, Outcome::Reply { by: from, payload });
                }
                pending.arriving = Some(arriving);
                if is_end {
                    self.pull(cx, number);
                }
                self.set_timer(cx);
            }
        }
    }
}

const MOST_RETRY: Duration = Duration::from_secs(2);
/// Maximum distance, in bytes, of a reply fragment from the first missing byte.
const REPLY_WINDOW_BYTES: u32 = 128 << 10;
