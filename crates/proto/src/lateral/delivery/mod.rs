//! Events for the application: messages, reassembled where they were fragmented, and losses.

pub(crate) mod reassembly;

use core::time::Duration;

use super::{Lateral, TimerKey};
use crate::lateral::delivery::reassembly::{Added, PartialMessage, Useless};
use crate::lateral::packet::symbol::{Fragment, Symbol};
use crate::lateral::streams::loss_list::{Missing, MissingIx};
use crate::lateral::streams::{Place, Slot, StreamIx};
use crate::{Event, How, LossCause, Lost, Message, SeqNo, Time};

impl Lateral {
    /// Delivers a packet, or reports it lost if its deadline passed while it was missing.
    pub(crate) fn deliver(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        symbol: &Symbol,
        how: How,
        missing_for: Duration,
    ) {
        if let Some(fragment) = symbol.fragment() {
            self.deliver_fragment(now, ix, seqno, (symbol, fragment), (how, missing_for));
            return;
        }
        if symbol.deadline().is_some_and(|deadline| missing_for > deadline) {
            self.lose(ix, seqno, seqno, LossCause::DeadlinePassed);
            return;
        }
        let stream = self.streams.get(ix);
        self.events.push_back(Event::Message(Message {
            group: stream.group_id,
            sender: stream.sender,
            seqno,
            payload: symbol.payload(),
            how,
            age: age(now, symbol),
            missing_for,
            place: None,
        }));
    }

    /// Adds a fragment to its message, and delivers the message if it is complete.
    fn deliver_fragment(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        (symbol, (fragment, bytes)): (&Symbol, (Fragment, &[u8])),
        (how, missing_for): (How, Duration),
    ) {
        if self.reassembly.is_unwanted(ix, seqno) {
            self.reassembly.forget_unwanted_before(ix, self.streams.get(ix).end());
            return;
        }
        let first = seqno.minus(fragment.index);
        if !self.reassembly.is_open(ix, first) {
            let since = now.before(missing_for);
            if !self.begin_message(now, ix, seqno, (fragment, symbol), since) {
                return;
            }
        }
        match self.reassembly.add(now, ix, first, (fragment, bytes), (how, missing_for)) {
            Added::Open => {}
            Added::Whole(assembly) => {
                self.counters.messages_put_together += 1;
                self.streams.reserve(self.reassembly.bytes());
                if self.reassembly.of_stream(ix).is_empty() {
                    self.timers.cancel(TimerKey::Reassembly(ix));
                }
                let stream = self.streams.get(ix);
                self.events.push_back(Event::Message(Message {
                    group: stream.group_id,
                    sender: stream.sender,
                    seqno: first,
                    how: assembly.how,
                    age: age(now, symbol),
                    missing_for: assembly.missing_for,
                    payload: assembly.payload(),
                    place: None,
                }));
            }
            Added::Useless(why) => {
                self.counters.malformed += u64::from(why == Useless::Contradiction);
                self.end_message(ix, first, LossCause::DeadlinePassed);
            }
        }
    }

    /// Begins the reassembly of a message with `seqno`, the first of its packets to arrive. Returns
    /// `false` if the message cannot be completed; its remaining packets are then not waited for.
    fn begin_message(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        (fragment, symbol): (Fragment, &Symbol),
        since: Time,
    ) -> bool {
        let stream = self.streams.get(ix);
        let first = seqno.minus(fragment.index);
        let last = first.plus(fragment.count() - 1);
        let began_before = stream.start().is_after(first);
        let may_be_owed = !began_before || (!stream.opened && stream.reaches_back());
        let has_room = self.reassembly.can_hold(fragment.message_bytes);
        if began_before && !(may_be_owed && has_room) {
            self.let_go_of_beginningless(ix, first, last);
            return false;
        }
        if !began_before && self.tell_rest_of_lost(ix, seqno, first, last) {
            return false;
        }
        if !has_room {
            self.counters.messages_without_room += 1;
            self.lose_message(ix, first, last, LossCause::NoRoom);
            return false;
        }
        while let Some((other, oldest)) = self.reassembly.in_the_way_of(fragment.message_bytes) {
            self.counters.messages_without_room += 1;
            self.end_message(other, oldest, LossCause::NoRoom);
        }
        let assembly = PartialMessage::new(now, first, fragment, symbol, since);
        let over_at = assembly.over_at(self.config.give_up_after);
        self.timers.set_no_later(TimerKey::Reassembly(ix), over_at);
        self.reassembly.begin(ix, assembly);
        self.streams.reserve(self.reassembly.bytes());
        true
    }

    /// Reports the rest of the message as lost if one of its packets was given up before `came`,
    /// the first of the others to arrive. So far, only that packet was reported. Returns `true` if
    /// the message is lost.
    fn tell_rest_of_lost(&mut self, ix: StreamIx, came: SeqNo, first: SeqNo, last: SeqNo) -> bool {
        let stream = self.streams.get(ix);
        let was_given_up = |seqno: &SeqNo| {
            let is_settled =
                matches!(stream.place(*seqno), Place::Before | Place::At(Slot::Settled));
            // A very small buffer may have evicted `came` already.
            is_settled && *seqno != came
        };
        let numbers = (0..=last.distance_from(first) as u32).map(|offset| first.plus(offset));
        let (told, rest): (Vec<_>, Vec<_>) = numbers.partition(was_given_up);
        if told.is_empty() {
            return false;
        }
        self.counters.messages_broken += 1;
        for seqno in rest {
            self.lose(ix, seqno, seqno, LossCause::DeadlinePassed);
        }
        self.let_go(ix, first, last);
        true
    }

