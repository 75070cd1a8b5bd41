//! The packets of the ACK/timeout protocol. Each follows the common header of
//! [`carom_proto::wire`].

use carom_proto::wire::DecodeError;
use carom_proto::{Class, SeqNo};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::guest::{GuestPacket, read_all, read_numbered, read_seqno, write_numbered};

/// A packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Retransmission to one member that has not acknowledged the message, with the layout of a
    /// message. Kind 49.
    Retransmission {
        /// Sequence number in the sender's stream.
        seqno: SeqNo,
        /// The symbol.
        block: &'a [u8],
    },
    /// Acknowledgment of a packet, to its sender. Kind 50.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the packet |
    /// | 40 | 4 | first sequence number that is neither delivered nor lost |
    /// | 44 | 4 | number of packets of the stream lost so far |
    Ack {
        /// Sequence number of the packet that arrived.
        seqno: SeqNo,
        /// Position before which all packets are settled.
        settled_to: SeqNo,
        /// Number of packets of the stream lost so far.
        lost: u32,
    },
    /// Notice to a lagging member that packets before a position will not be retransmitted. Kind
    /// 51.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | first sequence number that may still be retransmitted |
    Horizon {
        /// First sequence number that may still be retransmitted.
        next: SeqNo,
    },
    /// Notice, in place of a retransmission, that a message's deadline has passed. Kind 52.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    Expired {
        /// Sequence number in the sender's stream.
        seqno: SeqNo,
    },
}

const RETRANSMISSION: u8 = 49;
const ACK: u8 = 50;
const HORIZON: u8 = 51;
const EXPIRED: u8 = 52;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAck {
    seqno: U32,
    settled_to: U32,
    lost: U32,
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 48;

    fn class(&self) -> Class {
        match self {
            Self::Retransmission { .. } => Class::Retransmission,
            Self::Ack { .. } | Self::Horizon { .. } | Self::Expired { .. } => Class::Control,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            RETRANSMISSION => {
                let (seqno, block) = read_numbered(body)?;
                Self::Retransmission { seqno, block }
            }
            ACK => {
                let raw = read_all::<RawAck>(body)?;
                let (seqno, settled_to) = (SeqNo(raw.seqno.get()), SeqNo(raw.settled_to.get()));
                Self::Ack { seqno, settled_to, lost: raw.lost.get() }
            }
            HORIZON => Self::Horizon { next: read_seqno(body)? },
            EXPIRED => Self::Expired { seqno: read_seqno(body)? },
            _ => return Err(DecodeError::Kind),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Retransmission { seqno, block } => write_numbered(seqno, block, out),
            Self::Ack { seqno, settled_to, lost } => {
                let (seqno, settled_to) = (U32::new(seqno.0), U32::new(settled_to.0));
                let raw = RawAck { seqno, settled_to, lost: U32::new(lost) };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::Horizon { next } => out.extend_from_slice(&next.0.to_be_bytes()),
            Self::Expired { seqno } => out.extend_from_slice(&seqno.0.to_be_bytes()),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Retransmission { .. } => RETRANSMISSION,
            Self::Ack { .. } => ACK,
            Self::Horizon { .. } => HORIZON,
            Self::Expired { .. } => EXPIRED,
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
