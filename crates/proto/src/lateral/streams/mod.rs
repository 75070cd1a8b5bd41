//! Streams: the state of every sender's packets in every group, that is, which are delivered,
//! missing or lost.
//!
//! A *stream* is one sender's packets in one group. Its window extends from the oldest packet that
//! is still held or missing to the latest known one. Every number before the window is settled for
//! good, so that no packet is delivered twice.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::lateral::groups::GroupIx;
use crate::lateral::packet::symbol::Symbol;
use crate::lateral::streams::data_buffer::{Arrival, DataBuffer, Held, HeldIx};
use crate::lateral::streams::group_streams::GroupStreams;
use crate::lateral::streams::loss_list::MissingIx;
use crate::{GroupId, IdMap, Incarnation, NodeId, PacketId, SeqNo, Time};

pub(crate) mod claims;
pub(crate) mod data_buffer;
pub(crate) mod former_streams;
pub(crate) mod group_streams;
pub(crate) mod loss_list;
mod of_group;

pub(crate) use claims::Query;

/// Index of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamIx(pub(crate) u32);

/// One sender's packets in one group.
///
/// The fields that every packet needs come first and batch one cache line. With thousands of
/// streams, that of a packet is rarely in the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Stream {
    slots: VecDeque<Slot>,
    base: SeqNo,
    /// Number before which everything is settled.
    settled_to: SeqNo,
    pub(crate) sender: NodeId,
    pub(crate) group: GroupIx,
    pub(crate) group_id: GroupId,
    /// First number that was ever in the window, or a later one once that lies far behind. It
    /// follows the window, because numbers that are half the circle apart cannot be compared.
    start: SeqNo,
    /// `true` if the first number that this node is owed is known.
    pub(crate) opened: bool,
    /// End of the stream when its sender left the view; `None` if it is in the view or never was.
    pub(crate) left_at: Option<SeqNo>,
    /// Number of opens sent for the current query without an answer.
    pub(crate) opens: u8,
    /// Number too far ahead to be believed before another one agrees with it.
    pub(crate) doubted: Option<SeqNo>,
    /// Number of packets lost.
    pub(crate) lost: u32,
    /// Position at which this node left the group before. Everything earlier was delivered or given
    /// up then.
    floor: Option<SeqNo>,
    /// Incarnation of the sender, once the sender was heard directly.
    pub(crate) incarnation: Option<Incarnation>,
    /// Open query to the sender.
    pub(crate) query: Option<Query>,
    /// Time at which the sender was last considered silent, after many opens without an answer.
    pub(crate) silent_since: Option<Time>,
    /// Number before which the sender itself reported having sent everything. Never before the
    /// window.
    vouched_to: SeqNo,
    /// Position in the list of streams of its group.
    place: u32,
}

/// State of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// Delivered, and in the data buffer.
    Held(HeldIx),
    /// Missing.
    Missing(MissingIx),
    /// Delivered and evicted, or lost.
    Settled,
}

/// Position of a sequence number relative to the window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Before the window: settled, or not owed.
    Before,
    /// In the window.
    At(Slot),
    /// Beyond the last known number.
    Ahead,
}

/// All streams, and the data buffer.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Option<Stream>>,
    vacant: Vec<StreamIx>,
    by_key: IdMap<(GroupIx, NodeId), StreamIx>,
    by_group: GroupStreams,
    buffer: DataBuffer,
    evicted_by_age: u64,
    evicted_by_bytes: u64,
}

impl Stream {
    fn new(sender: NodeId, group: GroupIx, group_id: GroupId, base: SeqNo, opened: bool) -> Self {
        Self {
            sender,
            group,
            group_id,
            opened,
            left_at: None,
            opens: 0,
            lost: 0,
            doubted: None,
            base,
            slots: VecDeque::new(),
            settled_to: base,
            start: base,
            floor: None,
            incarnation: None,
            query: None,
            silent_since: None,
            vouched_to: base,
            place: 0,
        }
    }

