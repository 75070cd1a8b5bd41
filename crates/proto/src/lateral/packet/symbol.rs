//! Symbols: the units that are XORed into repairs. A symbol is a message or a fragment of one, with
//! the fields needed to deliver it.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | sent at | the sender's [`Time`] when the message was sent |
//! | 8 | 4 | deadline | microseconds for which the message is useful; 0: no deadline |
//! | 12 | 2 | payload bytes | length of the payload |
//! | 14 | 2 | fragment bytes | 0: the payload is a whole message; else the length of a fragment |
//! | 16 | 4 | checksum | CRC-32 of the symbol without this field |
//! | 20 | n | payload | the message |
//!
//! A message that does not fit in one packet is split into [fragments](Fragment) of equal length.
//! The last one may be shorter. The payload of such a symbol begins with two more numbers, which
//! count as payload bytes:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 20 | 4 | index | index of the fragment in the message, from 0 |
//! | 24 | 4 | message bytes | length of the whole message, at most [`MAX_MESSAGE_BYTES`] |
//! | 28 | n | fragment | bytes of the message, from offset index * fragment bytes |
//!
//! These fields are part of the symbol, not of the packet around it, so that a repair restores them
//! too.
//!
//! Symbols of different lengths are XORed as if the shorter ones were followed by zeros. A symbol
//! solved from repairs is verified by its checksum, so that the result of a wrong repair is not
//! delivered.

use alloc::collections::VecDeque;
use core::time::Duration;

use bytes::{Bytes, BytesMut};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Time;
use crate::wire::DecodeError;

/// Size, in bytes, of a symbol without its payload.
pub const SYMBOL_HEADER_BYTES: usize = size_of::<RawSymbol>();

/// Size, in bytes, of the two numbers that precede a fragment in the payload of its symbol.
pub const FRAGMENT_HEADER_BYTES: usize = size_of::<RawFragment>();

/// Maximum size of a message in bytes: 16 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A reference-counted symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol(Bytes);

/// Position of a fragment in its message, and the sizes of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Index of the fragment, from 0. It is also the offset from the first fragment's sequence
    /// number.
    pub index: u32,
    /// Size, in bytes, of every fragment of the message except the last.
    pub fragment_bytes: u16,
    /// Size, in bytes, of the whole message, which is more than `fragment_bytes`.
    pub message_bytes: u32,
}

