//! LBRM's packets. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::{DecodeError, HEADER_BYTES};
use carom_proto::{Class, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::guest::{
    GuestPacket, read_named, read_numbered, read_prefix, read_seqno, write_named, write_numbered,
};

/// An LBRM packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// First transmission of a message to the group. Kind 1.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    /// | 40 | n | [symbol](crate::block) |
    Data {
        /// Sequence number in the sender's stream.
        seqno: SeqNo,
        /// The symbol.
        block: &'a [u8],
    },
    /// NAK for packets of a source that the NAK's sender lacks. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 n | sequence numbers |
    Nack {
        /// Original sender of the packets.
        source: NodeId,
        /// Sequence numbers, big-endian.
        seqnos: &'a [U32],
    },
    /// Retransmission of a packet from a log. Kind 3.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 | sequence number |
    /// | 48 | n | [symbol](crate::block) |
    Repair {
        /// Original sender of the packet.
        source: NodeId,
        /// Sequence number in the source's stream.
        seqno: SeqNo,
        /// The symbol.
        block: &'a [u8],
    },
    /// Announcement of the end of the sender's stream. Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the sender's next message |
    Heartbeat {
        /// Sequence number of the sender's next message.
        next: SeqNo,
    },
}

/// Size of a NAK before its sequence numbers, in bytes.
pub const NACK_BYTES: usize = HEADER_BYTES + size_of::<U64>();
/// Size of a sequence number in a NAK, in bytes.
pub const NUMBER_BYTES: usize = size_of::<U32>();

const DATA: u8 = 1;
const NACK: u8 = 2;
const REPAIR: u8 = 3;
const HEARTBEAT: u8 = 4;

impl<'a> GuestPacket<'a> for Packet<'a> {
    fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Repair { .. } => Class::Retransmission,
            Self::Nack { .. } | Self::Heartbeat { .. } => Class::Control,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => DATA,
            Self::Nack { .. } => NACK,
            Self::Repair { .. } => REPAIR,
            Self::Heartbeat { .. } => HEARTBEAT,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            DATA => {
                let (seqno, block) = read_numbered(body)?;
                Self::Data { seqno, block }
            }
            NACK => {
                let (source, rest) = read_prefix::<U64>(body)?;
                let seqnos = <[U32]>::ref_from_bytes(rest).map_err(|_| DecodeError::Length)?;
                Self::Nack { source: NodeId(source.get()), seqnos }
            }
            REPAIR => {
                let (source, seqno, block) = read_named(body)?;
                Self::Repair { source, seqno, block }
            }
            HEARTBEAT => Self::Heartbeat { next: read_seqno(body)? },
            _ => return Err(DecodeError::Kind),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Data { seqno, block } => write_numbered(seqno, block, out),
            Self::Nack { source, seqnos } => {
                out.extend_from_slice(&source.0.to_be_bytes());
                out.extend_from_slice(seqnos.as_bytes());
            }
            Self::Repair { source, seqno, block } => write_named(source, seqno, block, out),
            Self::Heartbeat { next } => write_numbered(next, &[], out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;

    #[test]
    fn packets_on_the_wire_are_this() {
        let data = Packet::Data { seqno: SeqNo(7), block: &[0xEE, 0xFF] };
        assert_on_the_wire(data, &mut Vec::new(), 1, &[0, 0, 0, 7, 0xEE, 0xFF]);
        let (source, seqnos) = (NodeId(5), &[U32::new(2), U32::new(9)]);
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9];
        assert_on_the_wire(Packet::Nack { source, seqnos }, &mut Vec::new(), 2, &expected);
        let repair = Packet::Repair { source, seqno: SeqNo(6), block: &[1] };
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1];
        assert_on_the_wire(repair, &mut Vec::new(), 3, &expected);
        let heartbeat = Packet::Heartbeat { next: SeqNo(9) };
        assert_on_the_wire(heartbeat, &mut Vec::new(), 4, &[0, 0, 0, 9]);
    }
}
