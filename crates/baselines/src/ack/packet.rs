//! The packets of the ACK/timeout protocol. Each follows the common header of
//! [`carom_proto::wire`].

use carom_proto::{Class, SeqNo};

use crate::guest::GuestPacket;

/// A packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// Retransmission to one member that has not acknowledged the message, with the layout of a
    /// message. Kind 49.
    Retransmission { seqno: SeqNo, block: &'a [u8] },
    /// Acknowledgment of a packet, to its sender. Kind 50.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the packet |
    /// | 40 | 4 | first sequence number that is neither delivered nor lost |
    /// | 44 | 4 | number of packets of the stream lost so far |
    Ack { seqno: SeqNo, settled_to: SeqNo, lost: u32 },
    /// Notice to a lagging member that packets before a position will not be retransmitted. Kind
    /// 51.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | first sequence number that may still be retransmitted |
    Horizon { next: SeqNo },
    /// Notice, in place of a retransmission, that a message's deadline has passed. Kind 52.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    Expired { seqno: SeqNo },
}

carom_proto::variants! {
    Packet<'a> {
        49 => Retransmission { seqno, block },
        50 => Ack { seqno, settled_to, lost },
        51 => Horizon { next },
        52 => Expired { seqno },
    };
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 48;

    fn class(&self) -> Class {
        match self {
            Self::Retransmission { .. } => Class::Retransmission,
            Self::Ack { .. } | Self::Horizon { .. } | Self::Expired { .. } => Class::Control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;

    #[test]
    fn the_packets_on_the_wire_are_these() {
        let (seqno, block) = (SeqNo(7), &[0xEE, 0xFF][..]);
        let bytes = vec![0, 0, 0, 7, 0xEE, 0xFF];
        assert_on_the_wire(Packet::Retransmission { seqno, block }, &mut Vec::new(), 49, &bytes);
        let ack = Packet::Ack { seqno, settled_to: SeqNo(3), lost: 1 };
        assert_on_the_wire(ack, &mut Vec::new(), 50, &[0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 1]);
        assert_on_the_wire(Packet::Horizon { next: SeqNo(9) }, &mut Vec::new(), 51, &[0, 0, 0, 9]);
        assert_on_the_wire(Packet::Expired { seqno: SeqNo(8) }, &mut Vec::new(), 52, &[0, 0, 0, 8]);
    }
}
