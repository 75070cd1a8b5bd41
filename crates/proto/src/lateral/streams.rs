//! What this node has of every sender's packets in every group: the data buffer (Slingshot 3.1)
//! and the account of what is delivered, missing or lost.
//!
//! A *stream* is one sender's packets in one group. Its window runs from the oldest packet that is
//! still held or missing to the latest that is known of. Every number before the window is
//! settled for good, so that nothing is ever delivered twice.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::block::Block;
use super::groups::GroupIx;
use super::missing::MissingIx;
use crate::{GroupId, IdMap, NodeId, PacketId, SeqNo, Time};

/// Which stream, among those that this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamIx(pub(super) u32);

/// One sender's packets in one group.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) sender: NodeId,
    pub(super) group: GroupIx,
    pub(super) group_id: GroupId,
    /// Whether it is known from where on the stream is owed to this node.
    pub(super) opened: bool,
    /// How often the sender was asked for that.
    pub(super) opens: u8,
    /// How many packets were lost.
    pub(super) lost: u32,
    /// A sequence number too far ahead to be believed before another one confirms it.
    pub(super) doubted: Option<SeqNo>,
    base: SeqNo,
    slots: VecDeque<Slot>,
    /// Everything before it is settled.
    settled_to: SeqNo,
    /// The first number that was ever in the window.
    start: SeqNo,
}

/// What is known of one packet.
#[derive(Debug)]
pub(super) enum Slot {
    /// It was delivered, and is kept to decode repairs and to answer NAKs.
    Held(Held),
    /// It should be here and is not.
    Missing(MissingIx),
    /// It was delivered and evicted, or is lost.
    Settled,
}

/// A packet in the data buffer.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) block: Block,
    pub(super) received_at: Time,
}

/// Where a sequence number lies in a stream.
#[derive(Debug)]
pub(super) enum Place<'a> {
    /// Before the window: settled, or of no concern.
    Before,
    /// In the window.
    At(&'a Slot),
    /// Beyond the last that is known of.
    Ahead,
}

/// All streams, and the bounds of the data buffer.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Vec<Option<Stream>>,
    vacant: Vec<StreamIx>,
    by_key: IdMap<(GroupIx, NodeId), StreamIx>,
    /// Held packets in the order in which they came.
    ages: VecDeque<Aged>,
    bytes: usize,
    max_bytes: usize,
    max_age: Duration,
    evicted_by_age: u64,
    evicted_by_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Aged {
    stream: StreamIx,
    seqno: SeqNo,
    received_at: Time,
}

/// What a held packet costs beside its bytes: its slot, its age, its share of the window.
const HELD_OVERHEAD_BYTES: usize = 96;

impl Stream {
    fn new(sender: NodeId, group: GroupIx, group_id: GroupId, base: SeqNo, opened: bool) -> Self {
        Self {
            sender,
            group,
            group_id,
            opened,
            opens: 0,
            lost: 0,
            doubted: None,
            base,
            slots: VecDeque::new(),
            settled_to: base,
            start: base,
        }
    }

    /// The id of the packet with this number.
    pub(super) fn id(&self, seqno: SeqNo) -> PacketId {
        PacketId { sender: self.sender, group: self.group_id, seqno }
    }

    /// The number after the last that is known of.
    pub(super) fn end(&self) -> SeqNo {
        self.base.plus(self.slots.len() as u32)
    }

    /// Everything before this number is delivered or lost.
    pub(super) fn settled_to(&self) -> SeqNo {
        self.settled_to
    }

