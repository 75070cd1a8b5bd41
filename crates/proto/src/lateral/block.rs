//! Symbols: the units that repairs are XORs of. A symbol is a message or a fragment of one, with
//! the fields needed to deliver it.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | sent at | the sender's [`Time`] when the message was sent |
//! | 8 | 4 | deadline | microseconds for which the message is useful; 0: no deadline |
//! | 12 | 2 | payload bytes | length of the payload |
//! | 14 | 2 | piece bytes | 0: the payload is a whole message; else the length of a fragment |
//! | 16 | 4 | checksum | CRC-32 of the symbol without this field |
//! | 20 | n | payload | the message |
//!
//! A message that does not fit one packet is split into [fragments](Piece) of equal length; the
//! last may be shorter. The payload of such a symbol begins with two more numbers, which count as
//! payload bytes:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 20 | 4 | index | index of the fragment in the message, from 0 |
//! | 24 | 4 | message bytes | length of the whole message, at most [`MAX_MESSAGE_BYTES`] |
//! | 28 | n | fragment | the bytes of the message from index * piece bytes on |
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

/// Size of a symbol before its payload, in bytes.
pub const BLOCK_HEADER_BYTES: usize = size_of::<RawBlock>();

/// Size of the numbers before a fragment in its symbol's payload, in bytes.
pub const PIECE_HEADER_BYTES: usize = size_of::<RawPiece>();

/// Size of the largest possible message, in bytes: 16 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A symbol, held by reference count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(Bytes);

/// Position of a fragment in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index among the message's fragments, from 0. The first fragment has a sequence number lower
    /// by this.
    pub index: u32,
    /// Size of every fragment of the message but the last, in bytes.
    pub piece_bytes: u16,
    /// Size of the whole message in bytes, more than `piece_bytes`.
    pub message_bytes: u32,
}

/// Memory of symbols, in chunks that many symbols share. A chunk is reused when the last of its
/// symbols has been dropped, so that a warm arena does not allocate.
#[derive(Debug, Default)]
pub struct Arena {
    chunk: BytesMut,
    /// Remainders of full chunks, oldest first.
    retired: VecDeque<BytesMut>,
    max_retired: usize,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    sent_at: U64,
    deadline_us: U32,
    payload_bytes: U16,
    piece_bytes: U16,
    checksum: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPiece {
    index: U32,
    message_bytes: U32,
}

const CHUNK_BYTES: usize = 64 * 1024;
const RETIRED_LOOKED_AT: usize = 4;
const CHECKSUM_OFFSET: usize = 16;

impl Block {
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
    /// If the message has no such fragment.
    pub fn of_piece(
        arena: &mut Arena,
        now: Time,
        deadline: Option<Duration>,
        piece: Piece,
        message: &[u8],
    ) -> Self {
        let (index, message_bytes) = (U32::new(piece.index), U32::new(piece.message_bytes));
        let raw = RawPiece { index, message_bytes };
        let part = &message[piece.offset()..piece.offset() + piece.bytes()];
        Self::seal(arena, now, deadline, piece.piece_bytes, [raw.as_bytes(), part])
    }

    fn seal(
        arena: &mut Arena,
        now: Time,
        deadline: Option<Duration>,
        piece_bytes: u16,
        payload: [&[u8]; 2],
    ) -> Self {
        let payload_bytes = payload[0].len() + payload[1].len();
        let raw = RawBlock {
            sent_at: U64::new(now.0),
            deadline_us: U32::new(deadline.map_or(0, deadline_us)),
            payload_bytes: U16::new(payload_bytes as u16),
            piece_bytes: U16::new(piece_bytes),
            checksum: U32::ZERO,
        };
        let mut block = arena.room(BLOCK_HEADER_BYTES + payload_bytes);
        block.extend_from_slice(raw.as_bytes());
        payload.into_iter().for_each(|part| block.extend_from_slice(part));
        let sum = checksum(&block);
        block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
        Self(block.freeze())
    }

    /// Copies a symbol from a datagram, whose own checksum was verified.
    ///
    /// # Errors
    /// If its length does not match the header, or it is a fragment that no message can have.
    pub fn from_datagram(arena: &mut Arena, bytes: &[u8]) -> Result<Self, DecodeError> {
        if length(bytes)? != bytes.len() {
            return Err(DecodeError::Length);
        }
        Ok(arena.copy(bytes))
    }

