use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;

use super::config::Config;
use super::context::{Context, Timer};
use super::flow::{self, FragmentSizes, Limits, VanJacobson};
use super::packet::DATA_BYTES;
use super::ring::{Data, MAX_SLOTS, Ring};
use crate::ring::{Handler, Qos};
use crate::{SeqNo, Time};

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) first: SeqNo,
    next_message: SeqNo,
    next_packet: SeqNo,
    waiting: VecDeque<Waiting>,
    unreliable: VecDeque<Waiting>,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    /// Size with an overhead for each message, so that empty messages count as well.
    pub(super) waiting_bytes: usize,
    congestion: VanJacobson,
    unhurried_bytes: usize,
    ordered_at: Time,
    tries: u32,
    /// Number of tries since the token site was last heard.
    silent_tries: u32,
}

#[derive(Debug)]
struct Waiting {
    number: SeqNo,
    qos: Qos,
    handler: Option<Handler>,
    is_call: bool,
    rest: Bytes,
    is_begun: bool,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) qos: Qos,
    pub(super) handler: Option<Handler>,
    pub(super) is_call: bool,
    pub(super) payload: Bytes,
}

#[derive(Debug)]
struct InFlight {
    seqno: SeqNo,
    message: SeqNo,
    bytes: usize,
    sent_at: Time,
    is_resent: bool,
}