    /// Where `seqno` lies.
    pub(super) fn place(&self, seqno: SeqNo) -> Place<'_> {
        let offset = seqno.distance_from(self.base);
        if offset < 0 {
            return Place::Before;
        }
        match self.slots.get(offset as usize) {
            Some(slot) => Place::At(slot),
            None => Place::Ahead,
        }
    }

    /// The packet, if it is held.
    pub(super) fn held(&self, seqno: SeqNo) -> Option<&Held> {
        match self.place(seqno) {
            Place::At(Slot::Held(held)) => Some(held),
            _ => None,
        }
    }

    /// The record of the packet, if it is missing.
    pub(super) fn missing(&self, seqno: SeqNo) -> Option<MissingIx> {
        match self.place(seqno) {
            Place::At(Slot::Missing(missing)) => Some(*missing),
            _ => None,
        }
    }

    /// Notes that the packet at the end of the window is missing.
    pub(super) fn push_missing(&mut self, missing: MissingIx) {
        self.slots.push_back(Slot::Missing(missing));
    }

    /// Notes that the packet before the window is missing after all.
    pub(super) fn push_missing_before(&mut self, missing: MissingIx) {
        assert!(self.reaches_back(), "numbers that were settled would be missing again");
        self.base = self.base.minus(1);
        self.start = self.base;
        self.settled_to = self.base;
        self.slots.push_front(Slot::Missing(missing));
    }

    /// The first number that was ever in the window: nothing is known of those before it.
    pub(super) fn start(&self) -> SeqNo {
        self.start
    }

    /// Whether the window still holds all that it ever held, so that it can grow backwards.
    pub(super) fn reaches_back(&self) -> bool {
        self.base == self.start
    }

    /// All numbers in the window that are missing.
    pub(super) fn all_missing(&self) -> Vec<(SeqNo, MissingIx)> {
        let numbered = self.slots.iter().zip(0..);
        numbered
            .filter_map(|(slot, offset)| match slot {
                Slot::Missing(missing) => Some((self.base.plus(offset), *missing)),
                _ => None,
            })
            .collect()
    }

    /// Forgets the window: everything before `seqno` is settled.
    fn skip_to(&mut self, seqno: SeqNo) {
        self.slots.clear();
        self.base = seqno;
        self.settled_to = seqno;
    }

    fn slot_mut(&mut self, seqno: SeqNo) -> &mut Slot {
        let offset = seqno.distance_from(self.base);
        assert!(offset >= 0, "a packet before the window was to be changed");
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
    }

    fn check(&self) -> usize {
        let settled = self.settled_to.distance_from(self.base);
        assert!((0..=self.slots.len() as i32).contains(&settled), "settled beyond the window");
        let first_missing = self.slots.iter().position(|slot| matches!(slot, Slot::Missing(_)));
        let expected = first_missing.unwrap_or(self.slots.len());
        assert_eq!(settled as usize, expected, "the account of what is settled is wrong");
        assert!(!matches!(self.slots.front(), Some(Slot::Settled)), "the window was not trimmed");
        self.slots
            .iter()
            .map(|slot| if let Slot::Held(held) = slot { held.cost() } else { 0 })
            .sum()
    }
}

impl Held {
    fn cost(&self) -> usize {
        self.block.bytes().len() + HELD_OVERHEAD_BYTES
    }
}

