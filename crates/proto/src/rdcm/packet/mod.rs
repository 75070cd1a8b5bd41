//! RDCM's packets. Each follows the common header of [`crate::wire`]. The view field of the header
//! is the number of the [stream](Packet#streams).
//!
//! All numbers are big-endian. A list is a count u16, followed by its entries.

use alloc::vec::Vec;
use core::ops::Range;

pub use self::ack::RingAck;
use self::data::{DATA, RELAYED};
pub use self::data::{DATA_BYTES, DataPacket, Fragment, Way};
use self::fields::{number, ranges};
pub(super) use self::place::PLACE_BYTES;
pub use self::place::{Place, Seat};
pub use super::limits::{MAX_RANGES, MAX_RELAYS};
use crate::codec::Variants;
use crate::wire::{self, DecodeError, Header, Protocol};
use crate::{GroupId, NodeId, Origin};

mod ack;
mod data;
pub(super) mod fields;
mod place;
#[cfg(test)]
mod tests;

/// An RDCM packet.
///
/// # Streams
/// The packets of a stream are numbered consecutively, by default from 1. A node that sends in a
/// group again, after it left or yielded, begins another stream with a later number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum Packet {
    /// A data packet.
    Data(DataPacket),
    /// The current end of the stream, multicast while the sender sends no data.
    Announce {
        /// Epoch of an evicted receiver's last place, or 0 if the packet is sent to all receivers.
        /// An end beyond a receiver's window is cut to it, unless the epoch is near that of its
        /// place.
        epoch: u32,
        /// Number after the last packet that was multicast.
        #[cfg_attr(test, proptest(strategy = "tests::numbers()"))]
        end: u64,
    },
    /// The packets that a receiver and its branch have, sent to predecessors and overlay parents.
    Ack(
        #[cfg_attr(
            test,
            proptest(strategy = "proptest::collection::vec(tests::ring_acks(), 0..3)")
        )]
        Vec<RingAck>,
    ),
    /// Progress of a receiver, sent to the sender.
    Report(Report),
    /// The place of a receiver, sent by the sender.
    Place {
        /// Id of the receiver. A node that was restarted at the address of another node ignores
        /// places that are meant for that node.
        receiver: NodeId,
        place: Place,
    },
    /// Request to the sender for packets that a receiver cannot get from other receivers.
    Ask(#[cfg_attr(test, proptest(strategy = "tests::ranges()"))] Vec<Range<u64>>),
    /// Report to the sender that the tree does not reach a successor.
    Cut { ring: u32, successor: NodeId },
    /// Report to the sender that a successor acknowledges nothing.
    Silent { successor: NodeId },
    /// End of a stream whose sender yields to another one, sent to its receivers.
    Farewell {
        /// Epoch of the last places, which is close to the epoch of the receiver's place.
        epoch: u32,
        /// Number after the last packet of the stream.
        #[cfg_attr(test, proptest(strategy = "tests::numbers()"))]
        end: u64,
    },
    /// Acknowledgment of a farewell, sent to the former sender.
    FarewellHeard,
    /// Release of packets by a receiver whose new predecessor serves it, sent to the former
    /// predecessor (3.4).
    Release {
        /// Ring in which the former predecessor served the receiver.
        ring: u32,
        /// Epoch of the receiver's place.
        epoch: u32,
        /// First packet that the receiver no longer needs from its former predecessor.
        #[cfg_attr(test, proptest(strategy = "tests::numbers()"))]
        from: u64,
    },
}

/// Progress of a receiver.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 4 | epoch of its place |
/// | 40 | 8 | first packet that it lacks |
/// | 48 | 8 | number after the last packet that it expects |
/// | 56 | 8 | packets that it received through the tree |
/// | 64 | 8 | packets that it received as repairs or multicast again |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Report {
    /// Epoch of the receiver's place, or 0 if it has none.
    pub epoch: u32,
    /// First packet that the receiver lacks.
    #[cfg_attr(test, proptest(strategy = "tests::numbers()"))]
    pub next: u64,
    /// Number after the last packet that the receiver expects.
    #[cfg_attr(test, proptest(strategy = "tests::numbers()"))]
    pub limit: u64,
    /// Number of packets that the receiver got through the tree.
    pub by_tree: u64,
    /// Number of packets that the receiver got as repairs or that were multicast again.
    pub by_repair: u64,
}

impl Packet {
    pub(super) fn data(number: u64, fragment: Fragment, way: Way) -> Self {
        Self::Data(DataPacket { number, fragment, way, is_relayed: false })
    }

    /// Appends the encoded datagram to `out`.
    pub fn encode(
        &self,
        group: GroupId,
        origin: impl Into<Origin>,
        stream: u32,
        out: &mut Vec<u8>,
    ) {
        let (kind, flags) = match self {
            Self::Data(data) => (data.kind(), data.flags()),
            _ => (self.tag(), 0),
        };
        let protocol = Protocol::Bulk;
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view: stream };
        let start = header.begin(out);
        self.put_fields(out);
        wire::seal(out, start);
    }

    /// Decodes the body of a datagram of this protocol.
    ///
    /// # Errors
    /// Returns an error if the body is malformed.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, DecodeError> {
        if header.protocol != Protocol::Bulk {
            return Err(DecodeError::Kind);
        }
        let kind = if header.kind == RELAYED { DATA } else { header.kind };
        let mut packet = Self::take_body(kind, body)?;
        match &mut packet {
            Self::Data(data) => data.set_header(header.kind, header.flags)?,
            _ if header.flags != 0 => return Err(DecodeError::Value),
            _ => {}
        }
        Ok(packet)
    }
}

crate::variants! {
    Packet {
        DATA => Data(data),
        2 => Announce { epoch, end with number },
        3 => Ack(acks),
        4 => Report(report),
        5 => Place { receiver, place },
        6 => Ask(ranges with ranges),
        7 => Cut { ring, successor },
        8 => Silent { successor },
        10 => Release { ring, epoch, from with number },
        11 => Farewell { epoch, end with number },
        12 => FarewellHeard,
    } if |packet| match packet {
        Packet::Ack(acks) => acks.len() <= MAX_ACKS,
        _ => true,
    };
}

crate::fields! {
    Report { epoch, next with number, limit with number, by_tree, by_repair };
}

/// Maximum number of acknowledgments in a packet: one per seat.
const MAX_ACKS: usize = 2;
