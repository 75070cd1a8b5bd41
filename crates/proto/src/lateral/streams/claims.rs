//! Claims about a stream, and what its sender has vouched for.
//!
//! Any datagram can claim that a number exists: a later packet, a repair, a heartbeat. A host that
//! only receives multicast can forge all of these, but not the answer to a query that was sent to
//! the sender alone.

use super::{Slot, Stream, StreamIx, Streams};
use crate::lateral::groups::GroupIx;
use crate::lateral::streams::loss_list::MissingIx;
use crate::{Incarnation, NodeId, SeqNo};

/// A query to the sender of a stream for its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    /// Nonce that the answer repeats. A host that does not receive this node's unicast cannot forge
    /// the answer.
    pub(crate) nonce: u64,
    /// End of the stream when the query was first sent. Claims up to here that lie beyond the
    /// answer were forged.
    pub(crate) end: SeqNo,
    /// Number after the last packet that has arrived since. The packet was sent before the query or
    /// after the answer, or is forged.
    pub(crate) came_to: Option<SeqNo>,
    /// `true` if the query repeats one whose answer was outdated.
    pub(crate) is_second: bool,
    /// Number before which everything was settled when the query was first sent. An answer before
    /// it shows that numbers were settled which were never sent.
    settled: SeqNo,
}

impl Query {
    pub(crate) fn new(nonce: u64, stream: &Stream) -> Self {
        let (end, settled) = (stream.end(), stream.settled_to);
        Self { nonce, end, came_to: None, is_second: false, settled }
    }

    /// Returns `true` if numbers beyond `next` were considered settled at the time of the query.
    pub(crate) fn was_settled_beyond(&self, next: SeqNo) -> bool {
        self.settled.is_beyond(next)
    }

    /// Records a packet that has arrived.
    pub(crate) fn comes(&mut self, seqno: SeqNo) {
        let next = seqno.next();
        self.came_to = Some(self.came_to.map_or(next, |to| to.later(next)));
    }
}

impl Stream {
    /// Returns `first`, or this node's former position in the stream if that is later.
    pub(crate) fn owed_from(&self, first: SeqNo) -> SeqNo {
        self.floor.map_or(first, |floor| floor.later(first))
    }

    /// Records that the sender itself reported having sent everything before `seqno`.
    pub(crate) fn vouch_to(&mut self, seqno: SeqNo) {
        self.vouched_to = self.vouched_to.later(seqno).later(self.base);
    }

    /// Returns `true` if the sender itself reported having sent this packet.
    pub(crate) fn is_vouched(&self, seqno: SeqNo) -> bool {
        // Counted forwards from the window, because a claim may be half the circle ahead.
        let ahead = |number: SeqNo| number.distance_from(self.base) as u32;
        ahead(seqno) < ahead(self.vouched_to.later(self.base))
    }

    /// Returns the number of unverified numbers: those beyond the ones that the sender vouched for
    /// and those received without a gap.
    pub(crate) fn claimed(&self) -> u32 {
        let sure = self.vouched_to.later(self.settled_to);
        self.end().distance_from(sure).max(0) as u32
    }

    /// Records that the packet before the window is missing after all. If nothing in the window is
    /// vouched for, neither is this packet.
    pub(crate) fn push_missing_before(&mut self, missing: MissingIx) {
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

    /// Returns `true` if numbers are considered settled that a stream which continues with `next`
    /// has not sent.
    pub(crate) fn is_settled_beyond(&self, next: SeqNo) -> bool {
        self.base.is_beyond(next)
    }

    /// Makes the stream begin where its window does, with nothing before that vouched for.
    pub(crate) fn go_back(&mut self) {
        self.start = self.base;
        self.vouched_to = self.base;
        self.doubted = None;
        if let Some(query) = &mut self.query {
            query.came_to = None;
        }
    }

    /// Continues the stream with numbers that may belong to another incarnation of its sender. The
    /// first number owed becomes unknown.
    pub(crate) fn begin_unknown(&mut self) {
        self.go_back();
        (self.opened, self.incarnation, self.floor) = (false, None, None);
    }

    /// Returns the sender, the group, and the sender's incarnation if it is known.
    pub(crate) fn origin(&self) -> (NodeId, GroupIx, Option<Incarnation>) {
        (self.sender, self.group, self.incarnation)
    }

    /// Resets the stream for another incarnation of its sender.
    pub(crate) fn restart(&mut self, incarnation: Incarnation, base: SeqNo) {
        assert!(self.slots.is_empty(), "a stream is started again before its window is empty");
        let (sender, group, group_id) = (self.sender, self.group, self.group_id);
        // It keeps its position in the list of its group.
        let place = self.place;
        *self = Self { place, ..Self::new(sender, group, group_id, base, false) };
        self.incarnation = Some(incarnation);
    }

    /// Moves the start of the window to `first`, or to the first packet held if that is earlier.
    /// Missing numbers before that are not owed, and may never have been sent.
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

    /// Removes the last number of the window, which was never sent.
    fn pop_unsent(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_back();
        if self.settled_to.is_after(self.end()) {
            self.settled_to = self.end();
        }
        slot
    }
}

impl Streams {
    /// Applies the sender's answer that the stream is owed from `first` on. Returns the records of
    /// earlier packets, which are not missing any more.
    pub(crate) fn forget_not_owed(&mut self, ix: StreamIx, first: SeqNo) -> Vec<MissingIx> {
        self.get_mut(ix).pop_not_owed(first)
    }

    /// Forgets the numbers from the end of the stream down to `next`, which the sender has not
    /// sent. It stops at a packet that was received and that the sender may have sent: one before
    /// `waiting`, or any if the claims are not refuted. Returns the records of the forgotten
    /// packets that were missing.
    pub(crate) fn forget_unsent(
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
