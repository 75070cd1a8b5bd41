use bytes::Bytes;

use super::fields::number;
use crate::codec::Field;
use crate::wire::{DecodeError, HEADER_BYTES};

/// A data packet.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 8 | number |
/// | 44 | n | fragment of the message |
///
/// Flags: 1 first fragment of a message, 2 last fragment, 4 repair, 8 multicast again. In a packet
/// that is multicast for the first time, the upper four bits contain the binary logarithm of the
/// number of packets in flight, rounded down. A relayed packet has a packet type of its own, with
/// the same flags and fields. It is never a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct DataPacket {
    /// Number of the packet in the stream.
    #[cfg_attr(test, proptest(strategy = "super::tests::numbers()"))]
    pub number: u64,
    /// The fragment of a message that the packet carries.
    pub fragment: Fragment,
    /// Path by which the packet is sent.
    pub way: Way,
    /// `true` if the packet was sent by a relay of the tree. Repairs are never relayed.
    pub is_relayed: bool,
}

/// A fragment of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Fragment {
    /// `true` if this is the first fragment of its message.
    pub is_first: bool,
    /// `true` if this is the last fragment of its message.
    pub is_last: bool,
    /// Content of the fragment.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::bytes()"))]
    pub bytes: Bytes,
}

/// Path by which a data packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum Way {
    /// The packet is sent through the tree for the first time.
    Tree {
        /// Binary logarithm of the number of packets that were in flight, at most 15.
        #[cfg_attr(test, proptest(strategy = "0..=MAX_DOUBLINGS"))]
        doublings: u8,
    },
    /// The packet is sent through the tree again.
    Again,
    /// The packet is sent by a receiver that has it, or by the sender on request.
    Repair,
}

impl Fragment {
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }
}

impl Way {
    /// Returns [`Way::Tree`] for a packet that is sent while `in_flight` packets are in flight.
    pub fn tree(in_flight: u64) -> Self {
        let doublings = in_flight.max(1).ilog2().min(MAX_DOUBLINGS.into());
        Self::Tree { doublings: doublings as u8 }
    }
}

impl DataPacket {
    pub(super) fn flags(&self) -> u8 {
        let way = match self.way {
            Way::Tree { doublings } => doublings.min(MAX_DOUBLINGS) << DOUBLINGS_SHIFT,
            Way::Again => AGAIN,
            Way::Repair => REPAIR,
        };
        let fragment = &self.fragment;
        let of_fragment =
            (u8::from(fragment.is_first) * FIRST) | (u8::from(fragment.is_last) * LAST);
        way | of_fragment
    }

    pub(super) fn kind(&self) -> u8 {
        if self.is_relayed { RELAYED } else { DATA }
    }

    pub(super) fn set_header(&mut self, kind: u8, flags: u8) -> Result<(), DecodeError> {
        self.is_relayed = kind == RELAYED;
        self.way = match flags & (REPAIR | AGAIN) {
            0 => Way::Tree { doublings: flags >> DOUBLINGS_SHIFT },
            REPAIR => Way::Repair,
            AGAIN => Way::Again,
            _ => return Err(DecodeError::Value),
        };
        let is_first_time = matches!(self.way, Way::Tree { .. });
        let is_impossible = self.is_relayed && self.way == Way::Repair;
        if !is_first_time && flags >> DOUBLINGS_SHIFT != 0 || is_impossible {
            return Err(DecodeError::Value);
        }
        self.fragment.is_first = flags & FIRST != 0;
        self.fragment.is_last = flags & LAST != 0;
        Ok(())
    }
}

/// The remaining fields are in the header, and must be set after decoding.
impl<'a> Field<'a> for DataPacket {
    fn put(&self, out: &mut Vec<u8>) {
        number::put(&self.number, out);
        self.fragment.bytes.put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let number = number::take(bytes)?;
        let fragment = Fragment { is_first: false, is_last: false, bytes: Field::take(bytes)? };
        Ok(Self { number, fragment, way: Way::Again, is_relayed: false })
    }
}

/// Size, in bytes, of a data packet without its fragment.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<u64>();

pub(super) const DATA: u8 = 1;
pub(super) const RELAYED: u8 = 9;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const REPAIR: u8 = 4;
const AGAIN: u8 = 8;
const DOUBLINGS_SHIFT: u32 = 4;
const MAX_DOUBLINGS: u8 = 15;
