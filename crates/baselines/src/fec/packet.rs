//! The packets of sender-based FEC. Each follows the common header of [`carom_proto::wire`] and
//! goes to the group.

use carom_proto::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use carom_proto::{Class, GroupId, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::config::{MAX_C, MAX_R};

/// A packet, its variable parts still in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message on its way to the group. Kind 32.
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
    /// One of the parity packets of a set of the sender's data packets. Kind 33.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | sequence number of the set's first data packet |
    /// | 32 | 1 | data packets in the set, 1 to 64 |
    /// | 33 | 1 | parity packets of the set, 1 to 64 |
    /// | 34 | 1 | which of them this is, from 0 |
    /// | 35 | 1 | zero |
    /// | 36 | n | parity shard, of an even length |
    Parity {
        /// What it is the parity of.
        set: Set,
        /// Which of the set's parity packets it is.
        index: u8,
        /// The shard.
        shard: &'a [u8],
    },
    /// How far the header's sender has come. Kind 34.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 28 | 4 | the number of its next message |
    Heartbeat {
        /// The number of the sender's next message.
        next: SeqNo,
    },
}

/// Consecutive data packets of one sender that share parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// The first of them.
    pub first: SeqNo,
    /// How many they are.
    pub data: u8,
    /// How many parity packets there are.
    pub parity: u8,
}

/// Bytes of a parity packet before its shard.
pub const PARITY_BYTES: usize = HEADER_BYTES + size_of::<RawParity>();

const DATA: u8 = 32;
const PARITY: u8 = 33;
const HEARTBEAT: u8 = 34;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawParity {
    first: U32,
    data: u8,
    parity: u8,
    index: u8,
    zero: u8,
}

impl Set {
    /// The number after the last data packet.
    pub fn end(self) -> SeqNo {
        self.first.plus(u32::from(self.data))
    }

    /// The numbers of the data packets.
    pub fn seqnos(self) -> impl Iterator<Item = SeqNo> {
        (0..u32::from(self.data)).map(move |place| self.first.plus(place))
    }

    /// Whether `seqno` is one of them.
    pub fn contains(self, seqno: SeqNo) -> bool {
        (0..i32::from(self.data)).contains(&seqno.distance_from(self.first))
    }
}

impl<'a> Packet<'a> {
    /// What a driver should take it for.
    pub fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Parity { .. } => Class::Repair,
            Self::Heartbeat { .. } => Class::Control,
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
            PARITY => Self::decode_parity(body)?,
            HEARTBEAT => {
                let next = U32::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                Self::Heartbeat { next: SeqNo(next.get()) }
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
            Self::Parity { set: Set { first, data, parity }, index, shard } => {
                let raw = RawParity { first: U32::new(first.0), data, parity, index, zero: 0 };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(shard);
            }
            Self::Heartbeat { next } => out.extend_from_slice(&next.0.to_be_bytes()),
        }
        wire::seal(out, start);
    }

    fn decode_parity(body: &'a [u8]) -> Result<Self, DecodeError> {
        let (raw, shard) = RawParity::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
        let RawParity { first, data, parity, index, zero } = raw;
        let counts_fit = (1..=MAX_R).contains(data) && (1..=MAX_C).contains(parity);
        if !counts_fit || index >= parity || *zero != 0 {
            return Err(DecodeError::Value);
        }
        if shard.is_empty() || shard.len() % 2 != 0 {
            return Err(DecodeError::Length);
        }
        let set = Set { first: SeqNo(first.get()), data: *data, parity: *parity };
        Ok(Self::Parity { set, index: *index, shard })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => DATA,
            Self::Parity { .. } => PARITY,
            Self::Heartbeat { .. } => HEARTBEAT,
        }
    }
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
        assert_eq!(body(data), (32, vec![0, 0, 0, 7, 0xEE, 0xFF]));
        let set = Set { first: SeqNo(5), data: 8, parity: 3 };
        let parity = Packet::Parity { set, index: 2, shard: &[1, 2] };
        assert_eq!(body(parity), (33, vec![0, 0, 0, 5, 8, 3, 2, 0, 1, 2]));
        assert_eq!(body(Packet::Heartbeat { next: SeqNo(9) }), (34, vec![0, 0, 0, 9]));
    }

    #[test]
    fn a_set_goes_across_the_wrap() {
        let set = Set { first: SeqNo(u32::MAX), data: 2, parity: 1 };
        assert!(set.seqnos().eq([SeqNo(u32::MAX), SeqNo(0)]));
        assert!(set.contains(SeqNo(0)) && !set.contains(SeqNo(1)) && !set.contains(SeqNo(9)));
        assert_eq!(set.end(), SeqNo(1));
    }

    proptest! {
        #[test]
        fn any_body_under_a_right_header_decodes_to_itself_or_to_an_error(
            kind in 30..37_u8,
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
