//! Streams: the state of every packet of every sender in every group.
//!
//! A *stream* consists of the packets of one sender in one group.

mod data_buffer;
mod former_streams;
mod group_streams;
mod loss_list;
mod query;
mod receive_window;
mod stream;

use core::time::Duration;

use super::groups::Groups;
use super::index::{GroupIx, StreamIx};
use super::packet::symbol::Symbol;
use crate::{GroupId, IdMap, NodeId, PacketId, SeqNo, Time};
use data_buffer::{DataBuffer, Held};
use group_streams::GroupStreams;

pub(super) use data_buffer::Arrival;
pub(super) use former_streams::{FormerStream, FormerStreams};
pub(super) use loss_list::{LossList, Missing, MissingIx};
pub(super) use query::Query;
pub(super) use receive_window::{Place, Slot};
pub(super) use stream::Stream;

#[derive(Debug)]
pub(super) struct Streams {
    slots: Vec<Option<Stream>>,
    vacant: Vec<StreamIx>,
    by_key: IdMap<(GroupIx, NodeId), StreamIx>,
    by_group: GroupStreams,
    buffer: DataBuffer,
    pub(super) losses: LossList,
    evicted_by_age: u64,
    evicted_by_bytes: u64,
}

const MAX_SEARCHED: usize = 64;