    /// Copies a symbol that was solved from repairs. It may be followed by zeros.
    ///
    /// # Errors
    /// If its length, padding or checksum shows that no sender sent it.
    pub fn from_repair(arena: &mut Arena, bytes: &[u8]) -> Result<Self, DecodeError> {
        let length = length(bytes)?;
        let (block, padding) = bytes.split_at_checked(length).ok_or(DecodeError::Length)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Value);
        }
        let raw = RawBlock::ref_from_prefix(block).map_err(|_| DecodeError::Length)?.0;
        if raw.checksum.get() != checksum(block) {
            return Err(DecodeError::Checksum);
        }
        Ok(arena.copy(block))
    }

    /// Returns the whole symbol.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the message, or the fragment with its two numbers.
    pub fn payload(&self) -> Bytes {
        self.0.slice(BLOCK_HEADER_BYTES..)
    }

    /// Returns the fragment and its bytes; `None` if the symbol holds a whole message.
    pub fn piece(&self) -> Option<(Piece, &[u8])> {
        let piece_bytes = self.raw().piece_bytes.get();
        (piece_bytes != 0).then(|| {
            let read = Piece::read(piece_bytes, &self.0[BLOCK_HEADER_BYTES..]);
            read.expect("a piece was found right when the block was made")
        })
    }

    /// Returns the time at which the message was sent, by the sender's clock.
    pub fn sent_at(&self) -> Time {
        Time(self.raw().sent_at.get())
    }

    /// Returns the time for which the message is useful; `None` if it has no deadline.
    pub fn deadline(&self) -> Option<Duration> {
        match self.raw().deadline_us.get() {
            0 => None,
            us => Some(Duration::from_micros(u64::from(us))),
        }
    }

    fn raw(&self) -> &RawBlock {
        let (raw, _) = RawBlock::ref_from_prefix(&self.0).expect("a block begins with its header");
        raw
    }
}

impl Piece {
    /// Returns the number of fragments of the message.
    pub fn count(&self) -> u32 {
        self.message_bytes.div_ceil(u32::from(self.piece_bytes))
    }

    /// Returns the offset of the fragment in the message.
    pub fn offset(&self) -> usize {
        self.index as usize * usize::from(self.piece_bytes)
    }

    /// Returns the length of the fragment, in bytes.
    pub fn bytes(&self) -> usize {
        usize::from(self.piece_bytes).min(self.message_bytes as usize - self.offset())
    }

    /// Returns the fragment that a payload holds, and its bytes; `None` if no message has such a
    /// fragment.
    fn read(piece_bytes: u16, payload: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, bytes) = RawPiece::ref_from_prefix(payload).ok()?;
        let (index, message_bytes) = (raw.index.get(), raw.message_bytes.get());
        let piece = Self { index, piece_bytes, message_bytes };
        let is_possible = message_bytes as usize <= MAX_MESSAGE_BYTES
            && message_bytes > u32::from(piece_bytes)
            && index < piece.count()
            && bytes.len() == piece.bytes();
        is_possible.then_some((piece, bytes))
    }
}

impl Arena {
    /// Creates an arena for symbols of `bytes` in all. It keeps a quarter more chunks than they
    /// fill, for those that are only partly in use.
    pub fn for_bytes(bytes: usize) -> Self {
        Self { max_retired: bytes / CHUNK_BYTES * 5 / 4 + 16, ..Self::default() }
    }

    /// Drops all chunks that wait for reuse.
    pub fn release(&mut self) {
        self.retired.clear();
    }

    fn copy(&mut self, bytes: &[u8]) -> Block {
        let mut room = self.room(bytes.len());
        room.extend_from_slice(bytes);
        Block(room.freeze())
    }

