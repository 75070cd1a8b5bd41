//! The packets of Bimodal Multicast. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::{DecodeError, HEADER_BYTES};
use carom_proto::{Class, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::guest::{GuestPacket, read_numbered, read_prefix, write_numbered};

/// A packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// First, unreliable transmission of a message to the group. Kind 16.
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
    /// Digest of the packet sender's history, to one member. Kind 17.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | the sender's round number |
    /// | 40 | 16 n | [ranges](Range), n >= 1 |
    Digest {
        /// Round number.
        round: u32,
        /// Messages in the history.
        ranges: &'a [Range],
    },
    /// Solicitation of messages that a digest lists and the packet's sender lacks, to the sender of
    /// the digest. Kind 18.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | the round of the digest |
    /// | 40 | 16 n | [ranges](Range), n >= 1, most recent first |
    Solicit {
        /// Round of the digest.
        round: u32,
        /// Solicited messages.
        ranges: &'a [Range],
    },
    /// Retransmission of a message to a member that solicited it. Kind 19.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | original sender |
    /// | 44 | 4 | sequence number |
    /// | 48 | n | [symbol](crate::block) |
    Retransmission {
        /// Original sender of the message.
        origin: NodeId,
        /// Sequence number in the original sender's stream.
        seqno: SeqNo,
        /// The symbol.
        block: &'a [u8],
    },
}

/// A range of consecutive messages of one sender.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | sender |
/// | 8 | 4 | first sequence number |
/// | 12 | 4 | last sequence number |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Range {
    sender: U64,
    first: U32,
    last: U32,
}

impl Range {
    /// Creates the range of messages of `sender` from `first` to `last`.
    pub fn new(sender: NodeId, first: SeqNo, last: SeqNo) -> Self {
        Self { sender: U64::new(sender.0), first: U32::new(first.0), last: U32::new(last.0) }
    }

    /// Returns the sender of the messages.
    pub fn sender(&self) -> NodeId {
        NodeId(self.sender.get())
    }

    /// Returns the first sequence number.
    pub fn first(&self) -> SeqNo {
        SeqNo(self.first.get())
    }

    /// Returns the last sequence number.
    pub fn last(&self) -> SeqNo {
        SeqNo(self.last.get())
    }

    /// Returns `true` if `seqno` is in the range.
    pub fn contains(&self, seqno: SeqNo) -> bool {
        !self.first().is_after(seqno) && !seqno.is_after(self.last())
    }
}

/// Size of a [`Range`] in bytes.
pub const RANGE_BYTES: usize = size_of::<Range>();
/// Size of a digest or a solicitation before its ranges, in bytes.
pub const DIGEST_BYTES: usize = HEADER_BYTES + size_of::<U32>();
/// Overhead in bytes of a retransmission in addition to its symbol.
pub const RETRANSMISSION_BYTES: usize = HEADER_BYTES + size_of::<RawRetransmission>();

const DATA: u8 = 16;
const DIGEST: u8 = 17;
const SOLICIT: u8 = 18;
const RETRANSMISSION: u8 = 19;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRetransmission {
    origin: U64,
    seqno: U32,
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Digest { .. } | Self::Solicit { .. } => Class::Control,
            Self::Retransmission { .. } => Class::Retransmission,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            DATA => {
                let (seqno, block) = read_numbered(body)?;
                Self::Data { seqno, block }
            }
            DIGEST => {
                let (round, ranges) = decode_ranges(body)?;
                Self::Digest { round, ranges }
            }
            SOLICIT => {
                let (round, ranges) = decode_ranges(body)?;
                Self::Solicit { round, ranges }
            }
            RETRANSMISSION => {
                let (raw, block) = read_prefix::<RawRetransmission>(body)?;
                let (origin, seqno) = (NodeId(raw.origin.get()), SeqNo(raw.seqno.get()));
                Self::Retransmission { origin, seqno, block }
            }
            _ => return Err(DecodeError::Kind),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Data { seqno, block } => {
                write_numbered(seqno, block, out);
            }
            Self::Digest { round, ranges } | Self::Solicit { round, ranges } => {
                out.extend_from_slice(&round.to_be_bytes());
                out.extend_from_slice(ranges.as_bytes());
            }
            Self::Retransmission { origin, seqno, block } => {
                let (origin, seqno) = (U64::new(origin.0), U32::new(seqno.0));
                out.extend_from_slice(RawRetransmission { origin, seqno }.as_bytes());
                out.extend_from_slice(block);
            }
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => DATA,
            Self::Digest { .. } => DIGEST,
            Self::Solicit { .. } => SOLICIT,
            Self::Retransmission { .. } => RETRANSMISSION,
        }
    }
}

fn decode_ranges(body: &[u8]) -> Result<(u32, &[Range]), DecodeError> {
    let (round, rest) = read_prefix::<U32>(body)?;
    let ranges = <[Range]>::ref_from_bytes(rest).map_err(|_| DecodeError::Length)?;
    if ranges.is_empty() {
        return Err(DecodeError::Length);
    }
    if ranges.iter().any(|range| range.first().is_after(range.last())) {
        return Err(DecodeError::Value);
    }
    Ok((round.get(), ranges))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;
    use carom_proto::GroupId;

    #[test]
    fn the_packets_on_the_wire_are_these() {
        let data = Packet::Data { seqno: SeqNo(7), block: &[0xEE, 0xFF] };
        assert_on_the_wire(data, &mut Vec::new(), 16, &[0, 0, 0, 7, 0xEE, 0xFF]);
        let ranges = &[Range::new(NodeId(3), SeqNo(4), SeqNo(9))][..];
        let bytes = vec![0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 9];
        assert_on_the_wire(Packet::Digest { round: 5, ranges }, &mut Vec::new(), 17, &bytes);
        assert_on_the_wire(Packet::Solicit { round: 5, ranges }, &mut Vec::new(), 18, &bytes);
        let again = Packet::Retransmission { origin: NodeId(5), seqno: SeqNo(6), block: &[1] };
        assert_on_the_wire(again, &mut Vec::new(), 19, &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1]);
    }

    #[test]
    fn a_range_goes_across_the_wrap_and_never_backwards() {
        let range = Range::new(NodeId(3), SeqNo(u32::MAX), SeqNo(1));
        assert!(range.contains(SeqNo(0)) && !range.contains(SeqNo(2)));
        let backwards = [Range::new(NodeId(3), SeqNo(2), SeqNo(1))];
        let mut out = Vec::new();
        let packet = Packet::Solicit { round: 1, ranges: &backwards };
        packet.encode(NodeId(1), GroupId(2), 9, &mut out);
        assert_eq!(Packet::decode(&out), Err(DecodeError::Value));
    }
}
