//! The packets of sender-based FEC. Each follows the common header of [`carom_proto::wire`], and is
//! sent to the group.

use carom_proto::wire::HEADER_BYTES;
use carom_proto::{Class, SeqNo};

use crate::guest::GuestPacket;

/// A packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// Parity packet for a set of the sender's data packets. Kind 33.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the set's first data packet |
    /// | 40 | 1 | number of data packets in the set, 1 to 64 |
    /// | 41 | 1 | number of parity packets of the set, 1 to 64 |
    /// | 42 | 1 | index of this parity packet, from 0 |
    /// | 43 | 1 | zero |
    /// | 44 | n | parity shard, of even length |
    Parity { set: Set, index: u8, shard: &'a [u8] },
    /// Announcement of the end of the sender's stream. Kind 34.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the sender's next message |
    Heartbeat { next: SeqNo },
}

/// A set of consecutive data packets of one sender that share parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// Sequence number of the first data packet.
    pub first: SeqNo,
    /// Number of data packets.
    pub data: u8,
    /// Number of parity packets.
    pub parity: u8,
}

/// Size, in bytes, of a parity packet before its shard.
pub const PARITY_BYTES: usize = HEADER_BYTES + 8;

/// Maximum number of data packets in a set.
pub const MAX_R: u8 = 64;
/// Maximum number of parity packets of a set.
pub const MAX_C: u8 = 64;

carom_proto::fields! {
    Set { first, data, parity } if |set| {
        (1..=MAX_R).contains(&set.data) && (1..=MAX_C).contains(&set.parity)
    };
}

carom_proto::variants! {
    Packet<'a> {
        33 => Parity { set, index with before_zero, shard },
        34 => Heartbeat { next },
    } if |packet| match packet {
        Packet::Parity { set, index, shard } => {
            *index < set.parity && !shard.is_empty() && shard.len() % 2 == 0
        }
        Packet::Heartbeat { .. } => true,
    };
}

/// Encodes a number followed by one zero byte.
mod before_zero {
    use carom_proto::codec::Field;
    use carom_proto::wire::DecodeError;

    pub(super) fn put(number: &u8, out: &mut Vec<u8>) {
        (*number, 0_u8).put(out);
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Result<u8, DecodeError> {
        match Field::take(bytes)? {
            (number, 0_u8) => Ok(number),
            _ => Err(DecodeError::Value),
        }
    }
}

impl Set {
    /// Returns the sequence number after the last data packet.
    pub fn end(self) -> SeqNo {
        self.first.plus(u32::from(self.data))
    }

    /// Returns the sequence numbers of the data packets.
    pub fn seqnos(self) -> impl Iterator<Item = SeqNo> {
        (0..u32::from(self.data)).map(move |place| self.first.plus(place))
    }

    /// Returns `true` if `seqno` is in the set.
    pub fn contains(self, seqno: SeqNo) -> bool {
        (0..i32::from(self.data)).contains(&seqno.distance_from(self.first))
    }
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 32;

    fn class(&self) -> Class {
        match self {
            Self::Parity { .. } => Class::Repair,
            Self::Heartbeat { .. } => Class::Control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;

    #[test]
    fn the_packets_on_the_wire_are_these() {
        let set = Set { first: SeqNo(5), data: 8, parity: 3 };
        let parity = Packet::Parity { set, index: 2, shard: &[1, 2] };
        assert_on_the_wire(parity, &mut Vec::new(), 33, &[0, 0, 0, 5, 8, 3, 2, 0, 1, 2]);
        assert_on_the_wire(
            Packet::Heartbeat { next: SeqNo(9) },
            &mut Vec::new(),
            34,
            &[0, 0, 0, 9],
        );
    }

    #[test]
    fn a_set_goes_across_the_wrap() {
        let set = Set { first: SeqNo(u32::MAX), data: 2, parity: 1 };
        assert!(set.seqnos().eq([SeqNo(u32::MAX), SeqNo(0)]));
        assert!(set.contains(SeqNo(0)) && !set.contains(SeqNo(1)) && !set.contains(SeqNo(9)));
        assert_eq!(set.end(), SeqNo(1));
    }
}
