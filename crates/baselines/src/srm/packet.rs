//! The packets of SRM. Each follows the common header of [`carom_proto::wire`], and is sent to the
//! group.

use carom_proto::wire::HEADER_BYTES;
use carom_proto::{Class, NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::guest::GuestPacket;

/// An SRM packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// Request for a packet that the requestor lacks. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source: the original sender |
    /// | 44 | 4 | sequence number |
    /// | 48 | 4 | the requestor's estimate of its distance to the source, microseconds |
    Request { source: NodeId, seqno: SeqNo, distance_us: u32 },
    /// Retransmission of a packet by a member that has it. Kind 3.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source: the original sender |
    /// | 44 | 4 | sequence number |
    /// | 48 | 4 | the repairer's estimate of its distance to the requestor, microseconds |
    /// | 52 | 8 | the requestor whose request is answered |
    /// | 60 | n | [symbol](crate::block) |
    Repair { source: NodeId, seqno: SeqNo, distance_us: u32, requestor: NodeId, block: &'a [u8] },
    /// Session message: the known ends of all streams, and timestamps for measuring distances. Kind
    /// 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | sending time, by the sender's clock |
    /// | 44 | 4 | sequence number of the sender's next message |
    /// | 48 | 24 n | [reports](Report) |
    Session { sent_at: u64, next: SeqNo, reports: &'a [Report] },
}

/// A member's report on another member.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | the other member |
/// | 8 | 4 | sequence number after the highest known; meaningless if none is known |
/// | 12 | 4 | microseconds since its last session message arrived; bit 31: a number is known |
/// | 16 | 8 | sending time of that message, by its sender's clock; 0 if none has arrived |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Report {
    member: U64,
    next: U32,
    held: U32,
    echo: U64,
}

impl Report {
    /// Creates a report on `member`. `echo` holds the sending time of the member's last session
    /// message, by the member's clock, and the time in microseconds since its arrival, up to 35
    /// minutes.
    pub fn new(member: NodeId, next: Option<SeqNo>, echo: Option<(u64, u32)>) -> Self {
        let (echo, held_us) = echo.unwrap_or((0, 0));
        let known = if next.is_some() { KNOWN } else { 0 };
        Self {
            member: U64::new(member.0),
            next: U32::new(next.map_or(0, |next| next.0)),
            held: U32::new(held_us.min(KNOWN - 1) | known),
            echo: U64::new(echo),
        }
    }

    /// Returns the member that the report is about.
    pub fn member(&self) -> NodeId {
        NodeId(self.member.get())
    }

    /// Returns the sequence number after the member's highest known message, if one is known.
    pub fn next(&self) -> Option<SeqNo> {
        (self.held.get() & KNOWN != 0).then(|| SeqNo(self.next.get()))
    }

    /// Returns the sending time of the member's last session message, by the member's clock, and
    /// the time in microseconds for which it was held. Returns `None` if none has arrived.
    pub fn echo(&self) -> Option<(u64, u32)> {
        let echo = self.echo.get();
        (echo != 0).then(|| (echo, self.held.get() & !KNOWN))
    }
}

const KNOWN: u32 = 1 << 31;
/// Size, in bytes, of a [`Report`].
pub const REPORT_BYTES: usize = size_of::<Report>();
/// Size, in bytes, of a session message before its reports.
pub const SESSION_BYTES: usize = HEADER_BYTES + 12;
/// Overhead, in bytes, of a repair, which is the largest overhead of all packets.
pub const REPAIR_BYTES: usize = HEADER_BYTES + 24;

carom_proto::variants! {
    Packet<'a> {
        2 => Request { source, seqno, distance_us },
        3 => Repair { source, seqno, distance_us, requestor, block },
        4 => Session { sent_at, next, reports },
    };
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 1;

    fn class(&self) -> Class {
        match self {
            Self::Repair { .. } => Class::Retransmission,
            Self::Request { .. } | Self::Session { .. } => Class::Control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;

    #[test]
    fn a_request_on_the_wire_is_this() {
        let request = Packet::Request { source: NodeId(5), seqno: SeqNo(6), distance_us: 258 };
        assert_on_the_wire(
            request,
            &mut Vec::new(),
            2,
            &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 1, 2],
        );
    }

    #[test]
    fn a_repair_on_the_wire_is_this() {
        let (source, seqno, requestor) = (NodeId(5), SeqNo(6), NodeId(0xB));
        let repair = Packet::Repair { source, seqno, distance_us: 3, requestor, block: &[1] };
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 3, // source, seqno, distance
            0, 0, 0, 0, 0, 0, 0, 0xB, 1, // requestor, symbol
        ];
        assert_on_the_wire(repair, &mut Vec::new(), 3, &expected);
    }

    #[test]
    fn a_session_message_on_the_wire_is_this() {
        let reports = [
            Report::new(NodeId(3), Some(SeqNo(4)), Some((8, 2))),
            Report::new(NodeId(2), None, None),
        ];
        let session = Packet::Session { sent_at: 9, next: SeqNo(1), reports: &reports };
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, // sent at, next
            0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0x80, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            8, // report
            0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // report
        ];
        assert_on_the_wire(session, &mut Vec::new(), 4, &expected);
        assert_eq!((reports[0].next(), reports[0].echo()), (Some(SeqNo(4)), Some((8, 2))));
        assert_eq!((reports[1].next(), reports[1].echo()), (None, None));
    }
}
