//! The packets of RMTP. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::HEADER_BYTES;
use carom_proto::{NodeId, SeqNo};

use crate::guest::GuestPacket;

/// An RMTP packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// Acknowledgment of a source's packets. It lists the packets that the acknowledging member
    /// lacks. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 | position before which all packets are settled: the paper's L |
    /// | 48 | 4 | sequence number after the last covered packet |
    /// | 52 | n | one bit for each packet in between, most significant bit first: the paper's V |
    Ack {
        source: NodeId,
        settled_to: SeqNo,
        next: SeqNo,
        /// One bit for each packet from `settled_to` on, which is 1 if the packet is settled and 0
        /// if it is missing. Packets without a bit are not missing.
        bitmap: &'a [u8],
    },
    /// Beacon, which requests acknowledgments from the group (`SEND_ACK_TOME`). Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the sender's next message |
    Beacon { next: SeqNo },
}

/// Size, in bytes, of an acknowledgment before its bitmap.
pub const ACK_BYTES: usize = HEADER_BYTES + 16;

carom_proto::variants! {
    Packet<'a> {
        2 => Ack { source, settled_to, next, bitmap },
        4 => Beacon { next },
    };
}

/// Returns a bitmap of `count` packets from `first` on, all settled except `missing`.
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

/// Returns the packets from `first` up to, but excluding, `next` that a bitmap marks as missing.
pub fn missing_of(first: SeqNo, next: SeqNo, bitmap: &[u8]) -> impl Iterator<Item = SeqNo> {
    let count = usize::try_from(next.distance_from(first)).unwrap_or(0).min(bitmap.len() * 8);
    let is_missing = |place: &usize| bitmap[place / 8] & (0x80 >> (place % 8)) == 0;
    (0..count).filter(is_missing).map(move |place| first.plus(place as u32))
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 1;
    const REPAIR: Option<u8> = Some(3);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;

    #[test]
    fn packets_on_the_wire_are_this() {
        let (source, settled_to, next) = (NodeId(5), SeqNo(2), SeqNo(9));
        let ack = Packet::Ack { source, settled_to, next, bitmap: &[0x5F] };
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9, 0x5F];
        assert_on_the_wire(ack, &mut Vec::new(), 2, &expected);
        assert_on_the_wire(Packet::Beacon { next }, &mut Vec::new(), 4, &[0, 0, 0, 9]);
    }

    #[test]
    fn a_bitmap_tells_what_is_missing_across_the_wrap() {
        let first = SeqNo(u32::MAX - 1);
        let missing = [SeqNo(u32::MAX - 1), SeqNo(0), SeqNo(99)];
        let bitmap = bitmap_without(first, 9, missing.into_iter());
        assert_eq!(bitmap, [0b0101_1111, 0xFF]);
        assert!(missing_of(first, SeqNo(7), &bitmap).eq([SeqNo(u32::MAX - 1), SeqNo(0)]));
        assert!(missing_of(first, SeqNo(u32::MAX), &bitmap).eq([first]), "only below next");
        assert_eq!(missing_of(first, SeqNo(7), &[]).count(), 0);
        assert_eq!(missing_of(first, first.minus(3), &[0]).count(), 0);
    }
}