impl Sender {
    pub(super) fn new(config: &Config) -> Self {
        let limits = Limits {
            packet_bytes: config.fragment_bytes() + DATA_BYTES,
            window_bytes: config.window_bytes,
            timeouts: config.timeouts(),
        };
        let first = config.first_number;
        Self {
            first,
            next_message: first,
            next_packet: first,
            waiting: VecDeque::new(),
            unreliable: VecDeque::new(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            waiting_bytes: 0,
            congestion: VanJacobson::new(limits),
            unhurried_bytes: 0,
            ordered_at: Time::ZERO,
            tries: 0,
            silent_tries: 0,
        }
    }

    pub(super) fn push(&mut self, outgoing: Outgoing) -> SeqNo {
        let Outgoing { qos, handler, is_call, payload } = outgoing;
        let number = self.next_message;
        self.next_message = number.next();
        self.waiting_bytes += payload.len() + MESSAGE_BYTES;
        let queue = match qos {
            Qos::Unreliable => &mut self.unreliable,
            _ => &mut self.waiting,
        };
        let is_begun = false;
        queue.push_back(Waiting { number, qos, handler, is_call, rest: payload, is_begun });
        number
    }

    /// Returns the next unreliable message. It has no packet number, so no member requests it.
    pub(super) fn next_unreliable(&mut self) -> Option<Data> {
        let Waiting { number, qos, handler, is_call, rest, .. } = self.unreliable.pop_front()?;
        self.waiting_bytes -= rest.len() + MESSAGE_BYTES;
        Some(Data { handler, is_call, ..Data::whole(number, qos, rest) })
    }

    pub(super) fn next_packet(&mut self, now: Time, sizes: FragmentSizes) -> Option<(SeqNo, Data)> {
        let front = self.waiting.front_mut()?;
        let window = self.congestion.window_bytes();
        let available = window.saturating_sub(self.in_flight_bytes);
        let offered = front.rest.len();
        if available == 0 || self.in_flight.len() >= MAX_SLOTS / 2 {
            return None;
        }
        let size = flow::packet_bytes(offered, available, window, sizes.least, sizes.largest)?;
        let payload = front.rest.split_to(size);
        let is_first = !core::mem::replace(&mut front.is_begun, true);
        let is_last = front.rest.is_empty();
        let (message, qos, handler, is_call) =
            (front.number, front.qos, front.handler, front.is_call);
        self.waiting_bytes -= size;
        if is_last {
            self.waiting_bytes -= MESSAGE_BYTES;
            self.waiting.pop_front();
        }
        let seqno = self.next_packet;
        self.next_packet = seqno.next();
        let bytes = size + DATA_BYTES;
        self.in_flight_bytes += bytes;
        let (sent_at, is_resent) = (now, false);
        self.in_flight.push_back(InFlight { seqno, message, bytes, sent_at, is_resent });
        let may_wait = self.may_wait(qos, bytes, window);
        Some((seqno, Data { message, qos, handler, is_call, is_first, is_last, may_wait, payload }))
    }

    /// Returns `true` if the packet may wait for its place. One packet in each half of the window
    /// may not, so that the window opens again in time.
    fn may_wait(&mut self, qos: Qos, bytes: usize, window: usize) -> bool {
        self.unhurried_bytes += bytes;
        let is_open = self.in_flight_bytes < window && self.unhurried_bytes < window / 2;
        let may_wait = is_open && (!self.waiting.is_empty() || !qos.is_ordered());
        if !may_wait {
            self.unhurried_bytes = 0;
        }
        may_wait
    }

    // Another member must already have the packets, since own rounds may still wait in the queue.
    pub(super) fn release_placed(&mut self, now: Time, ring: &Ring) {
        if let Some(own) = ring.sources().get(ring.me()) {
            self.on_ordered(now, own.ordered_to());
        }
    }

    pub(super) fn on_ordered(&mut self, now: Time, to: SeqNo) {
        while let Some(front) = self.in_flight.front().filter(|it| to.is_after(it.seqno)) {
            let after = (!front.is_resent).then(|| now.since(front.sent_at));
            self.ordered_at = now;
            self.congestion.on_ack(after);
            self.in_flight_bytes -= front.bytes;
            (self.tries, self.silent_tries) = (0, 0);
            self.in_flight.pop_front();
        }
    }

    pub(super) fn on_nack(&mut self, seqno: SeqNo) {
        self.congestion.on_nack(seqno);
    }

    // The token site is alive, so the places are merely late.
    pub(super) fn on_token_site_heard(&mut self) {
        self.silent_tries = 0;
    }

    fn due(&self, cx: &Context<'_>) -> Option<Time> {
        let since = self.in_flight.front()?.sent_at.max(self.ordered_at);
        let least = cx.timing.place_timeout(cx.config, self.tries);
        Some(since + self.congestion.timeout().max(least))
    }

    pub(super) fn is_due(&self, cx: &Context<'_>) -> bool {
        self.due(cx).is_some_and(|due| due <= cx.now)
    }

    pub(super) fn set_timer(&self, cx: &mut Context<'_>, may_send: bool) {
        match self.due(cx).filter(|_| may_send) {
            Some(at) => cx.set_at(Timer::Retransmit, at),
            None => cx.cancel(Timer::Retransmit),
        }
    }

    /// Returns the packets to send again, and the number of tries since the token site was heard.
    pub(super) fn on_timeout(&mut self, now: Time) -> (Vec<SeqNo>, u32) {
        self.congestion.on_timeout();
        self.tries += 1;
        self.silent_tries += 1;
        let again = self.in_flight.iter_mut().take(RESENT_AT_ONCE).map(|packet| {
            (packet.sent_at, packet.is_resent) = (now, true);
            packet.seqno
        });
        (again.collect(), self.silent_tries)
    }

    pub(super) fn restart(&mut self, now: Time) {
        (self.tries, self.silent_tries) = (0, 0);
        for packet in &mut self.in_flight {
            (packet.sent_at, packet.is_resent) = (now, true);
        }
    }

    pub(super) fn unplaced_from(&self) -> Option<SeqNo> {
        let waiting = self.waiting.front().map(|message| message.number);
        self.in_flight.front().map(|packet| packet.message).or(waiting)
    }

    pub(super) fn has_all_placed(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn last_message(&self) -> SeqNo {
        self.next_message.minus(1)
    }

    pub(super) fn full_with(&self, bytes: usize, queue_bytes: usize) -> Option<usize> {
        let waiting = self.waiting_bytes;
        (waiting > 0 && waiting + bytes > queue_bytes).then_some(waiting)
    }
}

const RESENT_AT_ONCE: usize = 8;
const MESSAGE_BYTES: usize = size_of::<Waiting>();
