//! Receive window of a stream: the state of each of its packets.
//!
//! The window extends from the oldest packet that is still held or missing to the latest known one.
//! Every number before the window is settled or not owed, so that no packet is delivered twice.

use alloc::collections::VecDeque;

use super::data_buffer::HeldIx;
use super::loss_list::MissingIx;
use crate::SeqNo;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReceiveWindow {
    slots: VecDeque<Slot>,
    base: SeqNo,
    settled_to: SeqNo,
    /// Lowest number from which the window still knows the stream. It stays behind when the window
    /// moves, up to a limited distance.
    start: SeqNo,
    /// Number before which the sender has confirmed everything, never before the window.
    vouched_to: SeqNo,
    /// Position at which this node left the group earlier. Everything before it is settled.
    floor: Option<SeqNo>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Held(HeldIx),
    Missing(MissingIx),
    Settled,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The packet is before the window: settled, or not owed.
    Before,
    At(Slot),
    Ahead,
}

/// Distance at which `start` follows the window. It exceeds the number of packets of any message.
const START_LAG: u32 = 1 << 24;

impl ReceiveWindow {
    pub(super) fn new(base: SeqNo) -> Self {
        Self {
            slots: VecDeque::new(),
            base,
            settled_to: base,
            start: base,
            vouched_to: base,
            floor: None,
        }
    }

    /// Resumes an empty window at `floor`. Packets before `floor` are never delivered, even if the
    /// sender owes them.
    pub(crate) fn resume_at(&mut self, floor: SeqNo) {
        assert!(self.slots.is_empty(), "a stream is resumed after packets have arrived");
        self.base = self.base.later(floor);
        self.settled_to = self.base;
        self.start = self.base;
        self.floor = Some(floor);
    }

    pub(super) fn drop_floor(&mut self) {
        self.floor = None;
    }

    pub(crate) fn end(&self) -> SeqNo {
        self.base.plus(self.slots.len() as u32)
    }

    pub(crate) fn reported_to(&self) -> SeqNo {
        let missing = self.slots.iter().rev().take_while(|slot| matches!(slot, Slot::Missing(_)));
        self.end().minus(missing.count() as u32)
    }

    pub(crate) fn settled_to(&self) -> SeqNo {
        self.settled_to
    }

    pub(crate) fn is_settled_beyond(&self, next: SeqNo) -> bool {
        self.base.is_beyond(next)
    }

    pub(crate) fn start(&self) -> SeqNo {
        self.start
    }

    /// Returns `true` if the window can grow backward, because nothing was removed from it.
    pub(crate) fn reaches_back(&self) -> bool {
        self.base == self.start
    }

    pub(crate) fn owed_from(&self, first: SeqNo) -> SeqNo {
        self.floor.map_or(first, |floor| floor.later(first))
    }

    pub(crate) fn place(&self, seqno: SeqNo) -> Place {
        let offset = seqno.distance_from(self.base);
        if offset < 0 {
            return Place::Before;
        }
        match self.slots.get(offset as usize) {
            Some(slot) => Place::At(*slot),
            None => Place::Ahead,
        }
    }

    pub(crate) fn holds(&self, seqno: SeqNo) -> bool {
        matches!(self.place(seqno), Place::At(Slot::Held(_)))
    }

    pub(crate) fn missing(&self, seqno: SeqNo) -> Option<MissingIx> {
        match self.place(seqno) {
            Place::At(Slot::Missing(missing)) => Some(missing),
            _ => None,
        }
    }

    pub(crate) fn all_missing(&self) -> impl Iterator<Item = (SeqNo, MissingIx)> {
        let numbered = self.slots.iter().zip(0..);
        numbered.filter_map(|(slot, offset)| match slot {
            Slot::Missing(missing) => Some((self.base.plus(offset), *missing)),
            _ => None,
        })
    }

    pub(super) fn all_held(&self) -> impl Iterator<Item = HeldIx> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Held(held) => Some(*held),
            _ => None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Reads the memory that a packet of the stream will need. The result is meaningless.
    pub(super) fn prefetch(&self) -> u32 {
        u32::from(matches!(self.slots.front(), Some(Slot::Missing(_))))
    }

    pub(super) fn push_missing(&mut self, missing: MissingIx) {
        self.slots.push_back(Slot::Missing(missing));
    }

    /// Adds a missing packet before the window. It counts as confirmed by the sender only if the
    /// sender has confirmed a packet in the window.
    pub(super) fn push_missing_before(&mut self, missing: MissingIx) {
        assert!(self.reaches_back(), "settled numbers would become missing");
        let is_any_vouched = self.vouched_to.is_after(self.base);
        self.base = self.base.minus(1);
        if !is_any_vouched {
            self.vouched_to = self.base;
        }
        self.start = self.base;
        self.settled_to = self.base;
        self.slots.push_front(Slot::Missing(missing));
    }