    /// Makes the stream begin at `floor` or later. Earlier packets are never delivered, even if the
    /// sender owes them.
    pub(crate) fn resume_at(&mut self, floor: SeqNo) {
        assert!(self.slots.is_empty(), "a stream goes on where it stood before it is heard");
        self.base = self.base.later(floor);
        self.settled_to = self.base;
        self.start = self.base;
        self.floor = Some(floor);
    }

    /// Returns the id of the packet with this number.
    pub(crate) fn id(&self, seqno: SeqNo) -> PacketId {
        PacketId { sender: self.sender, group: self.group_id, seqno }
    }

    /// Returns the number after the last known one.
    pub(crate) fn end(&self) -> SeqNo {
        self.base.plus(self.slots.len() as u32)
    }

    /// Returns the number after the last packet that was delivered or reported lost.
    pub(crate) fn told_to(&self) -> SeqNo {
        let missing = self.slots.iter().rev().take_while(|slot| matches!(slot, Slot::Missing(_)));
        self.end().minus(missing.count() as u32)
    }

    /// Returns the number before which everything is delivered or lost.
    pub(crate) fn settled_to(&self) -> SeqNo {
        self.settled_to
    }

    /// Returns the position of `seqno` relative to the window.
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

    /// Returns `true` if the packet is held.
    pub(crate) fn holds(&self, seqno: SeqNo) -> bool {
        matches!(self.place(seqno), Place::At(Slot::Held(_)))
    }

    /// Returns the record of the packet, if it is missing.
    pub(crate) fn missing(&self, seqno: SeqNo) -> Option<MissingIx> {
        match self.place(seqno) {
            Place::At(Slot::Missing(missing)) => Some(missing),
            _ => None,
        }
    }

    /// Records that the packet at the end of the window is missing.
    pub(crate) fn push_missing(&mut self, missing: MissingIx) {
        self.slots.push_back(Slot::Missing(missing));
    }

    /// Returns the first number that was ever in the window. Nothing is known of earlier ones.
    pub(crate) fn start(&self) -> SeqNo {
        self.start
    }

    /// Returns `true` if the window still holds everything that it ever held, so that it can grow
    /// backwards.
    pub(crate) fn reaches_back(&self) -> bool {
        self.base == self.start
    }

    /// Returns all missing numbers in the window.
    pub(crate) fn all_missing(&self) -> Vec<(SeqNo, MissingIx)> {
        let numbered = self.slots.iter().zip(0..);
        numbered
            .filter_map(|(slot, offset)| match slot {
                Slot::Missing(missing) => Some((self.base.plus(offset), *missing)),
                _ => None,
            })
            .collect()
    }

    /// Adds to the number of lost packets, which acknowledgments report to the sender.
    pub(crate) fn count_lost(&mut self, count: u32) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Empties the window. Everything before `seqno` is settled.
    fn skip_to(&mut self, seqno: SeqNo) {
        self.slots.clear();
        self.base = seqno;
        self.settled_to = seqno;
        self.follow();
    }

    /// Moves the start along with the window. The distance stays larger than the number of
    /// fragments of a message, so that packets from before the window and from before the stream
    /// remain distinguishable.
    fn follow(&mut self) {
        if !(0..=2 * START_LAG as i32).contains(&self.base.distance_from(self.start)) {
            self.start = self.base.minus(START_LAG);
            self.floor = None;
        }
        self.vouched_to = self.vouched_to.later(self.base);
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
        self.follow();
    }

    /// Returns the packets of the window that are in the data buffer.
    fn all_held(&self) -> impl Iterator<Item = HeldIx> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Held(held) => Some(*held),
            _ => None,
        })
    }

    fn check(&self) {
        let settled = self.settled_to.distance_from(self.base);
        assert!((0..=self.slots.len() as i32).contains(&settled), "settled beyond the window");
        let first_missing = self.slots.iter().position(|slot| matches!(slot, Slot::Missing(_)));
        let expected = first_missing.unwrap_or(self.slots.len());
        assert_eq!(settled as usize, expected, "the account of what is settled is wrong");
        assert!(!matches!(self.slots.front(), Some(Slot::Settled)), "the window was not trimmed");
    }
}