/// Memory for symbols, in chunks that many symbols share. A chunk is reused after the last of its
/// symbols has been dropped, so a warm arena does not allocate.
#[derive(Debug, Default)]
pub struct Arena {
    chunk: BytesMut,
    /// Remainders of full chunks, oldest first.
    retired: VecDeque<BytesMut>,
    max_retired: usize,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSymbol {
    sent_at: U64,
    deadline_us: U32,
    payload_bytes: U16,
    fragment_bytes: U16,
    checksum: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFragment {
    index: U32,
    message_bytes: U32,
}

const CHUNK_BYTES: usize = 64 * 1024;
const RETIRED_LOOKED_AT: usize = 4;
const CHECKSUM_OFFSET: usize = 16;

impl Symbol {
    /// Creates the symbol of a message that is sent at `now`.
    pub fn of_message(
        arena: &mut Arena,
        now: Time,
        deadline: Option<Duration>,
        payload: &[u8],
    ) -> Self {
        Self::seal(arena, now, deadline, 0, [&[], payload])
    }

    /// Creates the symbol of one fragment of `message`, which was sent at `now`.
    ///
    /// # Panics
    /// Panics if the message has no such fragment.
    pub fn of_fragment(
        arena: &mut Arena,
        now: Time,
        deadline: Option<Duration>,
        fragment: Fragment,
        message: &[u8],
    ) -> Self {
        let (index, message_bytes) = (U32::new(fragment.index), U32::new(fragment.message_bytes));
        let raw = RawFragment { index, message_bytes };
        let part = &message[fragment.offset()..fragment.offset() + fragment.bytes()];
        Self::seal(arena, now, deadline, fragment.fragment_bytes, [raw.as_bytes(), part])
    }

    fn seal(
        arena: &mut Arena,
        now: Time,
        deadline: Option<Duration>,
        fragment_bytes: u16,
        payload: [&[u8]; 2],
    ) -> Self {
        let payload_bytes = payload[0].len() + payload[1].len();
        let raw = RawSymbol {
            sent_at: U64::new(now.0),
            deadline_us: U32::new(deadline.map_or(0, deadline_us)),
            payload_bytes: U16::new(payload_bytes as u16),
            fragment_bytes: U16::new(fragment_bytes),
            checksum: U32::ZERO,
        };
        let mut symbol = arena.room(SYMBOL_HEADER_BYTES + payload_bytes);
        symbol.extend_from_slice(raw.as_bytes());
        payload.into_iter().for_each(|part| symbol.extend_from_slice(part));
        let sum = checksum(&symbol);
        symbol[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
        Self(symbol.freeze())
    }

    /// Copies a symbol from a datagram whose checksum was verified.
    ///
    /// # Errors
    /// Returns an error if the length does not match the header, or if no message can have such a
    /// fragment.
    #[inline]
    pub fn from_datagram(arena: &mut Arena, bytes: &[u8]) -> Result<Self, DecodeError> {
        if length(bytes)? != bytes.len() {
            return Err(DecodeError::Length);
        }
        Ok(arena.copy(bytes))
    }

    /// Copies a symbol that was solved from repairs. Trailing zeros are allowed.
    ///
    /// # Errors
    /// Returns an error if the length, the padding or the checksum shows that no sender sent this
    /// symbol.
    pub fn from_repair(arena: &mut Arena, bytes: &[u8]) -> Result<Self, DecodeError> {
        let length = length(bytes)?;
        let (symbol, padding) = bytes.split_at_checked(length).ok_or(DecodeError::Length)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Value);
        }
        let raw = RawSymbol::ref_from_prefix(symbol).map_err(|_| DecodeError::Length)?.0;
        if raw.checksum.get() != checksum(symbol) {
            return Err(DecodeError::Checksum);
        }
        Ok(arena.copy(symbol))
    }

    /// Returns the bytes of the whole symbol.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the message, or the fragment and the two numbers before it.
    #[inline]
    pub fn payload(&self) -> Bytes {
        self.0.slice(SYMBOL_HEADER_BYTES..)
    }

    /// Returns the fragment and its bytes, or `None` if the symbol contains a whole message.
    #[inline]
    pub fn fragment(&self) -> Option<(Fragment, &[u8])> {
        let fragment_bytes = self.raw().fragment_bytes.get();
        (fragment_bytes != 0).then(|| {
            let read = Fragment::read(fragment_bytes, &self.0[SYMBOL_HEADER_BYTES..]);
            read.expect("the fragment was checked when the symbol was created")
        })
    }

    /// Returns the time at which the message was sent, by the sender's clock.
    #[inline]
    pub fn sent_at(&self) -> Time {
        Time(self.raw().sent_at.get())
    }

    /// Returns the time for which the message is useful, or `None` if it has no deadline.
    #[inline]
    pub fn deadline(&self) -> Option<Duration> {
        match self.raw().deadline_us.get() {
            0 => None,
            us => Some(Duration::from_micros(u64::from(us))),
        }
    }

    fn raw(&self) -> &RawSymbol {
        let (raw, _) =
            RawSymbol::ref_from_prefix(&self.0).expect("a symbol begins with its header");
        raw
    }
}

impl Fragment {
    /// Returns the number of fragments of the message.
    pub fn count(&self) -> u32 {
        self.message_bytes.div_ceil(u32::from(self.fragment_bytes))
    }

    /// Returns the offset of the fragment in the message.
    pub fn offset(&self) -> usize {
        self.index as usize * usize::from(self.fragment_bytes)
    }

    /// Returns the size, in bytes, of the fragment.
    pub fn bytes(&self) -> usize {
        usize::from(self.fragment_bytes).min(self.message_bytes as usize - self.offset())
    }

    fn read(fragment_bytes: u16, payload: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, bytes) = RawFragment::ref_from_prefix(payload).ok()?;
        let (index, message_bytes) = (raw.index.get(), raw.message_bytes.get());
        let fragment = Self { index, fragment_bytes, message_bytes };
        let is_possible = message_bytes as usize <= MAX_MESSAGE_BYTES
            && message_bytes > u32::from(fragment_bytes)
            && index < fragment.count()
            && bytes.len() == fragment.bytes();
        is_possible.then_some((fragment, bytes))
    }
}

