//! Symbols: messages with the fields needed to deliver them.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | sent at | the sender's [`Time`] when the message was sent |
//! | 8 | 4 | deadline | microseconds for which the message is useful; 0: no deadline |
//! | 12 | n | payload | the message |

use core::time::Duration;

use bytes::Bytes;
use carom_proto::Time;
use carom_proto::wire::DecodeError;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size, in bytes, of a symbol before its payload.
pub const BLOCK_HEADER_BYTES: usize = size_of::<RawBlock>();

/// A reference-counted symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(Bytes);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    sent_at: U64,
    deadline_us: U32,
}

impl Block {
    /// Creates the symbol of a message that is sent at `now`.
    pub fn of_message(now: Time, deadline: Option<Duration>, payload: &[u8]) -> Self {
        let deadline_us = U32::new(deadline.map_or(0, deadline_us));
        let raw = RawBlock { sent_at: U64::new(now.0), deadline_us };
        let mut block = Vec::with_capacity(BLOCK_HEADER_BYTES + payload.len());
        block.extend_from_slice(raw.as_bytes());
        block.extend_from_slice(payload);
        Self(block.into())
    }

    /// Copies a symbol from a datagram or from a decoded parity shard.
    ///
    /// # Errors
    /// Returns an error if the bytes are shorter than a symbol's header.
    pub fn copy(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() < BLOCK_HEADER_BYTES {
            return Err(DecodeError::Length);
        }
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// Returns the whole symbol.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the payload of the message.
    pub fn payload(&self) -> Bytes {
        self.0.slice(BLOCK_HEADER_BYTES..)
    }

    /// Returns the time at which the message was sent, by the sender's clock.
    pub fn sent_at(&self) -> Time {
        Time(self.raw().sent_at.get())
    }

    /// Returns `true` if the deadline has passed. This needs synchronized clocks.
    pub fn is_expired(&self, now: Time) -> bool {
        let deadline_us = u64::from(self.raw().deadline_us.get());
        deadline_us > 0 && now > self.sent_at() + Duration::from_micros(deadline_us)
    }

    fn raw(&self) -> &RawBlock {
        RawBlock::ref_from_prefix(&self.0).expect("a block is never shorter than its header").0
    }
}

/// Returns the deadline in microseconds, rounded up and at least 1, because 0 means no deadline.
fn deadline_us(deadline: Duration) -> u32 {
    u32::try_from(deadline.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_in_bytes_is_this() {
        let block = Block::of_message(Time(7), Some(Duration::from_micros(5)), b"ab");
        assert_eq!(block.bytes(), [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5, b'a', b'b']);
        let again = Block::copy(block.bytes()).expect("a valid block");
        assert_eq!((again.sent_at(), &again.payload()[..]), (Time(7), &b"ab"[..]));
        assert_eq!(Block::copy(&[0; 11]), Err(DecodeError::Length));
    }

    #[test]
    fn a_block_expires_after_its_deadline_and_never_without_one() {
        let block = Block::of_message(Time(1000), Some(Duration::from_nanos(1)), b"");
        assert!(!block.is_expired(Time(2000)));
        assert!(block.is_expired(Time(2001)));
        assert!(!Block::of_message(Time(0), None, b"").is_expired(Time::MAX));
    }
}