    /// Returns an empty buffer with room for exactly `bytes`, split off the current chunk.
    fn room(&mut self, bytes: usize) -> BytesMut {
        if self.chunk.capacity() < bytes {
            let full = core::mem::replace(&mut self.chunk, BytesMut::new());
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

    /// Returns a retired chunk that is not in use, or a new one. Only the oldest few are tried. One
    /// that is still in use, because a message was kept for long, moves to the end.
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

/// XORs `block` into `sum`.
///
/// # Panics
/// If `sum` is shorter than `block`.
pub fn xor_into(sum: &mut [u8], block: &[u8]) {
    assert!(block.len() <= sum.len(), "a block was XORed into a shorter sum");
    for (byte, other) in sum.iter_mut().zip(block) {
        *byte ^= other;
    }
}

/// XORs `block` into `sum`, extending `sum` if it is shorter.
pub fn xor_growing(sum: &mut Vec<u8>, block: &[u8]) {
    let (shared, rest) = block.split_at(block.len().min(sum.len()));
    xor_into(sum, shared);
    sum.extend_from_slice(rest);
}

fn deadline_us(deadline: Duration) -> u32 {
    u32::try_from(deadline.as_micros()).unwrap_or(u32::MAX).max(1)
}

/// Returns the length of a symbol according to its header, and checks the fields of a fragment.
fn length(bytes: &[u8]) -> Result<usize, DecodeError> {
    let (raw, _) = RawBlock::ref_from_prefix(bytes).map_err(|_| DecodeError::Length)?;
    let length = BLOCK_HEADER_BYTES + usize::from(raw.payload_bytes.get());
    let piece_bytes = raw.piece_bytes.get();
    if piece_bytes != 0 {
        let payload = bytes.get(BLOCK_HEADER_BYTES..length).ok_or(DecodeError::Length)?;
        Piece::read(piece_bytes, payload).ok_or(DecodeError::Value)?;
    }
    Ok(length)
}

fn checksum(block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..CHECKSUM_OFFSET]);
    hasher.update(&block[CHECKSUM_OFFSET + 4..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_on_the_wire_is_this() {
        let deadline = Some(Duration::from_millis(5));
        let block = Block::of_message(&mut Arena::default(), Time(1), deadline, b"hi");
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 1, // sent at
            0, 0, 0x13, 0x88, // deadline
            0, 2, 0, 0, // payload bytes, zero
            0x0C, 0xD2, 0xE9, 0xE3, // checksum
            b'h', b'i', // payload
        ];
        assert_eq!(block.bytes(), golden);
        assert_eq!(block.deadline(), deadline);
        assert_eq!(block.sent_at(), Time(1));
    }

    #[test]
    fn the_last_piece_of_a_message_on_the_wire_is_this() {
        let piece = Piece { index: 2, piece_bytes: 4, message_bytes: 9 };
        assert_eq!((piece.count(), piece.offset(), piece.bytes()), (3, 8, 1));
        let mut arena = Arena::default();
        let block = Block::of_piece(&mut arena, Time(1), None, piece, b"123456789");
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 1, // sent at
            0, 0, 0, 0, // deadline
            0, 9, // payload bytes
            0, 4, // piece bytes
            0x51, 0xD0, 0xB0, 0xCF, // checksum
            0, 0, 0, 2, // index
            0, 0, 0, 9,    // message bytes
            b'9', // piece
        ];
        assert_eq!(block.bytes(), golden);
        assert_eq!(block.piece(), Some((piece, &b"9"[..])));
        assert_eq!(Block::from_datagram(&mut arena, &golden), Ok(block));
    }

    #[test]
    fn pieces_that_no_message_has_are_refused() {
        let block = |piece_bytes: u16, index: u32, message_bytes: u32, bytes: usize| {
            let mut payload = [index.to_be_bytes(), message_bytes.to_be_bytes()].concat();
            payload.resize(payload.len() + bytes, 7);
            let mut arena = Arena::default();
            let sealed = Block::seal(&mut arena, Time(1), None, piece_bytes, [&[], &payload]);
            Block::from_datagram(&mut arena, sealed.bytes())
        };
        assert!(block(100, 1, 101, 1).is_ok());
        let largest = MAX_MESSAGE_BYTES as u32;
        assert!(block(100, 1, largest, 100).is_ok());
        let impossible = [
            (100, 2, 101, 1),
            (100, 1, 101, 2),
            (100, 0, 101, 1),
            (100, 0, 100, 100),
            (100, 1, largest + 1, 100),
            (100, u32::MAX, u32::MAX, 100),
        ];
        for (piece_bytes, index, message_bytes, bytes) in impossible {
            let refused = block(piece_bytes, index, message_bytes, bytes);
            assert_eq!(refused, Err(DecodeError::Value), "{index} of {message_bytes}");
        }
        let headless = Block::seal(&mut Arena::default(), Time(1), None, 9, [&[], b"1234567"]);
        let refused = Block::from_datagram(&mut Arena::default(), headless.bytes());
        assert_eq!(refused, Err(DecodeError::Value));
    }

    #[test]
    fn deadlines_outside_of_the_field_are_clipped() {
        let mut arena = Arena::default();
        let mut round = |span| Block::of_message(&mut arena, Time(0), Some(span), b"").deadline();
        assert_eq!(round(Duration::from_nanos(1)), Some(Duration::from_micros(1)));
        assert_eq!(round(Duration::MAX), Some(Duration::from_micros(u64::from(u32::MAX))));
    }

    #[test]
    fn a_chunk_is_used_again_once_its_blocks_are_gone() {
        let mut arena = Arena::for_bytes(1 << 20);
        let mut kept = VecDeque::new();
        for _ in 0..10_000 {
            let block = Block::of_message(&mut arena, Time(0), None, &[1; 1000]);
            kept.push_back(block);
            if kept.len() > 100 {
                kept.pop_front();
            }
        }
        assert!(arena.retired.len() < 8, "{} chunks for 100 KB", arena.retired.len());
        assert!(kept.iter().all(|block| block.payload()[..] == [1; 1000]));
    }

    proptest! {
        #[test]
        fn a_block_survives_the_sum_with_others(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..9),
        ) {
            let mut arena = Arena::default();
            let blocks: Vec<Block> = payloads
                .iter()
                .map(|payload| Block::of_message(&mut arena, Time(7), None, payload))
                .collect();
            let longest = blocks.iter().map(|block| block.bytes().len()).max().unwrap_or(0);
            let mut sum = Vec::new();
            blocks.iter().for_each(|block| xor_growing(&mut sum, block.bytes()));
            prop_assert_eq!(sum.len(), longest);
            blocks[1..].iter().for_each(|block| xor_into(&mut sum, block.bytes()));
            let solved = Block::from_repair(&mut arena, &sum).expect("one block is left");
            prop_assert_eq!(&solved, &blocks[0]);
            prop_assert_eq!(&solved.payload()[..], &payloads[0][..]);
        }

        #[test]
        fn invalid_blocks_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut arena = Arena::default();
            prop_assert!(Block::from_repair(&mut arena, &bytes).is_err());
            if let Ok(block) = Block::from_datagram(&mut arena, &bytes) {
                prop_assert_eq!(block.bytes(), &bytes[..]);
            }
        }
    }
}