impl Streams {
    pub(crate) fn new(seed: u64, max_bytes: usize, max_age: Duration) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_key: IdMap::new(seed),
            by_group: GroupStreams::default(),
            buffer: DataBuffer::new(max_bytes, max_age),
            evicted_by_age: 0,
            evicted_by_bytes: 0,
        }
    }

    pub(crate) fn find(&self, group: GroupIx, sender: NodeId) -> Option<StreamIx> {
        self.by_key.get(&(group, sender)).copied()
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the streams of the packets that are evicted if `count` more arrive.
    pub(crate) fn next_evicted(&self, count: usize) -> impl Iterator<Item = StreamIx> {
        self.buffer.next_evicted(count)
    }

    /// Reads the memory that a packet of the stream will need. The result has no meaning.
    pub(crate) fn look(&self, ix: StreamIx) -> u32 {
        let Some(stream) = &self.slots[ix.0 as usize] else { return 0 };
        u32::from(matches!(stream.slots.front(), Some(Slot::Missing(_))))
    }

    /// Creates a stream whose first number is `base`.
    pub(crate) fn open(
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
        let mut stream = Stream::new(sender, group, group_id, base, opened);
        stream.place = self.by_group.push(group, ix);
        self.slots[ix.0 as usize] = Some(stream);
        self.by_key.insert((group, sender), ix);
        ix
    }

    pub(crate) fn get(&self, ix: StreamIx) -> &Stream {
        self.slots[ix.0 as usize].as_ref().expect("an index is kept no longer than its stream")
    }

    pub(crate) fn get_mut(&mut self, ix: StreamIx) -> &mut Stream {
        self.slots[ix.0 as usize].as_mut().expect("an index is kept no longer than its stream")
    }

    /// Returns the packet, if it is held.
    pub(crate) fn held(&self, ix: StreamIx, seqno: SeqNo) -> Option<&Held> {
        match self.get(ix).place(seqno) {
            Place::At(Slot::Held(held)) => Some(self.buffer.get(held)),
            _ => None,
        }
    }

    /// Buffers a packet, which is in the window or just beyond its end. Packets that exceed the
    /// memory limit are evicted.
    pub(crate) fn hold(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        symbol: Symbol,
        came: Arrival,
    ) {
        let held = Slot::Held(self.buffer.push(now, ix, seqno, symbol, came));
        let stream = self.get_mut(ix);
        if let Some(query) = &mut stream.query {
            query.comes(seqno);
        }
        if seqno == stream.end() {
            stream.slots.push_back(held);
        } else {
            *stream.slot_mut(seqno) = held;
        }
        stream.advance();
        self.evict_what_is_too_much();
    }

    /// Marks a packet as received by multicast. If it is held, returns the path by which it had
    /// arrived before, and its symbol.
    pub(crate) fn mark_multicast(
        &mut self,
        ix: StreamIx,
        seqno: SeqNo,
    ) -> Option<(Arrival, Symbol)> {
        match self.get(ix).place(seqno) {
            Place::At(Slot::Held(held)) => Some(self.buffer.mark_multicast(held)),
            _ => None,
        }
    }

    /// Sets the number of bytes of the data buffer's limit that messages in reassembly use.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
        self.evict_what_is_too_much();
    }

    fn evict_what_is_too_much(&mut self) {
        while self.buffer.is_too_large() {
            self.evicted_by_bytes += 1;
            self.evict_first();
        }
    }

    /// Settles a missing packet that will not arrive or is not wanted.
    pub(crate) fn give_up(&mut self, ix: StreamIx, seqno: SeqNo) {
        let stream = self.get_mut(ix);
        *stream.slot_mut(seqno) = Slot::Settled;
        stream.advance();
        stream.trim();
    }

    /// Drops a packet if it is held, and settles it.
    pub(crate) fn forget(&mut self, ix: StreamIx, seqno: SeqNo) {
        if let Place::At(Slot::Held(held)) = self.get(ix).place(seqno) {
            self.buffer.remove(held);
            let stream = self.get_mut(ix);
            *stream.slot_mut(seqno) = Slot::Settled;
            stream.trim();
        }
    }

    /// Settles the packet at the end of the window, which is not wanted.
    pub(crate) fn push_settled(&mut self, ix: StreamIx) {
        let stream = self.get_mut(ix);
        stream.slots.push_back(Slot::Settled);
        stream.advance();
        stream.trim();
    }

    /// Settles everything of the stream before `seqno`.
    pub(crate) fn skip_to(&mut self, ix: StreamIx, seqno: SeqNo) {
        let Self { slots, buffer, .. } = self;
        let stream = slots[ix.0 as usize].as_mut().expect("a stream that is there is skipped");
        stream.all_held().for_each(|held| buffer.remove(held));
        stream.skip_to(seqno);
    }

    /// Returns the time of the next eviction by age.
    pub(crate) fn next_eviction(&self) -> Option<Time> {
        self.buffer.next_eviction()
    }

    /// Evicts packets that exceed the age limit.
    pub(crate) fn evict_old(&mut self, now: Time) {
        while self.buffer.is_too_old(now) {
            self.evicted_by_age += 1;
            self.evict_first();
        }
    }

    /// Removes and returns a stream of which nothing is held or missing.
    pub(crate) fn remove(&mut self, ix: StreamIx) -> Stream {
        let stream = self.slots[ix.0 as usize].take().expect("the stream is there");
        assert!(stream.slots.is_empty(), "a stream was forgotten while packets of it are held");
        self.by_key.remove(&(stream.group, stream.sender));
        if let Some(moved) = self.by_group.remove(stream.group, stream.place) {
            self.get_mut(moved).place = stream.place;
        }
        self.vacant.push(ix);
        stream
    }

    /// Removes and returns all streams of `group`.
    pub(crate) fn remove_group(&mut self, group: GroupIx) -> Vec<(StreamIx, Stream)> {
        let removed = self.by_group.take(group).into_iter().map(|ix| {
            let stream = self.slots[ix.0 as usize].take().expect("a group knows its streams");
            stream.all_held().for_each(|held| self.buffer.remove(held));
            self.by_key.remove(&(group, stream.sender));
            self.vacant.push(ix);
            (ix, stream)
        });
        removed.collect()
    }

    /// Returns the numbers of packets evicted by age and by bytes.
    pub(crate) fn evictions(&self) -> (u64, u64) {
        (self.evicted_by_age, self.evicted_by_bytes)
    }

    /// Returns the memory that held packets use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    pub(crate) fn check(&self, missing: usize) {
        let streams = || self.slots.iter().flatten();
        streams().for_each(Stream::check);
        for stream in streams() {
            let listed = self.by_group.of(stream.group)[stream.place as usize];
            let known = self.by_key.get(&(stream.group, stream.sender));
            assert_eq!(known, Some(&listed), "a group has another stream at its place");
        }
        assert_eq!(self.by_group.len(), self.by_key.len(), "a group has streams that are gone");
        self.buffer.check();
        let held: usize = streams().map(|stream| stream.all_held().count()).sum();
        assert_eq!(held, self.buffer.len(), "packets are held that no stream knows of");
        let in_slots: usize = streams().map(|stream| stream.all_missing().len()).sum();
        assert_eq!(in_slots, missing, "missing packets and their records do not match");
    }

    fn evict_first(&mut self) {
        let Some((ix, seqno)) = self.buffer.evict_first() else { return };
        let stream = self.get_mut(ix);
        *stream.slot_mut(seqno) = Slot::Settled;
        stream.trim();
    }
}

/// Distance at which a stream's start follows its window: more packets than a message can have.
const START_LAG: u32 = 1 << 24;

#[cfg(test)]
mod tests;
