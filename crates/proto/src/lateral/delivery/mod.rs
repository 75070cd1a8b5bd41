//! Delivery to the application: messages, reassembled where they were fragmented, and losses.

mod reassembly;

use core::time::Duration;

use super::context::{Context, TimerKey};
use super::index::StreamIx;
use super::packet::symbol::{Fragment, Symbol};
use super::streams::{Place, Slot, Streams};
use crate::{Event, How, LossCause, Lost, Message, SeqNo, Time};
use reassembly::{Added, PartialMessage, Reassembly, Useless};

/// Messages in reassembly, and the rules by which messages are delivered or reported as lost.
#[derive(Debug)]
pub(super) struct Delivery {
    reassembly: Reassembly,
}

impl Delivery {
    /// Creates a part whose messages in reassembly may use `max_bytes` together.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { reassembly: Reassembly::new(max_bytes) }
    }

    /// Returns the memory that messages in reassembly use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.reassembly.bytes()
    }

    pub(super) fn check(&self) {
        self.reassembly.check();
    }

    /// Delivers a packet, or reports it lost if its deadline passed while it was missing.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        (ix, seqno): (StreamIx, SeqNo),
        symbol: &Symbol,
        (how, missing_for): (How, Duration),
    ) {
        if let Some(fragment) = symbol.fragment() {
            let symbol = (symbol, fragment);
            self.deliver_fragment(cx, streams, (ix, seqno), symbol, (how, missing_for));
            return;
        }
        if symbol.deadline().is_some_and(|deadline| missing_for > deadline) {
            report_lost(cx, streams, ix, (seqno, seqno), LossCause::DeadlinePassed);
            return;
        }
        let stream = streams.get(ix);
        cx.events.push_back(Event::Message(Message {
            group: stream.group_id(),
            sender: stream.sender(),
            seqno,
            payload: symbol.payload(),
            how,
            age: age(cx.now, symbol),
            missing_for,
            place: None,
        }));
    }

    /// Adds a fragment to its message, and delivers the message if it is complete.
    fn deliver_fragment(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        (ix, seqno): (StreamIx, SeqNo),
        (symbol, (fragment, bytes)): (&Symbol, (Fragment, &[u8])),
        (how, missing_for): (How, Duration),
    ) {
        if self.reassembly.is_unwanted(ix, seqno) {
            self.reassembly.forget_unwanted_before(ix, streams.get(ix).window().end());
            return;
        }
        let first = seqno.minus(fragment.index);
        if !self.reassembly.is_open(ix, first) {
            let since = cx.now.before(missing_for);
            if !self.begin_message(cx, streams, (ix, seqno), (fragment, symbol), since) {
                return;
            }
        }
        let added = self.reassembly.add(cx.now, ix, first, (fragment, bytes), (how, missing_for));
        match added {
            Added::Open => {}
            Added::Whole(message) => {
                cx.counters.messages_put_together += 1;
                streams.reserve(self.reassembly.bytes());
                if self.reassembly.of_stream(ix).is_empty() {
                    cx.timers.cancel(TimerKey::Reassembly(ix));
                }
                let stream = streams.get(ix);
                cx.events.push_back(Event::Message(Message {
                    group: stream.group_id(),
                    sender: stream.sender(),
                    seqno: first,
                    how: message.how,
                    age: age(cx.now, symbol),
                    missing_for: message.missing_for,
                    payload: message.payload(),
                    place: None,
                }));
            }
            Added::Useless(why) => {
                cx.counters.malformed += u64::from(why == Useless::Contradiction);
                self.end_message(cx, streams, (ix, first), LossCause::DeadlinePassed);
            }
        }
    }

    /// Begins the reassembly of a message with `seqno`, the first of its packets to arrive. Returns
    /// `false` if the message cannot be completed; its remaining packets are then not waited for.
    fn begin_message(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        (ix, seqno): (StreamIx, SeqNo),
        (fragment, symbol): (Fragment, &Symbol),
        since: Time,
    ) -> bool {
        let stream = streams.get(ix);
        let first = seqno.minus(fragment.index);
        let last = first.plus(fragment.count() - 1);
        let began_before = stream.window().start().is_after(first);
        let may_be_owed = !began_before || (!stream.is_opened() && stream.window().reaches_back());
        let has_room = self.reassembly.can_hold(fragment.message_bytes);
        if began_before && !(may_be_owed && has_room) {
            self.drop_headless(cx, streams, ix, (first, last));
            return false;
        }
        if !began_before && self.report_rest_of_lost(cx, streams, (ix, seqno), (first, last)) {
            return false;
        }
        if !has_room {
            cx.counters.messages_without_room += 1;
            self.lose_message(cx, streams, ix, (first, last), LossCause::NoRoom);
            return false;
        }
        while let Some(oldest) = self.reassembly.in_the_way_of(fragment.message_bytes) {
            cx.counters.messages_without_room += 1;
            self.end_message(cx, streams, oldest, LossCause::NoRoom);
        }
        let message = PartialMessage::new(cx.now, first, fragment, symbol, since);
        let over_at = message.over_at(cx.config.give_up_after);
        cx.timers.set_no_later(TimerKey::Reassembly(ix), over_at);
        self.reassembly.begin(ix, message);
        streams.reserve(self.reassembly.bytes());
        true
    }

    /// Reports the rest of the message as lost if one of its packets was given up before `came`,
    /// the first of the others to arrive. So far, only that packet was reported. Returns `true` if
    /// the message is lost.
    fn report_rest_of_lost(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        (ix, came): (StreamIx, SeqNo),
        (first, last): (SeqNo, SeqNo),
    ) -> bool {
        let window = streams.get(ix).window();
        let was_given_up = |seqno: &SeqNo| {
            let is_settled =
                matches!(window.place(*seqno), Place::Before | Place::At(Slot::Settled));
            // A very small buffer may have evicted `came` already.
            is_settled && *seqno != came
        };
        let numbers = (0..=last.distance_from(first) as u32).map(|offset| first.plus(offset));
        let (reported, rest): (Vec<_>, Vec<_>) = numbers.partition(was_given_up);
        if reported.is_empty() {
            return false;
        }
        cx.counters.messages_broken += 1;
        for seqno in rest {
            report_lost(cx, streams, ix, (seqno, seqno), LossCause::DeadlinePassed);
        }
        self.stop_waiting(streams, ix, (first, last));
        true
    }

    /// Ends an open message that cannot be completed. It is reported as lost if it is known to be
    /// owed.
    fn end_message(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        (ix, first): (StreamIx, SeqNo),
        cause: LossCause,
    ) {
        let Some(message) = self.reassembly.end(ix, first) else { return };
        streams.reserve(self.reassembly.bytes());
        let last = message.last();
        if streams.get(ix).window().start().is_after(first) {
            self.drop_headless(cx, streams, ix, (first, last));
        } else {
            cx.counters.messages_broken += 1;
            self.lose_message(cx, streams, ix, (first, last), cause);
        }
    }

    /// Ends all open messages of the stream.
    pub(super) fn end_messages(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        ix: StreamIx,
        cause: LossCause,
    ) {
        for first in self.reassembly.of_stream(ix) {
            self.end_message(cx, streams, (ix, first), cause);
        }
    }

    /// Ends the messages that began before the start of the stream, which has just been determined.
    pub(super) fn end_messages_not_owed(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        ix: StreamIx,
    ) {
        let start = streams.get(ix).window().start();
        let open = self.reassembly.of_stream(ix);
        for first in open.into_iter().filter(|first| start.is_after(*first)) {
            self.end_message(cx, streams, (ix, first), LossCause::TooFarBehind);
        }
    }

    /// Ends the messages of the stream that have timed out, and sets the timer for the others.
    pub(super) fn end_overdue_messages(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        ix: StreamIx,
    ) {
        let (over, next) = self.reassembly.over_at(cx.now, ix, cx.config.give_up_after);
        for first in over {
            self.end_message(cx, streams, (ix, first), LossCause::DeadlinePassed);
        }
        if let Some(at) = next {
            cx.timers.set_no_later(TimerKey::Reassembly(ix), at);
        }
    }

    /// Forgets the messages of a stream that ended at `end`. Returns the number before which
    /// everything was delivered or reported.
    pub(super) fn forget_messages(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        ix: StreamIx,
        end: SeqNo,
    ) -> SeqNo {
        let reported_to = self.reported_beyond(ix, end);
        cx.timers.cancel(TimerKey::Reassembly(ix));
        cx.counters.messages_broken += self.reassembly.remove_stream(ix) as u64;
        streams.reserve(self.reassembly.bytes());
        reported_to
    }

    /// Returns `end`, or the number after the packets beyond it that were reported with their
    /// message.
    pub(super) fn reported_beyond(&self, ix: StreamIx, end: SeqNo) -> SeqNo {
        self.reassembly.unwanted_to(ix).map_or(end, |to| to.later(end))
    }

    /// Returns `true` if the packet belongs to a message that is over.
    pub(super) fn is_unwanted(&self, ix: StreamIx, seqno: SeqNo) -> bool {
        self.reassembly.is_unwanted(ix, seqno)
    }

    /// Forgets which packets are unwanted once all of them lie before `end`.
    pub(super) fn forget_unwanted_before(&mut self, ix: StreamIx, end: SeqNo) {
        self.reassembly.forget_unwanted_before(ix, end);
    }

    /// Ends a message that began before the known part of the stream. If that part turns out to be
    /// owed, the beginning of the message will be missing. The fragments that arrived must not be
    /// used then.
    fn drop_headless(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        ix: StreamIx,
        (first, last): (SeqNo, SeqNo),
    ) {
        cx.counters.messages_joined_late += 1;
        self.stop_waiting(streams, ix, (first, last));
        let stream = streams.get(ix);
        if !stream.is_opened() {
            let window = stream.window();
            let (from, to) = (window.start(), last.next().earlier(window.end()));
            let known = to.distance_from(from).max(0) as u32;
            (0..known).for_each(|offset| streams.forget(ix, from.plus(offset)));
        }
    }

    fn lose_message(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        ix: StreamIx,
        range: (SeqNo, SeqNo),
        cause: LossCause,
    ) {
        report_lost(cx, streams, ix, range, cause);
        self.stop_waiting(streams, ix, range);
    }

    /// Stops waiting for these packets: missing ones are settled, and those beyond the end of the
    /// stream will not be requested.
    fn stop_waiting(&mut self, streams: &mut Streams, ix: StreamIx, (first, last): (SeqNo, SeqNo)) {
        let window = streams.get(ix).window();
        let (from, end) = (first.later(window.start()), window.end());
        let known = last.next().earlier(end).distance_from(from).max(0) as u32;
        (0..known).for_each(|offset| streams.give_up(ix, from.plus(offset)));
        if last.next().is_after(end) {
            self.reassembly.set_unwanted(ix, end, last.next());
        }
    }

    /// Settles a packet that will not arrive, and reports it as lost. If it belongs to an open
    /// message, the message is lost.
    pub(super) fn give_up(
        &mut self,
        cx: &mut Context,
        streams: &mut Streams,
        (ix, seqno): (StreamIx, SeqNo),
        cause: LossCause,
    ) {
        if let Some(first) = self.reassembly.containing(ix, seqno) {
            self.end_message(cx, streams, (ix, first), cause);
            return;
        }
        streams.give_up(ix, seqno);
        report_lost(cx, streams, ix, (seqno, seqno), cause);
    }
}