impl Arena {
    /// Creates an arena for symbols of `bytes` in total. It keeps a quarter more chunks than the
    /// symbols fill, because some chunks are only partly in use.
    pub fn for_bytes(bytes: usize) -> Self {
        Self { max_retired: bytes / CHUNK_BYTES * 5 / 4 + 16, ..Self::default() }
    }

    /// Drops all chunks that are kept for reuse.
    pub fn release(&mut self) {
        self.retired.clear();
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) -> Symbol {
        let mut room = self.room(bytes.len());
        room.extend_from_slice(bytes);
        Symbol(room.freeze())
    }

    #[inline]
    fn room(&mut self, bytes: usize) -> BytesMut {
        if self.chunk.capacity() < bytes {
            let full = core::mem::take(&mut self.chunk);
            self.retire(full);
            self.chunk = self.free_chunk(bytes.max(CHUNK_BYTES));
        }
        let rest = self.chunk.split_off(bytes);
        core::mem::replace(&mut self.chunk, rest)
    }

    fn retire(&mut self, chunk: BytesMut) {
        self.retired.push_back(chunk);
        if self.retired.len() > self.max_retired {
            self.retired.pop_front();
        }
    }

    /// Returns a retired chunk that is not in use, or a new one. Only the oldest few chunks are
    /// checked. A chunk that is still in use, because a message is kept for long, moves to the end.
    fn free_chunk(&mut self, bytes: usize) -> BytesMut {
        for _ in 0..RETIRED_LOOKED_AT.min(self.retired.len()) {
            let Some(mut chunk) = self.retired.pop_front() else { break };
            if chunk.try_reclaim(bytes) {
                return chunk;
            }
            self.retired.push_back(chunk);
        }
        BytesMut::with_capacity(bytes)
    }
}

/// XORs `symbol` into `sum`.
///
/// # Panics
/// Panics if `sum` is shorter than `symbol`.
pub fn xor_into(sum: &mut [u8], symbol: &[u8]) {
    assert!(symbol.len() <= sum.len(), "a symbol was XORed into a shorter sum");
    for (byte, other) in sum.iter_mut().zip(symbol) {
        *byte ^= other;
    }
}

/// XORs `symbol` into `sum`. Extends `sum` if it is shorter.
pub fn xor_growing(sum: &mut Vec<u8>, symbol: &[u8]) {
    let (shared, rest) = symbol.split_at(symbol.len().min(sum.len()));
    xor_into(sum, shared);
    sum.extend_from_slice(rest);
}

fn deadline_us(deadline: Duration) -> u32 {
    u32::try_from(deadline.as_micros()).unwrap_or(u32::MAX).max(1)
}

fn length(bytes: &[u8]) -> Result<usize, DecodeError> {
    let (raw, _) = RawSymbol::ref_from_prefix(bytes).map_err(|_| DecodeError::Length)?;
    let length = SYMBOL_HEADER_BYTES + usize::from(raw.payload_bytes.get());
    let fragment_bytes = raw.fragment_bytes.get();
    if fragment_bytes != 0 {
        let payload = bytes.get(SYMBOL_HEADER_BYTES..length).ok_or(DecodeError::Length)?;
        Fragment::read(fragment_bytes, payload).ok_or(DecodeError::Value)?;
    }
    Ok(length)
}

