//! RDCM's packets. Each follows the common header of [`crate::wire`]. The view field of the header
//! is the number of the [stream](Packet#streams).
//!
//! All numbers are big-endian. A list is a count u16, followed by its entries.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes};

pub(super) use self::place::PLACE_BYTES;
pub use self::place::{MAX_RELAYS, Place, Seat};
use super::having::Having;
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, NodeId, Origin};

mod place;

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
    Ask(Vec<core::ops::Range<u64>>),
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
pub struct DataPacket {
    /// Number in the stream.
    pub number: u64,
    /// Fragment of a message.
    pub piece: Piece,
    /// Path by which the packet is sent.
    pub way: Way,
    /// `true` if a receiver relays the packet along the tree. A repair is never relayed.
    pub is_relayed: bool,
}

/// A fragment of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// `true` if it is the first fragment of its message.
    pub is_first: bool,
    /// `true` if it is the last fragment of its message.
    pub is_last: bool,
    /// Bytes of the fragment.
    pub bytes: Bytes,
}

/// Path by which a data packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the tree, for the first time.
    Tree {
        /// Binary logarithm of the number of packets in flight when it was sent, at most 15.
        doublings: u8,
    },
    /// Through the tree, again.
    Again,
    /// From a receiver that has the packet, or from the sender on request.
    Repair,
}

/// Acknowledgment in one ring: of a receiver in its leaf ring, of its branch in its proxy ring.
///
/// | bytes | field |
/// |---|---|
/// | 4 | ring, by its vertex |
/// | 8 | first missing packet |
/// | 8 | number below which all missing packets are known |
/// | 8 | number after the last packet that is expected |
/// | 4 | packets that arrived through the tree, modulo 2^32 |
/// | 2 | number of ranges |
/// | 8 each | range of present packets: offset from the first missing packet u32, length u32 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingAck {
    /// Ring in which the packets are acknowledged.
    pub ring: u32,
    /// Packets that are present.
    pub has: Having,
    /// Number below which all packets that are not present are known to be missing.
    pub known_to: u64,
    /// Number after the last packet that may be sent.
    pub limit: u64,
    /// Number of packets that the acknowledging receiver itself got through the tree, modulo 2^32.
    pub by_tree: u32,
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
                out.put_slice(&data.piece.bytes);
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
            return take_data(is_relayed, header.flags, body).map(Self::Data);
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

impl Way {
    /// Returns the path of a packet that is sent through the tree for the first time, with
    /// `under_way` packets in flight.
    pub fn tree(under_way: u64) -> Self {
        let doublings = under_way.max(1).ilog2().min(MAX_DOUBLINGS.into());
        Self::Tree { doublings: doublings as u8 }
    }
}

impl DataPacket {
    fn flags(&self) -> u8 {
        let way = match self.way {
            Way::Tree { doublings } => doublings.min(MAX_DOUBLINGS) << DOUBLINGS_SHIFT,
            Way::Again => AGAIN,
            Way::Repair => REPAIR,
        };
        let piece = &self.piece;
        let of_piece = (u8::from(piece.is_first) * FIRST) | (u8::from(piece.is_last) * LAST);
        way | of_piece
    }
}

impl RingAck {
    /// Creates an acknowledgment in `ring`. It contains only the first [`MAX_RANGES`] ranges of
    /// `has`.
    pub fn new(ring: u32, has: &Having, known_to: u64, limit: u64, by_tree: u32) -> Self {
        let mut told = Having::all_below(has.next());
        let mut known_to = known_to.max(has.next());
        for (count, range) in has.later().enumerate() {
            // Offsets have 32 bits, but sets of packets may be larger.
            let is_near = range.end - has.next() <= u64::from(u32::MAX);
            if count == MAX_RANGES || !is_near {
                known_to = known_to.min(told.end());
                break;
            }
            told.insert_range(range);
        }
        Self { ring, has: told, known_to, limit, by_tree }
    }

