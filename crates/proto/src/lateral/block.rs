//! What repairs protect: a message together with what is needed to deliver it.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | sent at | the sender's [`Time`] when it multicast the message |
//! | 8 | 4 | deadline | microseconds after that for which it is of use; 0 = no deadline |
//! | 12 | 2 | payload bytes | length of the payload |
//! | 14 | 2 | piece bytes | 0 = the payload is a message; else it is a piece of one |
//! | 16 | 4 | checksum | CRC-32 of the block without this field |
//! | 20 | n | payload | the message |
//!
//! A message that does not fit a packet is cut into [pieces](Piece) of the same length; the last
//! may be shorter. The payload of such a block begins with two numbers more, and the payload bytes
//! count them:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 20 | 4 | index | which piece of the message, from 0 |
//! | 24 | 4 | message bytes | length of the whole message, at most [`MAX_MESSAGE_BYTES`] |
//! | 28 | n | piece | the bytes of the message from index * piece bytes on |
//!
//! That stands in the block and not in the packet around it, so that a repair restores it as well.
//!
//! Blocks of different lengths are XORed as if zeros followed the shorter ones. A block that comes
//! out of a repair proves itself by its checksum, so that a wrong repair can never be delivered.

use alloc::collections::VecDeque;
use core::time::Duration;

use bytes::{Bytes, BytesMut};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Time;
use crate::wire::DecodeError;

/// Bytes of a block before the payload.
pub const BLOCK_HEADER_BYTES: usize = size_of::<RawBlock>();

/// Bytes of a piece's block between the block's header and the piece.
pub const PIECE_HEADER_BYTES: usize = size_of::<RawPiece>();

/// Bytes of the largest message that there can be: 16 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A block, held by reference count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(Bytes);

/// Which part of a message a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place among the message's pieces, from 0: the packet with the first piece has a sequence
    /// number so many places back.
    pub index: u32,
    /// Bytes of every piece of the message but the last.
    pub piece_bytes: u16,
    /// Bytes of the whole message, more than those of one piece.
    pub message_bytes: u32,
}

/// Where blocks live: chunks that many blocks share. A chunk is used again when the last of its
/// blocks is gone, so that a warm arena does not allocate.
#[derive(Debug, Default)]
pub struct Arena {
    chunk: BytesMut,
    /// What is left of chunks that are full, the oldest first.
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
    /// The block of a message that is sent at `now`.
    pub fn of_message(
        arena: &mut Arena,
        now: Time,
        deadline: Option<Duration>,
        payload: &[u8],
    ) -> Self {
        Self::seal(arena, now, deadline, 0, [&[], payload])
    }

    /// The block of one piece of `message`, which was sent at `now`.
    ///
    /// # Panics
    /// If the message has no such piece.
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

    /// Copies a block whose bytes arrived in a datagram.
    ///
    /// # Errors
    /// If its length is not what it says, or it is a piece that no message has. (The datagram's own
    /// checksum was right.)
    pub fn from_datagram(arena: &mut Arena, bytes: &[u8]) -> Result<Self, DecodeError> {
        if length(bytes)? != bytes.len() {
            return Err(DecodeError::Length);
        }
        Ok(arena.copy(bytes))
    }

    /// Copies a block that was solved out of repairs, where zeros may follow it.
    ///
    /// # Errors
    /// If it does not prove to be what its sender sent.
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

    /// The whole block.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The message, or the piece of one with what stands before it.
    pub fn payload(&self) -> Bytes {
        self.0.slice(BLOCK_HEADER_BYTES..)
    }

    /// Which piece it holds, and its bytes; `None` if it holds a whole message.
    pub fn piece(&self) -> Option<(Piece, &[u8])> {
        let piece_bytes = self.raw().piece_bytes.get();
        (piece_bytes != 0).then(|| {
            let read = Piece::read(piece_bytes, &self.0[BLOCK_HEADER_BYTES..]);
            read.expect("a piece was found right when the block was made")
        })
    }

    /// When its sender multicast it, by the sender's clock.
    pub fn sent_at(&self) -> Time {
        Time(self.raw().sent_at.get())
    }

    /// For how long after its multicast it is of use.
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
    /// How many pieces the message has.
    pub fn count(&self) -> u32 {
        self.message_bytes.div_ceil(u32::from(self.piece_bytes))
    }

    /// Where in the message it begins.
    pub fn offset(&self) -> usize {
        self.index as usize * usize::from(self.piece_bytes)
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        usize::from(self.piece_bytes).min(self.message_bytes as usize - self.offset())
    }

    /// The piece that a payload holds, and its bytes; `None` if no message has such a piece.
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
    /// An arena that remembers as many chunks as blocks of `bytes` in all can take up, and a
    /// quarter more for those of which only a part is still in use.
    pub fn for_bytes(bytes: usize) -> Self {
        Self { max_retired: bytes / CHUNK_BYTES * 5 / 4 + 16, ..Self::default() }
    }

    /// Forgets all chunks that wait to be used again: nothing of what was received is kept.
    pub fn release(&mut self) {
        self.retired.clear();
    }

    fn copy(&mut self, bytes: &[u8]) -> Block {
        let mut room = self.room(bytes.len());
        room.extend_from_slice(bytes);
        Block(room.freeze())
    }

    /// An empty buffer with room for exactly `bytes`, cut off the current chunk.
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

    /// A retired chunk that nobody uses any more, or a new one. Only the oldest few are looked at;
    /// one that is still in use, because a message was kept for long, goes to the end.
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

/// XORs `block` into `sum`, which must not be shorter.
pub fn xor_into(sum: &mut [u8], block: &[u8]) {
    assert!(block.len() <= sum.len(), "a block was XORed into a shorter sum");
    for (byte, other) in sum.iter_mut().zip(block) {
        *byte ^= other;
    }
}

/// XORs `block` into `sum`, which grows to its length.
pub fn xor_growing(sum: &mut Vec<u8>, block: &[u8]) {
    let (shared, rest) = block.split_at(block.len().min(sum.len()));
    xor_into(sum, shared);
    sum.extend_from_slice(rest);
}

fn deadline_us(deadline: Duration) -> u32 {
    u32::try_from(deadline.as_micros()).unwrap_or(u32::MAX).max(1)
}

/// The length that the block says it has; it is checked to be possible.
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
    fn deadlines_too_short_or_too_long_for_the_field_are_clipped_not_dropped() {
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
        fn what_is_not_a_block_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut arena = Arena::default();
            prop_assert!(Block::from_repair(&mut arena, &bytes).is_err());
            if let Ok(block) = Block::from_datagram(&mut arena, &bytes) {
                prop_assert_eq!(block.bytes(), &bytes[..]);
            }
        }
    }
}