/// Counts these packets as lost, here and for their sender, and reports them.
pub(super) fn report_lost(
    cx: &mut Context,
    streams: &mut Streams,
    ix: StreamIx,
    (first, last): (SeqNo, SeqNo),
    cause: LossCause,
) {
    let count = last.distance_from(first) as u32 + 1;
    cx.counters.lost += u64::from(count);
    let stream = streams.get_mut(ix);
    stream.count_lost(count);
    let (group, sender) = (stream.group_id(), stream.sender());
    if let Some(Event::Lost(lost)) = cx.events.back_mut()
        && (lost.group, lost.sender, lost.cause) == (group, sender, cause)
    {
        // Packets given up at the same time are in the order of their records, which may be
        // ascending or descending.
        if lost.last.next() == first {
            lost.last = last;
            return;
        }
        if last.next() == lost.first {
            lost.first = first;
            return;
        }
    }
    cx.events.push_back(Event::Lost(Lost { group, sender, first, last, cause }));
}

/// Returns the time since the message was sent, if the clocks seem to agree.
fn age(now: Time, symbol: &Symbol) -> Option<Duration> {
    let sent_at = symbol.sent_at();
    (sent_at <= now).then(|| now.since(sent_at)).filter(|age| *age < CREDIBLE_AGE)
}

/// A message that seems older than this was sent by a node with a wrong clock.
const CREDIBLE_AGE: Duration = Duration::from_secs(3600);
