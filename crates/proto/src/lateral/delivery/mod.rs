//! Delivery of messages and losses to the application. Fragmented messages are reassembled.

mod reassembly;

use core::time::Duration;

use super::context::{Context, TimerKey};
use super::index::StreamIx;
use super::packet::symbol::{Fragment, Symbol};
use super::streams::{Place, Slot, Streams};
use crate::{Event, How, LossCause, Lost, Message, SeqNo, Time};
use reassembly::{Added, PartialMessage, Useless};

pub(super) use reassembly::Reassembly;

#[derive(Debug)]
pub(super) struct Delivery<'a> {
    pub(super) cx: &'a mut Context,
    pub(super) streams: &'a mut Streams,
    pub(super) reassembly: &'a mut Reassembly,
}

impl Delivery<'_> {
    pub(super) fn deliver(
        &mut self,
        (ix, seqno): (StreamIx, SeqNo),
        symbol: &Symbol,
        (how, missing_for): (How, Duration),
    ) {
        if let Some(fragment) = symbol.fragment() {
            let symbol = (symbol, fragment);
            self.deliver_fragment((ix, seqno), symbol, (how, missing_for));
            return;
        }
        if symbol.deadline().is_some_and(|deadline| missing_for > deadline) {
            self.lose(ix, (seqno, seqno), LossCause::DeadlinePassed);
            return;
        }
        let stream = self.streams.get(ix);
        self.cx.events.push_back(Event::Message(Message {
            group: stream.group_id,
            sender: stream.sender,
            seqno,
            payload: symbol.payload(),
            how,
            age: age(self.cx.now, symbol),
            missing_for,
            place: None,
        }));
    }

    fn deliver_fragment(
        &mut self,
        (ix, seqno): (StreamIx, SeqNo),
        (symbol, (fragment, bytes)): (&Symbol, (Fragment, &[u8])),
        (how, missing_for): (How, Duration),
    ) {
        if self.reassembly.is_unwanted(ix, seqno) {
            self.reassembly.forget_unwanted_before(ix, self.streams.get(ix).window.end());
            return;
        }
        let first = seqno.minus(fragment.index);
        if !self.reassembly.is_open(ix, first) {
            let since = self.cx.now.before(missing_for);
            if !self.begin_message((ix, seqno), (fragment, symbol), since) {
                return;
            }
        }
        let added =
            self.reassembly.add(self.cx.now, ix, first, (fragment, bytes), (how, missing_for));
        match added {
            Added::Open => {}
            Added::Whole(message) => {
                self.cx.counters.messages_put_together += 1;
                self.streams.reserve(self.reassembly.bytes());
                if self.reassembly.of_stream(ix).is_empty() {
                    self.cx.timers.cancel(TimerKey::Reassembly(ix));
                }
                let stream = self.streams.get(ix);
                self.cx.events.push_back(Event::Message(Message {
                    group: stream.group_id,
                    sender: stream.sender,
                    seqno: first,
                    how: message.how,
                    age: age(self.cx.now, symbol),
                    missing_for: message.missing_for,
                    payload: message.payload(),
                    place: None,
                }));
            }
            Added::Useless(why) => {
                self.cx.counters.malformed += u64::from(why == Useless::Contradiction);
                self.end_message(ix, first, LossCause::DeadlinePassed);
            }
        }
    }

    /// Begins a reassembly. Returns `false` if the message cannot be completed. Its other packets
    /// are then not needed.
    fn begin_message(
        &mut self,
        (ix, seqno): (StreamIx, SeqNo),
        (fragment, symbol): (Fragment, &Symbol),
        since: Time,
    ) -> bool {
        let stream = self.streams.get(ix);
        let first = seqno.minus(fragment.index);
        let last = first.plus(fragment.count() - 1);
        let began_before = stream.window.start().is_after(first);
        let may_be_owed = !began_before || (!stream.opened && stream.window.reaches_back());
        let has_room = self.reassembly.can_hold(fragment.message_bytes);
        if began_before && !(may_be_owed && has_room) {
            self.drop_headless(ix, (first, last));
            return false;
        }
        if !began_before && self.report_rest_of_lost((ix, seqno), (first, last)) {
            return false;
        }
        if !has_room {
            self.cx.counters.messages_without_room += 1;
            self.lose_message(ix, (first, last), LossCause::NoRoom);
            return false;
        }
        while let Some((other, oldest)) = self.reassembly.in_the_way_of(fragment.message_bytes) {
            self.cx.counters.messages_without_room += 1;
            self.end_message(other, oldest, LossCause::NoRoom);
        }
        let message = PartialMessage::new(self.cx.now, first, fragment, symbol, since);
        let over_at = message.over_at(self.cx.config.give_up_after);
        self.cx.timers.set_no_later(TimerKey::Reassembly(ix), over_at);
        self.reassembly.begin(ix, message);
        self.streams.reserve(self.reassembly.bytes());
        true
    }

    /// If a packet of the message was given up before, reports the others as lost and returns
    /// `true`. `came` is the first packet to arrive.
    fn report_rest_of_lost(
        &mut self,
        (ix, came): (StreamIx, SeqNo),
        (first, last): (SeqNo, SeqNo),
    ) -> bool {
        let window = &self.streams.get(ix).window;
        let was_given_up = |seqno: &SeqNo| {
            let is_settled =
                matches!(window.place(*seqno), Place::Before | Place::At(Slot::Settled));
            // A very small buffer may already have evicted `came`.
            is_settled && *seqno != came
        };
        let numbers = (0..=last.distance_from(first) as u32).map(|offset| first.plus(offset));
        let (reported, rest): (Vec<_>, Vec<_>) = numbers.partition(was_given_up);
        if reported.is_empty() {
            return false;
        }
        self.cx.counters.messages_broken += 1;
        for seqno in rest {
            self.lose(ix, (seqno, seqno), LossCause::DeadlinePassed);
        }
        self.stop_waiting(ix, (first, last));
        true
    }

    fn end_message(&mut self, ix: StreamIx, first: SeqNo, cause: LossCause) {
        let Some(message) = self.reassembly.end(ix, first) else { return };
        self.streams.reserve(self.reassembly.bytes());
        let last = message.last();
        if self.streams.get(ix).window.start().is_after(first) {
            self.drop_headless(ix, (first, last));
        } else {
            self.cx.counters.messages_broken += 1;
            self.lose_message(ix, (first, last), cause);
        }
    }

    pub(super) fn end_messages(&mut self, ix: StreamIx, cause: LossCause) {
        for first in self.reassembly.of_stream(ix) {
            self.end_message(ix, first, cause);
        }
    }

    pub(super) fn end_messages_not_owed(&mut self, ix: StreamIx) {
        let start = self.streams.get(ix).window.start();
        let open = self.reassembly.of_stream(ix);
        for first in open.into_iter().filter(|first| start.is_after(*first)) {
            self.end_message(ix, first, LossCause::TooFarBehind);
        }
    }

    pub(super) fn end_overdue_messages(&mut self, ix: StreamIx) {
        let (over, next) = self.reassembly.over_at(self.cx.now, ix, self.cx.config.give_up_after);
        for first in over {
            self.end_message(ix, first, LossCause::DeadlinePassed);
        }
        if let Some(at) = next {
            self.cx.timers.set_no_later(TimerKey::Reassembly(ix), at);
        }
    }

    /// Drops the stream's open messages. Returns `end`, or the end of an ended message beyond it.
    pub(super) fn forget_messages(&mut self, ix: StreamIx, end: SeqNo) -> SeqNo {
        let reported_to = self.reassembly.reported_to(ix, end);
        self.cx.timers.cancel(TimerKey::Reassembly(ix));
        self.cx.counters.messages_broken += self.reassembly.remove_stream(ix) as u64;
        self.streams.reserve(self.reassembly.bytes());
        reported_to
    }

    /// Ends a message that began before the known part of the stream. If the sender later confirms
    /// that its beginning is owed, the fragments that have arrived must not be used.
    fn drop_headless(&mut self, ix: StreamIx, (first, last): (SeqNo, SeqNo)) {
        self.cx.counters.messages_joined_late += 1;
        self.stop_waiting(ix, (first, last));
        let stream = self.streams.get(ix);
        if !stream.opened {
            let window = &stream.window;
            let (from, to) = (window.start(), last.next().earlier(window.end()));
            let known = to.distance_from(from).max(0) as u32;
            (0..known).for_each(|offset| self.streams.forget(ix, from.plus(offset)));
        }
    }

    fn lose_message(&mut self, ix: StreamIx, range: (SeqNo, SeqNo), cause: LossCause) {
        self.lose(ix, range, cause);
        self.stop_waiting(ix, range);
    }

    /// Settles the missing packets. Those beyond the end of the stream become unwanted.
    fn stop_waiting(&mut self, ix: StreamIx, (first, last): (SeqNo, SeqNo)) {
        let window = &self.streams.get(ix).window;
        let (from, end) = (first.later(window.start()), window.end());
        let known = last.next().earlier(end).distance_from(from).max(0) as u32;
        (0..known).for_each(|offset| self.streams.give_up(ix, from.plus(offset)));
        if last.next().is_after(end) {
            self.reassembly.set_unwanted(ix, end, last.next());
        }
    }

    pub(super) fn give_up(&mut self, ix: StreamIx, seqno: SeqNo, cause: LossCause) {
        if let Some(first) = self.reassembly.containing(ix, seqno) {
            self.end_message(ix, first, cause);
            return;
        }
        self.streams.give_up(ix, seqno);
        self.lose(ix, (seqno, seqno), cause);
    }

    pub(super) fn lose(&mut self, ix: StreamIx, (first, last): (SeqNo, SeqNo), cause: LossCause) {
        let count = last.distance_from(first) as u32 + 1;
        self.cx.counters.lost += u64::from(count);
        let stream = self.streams.get_mut(ix);
        stream.count_lost(count);
        let (group, sender) = (stream.group_id, stream.sender);
        if let Some(Event::Lost(lost)) = self.cx.events.back_mut()
            && (lost.group, lost.sender, lost.cause) == (group, sender, cause)
        {
            // Packets that were given up together are in ascending or descending order.
            if lost.last.next() == first {
                lost.last = last;
                return;
            }
            if last.next() == lost.first {
                lost.first = first;
                return;
            }
        }
        self.cx.events.push_back(Event::Lost(Lost { group, sender, first, last, cause }));
    }
}

fn age(now: Time, symbol: &Symbol) -> Option<Duration> {
    let sent_at = symbol.sent_at();
    (sent_at <= now).then(|| now.since(sent_at)).filter(|age| *age < CREDIBLE_AGE)
}

/// Messages at least this old are assumed to come from a node with a wrong clock.
const CREDIBLE_AGE: Duration = Duration::from_secs(3600);