impl Streams {
    pub(super) fn new(seed: u64, max_bytes: usize, max_age: Duration) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_key: IdMap::new(seed),
            ages: VecDeque::new(),
            bytes: 0,
            max_bytes,
            max_age,
            evicted_by_age: 0,
            evicted_by_bytes: 0,
        }
    }

    pub(super) fn find(&self, group: GroupIx, sender: NodeId) -> Option<StreamIx> {
        self.by_key.get(&(group, sender)).copied()
    }

    /// A new stream whose first number is `base`.
    pub(super) fn open(
        &mut self,
        sender: NodeId,
        group: GroupIx,
        group_id: GroupId,
        base: SeqNo,
        opened: bool,
    ) -> StreamIx {
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            StreamIx(self.slots.len() as u32 - 1)
        });
        self.slots[ix.0 as usize] = Some(Stream::new(sender, group, group_id, base, opened));
        self.by_key.insert((group, sender), ix);
        ix
    }

    pub(super) fn get(&self, ix: StreamIx) -> &Stream {
        self.slots[ix.0 as usize].as_ref().expect("an index is kept no longer than its stream")
    }

    pub(super) fn get_mut(&mut self, ix: StreamIx) -> &mut Stream {
        self.slots[ix.0 as usize].as_mut().expect("an index is kept no longer than its stream")
    }

    /// Keeps the packet, which is in the window or just beyond its end; what it makes too many
    /// goes.
    pub(super) fn hold(&mut self, now: Time, ix: StreamIx, seqno: SeqNo, block: Block) {
        let held = Held { block, received_at: now };
        self.bytes += held.cost();
        let stream = self.get_mut(ix);
        if seqno == stream.end() {
            stream.slots.push_back(Slot::Held(held));
        } else {
            *stream.slot_mut(seqno) = Slot::Held(held);
        }
        stream.advance();
        self.ages.push_back(Aged { stream: ix, seqno, received_at: now });
        while self.bytes > self.max_bytes && !self.ages.is_empty() {
            self.evicted_by_bytes += u64::from(self.evict_first());
        }
    }

    /// The packet will not come: it counts as lost.
    pub(super) fn give_up(&mut self, ix: StreamIx, seqno: SeqNo) {
        let stream = self.get_mut(ix);
        *stream.slot_mut(seqno) = Slot::Settled;
        stream.lost = stream.lost.saturating_add(1);
        stream.advance();
        stream.trim();
    }

    /// Everything of the stream before `seqno` counts as settled, `lost` of it as lost.
    pub(super) fn skip_to(&mut self, ix: StreamIx, seqno: SeqNo, lost: u32) {
        let stream = self.get_mut(ix);
        let freed: usize = stream.slots.iter().map(Slot::cost).sum();
        stream.lost = stream.lost.saturating_add(lost);
        stream.skip_to(seqno);
        self.bytes -= freed;
    }

    /// When the oldest held packet is to be evicted.
    pub(super) fn next_eviction(&self) -> Option<Time> {
        self.ages.front().map(|aged| aged.received_at + self.max_age)
    }

    /// Evicts what is too old.
    pub(super) fn evict_old(&mut self, now: Time) {
        while self.next_eviction().is_some_and(|due| due <= now) {
            self.evicted_by_age += u64::from(self.evict_first());
        }
    }

    /// The streams of `group`.
    pub(super) fn of_group(&self, group: GroupIx) -> impl Iterator<Item = &Stream> {
        self.slots.iter().flatten().filter(move |stream| stream.group == group)
    }

    /// Takes out all streams of `group`.
    pub(super) fn remove_group(&mut self, group: GroupIx) -> Vec<(StreamIx, Stream)> {
        let mut removed = Vec::new();
        for (place, slot) in self.slots.iter_mut().enumerate() {
            if let Some(stream) = slot.take_if(|stream| stream.group == group) {
                self.bytes -= stream.slots.iter().map(Slot::cost).sum::<usize>();
                self.by_key.remove(&(group, stream.sender));
                self.vacant.push(StreamIx(place as u32));
                removed.push((StreamIx(place as u32), stream));
            }
        }
        let slots = &self.slots;
        self.ages.retain(|aged| slots[aged.stream.0 as usize].is_some());
        removed
    }

    /// Packets evicted by age and by bytes so far.
    pub(super) fn evictions(&self) -> (u64, u64) {
        (self.evicted_by_age, self.evicted_by_bytes)
    }

    /// Bytes that held packets take up.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn check(&self, missing: usize) {
        let streams = || self.slots.iter().flatten();
        let bytes: usize = streams().map(Stream::check).sum();
        assert_eq!(bytes, self.bytes, "the data buffer lost count of its bytes");
        assert!(self.bytes <= self.max_bytes.max(1 << 16), "the data buffer is over its limit");
        let in_slots: usize = streams().map(|stream| stream.all_missing().len()).sum();
        assert_eq!(in_slots, missing, "missing packets and their records do not match");
        assert!(
            self.ages.iter().is_sorted_by_key(|aged| aged.received_at),
            "ages are out of order"
        );
    }

    /// Evicts the packet that came first; says whether it was still there.
    fn evict_first(&mut self) -> bool {
        let Some(aged) = self.ages.pop_front() else { return false };
        let Some(stream) = self.slots[aged.stream.0 as usize].as_mut() else { return false };
        let freed = match stream.held(aged.seqno) {
            Some(held) if held.received_at == aged.received_at => held.cost(),
            _ => return false,
        };
        *stream.slot_mut(aged.seqno) = Slot::Settled;
        stream.trim();
        self.bytes -= freed;
        true
    }
}

impl Slot {
    fn cost(&self) -> usize {
        if let Self::Held(held) = self { held.cost() } else { 0 }
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
