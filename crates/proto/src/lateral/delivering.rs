//! Events for the application: messages, reassembled where they were fragmented, and losses.

use core::time::Duration;

use super::assembly::{Added, Assembly, Useless};
use super::block::{Block, Piece};
use super::missing::{Missing, MissingIx};
use super::streams::{Place, Slot, StreamIx};
use super::{Lateral, TimerKey};
use crate::{Event, How, LossCause, Lost, Message, SeqNo, Time};

impl Lateral {
    /// Delivers a packet, or reports it lost if its deadline passed while it was missing.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        block: &Block,
        how: How,
        missing_for: Duration,
    ) {
        if let Some(piece) = block.piece() {
            self.deliver_piece(now, ix, seqno, (block, piece), (how, missing_for));
            return;
        }
        if block.deadline().is_some_and(|deadline| missing_for > deadline) {
            self.lose(ix, seqno, seqno, LossCause::DeadlinePassed);
            return;
        }
        let stream = self.streams.get(ix);
        self.events.push_back(Event::Message(Message {
            group: stream.group_id,
            sender: stream.sender,
            seqno,
            payload: block.payload(),
            how,
            age: age(now, block),
            missing_for,
            place: None,
        }));
    }

    /// Adds a fragment to its message, and delivers the message if it is complete.
    fn deliver_piece(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        (block, (piece, bytes)): (&Block, (Piece, &[u8])),
        (how, missing_for): (How, Duration),
    ) {
        if self.assemblies.is_unwanted(ix, seqno) {
            self.assemblies.forget_unwanted_before(ix, self.streams.get(ix).end());
            return;
        }
        let first = seqno.minus(piece.index);
        if !self.assemblies.is_open(ix, first) {
            let since = now.before(missing_for);
            if !self.begin_message(now, ix, seqno, (piece, block), since) {
                return;
            }
        }
        match self.assemblies.add(now, ix, first, (piece, bytes), (how, missing_for)) {
            Added::Open => {}
            Added::Whole(assembly) => {
                self.counters.messages_put_together += 1;
                self.streams.reserve(self.assemblies.bytes());
                if self.assemblies.of_stream(ix).is_empty() {
                    self.timers.cancel(TimerKey::Assembly(ix));
                }
                let stream = self.streams.get(ix);
                self.events.push_back(Event::Message(Message {
                    group: stream.group_id,
                    sender: stream.sender,
                    seqno: first,
                    how: assembly.how,
                    age: age(now, block),
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
        (piece, block): (Piece, &Block),
        since: Time,
    ) -> bool {
        let stream = self.streams.get(ix);
        let first = seqno.minus(piece.index);
        let last = first.plus(piece.count() - 1);
        let began_before = stream.start().is_after(first);
        let may_be_owed = !began_before || (!stream.opened && stream.reaches_back());
        let has_room = self.assemblies.can_hold(piece.message_bytes);
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
        while let Some((other, oldest)) = self.assemblies.in_the_way_of(piece.message_bytes) {
            self.counters.messages_without_room += 1;
            self.end_message(other, oldest, LossCause::NoRoom);
        }
        let assembly = Assembly::new(now, first, piece, block, since);
        let over_at = assembly.over_at(self.config.give_up_after);
        self.timers.set_no_later(TimerKey::Assembly(ix), over_at);
        self.assemblies.begin(ix, assembly);
        self.streams.reserve(self.assemblies.bytes());
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
    pub(super) fn end_message(&mut self, ix: StreamIx, first: SeqNo, cause: LossCause) {
        let Some(assembly) = self.assemblies.end(ix, first) else { return };
        self.streams.reserve(self.assemblies.bytes());
        let last = assembly.last();
        if self.streams.get(ix).start().is_after(first) {
            self.let_go_of_beginningless(ix, first, last);
        } else {
            self.counters.messages_broken += 1;
            self.lose_message(ix, first, last, cause);
        }
    }

    /// Ends all open messages of the stream.
    pub(super) fn end_messages_of(&mut self, ix: StreamIx, cause: LossCause) {
        for first in self.assemblies.of_stream(ix) {
            self.end_message(ix, first, cause);
        }
    }

    /// Ends the messages that began before the start of the stream, which has just been determined.
    pub(super) fn end_messages_not_owed(&mut self, ix: StreamIx) {
        let start = self.streams.get(ix).start();
        let open = self.assemblies.of_stream(ix);
        for first in open.into_iter().filter(|first| start.is_after(*first)) {
            self.end_message(ix, first, LossCause::TooFarBehind);
        }
    }

    /// Ends the messages of the stream that have timed out, and sets the timer for the others.
    pub(super) fn look_after_messages_of(&mut self, now: Time, ix: StreamIx) {
        let patience = self.config.give_up_after;
        let (over, next) = self.assemblies.over_at(now, ix, patience);
        for first in over {
            self.end_message(ix, first, LossCause::DeadlinePassed);
        }
        if let Some(at) = next {
            self.timers.set_no_later(TimerKey::Assembly(ix), at);
        }
    }

    /// Forgets the messages of a stream that ended at `end`. Returns the number before which
    /// everything was delivered or reported.
    pub(super) fn forget_messages_of(&mut self, ix: StreamIx, end: SeqNo) -> SeqNo {
        let told_to = self.assemblies.unwanted_to(ix).map_or(end, |to| to.later(end));
        self.timers.cancel(TimerKey::Assembly(ix));
        self.counters.messages_broken += self.assemblies.remove_stream(ix) as u64;
        self.streams.reserve(self.assemblies.bytes());
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
            self.assemblies.set_unwanted(ix, end, last.next());
        }
    }

    /// Settles a packet that will not arrive, and reports it as lost. If it belongs to an open
    /// message, the message is lost.
    pub(super) fn give_up(&mut self, missing: MissingIx, cause: LossCause) {
        let Missing { stream, seqno, .. } = *self.missing.get(missing);
        if let Some(first) = self.assemblies.containing(stream, seqno) {
            self.end_message(stream, first, cause);
            return;
        }
        self.missing.remove(missing);
        self.streams.give_up(stream, seqno);
        self.lose(stream, seqno, seqno, cause);
    }

    /// Counts these packets as lost, here and for their sender, and reports them.
    pub(super) fn lose(&mut self, ix: StreamIx, first: SeqNo, last: SeqNo, cause: LossCause) {
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
fn age(now: Time, block: &Block) -> Option<Duration> {
    let sent_at = block.sent_at();
    (sent_at <= now).then(|| now.since(sent_at)).filter(|age| *age < CREDIBLE_AGE)
}

/// A message that seems older than this was sent by a node with a wrong clock.
const CREDIBLE_AGE: Duration = Duration::from_secs(3600);