    #[inline]
    pub(super) fn hold(&mut self, seqno: SeqNo, held: HeldIx) {
        self.set(seqno, Slot::Held(held));
    }

    pub(super) fn settle(&mut self, seqno: SeqNo) {
        self.set(seqno, Slot::Settled);
        self.trim();
    }

    /// Sets the slot of a packet that is in the window or just beyond its end.
    #[inline]
    fn set(&mut self, seqno: SeqNo, slot: Slot) {
        if seqno == self.end() {
            self.slots.push_back(slot);
        } else {
            *self.slot_mut(seqno) = slot;
        }
        self.advance();
    }

    #[inline]
    pub(super) fn evict(&mut self, seqno: SeqNo) {
        *self.slot_mut(seqno) = Slot::Settled;
        self.trim();
    }

    pub(super) fn skip_to(&mut self, seqno: SeqNo) {
        self.slots.clear();
        self.base = seqno;
        self.settled_to = seqno;
        self.follow();
    }

    /// Moves the start. Nothing in the window then counts as confirmed by the sender.
    pub(super) fn go_back(&mut self) {
        self.start = self.base;
        self.vouched_to = self.base;
    }

    /// Moves the start of the window to `first`, or to the first held packet if that is earlier.
    /// Missing numbers before the new start are not owed, and may never have been sent.
    pub(super) fn pop_not_owed(&mut self, first: SeqNo) -> Vec<MissingIx> {
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

    /// Removes the last packet if its number is `next` or later. A received packet remains if it is
    /// before `waiting` or if the claims are not refuted, because the sender may have sent it.
    pub(super) fn pop_unsent(
        &mut self,
        (next, waiting): (SeqNo, SeqNo),
        is_refuted: bool,
    ) -> Option<Slot> {
        let last = self.slots.back().filter(|_| self.end().is_beyond(next))?;
        let may_be_sent = !is_refuted || !self.end().is_beyond(waiting);
        if may_be_sent && matches!(last, Slot::Held(_) | Slot::Settled) {
            return None;
        }
        let slot = self.slots.pop_back();
        if self.settled_to.is_after(self.end()) {
            self.settled_to = self.end();
        }
        slot
    }

    pub(crate) fn vouch_to(&mut self, seqno: SeqNo) {
        self.vouched_to = self.vouched_to.later(seqno).later(self.base);
    }

    pub(super) fn is_vouched(&self, seqno: SeqNo) -> bool {
        // Distances are counted forward from the window, because a claim may be 2^31 ahead.
        let ahead = |number: SeqNo| number.distance_from(self.base) as u32;
        ahead(seqno) < ahead(self.vouched_to.later(self.base))
    }

    /// Returns the number of packets neither confirmed by the sender nor received without a gap.
    pub(super) fn claimed(&self) -> u32 {
        let sure = self.vouched_to.later(self.settled_to);
        self.end().distance_from(sure).max(0) as u32
    }

    pub(super) fn check(&self) {
        let settled = self.settled_to.distance_from(self.base);
        assert!((0..=self.slots.len() as i32).contains(&settled), "too much is settled");
        let first_missing = self.slots.iter().position(|slot| matches!(slot, Slot::Missing(_)));
        let expected = first_missing.unwrap_or(self.slots.len());
        assert_eq!(settled as usize, expected, "the settled packets were miscounted");
        assert!(!matches!(self.slots.front(), Some(Slot::Settled)), "the window was not trimmed");
    }

    /// Moves `start` along with the window. The distance stays larger than any message, so that
    /// packets from before the window and packets from before the stream can be distinguished.
    fn follow(&mut self) {
        if !(0..=2 * START_LAG as i32).contains(&self.base.distance_from(self.start)) {
            self.start = self.base.minus(START_LAG);
            self.floor = None;
        }
        self.vouched_to = self.vouched_to.later(self.base);
    }

    fn slot_mut(&mut self, seqno: SeqNo) -> &mut Slot {
        let offset = seqno.distance_from(self.base);
        assert!(offset >= 0, "a packet before the window cannot be changed");
        &mut self.slots[offset as usize]
    }

    fn advance(&mut self) {
        while let Place::At(Slot::Held(_) | Slot::Settled) = self.place(self.settled_to) {
            self.settled_to = self.settled_to.next();
        }
    }

    fn trim(&mut self) {
        while let Some(Slot::Settled) = self.slots.front() {
            self.slots.pop_front();
            self.base = self.base.next();
        }
        self.follow();
    }
}
