//! TMTP's packets. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::{DecodeError, HEADER_BYTES};
use carom_proto::{Class, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::guest::{
    GuestPacket, read_named, read_numbered, read_prefix, write_named, write_numbered,
};

/// A TMTP packet, its variable parts still in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message on its way to the group. Kind 1.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    /// | 40 | n | [block](crate::block) |
    Data {
        /// Its number among the sender's packets in the group.
        seqno: SeqNo,
        /// The block.
        block: &'a [u8],
    },
    /// The header's sender lacks packets of a source. It goes to the domain. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | the source |
    /// | 44 | 8 | the domain manager that is to repair them |
    /// | 52 | 4 n | sequence numbers |
    Nack {
        /// Whose packets.
        source: NodeId,
        /// Who is to repair them.
        to: NodeId,
        /// Their numbers, big-endian.
        seqnos: &'a [U32],
    },
    /// A packet again, by a domain manager. Kind 3.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | its source |
    /// | 44 | 4 | its sequence number |
    /// | 48 | n | [block](crate::block) |
    Repair {
        /// Who multicast the packet first.
        source: NodeId,
        /// Its number.
        seqno: SeqNo,
        /// The block.
        block: &'a [u8],
    },
    /// The header's sender has everything of a source up to here. Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | the source |
    /// | 44 | 4 | everything before this number is there, or given up |
    Ack {
        /// Whose packets.
        source: NodeId,
        /// Everything before this number is settled.
        settled_to: SeqNo,
    },
    /// A domain manager knows of a source's packets up to here, and waits for an acknowledgement.
    /// Kind 5.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | the source |
    /// | 44 | 4 | the number after the last |
    Status {
        /// Whose packets.
        source: NodeId,
        /// The number after the last.
        next: SeqNo,
    },
}

/// Bytes of a request before the numbers.
pub const NACK_BYTES: usize = HEADER_BYTES + size_of::<RawNack>();
/// Bytes of a number in a request.
pub const NUMBER_BYTES: usize = size_of::<U32>();

const DATA: u8 = 1;
const NACK: u8 = 2;
const REPAIR: u8 = 3;
const ACK: u8 = 4;
const STATUS: u8 = 5;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawNack {
    source: U64,
    to: U64,
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Repair { .. } => Class::Retransmission,
            Self::Nack { .. } | Self::Ack { .. } | Self::Status { .. } => Class::Control,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => DATA,
            Self::Nack { .. } => NACK,
            Self::Repair { .. } => REPAIR,
            Self::Ack { .. } => ACK,
            Self::Status { .. } => STATUS,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            DATA => {
                let (seqno, block) = read_numbered(body)?;
                Self::Data { seqno, block }
            }
            NACK => {
                let (raw, rest) = read_prefix::<RawNack>(body)?;
                let seqnos = <[U32]>::ref_from_bytes(rest).map_err(|_| DecodeError::Length)?;
                let (source, to) = (NodeId(raw.source.get()), NodeId(raw.to.get()));
                Self::Nack { source, to, seqnos }
            }
            REPAIR => {
                let (source, seqno, block) = read_named(body)?;
                Self::Repair { source, seqno, block }
            }
            ACK | STATUS => match read_named(body)? {
                (source, settled_to, []) if kind == ACK => Self::Ack { source, settled_to },
                (source, next, []) => Self::Status { source, next },
                _ => return Err(DecodeError::Length),
            },
            _ => return Err(DecodeError::Kind),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Data { seqno, block } => write_numbered(seqno, block, out),
            Self::Nack { source, to, seqnos } => {
                let raw = RawNack { source: U64::new(source.0), to: U64::new(to.0) };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(seqnos.as_bytes());
            }
            Self::Repair { source, seqno, block } => write_named(source, seqno, block, out),
            Self::Ack { source, settled_to } => write_named(source, settled_to, &[], out),
            Self::Status { source, next } => write_named(source, next, &[], out),
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
        let (source, to, seqnos) = (NodeId(5), NodeId(6), &[U32::new(2), U32::new(9)]);
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, // source, to
            0, 0, 0, 2, 0, 0, 0, 9, // sequence numbers
        ];
        assert_on_the_wire(Packet::Nack { source, to, seqnos }, &mut Vec::new(), 2, &expected);
        let repair = Packet::Repair { source, seqno: SeqNo(6), block: &[1] };
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1];
        assert_on_the_wire(repair, &mut Vec::new(), 3, &expected);
        let (ack, status) = (
            Packet::Ack { source, settled_to: SeqNo(9) },
            Packet::Status { source, next: SeqNo(9) },
        );
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_on_the_wire(ack, &mut Vec::new(), 4, &expected);
        assert_on_the_wire(status, &mut Vec::new(), 5, &expected);
    }
}
