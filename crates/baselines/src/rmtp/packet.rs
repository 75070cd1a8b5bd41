//! RMTP's packets. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::{DecodeError, HEADER_BYTES};
use carom_proto::{Class, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::guest::{
    GuestPacket, read_named, read_numbered, read_prefix, read_seqno, write_named, write_numbered,
};

/// An RMTP packet, its variable parts still in the datagram.
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
    /// What the header's sender has of a source's packets. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | the source |
    /// | 44 | 4 | everything before this number is there, or given up: the paper's L |
    /// | 48 | 4 | the number after the last that this tells of |
    /// | 52 | n | one bit for each in between, from the highest of the first byte: the paper's V |
    Ack {
        /// Whose packets.
        source: NodeId,
        /// Everything before this number is settled.
        settled_to: SeqNo,
        /// The number after the last that this tells of.
        next: SeqNo,
        /// A bit for each packet from `settled_to` on: whether it is there, or given up. What it
        /// has no bit for is.
        bitmap: &'a [u8],
    },
    /// A packet again, by who answers for the receiver. Kind 3.
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
    /// The header's sender asks the group for acknowledgements (`SEND_ACK_TOME`). Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | the number of its next message |
    Beacon {
        /// The number of its sender's next message.
        next: SeqNo,
    },
}

/// Bytes of an acknowledgement before its bitmap.
pub const ACK_BYTES: usize = HEADER_BYTES + size_of::<RawAck>();

const DATA: u8 = 1;
const ACK: u8 = 2;
const REPAIR: u8 = 3;
const BEACON: u8 = 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAck {
    source: U64,
    settled_to: U32,
    next: U32,
}

/// The bitmap of `count` packets from `first` on, of which all are there but `missing`.
pub(super) fn bitmap_without(
    first: SeqNo,
    count: usize,
    missing: impl Iterator<Item = SeqNo>,
) -> Vec<u8> {
    let mut bitmap = vec![0xFF; count.div_ceil(8)];
    for place in missing.filter_map(|seqno| usize::try_from(seqno.distance_from(first)).ok()) {
        if let Some(byte) = bitmap.get_mut(place / 8) {
            *byte &= !(0x80 >> (place % 8));
        }
    }
    bitmap
}

/// The packets from `first` to before `next` that a bitmap says are not there.
pub fn missing_of(first: SeqNo, next: SeqNo, bitmap: &[u8]) -> impl Iterator<Item = SeqNo> {
    let count = usize::try_from(next.distance_from(first)).unwrap_or(0).min(bitmap.len() * 8);
    let is_missing = |place: &usize| bitmap[place / 8] & (0x80 >> (place % 8)) == 0;
    (0..count).filter(is_missing).map(move |place| first.plus(place as u32))
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Repair { .. } => Class::Retransmission,
            Self::Ack { .. } | Self::Beacon { .. } => Class::Control,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => DATA,
            Self::Ack { .. } => ACK,
            Self::Repair { .. } => REPAIR,
            Self::Beacon { .. } => BEACON,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            DATA => {
                let (seqno, block) = read_numbered(body)?;
                Self::Data { seqno, block }
            }
            ACK => {
                let (raw, bitmap) = read_prefix::<RawAck>(body)?;
                let source = NodeId(raw.source.get());
                let (settled_to, next) = (SeqNo(raw.settled_to.get()), SeqNo(raw.next.get()));
                Self::Ack { source, settled_to, next, bitmap }
            }
            REPAIR => {
                let (source, seqno, block) = read_named(body)?;
                Self::Repair { source, seqno, block }
            }
            BEACON => Self::Beacon { next: read_seqno(body)? },
            _ => return Err(DecodeError::Kind),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Data { seqno, block } => write_numbered(seqno, block, out),
            Self::Ack { source, settled_to, next, bitmap } => {
                let source = U64::new(source.0);
                let (settled_to, next) = (U32::new(settled_to.0), U32::new(next.0));
                out.extend_from_slice(RawAck { source, settled_to, next }.as_bytes());
                out.extend_from_slice(bitmap);
            }
            Self::Repair { source, seqno, block } => write_named(source, seqno, block, out),
            Self::Beacon { next } => write_numbered(next, &[], out),
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
        let (source, settled_to, next) = (NodeId(5), SeqNo(2), SeqNo(9));
        let ack = Packet::Ack { source, settled_to, next, bitmap: &[0x5F] };
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9, 0x5F];
        assert_on_the_wire(ack, &mut Vec::new(), 2, &expected);
        let repair = Packet::Repair { source, seqno: SeqNo(6), block: &[1] };
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1];
        assert_on_the_wire(repair, &mut Vec::new(), 3, &expected);
        assert_on_the_wire(Packet::Beacon { next }, &mut Vec::new(), 4, &[0, 0, 0, 9]);
    }

    #[test]
    fn a_bitmap_tells_what_is_missing_across_the_wrap() {
        let first = SeqNo(u32::MAX - 1);
        let missing = [SeqNo(u32::MAX - 1), SeqNo(0), SeqNo(99)];
        let bitmap = bitmap_without(first, 9, missing.into_iter());
        assert_eq!(bitmap, [0b0101_1111, 0xFF]);
        assert!(missing_of(first, SeqNo(7), &bitmap).eq([SeqNo(u32::MAX - 1), SeqNo(0)]));
        assert!(missing_of(first, SeqNo(u32::MAX), &bitmap).eq([first]), "up to next alone");
        assert_eq!(missing_of(first, SeqNo(7), &[]).count(), 0);
        assert_eq!(missing_of(first, first.minus(3), &[0]).count(), 0);
    }
}