impl Streams {
    pub(super) fn new(seed: u64, max_bytes: usize, max_age: Duration) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_key: IdMap::new(seed),
            by_group: GroupStreams::default(),
            buffer: DataBuffer::new(max_bytes, max_age),
            losses: LossList::default(),
            evicted_by_age: 0,
            evicted_by_bytes: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, group: GroupIx, sender: NodeId) -> Option<StreamIx> {
        self.by_key.get(&(group, sender)).copied()
    }

    #[inline]
    pub(super) fn find_packet(&self, groups: &Groups, id: PacketId) -> Option<StreamIx> {
        groups.ix(id.group).and_then(|group| self.find(group, id.sender))
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn next_evicted(&self, count: usize) -> impl Iterator<Item = StreamIx> {
        self.buffer.next_evicted(count)
    }

    pub(super) fn prefetch(&self, ix: StreamIx) -> u32 {
        self.slots[ix.0 as usize].as_ref().map_or(0, |stream| stream.window.prefetch())
    }

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
        let place = self.by_group.push(group, ix);
        let stream = Stream::new(sender, (group, group_id, place), base, opened);
        self.slots[ix.0 as usize] = Some(stream);
        self.by_key.insert((group, sender), ix);
        ix
    }

    #[inline]
    pub(super) fn get(&self, ix: StreamIx) -> &Stream {
        self.slots[ix.0 as usize].as_ref().expect("an index does not outlive its stream")
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ix: StreamIx) -> &mut Stream {
        self.slots[ix.0 as usize].as_mut().expect("an index does not outlive its stream")
    }

    pub(super) fn of_group(&self, group: GroupIx) -> impl Iterator<Item = &Stream> {
        self.by_group.of(group).iter().map(|ix| self.get(*ix))
    }

    pub(super) fn count_others(&self, group: GroupIx, own: NodeId) -> usize {
        self.by_group.of(group).len() - usize::from(self.find(group, own).is_some())
    }

    /// Returns a stream with an empty window whose sender has `departed`. Checks only a few streams
    /// per call.
    pub(super) fn next_idle(
        &mut self,
        group: GroupIx,
        departed: impl Fn(NodeId) -> bool,
    ) -> Option<StreamIx> {
        let Self { by_group, slots, .. } = self;
        by_group.find_next(group, MAX_SEARCHED, |ix| {
            let stream = slots[ix.0 as usize].as_ref();
            stream.is_some_and(|stream| stream.window.is_empty() && departed(stream.sender))
        })
    }

    pub(super) fn is_late(&self, now: Time, group: GroupIx, sender: NodeId, number: SeqNo) -> bool {
        let former = self.by_group.former(group);
        former.is_some_and(|former| former.is_late(now, sender, number))
    }

    pub(super) fn former_mut(&mut self, group: GroupIx) -> &mut FormerStreams {
        self.by_group.former_mut(group)
    }

    #[inline]
    pub(super) fn held(&self, ix: StreamIx, seqno: SeqNo) -> Option<&Held> {
        match self.get(ix).window.place(seqno) {
            Place::At(Slot::Held(held)) => Some(self.buffer.get(held)),
            _ => None,
        }
    }

    /// Buffers a packet, which is in the window or just beyond its end. If the packet was missing,
    /// the caller must have removed its record. Evicts the oldest packets beyond the memory limit.
    #[inline]
    pub(super) fn hold(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        symbol: Symbol,
        arrival: Arrival,
    ) {
        let held = self.buffer.push(now, ix, seqno, symbol, arrival);
        self.get_mut(ix).hold(seqno, held);
        self.evict_excess();
    }

    pub(super) fn mark_multicast(
        &mut self,
        ix: StreamIx,
        seqno: SeqNo,
    ) -> Option<(Arrival, Symbol)> {
        match self.get(ix).window.place(seqno) {
            Place::At(Slot::Held(held)) => Some(self.buffer.mark_multicast(held)),
            _ => None,
        }
    }

    pub(super) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
        self.evict_excess();
    }

    #[inline]
    fn evict_excess(&mut self) {
        while self.buffer.is_too_large() {
            self.evicted_by_bytes += 1;
            self.evict_first();
        }
    }

    pub(super) fn push_missing(&mut self, now: Time, ix: StreamIx, due: Time) {
        let seqno = self.get(ix).window.end();
        let missing = self.losses.insert(Missing::new(ix, seqno, now), due);
        self.get_mut(ix).window.push_missing(missing);
    }

    pub(super) fn push_missing_before(&mut self, now: Time, ix: StreamIx, due: Time) {
        let seqno = self.get(ix).window.start().minus(1);
        let missing = self.losses.insert(Missing::new(ix, seqno, now), due);
        self.get_mut(ix).push_missing_before(missing);
    }

    /// Makes packets due that have been missing for `after` and have not been requested yet.
    pub(super) fn make_due(&mut self, ix: StreamIx, now: Time, after: Duration) {
        let Self { slots, losses, .. } = self;
        let stream = slots[ix.0 as usize].as_ref().expect("the stream exists");
        for (_, missing) in stream.window.all_missing() {
            let record = losses.get(missing);
            if record.attempts == 0 && now >= record.noticed_at + after {
                losses.set_due(missing, now);
            }
        }
    }

    pub(super) fn give_up(&mut self, ix: StreamIx, seqno: SeqNo) {
        if let Some(missing) = self.get(ix).window.missing(seqno) {
            self.losses.remove(missing);
            self.get_mut(ix).window.settle(seqno);
        }
    }

    pub(super) fn forget(&mut self, ix: StreamIx, seqno: SeqNo) {
        if let Place::At(Slot::Held(held)) = self.get(ix).window.place(seqno) {
            self.buffer.remove(held);
            self.get_mut(ix).window.evict(seqno);
        }
    }

    pub(super) fn push_settled(&mut self, ix: StreamIx) {
        let window = &mut self.get_mut(ix).window;
        window.settle(window.end());
    }

    pub(super) fn skip_to(&mut self, ix: StreamIx, seqno: SeqNo) -> Vec<SeqNo> {
        let Self { slots, buffer, losses, .. } = self;
        let stream = slots[ix.0 as usize].as_mut().expect("a stream that is moved exists");
        let window = &mut stream.window;
        window.all_held().for_each(|held| buffer.remove(held));
        let missing = window.all_missing().map(|(seqno, missing)| {
            losses.remove(missing);
            seqno
        });
        let missing = missing.collect();
        window.skip_to(seqno);
        missing
    }

    pub(super) fn forget_not_owed(&mut self, ix: StreamIx, first: SeqNo) {
        for missing in self.get_mut(ix).window.pop_not_owed(first) {
            self.losses.remove(missing);
        }
    }

    /// Forgets the numbers down to `next` that `ReceiveWindow::pop_unsent` removes.
    pub(super) fn forget_unsent(
        &mut self,
        ix: StreamIx,
        (next, waiting): (SeqNo, SeqNo),
        is_refuted: bool,
    ) {
        let unsent = (next, waiting);
        while let Some(slot) = self.get_mut(ix).window.pop_unsent(unsent, is_refuted) {
            match slot {
                Slot::Held(held) => self.buffer.remove(held),
                Slot::Missing(missing) => drop(self.losses.remove(missing)),
                Slot::Settled => {}
            }
        }
    }

    pub(super) fn next_eviction(&self) -> Option<Time> {
        self.buffer.next_eviction()
    }

    pub(super) fn evict_old(&mut self, now: Time) {
        while self.buffer.is_too_old(now) {
            self.evicted_by_age += 1;
            self.evict_first();
        }
    }

    pub(super) fn remove(&mut self, ix: StreamIx) -> Stream {
        let stream = self.slots[ix.0 as usize].take().expect("the stream exists");
        let is_empty = stream.window.is_empty();
        assert!(is_empty, "a stream was removed while its packets are held");
        self.by_key.remove(&(stream.group, stream.sender));
        if let Some(moved) = self.by_group.remove(stream.group, stream.place) {
            self.get_mut(moved).place = stream.place;
        }
        self.vacant.push(ix);
        stream
    }

    pub(super) fn remove_group(
        &mut self,
        group: GroupIx,
    ) -> (Vec<(StreamIx, Stream)>, FormerStreams) {
        let (streams, former) = self.by_group.take(group);
        let removed = streams.into_iter().map(|ix| {
            let stream = self.slots[ix.0 as usize].take().expect("a group lists its streams");
            stream.window.all_held().for_each(|held| self.buffer.remove(held));
            for (_, missing) in stream.window.all_missing() {
                self.losses.remove(missing);
            }
            self.by_key.remove(&(group, stream.sender));
            self.vacant.push(ix);
            (ix, stream)
        });
        (removed.collect(), former)
    }

    pub(super) fn evictions(&self) -> (u64, u64) {
        (self.evicted_by_age, self.evicted_by_bytes)
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    pub(super) fn check(&self) {
        let streams = || self.slots.iter().flatten();
        for stream in streams() {
            stream.window.check();
            let listed = self.by_group.of(stream.group)[stream.place as usize];
            let known = self.by_key.get(&(stream.group, stream.sender));
            assert_eq!(known, Some(&listed), "a group lists another stream at this place");
        }
        assert_eq!(self.by_group.len(), self.by_key.len(), "a group lists removed streams");
        self.buffer.check();
        let held: usize = streams().map(|stream| stream.window.all_held().count()).sum();
        assert_eq!(held, self.buffer.len(), "the buffer holds packets of no stream");
        self.losses.check();
        let missing: usize = streams().map(|stream| stream.window.all_missing().count()).sum();
        assert_eq!(missing, self.losses.len(), "missing packets and their records do not match");
    }

    fn evict_first(&mut self) {
        let Some((ix, seqno)) = self.buffer.evict_first() else { return };
        self.get_mut(ix).window.evict(seqno);
    }
}

#[cfg(test)]
mod tests;