    /// Returns the acknowledgment restricted to packets below `end`. An acknowledgment beyond that
    /// is forged, or comes from a receiver that is far ahead.
    pub fn below(&self, end: u64) -> Cow<'_, Self> {
        if self.known_to.max(self.has.end()) <= end {
            return Cow::Borrowed(self);
        }
        let (has, known_to) = (self.has.below(end), self.known_to.min(end));
        Cow::Owned(Self { has, known_to, ..*self })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.ring);
        out.put_u64(self.has.next());
        out.put_u64(self.known_to);
        out.put_u64(self.limit);
        out.put_u32(self.by_tree);
        out.put_u16(self.has.later().count() as u16);
        for range in self.has.later() {
            out.put_u32((range.start - self.has.next()) as u32);
            out.put_u32((range.end - range.start) as u32);
        }
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let (ring, next) = (take_u32(bytes)?, take_number(bytes)?);
        let (known_to, limit) = (take_number(bytes)?, take_number(bytes)?);
        let by_tree = take_u32(bytes)?;
        let ranges = take_list(bytes, MAX_RANGES, |bytes| Ok((take_u32(bytes)?, take_u32(bytes)?)));
        let mut has = Having::all_below(next);
        let mut last = next;
        for (after, count) in ranges? {
            let start = next + u64::from(after);
            let end = start + u64::from(count);
            if start <= last || count == 0 {
                return Err(DecodeError::Value);
            }
            has.insert_range(start..end);
            last = end;
        }
        if known_to < next {
            return Err(DecodeError::Value);
        }
        Ok(Self { ring, has, known_to, limit, by_tree })
    }
}

fn take_data(is_relayed: bool, flags: u8, body: &[u8]) -> Result<DataPacket, DecodeError> {
    let mut bytes = body;
    let number = take_number(&mut bytes)?;
    let way = match flags & (REPAIR | AGAIN) {
        0 => Way::Tree { doublings: flags >> DOUBLINGS_SHIFT },
        REPAIR => Way::Repair,
        AGAIN => Way::Again,
        _ => return Err(DecodeError::Value),
    };
    let is_first_time = matches!(way, Way::Tree { .. });
    let is_impossible = is_relayed && way == Way::Repair;
    if !is_first_time && flags >> DOUBLINGS_SHIFT != 0 || is_impossible {
        return Err(DecodeError::Value);
    }
    let (is_first, is_last) = (flags & FIRST != 0, flags & LAST != 0);
    let piece = Piece { is_first, is_last, bytes: Bytes::copy_from_slice(bytes) };
    Ok(DataPacket { number, piece, way, is_relayed })
}

fn take_range(bytes: &mut &[u8]) -> Result<core::ops::Range<u64>, DecodeError> {
    let range = take_number(bytes)?..take_number(bytes)?;
    if range.is_empty() { Err(DecodeError::Value) } else { Ok(range) }
}

pub(super) fn take_list<T>(
    bytes: &mut &[u8],
    most: usize,
    mut take: impl FnMut(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::from(bytes.try_get_u16().map_err(|_| DecodeError::Length)?);
    if count > most {
        return Err(DecodeError::Value);
    }
    (0..count).map(|_| take(bytes)).collect()
}

pub(super) fn take_u32(bytes: &mut &[u8]) -> Result<u32, DecodeError> {
    bytes.try_get_u32().map_err(|_| DecodeError::Length)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    bytes.try_get_u64().map_err(|_| DecodeError::Length)
}

/// Reads a packet number. At a million packets per second, a stream takes 30,000 years to reach the
/// limit, and sums of numbers below it do not overflow.
fn take_number(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let number = take_u64(bytes)?;
    if number <= MAX_NUMBER { Ok(number) } else { Err(DecodeError::Value) }
}

pub(super) fn take_node(bytes: &mut &[u8]) -> Result<NodeId, DecodeError> {
    take_u64(bytes).map(NodeId)
}

/// Bytes before the fragment in a data packet.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<u64>();
const MAX_NUMBER: u64 = 1 << 60;
/// Maximum number of ranges in an acknowledgment or a request.
pub const MAX_RANGES: usize = 32;
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

const FIRST: u8 = 1;
const LAST: u8 = 2;
const REPAIR: u8 = 4;
const AGAIN: u8 = 8;
const DOUBLINGS_SHIFT: u32 = 4;
const MAX_DOUBLINGS: u8 = 15;

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
