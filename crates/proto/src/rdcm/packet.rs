//! RDCM's packets. Each follows the common header of [`crate::wire`], whose view field is the
//! number of the sender's [stream](Packet#streams), as far as the header's sender knows one.
//!
//! All numbers are big-endian; lists are a count u16 and then their entries.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes};

pub(super) use self::place::PLACE_BYTES;
pub use self::place::{MAX_RELAYS, Place, Seat};
use super::having::Having;
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, NodeId, Origin};

mod place;

/// A packet.
///
/// # Streams
/// The packets of one sender in one group are numbered from 1 on. When a node leaves and sends
/// there again, that is another stream, with a higher number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A packet of the stream.
    Data(DataPacket),
    /// How far the sender is. By multicast, when it has nothing to send.
    Announce {
        /// The epoch of the receiver's place; 0 if it goes to all. What lies beyond a receiver's
        /// window is believed only with that.
        epoch: u32,
        /// The number after the last packet that it has multicast.
        end: u64,
    },
    /// What its sender has, and what its branch has: to its predecessors and overlay parents.
    Ack(Vec<RingAck>),
    /// How far a receiver is: to the sender.
    Report(Report),
    /// The place of a receiver: from the sender.
    Place {
        /// The receiver. A node that was started anew at the address of another takes no place of
        /// that one.
        receiver: NodeId,
        /// Its place.
        place: Place,
    },
    /// Packets that a receiver cannot get from others: to the sender.
    Ask(Vec<core::ops::Range<u64>>),
    /// The tree does not reach a successor: to the sender.
    Cut {
        /// The ring that it is a successor in.
        ring: u32,
        /// The successor.
        successor: NodeId,
    },
    /// A successor does not acknowledge anything: to the sender.
    Silent {
        /// The successor.
        successor: NodeId,
    },
    /// Where a stream has ended whose sender has given way to another: to a receiver of it.
    Farewell {
        /// An epoch near that of the receiver's last place.
        epoch: u32,
        /// The number after the last packet.
        end: u64,
    },
    /// A receiver has heard that: to the former sender.
    FarewellHeard,
    /// The new predecessor of a receiver serves it by now: to the former one (3.4).
    Release {
        /// The ring that both were in.
        ring: u32,
        /// The epoch of the receiver's place.
        epoch: u32,
        /// From this packet on the receiver needs none of its former predecessor.
        from: u64,
    },
}

/// A packet of the stream.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 8 | its number |
/// | 44 | n | the piece of the message |
///
/// Flags: 1 a message begins here, 2 it ends here, 4 a repair, 8 multicast again. The upper four
/// bits of a packet that is multicast for the first time: how often one packet is to be doubled for
/// as many as are under way, rounded down. What a receiver passes on along the tree is a packet of
/// a kind of its own, with the same flags and fields; it is never a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// Its number in the stream.
    pub number: u64,
    /// Its piece of a message.
    pub piece: Piece,
    /// How it comes.
    pub way: Way,
    /// Whether a receiver passes it on along the tree; never a repair.
    pub is_relayed: bool,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whether it is the first one.
    pub is_first: bool,
    /// Whether it is the last one.
    pub is_last: bool,
    /// The bytes.
    pub bytes: Bytes,
}

/// How a packet of the stream comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// For the first time, by the tree.
    Tree {
        /// Packets that were under way when it was sent, as their binary logarithm, at most 15.
        doublings: u8,
    },
    /// By the tree, again.
    Again,
    /// From a receiver that has it, or from the sender who was asked.
    Repair,
}

/// What somebody has in one ring: itself in its leaf ring, its branch in its proxy ring.
///
/// | bytes | field |
/// |---|---|
/// | 4 | the ring, by its vertex |
/// | 8 | the first packet that is missing |
/// | 8 | up to where it is known what is missing |
/// | 8 | the highest number that is expected |
/// | 4 | packets that have come by the tree, wrapping around |
/// | 2 | how many ranges follow |
/// | 8 each | a range that is there: from so many after the first missing packet, so many |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingAck {
    /// The ring.
    pub ring: u32,
    /// What is there.
    pub has: Having,
    /// Below this number all that is not there is known to be missing.
    pub known_to: u64,
    /// The number after the last packet that may be sent.
    pub limit: u64,
    /// How many packets the acknowledging receiver itself got by the tree; wraps around.
    pub by_tree: u32,
}

/// How far a receiver is.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 4 | the epoch of the place that it is in |
/// | 40 | 8 | the first packet that it lacks |
/// | 48 | 8 | the number after the last packet that it expects |
/// | 56 | 8 | packets that came by the tree |
/// | 64 | 8 | packets that came as repairs |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The epoch of the place that it is in; 0 if it has none.
    pub epoch: u32,
    /// The first packet that it lacks.
    pub next: u64,
    /// The number after the last packet that it expects.
    pub limit: u64,
    /// Packets that came by the tree.
    pub by_tree: u64,
    /// Packets that came as repairs.
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

    /// Reads the body of a datagram of this protocol.
    ///
    /// # Errors
    /// If it is nonsense.
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
    /// By the tree for the first time, when so many packets are under way.
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
    /// What is acknowledged in `ring`, of which only the first [`MAX_RANGES`] ranges are told.
    pub fn new(ring: u32, has: &Having, known_to: u64, limit: u64, by_tree: u32) -> Self {
        let mut told = Having::all_below(has.next());
        let mut known_to = known_to.max(has.next());
        for (count, range) in has.later().enumerate() {
            // What is told by 32 bits is not all that could be there.
            let is_near = range.end - has.next() <= u64::from(u32::MAX);
            if count == MAX_RANGES || !is_near {
                known_to = known_to.min(told.end());
                break;
            }
            told.insert_range(range);
        }
        Self { ring, has: told, known_to, limit, by_tree }
    }

    /// What it says of packets below `end`. Nothing beyond can be there: it is forged, or of a
    /// receiver that is far ahead.
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

/// The number of a packet. No stream comes near the limit, which takes 30,000 years at a million
/// packets in a second, and sums of numbers below it do not overflow.
fn take_number(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let number = take_u64(bytes)?;
    if number <= MAX_NUMBER { Ok(number) } else { Err(DecodeError::Value) }
}

pub(super) fn take_node(bytes: &mut &[u8]) -> Result<NodeId, DecodeError> {
    take_u64(bytes).map(NodeId)
}

/// Bytes before the piece in a packet of the stream.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<u64>();
const MAX_NUMBER: u64 = 1 << 60;
/// Ranges that an acknowledgement or a question holds at most.
pub const MAX_RANGES: usize = 32;
/// A receiver has two seats.
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