    /// Ends an open message that cannot be completed. It is reported as lost if it is known to be
    /// owed.
    pub(crate) fn end_message(&mut self, ix: StreamIx, first: SeqNo, cause: LossCause) {
        let Some(assembly) = self.reassembly.end(ix, first) else { return };
        self.streams.reserve(self.reassembly.bytes());
        let last = assembly.last();
        if self.streams.get(ix).start().is_after(first) {
            self.let_go_of_beginningless(ix, first, last);
        } else {
            self.counters.messages_broken += 1;
            self.lose_message(ix, first, last, cause);
        }
    }

    /// Ends all open messages of the stream.
    pub(crate) fn end_messages_of(&mut self, ix: StreamIx, cause: LossCause) {
        for first in self.reassembly.of_stream(ix) {
            self.end_message(ix, first, cause);
        }
    }

    /// Ends the messages that began before the start of the stream, which has just been determined.
    pub(crate) fn end_messages_not_owed(&mut self, ix: StreamIx) {
        let start = self.streams.get(ix).start();
        let open = self.reassembly.of_stream(ix);
        for first in open.into_iter().filter(|first| start.is_after(*first)) {
            self.end_message(ix, first, LossCause::TooFarBehind);
        }
    }

    /// Ends the messages of the stream that have timed out, and sets the timer for the others.
    pub(crate) fn look_after_messages_of(&mut self, now: Time, ix: StreamIx) {
        let patience = self.config.give_up_after;
        let (over, next) = self.reassembly.over_at(now, ix, patience);
        for first in over {
            self.end_message(ix, first, LossCause::DeadlinePassed);
        }
        if let Some(at) = next {
            self.timers.set_no_later(TimerKey::Reassembly(ix), at);
        }
    }

    /// Forgets the messages of a stream that ended at `end`. Returns the number before which
    /// everything was delivered or reported.
    pub(crate) fn forget_messages_of(&mut self, ix: StreamIx, end: SeqNo) -> SeqNo {
        let told_to = self.reassembly.unwanted_to(ix).map_or(end, |to| to.later(end));
        self.timers.cancel(TimerKey::Reassembly(ix));
        self.counters.messages_broken += self.reassembly.remove_stream(ix) as u64;
        self.streams.reserve(self.reassembly.bytes());
        told_to
    }

    /// Ends a message that began before the known part of the stream. If that part turns out to be
    /// owed, the beginning of the message will be missing. The fragments that arrived must not be
    /// used then.
    fn let_go_of_beginningless(&mut self, ix: StreamIx, first: SeqNo, last: SeqNo) {
        self.counters.messages_joined_late += 1;
        self.let_go(ix, first, last);
        let stream = self.streams.get(ix);
        if !stream.opened {
            let (from, to) = (stream.start(), last.next().earlier(stream.end()));
            let known = to.distance_from(from).max(0) as u32;
            (0..known).for_each(|offset| self.streams.forget(ix, from.plus(offset)));
        }
    }

    fn lose_message(&mut self, ix: StreamIx, first: SeqNo, last: SeqNo, cause: LossCause) {
        self.lose(ix, first, last, cause);
        self.let_go(ix, first, last);
    }

    /// Drops interest in these packets: missing ones are settled, and those beyond the end of the
    /// stream will not be requested.
    fn let_go(&mut self, ix: StreamIx, first: SeqNo, last: SeqNo) {
        let stream = self.streams.get(ix);
        let (from, end) = (first.later(stream.start()), stream.end());
        let known = last.next().earlier(end).distance_from(from).max(0) as u32;
        for seqno in (0..known).map(|offset| from.plus(offset)) {
            if let Some(missing) = self.streams.get(ix).missing(seqno) {
                self.missing.remove(missing);
                self.streams.give_up(ix, seqno);
            }
        }
        if last.next().is_after(end) {
            self.reassembly.set_unwanted(ix, end, last.next());
        }
    }

    /// Settles a packet that will not arrive, and reports it as lost. If it belongs to an open
    /// message, the message is lost.
    pub(crate) fn give_up(&mut self, missing: MissingIx, cause: LossCause) {
        let Missing { stream, seqno, .. } = *self.missing.get(missing);
        if let Some(first) = self.reassembly.containing(stream, seqno) {
            self.end_message(stream, first, cause);
            return;
        }
        self.missing.remove(missing);
        self.streams.give_up(stream, seqno);
        self.lose(stream, seqno, seqno, cause);
    }

    /// Counts these packets as lost, here and for their sender, and reports them.
    pub(crate) fn lose(&mut self, ix: StreamIx, first: SeqNo, last: SeqNo, cause: LossCause) {
        let count = last.distance_from(first) as u32 + 1;
        self.counters.lost += u64::from(count);
        let stream = self.streams.get_mut(ix);
        stream.count_lost(count);
        let (group, sender) = (stream.group_id, stream.sender);
        if let Some(Event::Lost(lost)) = self.events.back_mut()
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
        self.events.push_back(Event::Lost(Lost { group, sender, first, last, cause }));
    }
}

/// Returns the time since the message was sent, if the clocks seem to agree.
fn age(now: Time, symbol: &Symbol) -> Option<Duration> {
    let sent_at = symbol.sent_at();
    (sent_at <= now).then(|| now.since(sent_at)).filter(|age| *age < CREDIBLE_AGE)
}

/// A message that seems older than this was sent by a node with a wrong clock.
const CREDIBLE_AGE: Duration = Duration::from_secs(3600);
