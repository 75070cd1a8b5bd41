//! Encoding of blocks: messages of the multicast stream that each carry a part of a piece.
//!
//! All numbers are big-endian.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 2 | `CB` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | zero |
//! | 4 | 16 | first half of the transfer id |
//! | 20 | 4 | piece number |
//! | 24 | 4 | offset of the data in the piece |
//! | 28 | | data, at least one byte |

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::id::TransferId;

/// Size of the header of a block, in bytes. The data follows it.
pub const BLOCK_HEADER_BYTES: usize = 28;

const MAGIC: [u8; 4] = [b'C', b'B', 1, 0];

/// A part of a piece, as carried by one message of the multicast stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First half of the transfer id.
    pub tag: [u8; 16],
    /// Piece number.
    pub piece: u32,
    /// Offset of the data in the piece, in bytes.
    pub offset: u32,
    /// Data of the block, not empty.
    pub data: Bytes,
}

impl Block {
    /// Encodes the message that carries `data` at `offset` of `piece`.
    pub fn encode(id: &TransferId, piece: u32, offset: u32, data: &[u8]) -> Bytes {
        let mut message = BytesMut::with_capacity(BLOCK_HEADER_BYTES + data.len());
        message.put_slice(&MAGIC);
        message.put_slice(&id.tag());
        message.put_u32(piece);
        message.put_u32(offset);
        message.put_slice(data);
        message.freeze()
    }

    /// Decodes a message without copying it. Returns `None` if it is not a block.
    pub fn decode(message: &Bytes) -> Option<Self> {
        if message.len() <= BLOCK_HEADER_BYTES || message[..4] != MAGIC {
            return None;
        }
        let number = |at: usize| {
            u32::from_be_bytes(message[at..at + 4].try_into().expect("the slice has four bytes"))
        };
        let tag = message[4..20].try_into().expect("the slice has sixteen bytes");
        let data = message.slice(BLOCK_HEADER_BYTES..);
        Some(Self { tag, piece: number(20), offset: number(24), data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_is_written_as_the_table_says() {
        let id = TransferId(std::array::from_fn(|at| at as u8));
        let message = Block::encode(&id, 0x0102_0304, 0x0506_0708, b"xy");
        let mut golden = b"CB\x01\x00".to_vec();
        golden.extend(0..16);
        golden.extend([1, 2, 3, 4, 5, 6, 7, 8, b'x', b'y']);
        assert_eq!(message, golden);
    }

    proptest! {
        #[test]
        fn a_block_is_read_as_it_was_written(
            id: [u8; 32], piece: u32, offset: u32,
            data in prop::collection::vec(any::<u8>(), 1..100),
        ) {
            let id = TransferId(id);
            let block = Block::decode(&Block::encode(&id, piece, offset, &data));
            let data = Bytes::from(data);
            prop_assert_eq!(block, Some(Block { tag: id.tag(), piece, offset, data }));
        }

        #[test]
        fn bytes_that_are_no_block_are_refused(bytes: Vec<u8>) {
            let block = Block::decode(&Bytes::from(bytes.clone()));
            prop_assert_eq!(block.is_some(), bytes.len() > 28 && bytes[..4] == MAGIC);
        }
    }
}
