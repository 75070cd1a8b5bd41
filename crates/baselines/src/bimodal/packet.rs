//! The packets of Bimodal Multicast. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::HEADER_BYTES;
use carom_proto::{NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::guest::GuestPacket;

/// A packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// Digest of the packet sender's history, sent to one member. Kind 17.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | the sender's round number |
    /// | 40 | 16 n | [ranges](Range), n >= 1 |
    Digest { round: u32, ranges: &'a [Range] },
    /// Solicitation of messages that a digest lists and the packet's sender lacks, to the sender of
    /// the digest. Kind 18.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | the round of the digest |
    /// | 40 | 16 n | [ranges](Range), n >= 1, most recent first |
    Solicit { round: u32, ranges: &'a [Range] },
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

/// Size, in bytes, of a [`Range`].
pub const RANGE_BYTES: usize = size_of::<Range>();
/// Size, in bytes, of a digest or a solicitation before its ranges.
pub const DIGEST_BYTES: usize = HEADER_BYTES + size_of::<U32>();

carom_proto::variants! {
    Packet<'a> {
        17 => Digest { round, ranges },
        18 => Solicit { round, ranges },
    } if |packet| {
        let (Packet::Digest { ranges, .. } | Packet::Solicit { ranges, .. }) = packet;
        !ranges.is_empty() && !ranges.iter().any(|range| range.first().is_after(range.last()))
    };
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 16;
    const REPAIR: Option<u8> = Some(19);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;
    use carom_proto::GroupId;
    use carom_proto::wire::DecodeError;

    #[test]
    fn the_packets_on_the_wire_are_these() {
        let ranges = &[Range::new(NodeId(3), SeqNo(4), SeqNo(9))][..];
        let bytes = vec![0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 9];
        assert_on_the_wire(Packet::Digest { round: 5, ranges }, &mut Vec::new(), 17, &bytes);
        assert_on_the_wire(Packet::Solicit { round: 5, ranges }, &mut Vec::new(), 18, &bytes);
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
