//! RDCM's packets. Each follows the common header of [`crate::wire`]. The view field of the header
//! is the number of the [stream](Packet#streams).
//!
//! All numbers are big-endian. A list is a count u16, followed by its entries.

use alloc::vec::Vec;
use core::ops::Range;

use bytes::BufMut;

pub use self::ack::RingAck;
pub use self::data::{DATA_BYTES, DataPacket, Fragment, Way};
use self::fields::{take_list, take_node, take_number, take_u32, take_u64};
pub(super) use self::place::PLACE_BYTES;
pub use self::place::{Place, Seat};
pub use super::limits::{MAX_RANGES, MAX_RELAYS};
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
/// The packets of one sender in one group are numbered consecutively, by default from 1 on. If a
/// node leaves and sends there again, this is another stream, with a later number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A data packet.
    Data(DataPacket),
    /// End of the stream so far. Multicast while the sender has nothing to send.
    Announce {
        /// Epoch of the receiver's place. 0 if the packet goes to all. An end beyond a receiver's
        /// window is accepted only with the epoch of its place.
        epoch: u32,
        /// Number after the last packet that was multicast.
        end: u64,
    },
    /// Packets that a receiver and its branch have. Sent to predecessors and overlay parents.
    Ack(Vec<RingAck>),
    /// Progress of a receiver. Sent to the sender.
    Report(Report),
    /// Place of a receiver. Sent by the sender.
    Place {
        /// Id of the receiver. A node that was restarted at the address of another ignores the
        /// places of that one.
        receiver: NodeId,
        /// Place in the overlay.
        place: Place,
    },
    /// Request for packets that a receiver cannot get from others. Sent to the sender.
    Ask(Vec<Range<u64>>),
    /// Report that the tree does not reach a successor. Sent to the sender.
    Cut {
        /// Ring in which it is a successor.
        ring: u32,
        /// Receiver that is cut off.
        successor: NodeId,
    },
    /// Report that a successor acknowledges nothing. Sent to the sender.
    Silent {
        /// Receiver that is silent.
        successor: NodeId,
    },
    /// End of a stream whose sender yields to another one. Sent to its receivers.
    Farewell {
        /// Epoch of the last places. It is near that of the receiver's place.
        epoch: u32,
        /// Number after the last packet.
        end: u64,
    },
    /// Acknowledgment of a farewell. Sent to the former sender.
    FarewellHeard,
    /// Release of packets by a receiver that its new predecessor serves. Sent to the former
    /// predecessor (3.4).
    Release {
        /// Ring that both were in.
        ring: u32,
        /// Epoch of the receiver's place.
        epoch: u32,
        /// First packet that the receiver no longer needs from its former predecessor.
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
/// | 64 | 8 | packets that it received as repairs |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Epoch of its place. 0 if it has none.
    pub epoch: u32,
    /// First packet that it lacks.
    pub next: u64,
    /// Number after the last packet that it expects.
    pub limit: u64,
    /// Number of packets that it received through the tree.
    pub by_tree: u64,
    /// Number of packets that it received as repairs.
    pub by_repair: u64,
}

impl Packet {
    /// Creates a data packet that is not relayed.
    pub(super) fn data(number: u64, fragment: Fragment, way: Way) -> Self {
        Self::Data(DataPacket { number, fragment, way, is_relayed: false })
    }