fn checksum(symbol: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&symbol[..CHECKSUM_OFFSET]);
    hasher.update(&symbol[CHECKSUM_OFFSET + 4..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_symbol() {
        let deadline = Some(Duration::from_millis(5));
        let symbol = Symbol::of_message(&mut Arena::default(), Time(1), deadline, b"hi");
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 1, // sent at
            0, 0, 0x13, 0x88, // deadline
            0, 2, 0, 0, // payload bytes, zero
            0x0C, 0xD2, 0xE9, 0xE3, // checksum
            b'h', b'i', // payload
        ];
        assert_eq!(symbol.bytes(), golden);
        assert_eq!(symbol.deadline(), deadline);
        assert_eq!(symbol.sent_at(), Time(1));
    }

    #[test]
    fn golden_symbol_of_the_last_fragment() {
        let fragment = Fragment { index: 2, fragment_bytes: 4, message_bytes: 9 };
        assert_eq!((fragment.count(), fragment.offset(), fragment.bytes()), (3, 8, 1));
        let mut arena = Arena::default();
        let symbol = Symbol::of_fragment(&mut arena, Time(1), None, fragment, b"123456789");
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 1, // sent at
            0, 0, 0, 0, // deadline
            0, 9, // payload bytes
            0, 4, // fragment bytes
            0x51, 0xD0, 0xB0, 0xCF, // checksum
            0, 0, 0, 2, // index
            0, 0, 0, 9,    // message bytes
            b'9', // fragment
        ];
        assert_eq!(symbol.bytes(), golden);
        assert_eq!(symbol.fragment(), Some((fragment, &b"9"[..])));
        assert_eq!(Symbol::from_datagram(&mut arena, &golden), Ok(symbol));
    }

    #[test]
    fn impossible_fragments_are_rejected() {
        let symbol = |fragment_bytes: u16, index: u32, message_bytes: u32, bytes: usize| {
            let mut payload = [index.to_be_bytes(), message_bytes.to_be_bytes()].concat();
            payload.resize(payload.len() + bytes, 7);
            let mut arena = Arena::default();
            let sealed = Symbol::seal(&mut arena, Time(1), None, fragment_bytes, [&[], &payload]);
            Symbol::from_datagram(&mut arena, sealed.bytes())
        };
        assert!(symbol(100, 1, 101, 1).is_ok());
        let largest = MAX_MESSAGE_BYTES as u32;
        assert!(symbol(100, 1, largest, 100).is_ok());
        let impossible = [
            (100, 2, 101, 1),
            (100, 1, 101, 2),
            (100, 0, 101, 1),
            (100, 0, 100, 100),
            (100, 1, largest + 1, 100),
            (100, u32::MAX, u32::MAX, 100),
        ];
        for (fragment_bytes, index, message_bytes, bytes) in impossible {
            let refused = symbol(fragment_bytes, index, message_bytes, bytes);
            assert_eq!(refused, Err(DecodeError::Value), "{index} of {message_bytes}");
        }
        let headless = Symbol::seal(&mut Arena::default(), Time(1), None, 9, [&[], b"1234567"]);
        let refused = Symbol::from_datagram(&mut Arena::default(), headless.bytes());
        assert_eq!(refused, Err(DecodeError::Value));
    }

    #[test]
    fn deadlines_outside_of_the_field_are_clipped() {
        let mut arena = Arena::default();
        let mut round = |span| Symbol::of_message(&mut arena, Time(0), Some(span), b"").deadline();
        assert_eq!(round(Duration::from_nanos(1)), Some(Duration::from_micros(1)));
        assert_eq!(round(Duration::MAX), Some(Duration::from_micros(u64::from(u32::MAX))));
    }

    #[test]
    fn chunk_is_reused_once_its_symbols_are_dropped() {
        let mut arena = Arena::for_bytes(1 << 20);
        let mut kept = VecDeque::new();
        for _ in 0..10_000 {
            let symbol = Symbol::of_message(&mut arena, Time(0), None, &[1; 1000]);
            kept.push_back(symbol);
            if kept.len() > 100 {
                kept.pop_front();
            }
        }
        assert!(arena.retired.len() < 8, "{} chunks for 100 KB", arena.retired.len());
        assert!(kept.iter().all(|symbol| symbol.payload()[..] == [1; 1000]));
    }

    proptest! {
        #[test]
        fn symbol_survives_the_xor_with_others(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..9),
        ) {
            let mut arena = Arena::default();
            let symbols: Vec<Symbol> = payloads
                .iter()
                .map(|payload| Symbol::of_message(&mut arena, Time(7), None, payload))
                .collect();
            let longest = symbols.iter().map(|symbol| symbol.bytes().len()).max().unwrap_or(0);
            let mut sum = Vec::new();
            symbols.iter().for_each(|symbol| xor_growing(&mut sum, symbol.bytes()));
            prop_assert_eq!(sum.len(), longest);
            symbols[1..].iter().for_each(|symbol| xor_into(&mut sum, symbol.bytes()));
            let solved = Symbol::from_repair(&mut arena, &sum).expect("one symbol is left");
            prop_assert_eq!(&solved, &symbols[0]);
            prop_assert_eq!(&solved.payload()[..], &payloads[0][..]);
        }

        #[test]
        fn other_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut arena = Arena::default();
            prop_assert!(Symbol::from_repair(&mut arena, &bytes).is_err());
            if let Ok(symbol) = Symbol::from_datagram(&mut arena, &bytes) {
                prop_assert_eq!(symbol.bytes(), &bytes[..]);
            }
        }
    }
}
