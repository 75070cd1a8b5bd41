//! The data buffer (Slingshot 3.1): packets kept to decode repairs and to answer NAKs, in order of
//! arrival.
//!
//! The oldest packet is evicted first. New and evicted packets of all streams are therefore
//! adjacent in memory.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::lateral::index::StreamIx;
use crate::lateral::packet::symbol::Symbol;
use crate::{SeqNo, Time};

/// Index of a packet in the buffer, which is reused after 2^32 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldIx(u32);

#[derive(Debug)]
pub(crate) struct DataBuffer {
    packets: VecDeque<Held>,
    first: HeldIx,
    bytes: usize,
    /// Part of `max_bytes` that is reserved for messages in reassembly.
    reserved: usize,
    max_bytes: usize,
    max_age: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The packet arrived by multicast, or is this node's own.
    Multicast,
    Repair,
    Retransmission,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) received_at: Time,
    stream: StreamIx,
    seqno: SeqNo,
    arrival: Arrival,
    /// `None` if the packet was dropped before older ones.
    symbol: Option<Symbol>,
}

/// Assumed memory, in bytes, for a packet in addition to its symbol. It covers the entries in the
/// buffer and in the window of the stream.
const OVERHEAD_BYTES: usize = 96;

impl Held {
    pub(crate) fn symbol(&self) -> &Symbol {
        self.symbol.as_ref().expect("a dropped packet is not read")
    }
}

impl DataBuffer {
    pub(crate) fn new(max_bytes: usize, max_age: Duration) -> Self {
        let packets = VecDeque::new();
        Self { packets, first: HeldIx(0), bytes: 0, reserved: 0, max_bytes, max_age }
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved = bytes;
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Time,
        stream: StreamIx,
        seqno: SeqNo,
        symbol: Symbol,
        arrival: Arrival,
    ) -> HeldIx {
        let ix = HeldIx(self.first.0.wrapping_add(self.packets.len() as u32));
        self.bytes += cost(&symbol);
        self.packets.push_back(Held {
            received_at: now,
            stream,
            seqno,
            arrival,
            symbol: Some(symbol),
        });
        ix
    }

    /// Returns how the packet had arrived before, and its symbol.
    pub(crate) fn mark_multicast(&mut self, ix: HeldIx) -> (Arrival, Symbol) {
        let place = self.place(ix);
        let held = &mut self.packets[place];
        (core::mem::replace(&mut held.arrival, Arrival::Multicast), held.symbol().clone())
    }

    pub(crate) fn get(&self, ix: HeldIx) -> &Held {
        &self.packets[self.place(ix)]
    }

    pub(crate) fn next_evicted(&self, count: usize) -> impl Iterator<Item = StreamIx> {
        // The size of the last packet is the best estimate for the next packets.
        let bytes = self.packets.back().and_then(|last| last.symbol.as_ref()).map_or(0, cost);
        let count = if self.bytes + self.reserved + bytes > self.max_bytes { count } else { 0 };
        self.packets.iter().take(count).map(|held| held.stream)
    }

    pub(crate) fn remove(&mut self, ix: HeldIx) {
        let place = self.place(ix);
        let symbol = self.packets[place].symbol.take().expect("a packet is dropped once");
        self.bytes -= cost(&symbol);
        self.forget_dropped();
    }

    #[inline]
    pub(crate) fn evict_first(&mut self) -> Option<(StreamIx, SeqNo)> {
        let first = self.packets.pop_front()?;
        self.first.0 = self.first.0.wrapping_add(1);
        self.bytes -= cost(first.symbol());
        self.forget_dropped();
        Some((first.stream, first.seqno))
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes + self.reserved > self.max_bytes && !self.packets.is_empty()
    }

    pub(crate) fn is_too_old(&self, now: Time) -> bool {
        self.packets.front().is_some_and(|first| first.received_at + self.max_age <= now)
    }

    /// Delays the eviction by an eighth of the age limit, so that many packets leave together.
    pub(crate) fn next_eviction(&self) -> Option<Time> {
        let lenience = self.max_age / 8;
        self.packets.front().map(|first| first.received_at + self.max_age + lenience)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.iter().filter(|held| held.symbol.is_some()).count()
    }

    pub(crate) fn check(&self) {
        let symbols = self.packets.iter().filter_map(|held| held.symbol.as_ref());
        assert_eq!(symbols.map(cost).sum::<usize>(), self.bytes, "bytes were miscounted");
        assert!(self.bytes <= self.max_bytes.max(1 << 16), "the data buffer exceeds its limit");
        let ages = self.packets.iter().map(|held| held.received_at);
        assert!(ages.is_sorted(), "packets are not in order of arrival");
        let first = self.packets.front();
        assert!(first.is_none_or(|held| held.symbol.is_some()), "the first entry is empty");
    }

    /// Ensures that the first entry is a packet that is still held, because the bounds apply to it.
    fn forget_dropped(&mut self) {
        while self.packets.front().is_some_and(|held| held.symbol.is_none()) {
            self.packets.pop_front();
            self.first.0 = self.first.0.wrapping_add(1);
        }
    }

    fn place(&self, ix: HeldIx) -> usize {
        ix.0.wrapping_sub(self.first.0) as usize
    }
}

fn cost(symbol: &Symbol) -> usize {
    symbol.bytes().len() + OVERHEAD_BYTES
}