    /// Appends the datagram to `out`.
    pub fn encode(
        &self,
        group: GroupId,
        origin: impl Into<Origin>,
        stream: u32,
        out: &mut Vec<u8>,
    ) {
        let (kind, flags) = self.kind();
        let protocol = Protocol::Bulk;
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view: stream };
        let start = header.begin(out);
        match self {
            Self::Data(data) => {
                out.put_u64(data.number);
                out.put_slice(&data.fragment.bytes);
            }
            Self::Announce { epoch, end } | Self::Farewell { epoch, end } => {
                out.put_u32(*epoch);
                out.put_u64(*end);
            }
            Self::FarewellHeard => {}
            Self::Ack(acks) => {
                out.put_u16(acks.len() as u16);
                acks.iter().for_each(|ack| ack.put(out));
            }
            Self::Report(report) => {
                out.put_u32(report.epoch);
                out.put_u64(report.next);
                out.put_u64(report.limit);
                out.put_u64(report.by_tree);
                out.put_u64(report.by_repair);
            }
            Self::Place { receiver, place } => {
                out.put_u64(receiver.0);
                place.put(out);
            }
            Self::Ask(ranges) => {
                out.put_u16(ranges.len() as u16);
                for range in ranges {
                    out.put_u64(range.start);
                    out.put_u64(range.end);
                }
            }
            Self::Cut { ring, successor } => {
                out.put_u32(*ring);
                out.put_u64(successor.0);
            }
            Self::Silent { successor } => out.put_u64(successor.0),
            Self::Release { ring, epoch, from } => {
                out.put_u32(*ring);
                out.put_u32(*epoch);
                out.put_u64(*from);
            }
        }
        wire::seal(out, start);
    }

    fn kind(&self) -> (u8, u8) {
        match self {
            Self::Data(data) if data.is_relayed => (RELAYED, data.flags()),
            Self::Data(data) => (DATA, data.flags()),
            Self::Announce { .. } => (ANNOUNCE, 0),
            Self::Farewell { .. } => (FAREWELL, 0),
            Self::FarewellHeard => (FAREWELL_HEARD, 0),
            Self::Ack(_) => (ACK, 0),
            Self::Report(_) => (REPORT, 0),
            Self::Place { .. } => (PLACE, 0),
            Self::Ask(_) => (ASK, 0),
            Self::Cut { .. } => (CUT, 0),
            Self::Silent { .. } => (SILENT, 0),
            Self::Release { .. } => (RELEASE, 0),
        }
    }

    /// Decodes the body of a datagram of this protocol.
    ///
    /// # Errors
    /// Fails if the body is malformed.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, DecodeError> {
        if header.protocol != Protocol::Bulk {
            return Err(DecodeError::Kind);
        }
        if let DATA | RELAYED = header.kind {
            let is_relayed = header.kind == RELAYED;
            return DataPacket::take(is_relayed, header.flags, body).map(Self::Data);
        }
        if header.flags != 0 {
            return Err(DecodeError::Value);
        }
        let mut bytes = body;
        let bytes = &mut bytes;
        let packet = match header.kind {
            ANNOUNCE => Self::Announce { epoch: take_u32(bytes)?, end: take_number(bytes)? },
            FAREWELL => Self::Farewell { epoch: take_u32(bytes)?, end: take_number(bytes)? },
            FAREWELL_HEARD => Self::FarewellHeard,
            ACK => Self::Ack(take_list(bytes, MAX_ACKS, RingAck::take)?),
            REPORT => Self::Report(Report {
                epoch: take_u32(bytes)?,
                next: take_number(bytes)?,
                limit: take_number(bytes)?,
                by_tree: take_u64(bytes)?,
                by_repair: take_u64(bytes)?,
            }),
            PLACE => Self::Place { receiver: take_node(bytes)?, place: Place::take(bytes)? },
            ASK => Self::Ask(take_list(bytes, MAX_RANGES, take_range)?),
            CUT => Self::Cut { ring: take_u32(bytes)?, successor: take_node(bytes)? },
            SILENT => Self::Silent { successor: take_node(bytes)? },
            RELEASE => Self::Release {
                ring: take_u32(bytes)?,
                epoch: take_u32(bytes)?,
                from: take_number(bytes)?,
            },
            _ => return Err(DecodeError::Kind),
        };
        if bytes.is_empty() { Ok(packet) } else { Err(DecodeError::Length) }
    }
}

fn take_range(bytes: &mut &[u8]) -> Result<Range<u64>, DecodeError> {
    let range = take_number(bytes)?..take_number(bytes)?;
    if range.is_empty() { Err(DecodeError::Value) } else { Ok(range) }
}

/// Maximum number of acknowledgments in a packet: one per seat.
const MAX_ACKS: usize = 2;

const DATA: u8 = 1;
const ANNOUNCE: u8 = 2;
const ACK: u8 = 3;
const REPORT: u8 = 4;
const PLACE: u8 = 5;
const ASK: u8 = 6;
const CUT: u8 = 7;
const SILENT: u8 = 8;
const RELAYED: u8 = 9;
const RELEASE: u8 = 10;
const FAREWELL: u8 = 11;
const FAREWELL_HEARD: u8 = 12;
