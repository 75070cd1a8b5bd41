//! What is claimed of a stream, and what its sender has vouched for.
//!
//! Any datagram may claim that a number exists: a later packet, a repair, a heartbeat. Who can only
//! hear multicast can forge all of these, but not the answer to a question that was sent to the
//! sender alone.

use super::super::missing::MissingIx;
use super::{GroupIx, Slot, Stream, StreamIx, Streams};
use crate::{Incarnation, NodeId, SeqNo};

/// A question to the sender of a stream: how far has it come?
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Query {
    /// The answer repeats it: who does not see this node's unicast cannot forge the answer.
    pub(in super::super) nonce: u64,
    /// The end of the stream when it was first asked: what was claimed beyond the answer by then
    /// was forged.
    pub(in super::super) end: SeqNo,
    /// The number after the last packet that has come since: its sender had sent that when it was
    /// asked, or sent it after its answer, or it is forged.
    pub(in super::super) came_to: Option<SeqNo>,
    /// It is asked because the answer to another one was too old.
    pub(in super::super) is_second: bool,
    /// Everything before it was settled when it was first asked. An answer that lies back shows
    /// that numbers were settled which were never sent.
    settled: SeqNo,
}

impl Query {
    pub(in super::super) fn new(nonce: u64, stream: &Stream) -> Self {
        let (end, settled) = (stream.end(), stream.settled_to);
        Self { nonce, end, came_to: None, is_second: false, settled }
    }

    /// Returns `true` if numbers counted as settled, when it was asked, that are beyond `next`.
    pub(in super::super) fn was_settled_beyond(&self, next: SeqNo) -> bool {
        self.settled.is_beyond(next)
    }

    /// A packet has come.
    pub(super) fn comes(&mut self, seqno: SeqNo) {
        let next = seqno.next();
        self.came_to = Some(self.came_to.map_or(next, |to| to.later(next)));
    }
}

impl Stream {
    /// `first`, or where this node had come before if that is later.
    pub(in super::super) fn owed_from(&self, first: SeqNo) -> SeqNo {
        self.floor.map_or(first, |floor| floor.later(first))
    }

    /// The sender itself said that it has sent everything before `seqno`.
    pub(in super::super) fn vouch_to(&mut self, seqno: SeqNo) {
        self.vouched_to = self.vouched_to.later(seqno).later(self.base);
    }

    /// Returns `true` if the sender itself said that it has sent this packet.
    pub(in super::super) fn is_vouched(&self, seqno: SeqNo) -> bool {
        // From the window on, forwards: the claim may be half the circle ahead.
        let ahead = |number: SeqNo| number.distance_from(self.base) as u32;
        ahead(seqno) < ahead(self.vouched_to.later(self.base))
    }

    /// How many numbers there may be beyond those that the sender vouched for and those without a
    /// gap.
    pub(in super::super) fn claimed(&self) -> u32 {
        let sure = self.vouched_to.later(self.settled_to);
        self.end().distance_from(sure).max(0) as u32
    }

    /// Notes that the packet before the window is missing after all. Where nothing in the window is
    /// vouched for, nothing before it is.
    pub(in super::super) fn push_missing_before(&mut self, missing: MissingIx) {
        assert!(self.reaches_back(), "numbers that were settled would be missing again");
        let is_any_vouched = self.vouched_to.is_after(self.base);
        self.base = self.base.minus(1);
        if !is_any_vouched {
            self.vouched_to = self.base;
        }
        self.start = self.base;
        self.settled_to = self.base;
        self.slots.push_front(Slot::Missing(missing));
        if let Some(query) = &mut self.query {
            query.settled = query.settled.earlier(self.base);
        }
    }

    /// Returns `true` if numbers count as settled that a stream which continues with `next` has not
    /// sent.
    pub(in super::super) fn is_settled_beyond(&self, next: SeqNo) -> bool {
        self.base.is_beyond(next)
    }

    /// The stream begins where its window does, and nothing before that is vouched for.
    pub(in super::super) fn go_back(&mut self) {
        self.start = self.base;
        self.vouched_to = self.base;
        self.doubted = None;
        if let Some(query) = &mut self.query {
            query.came_to = None;
        }
    }

    /// The stream continues with numbers that may be those of another start of its sender. The
    /// first number that is owed is unknown from now on.
    pub(in super::super) fn begin_unknown(&mut self) {
        self.go_back();
        (self.opened, self.incarnation, self.floor) = (false, None, None);
    }

    /// The sender, the group, and the start of the sender if it is known.
    pub(in super::super) fn origin(&self) -> (NodeId, GroupIx, Option<Incarnation>) {
        (self.sender, self.group, self.incarnation)
    }

    /// The sender was started again: nothing of the former stream is left but its memory.
    pub(in super::super) fn restart(&mut self, incarnation: Incarnation, base: SeqNo) {
        assert!(self.slots.is_empty(), "a stream is started again before its window is empty");
        let (sender, group, group_id) = (self.sender, self.group, self.group_id);
        // It stays where it is in the list of its group.
        let place = self.place;
        *self = Self { place, ..Self::new(sender, group, group_id, base, false) };
        self.incarnation = Some(incarnation);
    }

    /// The window begins with `first`, or with the first packet that is here if that lies before:
    /// missing numbers before that are not owed, and may never have been sent.
    fn pop_not_owed(&mut self, first: SeqNo) -> Vec<MissingIx> {
        let mut records = Vec::new();
        if !self.reaches_back() {
            return records;
        }
        while first.is_after(self.base)
            && let Some(Slot::Missing(missing)) = self.slots.front()
        {
            records.push(*missing);
            self.slots.pop_front();
            self.base = self.base.next();
        }
        if self.slots.is_empty() {
            self.base = self.base.later(first);
        }
        (self.start, self.settled_to) = (self.base, self.base);
        self.vouched_to = self.vouched_to.later(self.base);
        self.advance();
        self.trim();
        records
    }

    /// Takes the last number out of the window: it was never sent.
    fn pop_unsent(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_back();
        if self.settled_to.is_after(self.end()) {
            self.settled_to = self.end();
        }
        slot
    }
}

impl Streams {
    /// The sender said that the stream is owed from `first` on. Returns the records of the packets
    /// before that which are not missing any more.
    pub(in super::super) fn forget_not_owed(
        &mut self,
        ix: StreamIx,
        first: SeqNo,
    ) -> Vec<MissingIx> {
        self.get_mut(ix).pop_not_owed(first)
    }

    /// Forgets the numbers from the end of the stream down to `next`, which the sender has not
    /// sent. Packets that are here it may have sent: before `waiting`, or wherever they are if what
    /// was claimed is not refuted. Returns the records of those that were missing.
    pub(in super::super) fn forget_unsent(
        &mut self,
        ix: StreamIx,
        (next, waiting): (SeqNo, SeqNo),
        is_refuted: bool,
    ) -> Vec<MissingIx> {
        let mut records = Vec::new();
        loop {
            let stream = self.get(ix);
            if !stream.end().is_beyond(next) || stream.slots.is_empty() {
                return records;
            }
            let may_be_sent = !is_refuted || !stream.end().is_beyond(waiting);
            if may_be_sent && matches!(stream.slots.back(), Some(Slot::Held(_) | Slot::Settled)) {
                return records;
            }
            match self.get_mut(ix).pop_unsent() {
                Some(Slot::Held(held)) => self.buffer.remove(held),
                Some(Slot::Missing(missing)) => records.push(missing),
                Some(Slot::Settled) | None => {}
            }
        }
    }
}
