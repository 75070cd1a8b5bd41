//! The packets of the ACK/timeout protocol. Each follows the common header of
//! [`carom_proto::wire`].

use carom_proto::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use carom_proto::{Class, GroupId, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A packet, its variable parts still in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message on its way to the group. Kind 48.
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
    /// A message again, to one member that has not acknowledged it; laid out like data. Kind 49.
    Retransmission {
        /// Its number among the sender's packets in the group.
        seqno: SeqNo,
        /// The block.
        block: &'a [u8],
    },
    /// A packet has come to the header's sender; to who sent it. Kind 50.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | its sequence number |
    /// | 32 | 4 | the first sequence number that is neither delivered nor lost |
    /// | 36 | 4 | how many packets of the stream were lost so far |
    Ack {
        /// The packet that came.
        seqno: SeqNo,
        /// Everything before this number is settled.
        settled_to: SeqNo,
        /// How many packets of the stream were lost so far.
        lost: u32,
    },
    /// To a member that was not waited for: what the header's sender has sent before this number
    /// will not be sent again. Kind 51.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | the first number of which that is not so |
    Horizon {
        /// The first number of which that is not so.
        next: SeqNo,
    },
    /// A message whose deadline has passed, in place of a retransmission. Kind 52.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | sequence number |
    Expired {
        /// Its number among the sender's packets in the group.
        seqno: SeqNo,
    },
}

/// Bytes of a data packet or a retransmission around its block.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<U32>();

const DATA: u8 = 48;
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

impl<'a> Packet<'a> {
    /// What a driver should take it for.
    pub fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Retransmission { .. } => Class::Retransmission,
            Self::Ack { .. } | Self::Horizon { .. } | Self::Expired { .. } => Class::Control,
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
                let (seqno, block) = decode_data(body)?;
                Self::Data { seqno, block }
            }
            RETRANSMISSION => {
                let (seqno, block) = decode_data(body)?;
                Self::Retransmission { seqno, block }
            }
            ACK => {
                let raw = RawAck::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                let (seqno, settled_to) = (SeqNo(raw.seqno.get()), SeqNo(raw.settled_to.get()));
                Self::Ack { seqno, settled_to, lost: raw.lost.get() }
            }
            HORIZON => {
                let next = U32::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                Self::Horizon { next: SeqNo(next.get()) }
            }
            EXPIRED => {
                let seqno = U32::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                Self::Expired { seqno: SeqNo(seqno.get()) }
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
            Self::Data { seqno, block } | Self::Retransmission { seqno, block } => {
                out.extend_from_slice(&seqno.0.to_be_bytes());
                out.extend_from_slice(block);
            }
            Self::Ack { seqno, settled_to, lost } => {
                let (seqno, settled_to) = (U32::new(seqno.0), U32::new(settled_to.0));
                let raw = RawAck { seqno, settled_to, lost: U32::new(lost) };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::Horizon { next } => out.extend_from_slice(&next.0.to_be_bytes()),
            Self::Expired { seqno } => out.extend_from_slice(&seqno.0.to_be_bytes()),
        }
        wire::seal(out, start);
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => DATA,
            Self::Retransmission { .. } => RETRANSMISSION,
            Self::Ack { .. } => ACK,
            Self::Horizon { .. } => HORIZON,
            Self::Expired { .. } => EXPIRED,
        }
    }
}

fn decode_data(body: &[u8]) -> Result<(SeqNo, &[u8]), DecodeError> {
    let (seqno, block) = U32::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
    Ok((SeqNo(seqno.get()), block))
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
        let (seqno, block) = (SeqNo(7), &[0xEE, 0xFF][..]);
        let bytes = vec![0, 0, 0, 7, 0xEE, 0xFF];
        assert_eq!(body(Packet::Data { seqno, block }), (48, bytes.clone()));
        assert_eq!(body(Packet::Retransmission { seqno, block }), (49, bytes));
        let ack = Packet::Ack { seqno, settled_to: SeqNo(3), lost: 1 };
        assert_eq!(body(ack), (50, vec![0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 1]));
        assert_eq!(body(Packet::Horizon { next: SeqNo(9) }), (51, vec![0, 0, 0, 9]));
        assert_eq!(body(Packet::Expired { seqno: SeqNo(8) }), (52, vec![0, 0, 0, 8]));
    }

    proptest! {
        #[test]
        fn any_body_under_a_right_header_decodes_to_itself_or_to_an_error(
            kind in 46..54_u8,
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
