//! The packets of Bimodal Multicast. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use carom_proto::{Class, GroupId, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A packet, its variable parts still in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message on its way to the group, unreliably. Kind 16.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | sequence number |
    /// | 32 | n | [block](crate::block) |
    Data {
        /// Its number among the sender's packets in the group.
        seqno: SeqNo,
        /// The block.
        block: &'a [u8],
    },
    /// What the header's sender has in its buffer; to one member. Kind 17.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | the number of the sender's round |
    /// | 32 | 16 n | [ranges](Range), n >= 1 |
    Digest {
        /// The round.
        round: u32,
        /// What is there.
        ranges: &'a [Range],
    },
    /// What the header's sender lacks of a digest; to who sent that. Kind 18.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | the round of the digest |
    /// | 32 | 16 n | [ranges](Range), n >= 1, the most recent first |
    Solicit {
        /// The round of the digest.
        round: u32,
        /// What is asked for.
        ranges: &'a [Range],
    },
    /// A message again; to who solicited it. Kind 19.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 8 | who multicast it first |
    /// | 36 | 4 | sequence number |
    /// | 40 | n | [block](crate::block) |
    Retransmission {
        /// Who multicast it first.
        origin: NodeId,
        /// Its number among the origin's packets in the group.
        seqno: SeqNo,
        /// The block.
        block: &'a [u8],
    },
}

/// Consecutive messages of one sender.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | sender |
/// | 8 | 4 | the first sequence number |
/// | 12 | 4 | the last sequence number |
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
    /// The messages of `sender` from `first` to `last`.
    pub fn new(sender: NodeId, first: SeqNo, last: SeqNo) -> Self {
        Self { sender: U64::new(sender.0), first: U32::new(first.0), last: U32::new(last.0) }
    }

    /// Whose messages they are.
    pub fn sender(&self) -> NodeId {
        NodeId(self.sender.get())
    }

    /// The first of them.
    pub fn first(&self) -> SeqNo {
        SeqNo(self.first.get())
    }

    /// The last of them.
    pub fn last(&self) -> SeqNo {
        SeqNo(self.last.get())
    }

    /// Whether `seqno` is among them.
    pub fn contains(&self, seqno: SeqNo) -> bool {
        !self.first().is_after(seqno) && !seqno.is_after(self.last())
    }
}

/// Bytes of a [`Range`].
pub const RANGE_BYTES: usize = size_of::<Range>();
/// Bytes of a digest or a solicitation before its ranges.
pub const DIGEST_BYTES: usize = HEADER_BYTES + size_of::<U32>();
/// Bytes of a retransmission around its block.
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

impl<'a> Packet<'a> {
    /// What a driver should take it for.
    pub fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Digest { .. } | Self::Solicit { .. } => Class::Control,
            Self::Retransmission { .. } => Class::Retransmission,
        }
    }

    /// Reads a datagram, header and all.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(datagram: &'a [u8]) -> Result<(Header, Self), DecodeError> {
        let (header, body) = Header::decode(datagram)?;
        if header.protocol != Protocol::Guest {
            return Err(DecodeError::Kind);
        }
        let packet = match header.kind {
            DATA => {
                let (seqno, block) = U32::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
                Self::Data { seqno: SeqNo(seqno.get()), block }
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
                let (raw, block) =
                    RawRetransmission::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
                let (origin, seqno) = (NodeId(raw.origin.get()), SeqNo(raw.seqno.get()));
                Self::Retransmission { origin, seqno, block }
            }
            _ => return Err(DecodeError::Kind),
        };
        Ok((header, packet))
    }

    /// Appends the whole datagram to `out`.
    ///
    /// # Panics
    /// If it would be longer than UDP can carry: the engine fits its packets into the path MTU.
    pub fn encode(&self, sender: NodeId, group: GroupId, view: u32, out: &mut Vec<u8>) {
        let (protocol, kind) = (Protocol::Guest, self.kind());
        let start = Header { protocol, kind, flags: 0, group, sender, view }.begin(out);
        match *self {
            Self::Data { seqno, block } => {
                out.extend_from_slice(&seqno.0.to_be_bytes());
                out.extend_from_slice(block);
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
        wire::seal(out, start);
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
    let (round, rest) = U32::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
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
    use proptest::prelude::*;

    const SENDER: NodeId = NodeId(0x1122_3344_5566_7788);
    const GROUP: GroupId = GroupId(0x0102_0304);

    /// Kind and body of the datagram; the common header has a golden vector of its own.
    fn body(packet: Packet<'_>) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        packet.encode(SENDER, GROUP, 9, &mut out);
        let (header, decoded) = Packet::decode(&out).expect("what was encoded can be decoded");
        assert_eq!(decoded, packet);
        assert_eq!((header.sender, header.group, header.view), (SENDER, GROUP, 9));
        (header.kind, out[HEADER_BYTES..].to_vec())
    }

    #[test]
    fn the_packets_on_the_wire_are_these() {
        let data = Packet::Data { seqno: SeqNo(7), block: &[0xEE, 0xFF] };
        assert_eq!(body(data), (16, vec![0, 0, 0, 7, 0xEE, 0xFF]));
        let ranges = &[Range::new(NodeId(3), SeqNo(4), SeqNo(9))][..];
        let bytes = vec![0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 9];
        assert_eq!(body(Packet::Digest { round: 5, ranges }), (17, bytes.clone()));
        assert_eq!(body(Packet::Solicit { round: 5, ranges }), (18, bytes));
        let again = Packet::Retransmission { origin: NodeId(5), seqno: SeqNo(6), block: &[1] };
        assert_eq!(body(again), (19, vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1]));
    }

    #[test]
    fn a_range_goes_across_the_wrap_and_never_backwards() {
        let range = Range::new(NodeId(3), SeqNo(u32::MAX), SeqNo(1));
        assert!(range.contains(SeqNo(0)) && !range.contains(SeqNo(2)));
        let backwards = [Range::new(NodeId(3), SeqNo(2), SeqNo(1))];
        let mut out = Vec::new();
        Packet::Solicit { round: 1, ranges: &backwards }.encode(SENDER, GROUP, 9, &mut out);
        assert_eq!(Packet::decode(&out), Err(DecodeError::Value));
    }

    proptest! {
        #[test]
        fn any_body_under_a_right_header_decodes_to_itself_or_to_an_error(
            kind in 14..21_u8,
            body in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let header = Header {
                protocol: Protocol::Guest, kind, flags: 0, group: GROUP, sender: SENDER, view: 4,
            };
            let mut datagram = Vec::new();
            let start = header.begin(&mut datagram);
            datagram.extend_from_slice(&body);
            wire::seal(&mut datagram, start);
            if let Ok((header, packet)) = Packet::decode(&datagram) {
                let mut again = Vec::new();
                packet.encode(header.sender, header.group, header.view, &mut again);
                prop_assert_eq!(again, datagram);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Packet::decode(&bytes);
        }
    }
}
