//! The data buffer (Slingshot 3.1): the packets that are kept to decode repairs and to answer NAKs,
//! in the order in which they came.
//!
//! The oldest goes first, so that what comes and what goes lies side by side in memory, however
//! many streams it belongs to.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::block::Block;
use super::streams::StreamIx;
use crate::{SeqNo, Time};

/// Which packet in the buffer. Numbers are used again after 2^32 packets, which are never there
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldIx(u32);

/// The packets, and the bounds of their memory and age.
#[derive(Debug)]
pub(super) struct DataBuffer {
    packets: VecDeque<Held>,
    /// The index of the first of them.
    first: HeldIx,
    bytes: usize,
    /// Bytes of the limit that are in use for something else.
    reserved: usize,
    max_bytes: usize,
    max_age: Duration,
}

/// How a packet came that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// By its multicast, or it is this node's own.
    ByMulticast,
    /// Solved out of repairs; its multicast has not come.
    InRepairs,
    /// From somebody who was asked; its multicast has not come.
    OnRequest,
}

/// A packet in the buffer.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) received_at: Time,
    stream: StreamIx,
    seqno: SeqNo,
    came: Came,
    /// `None` once it was dropped while others before it were not.
    block: Option<Block>,
}

/// What a packet costs beside its bytes: its place here and in its stream's window.
const OVERHEAD_BYTES: usize = 96;

impl Held {
    /// The packet's bytes.
    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("a packet that was dropped is asked for no more")
    }
}

impl DataBuffer {
    pub(super) fn new(max_bytes: usize, max_age: Duration) -> Self {
        let packets = VecDeque::new();
        Self { packets, first: HeldIx(0), bytes: 0, reserved: 0, max_bytes, max_age }
    }

    /// So many bytes of the limit are in use for something else from now on.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.reserved = bytes;
    }

    /// Keeps a packet.
    pub(super) fn push(
        &mut self,
        now: Time,
        stream: StreamIx,
        seqno: SeqNo,
        block: Block,
        came: Came,
    ) -> HeldIx {
        let ix = HeldIx(self.first.0.wrapping_add(self.packets.len() as u32));
        self.bytes += cost(&block);
        self.packets.push_back(Held { received_at: now, stream, seqno, came, block: Some(block) });
        ix
    }

    /// The packet has come by its multicast; how it had come before that, and its block.
    pub(super) fn comes_by_multicast(&mut self, ix: HeldIx) -> (Came, Block) {
        let place = self.place(ix);
        let held = &mut self.packets[place];
        (core::mem::replace(&mut held.came, Came::ByMulticast), held.block().clone())
    }

    /// The packet.
    pub(super) fn get(&self, ix: HeldIx) -> &Held {
        &self.packets[self.place(ix)]
    }

    /// The streams of those of the oldest packets which go when `count` more come in.
    pub(super) fn next_evicted(&self, count: usize) -> impl Iterator<Item = StreamIx> {
        // The last packet is as good a guess as any at the bytes of those to come.
        let bytes = self.packets.back().and_then(|last| last.block.as_ref()).map_or(0, cost);
        let count = if self.bytes + self.reserved + bytes > self.max_bytes { count } else { 0 };
        self.packets.iter().take(count).map(|held| held.stream)
    }

    /// Drops a packet that is of no concern any more.
    pub(super) fn remove(&mut self, ix: HeldIx) {
        let place = self.place(ix);
        let block = self.packets[place].block.take().expect("a packet is dropped once");
        self.bytes -= cost(&block);
        self.forget_dropped();
    }

    /// Drops the packet that came first, and says which it was.
    pub(super) fn evict_first(&mut self) -> Option<(StreamIx, SeqNo)> {
        let first = self.packets.pop_front()?;
        self.first.0 = self.first.0.wrapping_add(1);
        self.bytes -= cost(first.block());
        self.forget_dropped();
        Some((first.stream, first.seqno))
    }

    /// Whether what is kept takes up more than it may.
    pub(super) fn is_too_large(&self) -> bool {
        self.bytes + self.reserved > self.max_bytes && !self.packets.is_empty()
    }

    /// Whether the first packet is older than it may be.
    pub(super) fn is_too_old(&self, now: Time) -> bool {
        self.packets.front().is_some_and(|first| first.received_at + self.max_age <= now)
    }

    /// When old packets are to be evicted next. Up to an eighth later than the first is due, so
    /// that many go at once: nobody should be woken for each packet that ever came.
    pub(super) fn next_eviction(&self) -> Option<Time> {
        let lenience = self.max_age / 8;
        self.packets.front().map(|first| first.received_at + self.max_age + lenience)
    }

    /// Bytes that the packets take up.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many packets are kept.
    pub(super) fn len(&self) -> usize {
        self.packets.iter().filter(|held| held.block.is_some()).count()
    }

    pub(super) fn check(&self) {
        let blocks = self.packets.iter().filter_map(|held| held.block.as_ref());
        assert_eq!(blocks.map(cost).sum::<usize>(), self.bytes, "the data buffer lost count");
        assert!(self.bytes <= self.max_bytes.max(1 << 16), "the data buffer is over its limit");
        let ages = self.packets.iter().map(|held| held.received_at);
        assert!(ages.is_sorted(), "packets are not kept in the order in which they came");
        let first = self.packets.front();
        assert!(first.is_none_or(|held| held.block.is_some()), "nothing is kept first");
    }

    /// What is first is kept, so that the bounds see it.
    fn forget_dropped(&mut self) {
        while self.packets.front().is_some_and(|held| held.block.is_none()) {
            self.packets.pop_front();
            self.first.0 = self.first.0.wrapping_add(1);
        }
    }

    fn place(&self, ix: HeldIx) -> usize {
        ix.0.wrapping_sub(self.first.0) as usize
    }
}

fn cost(block: &Block) -> usize {
    block.bytes().len() + OVERHEAD_BYTES
}
