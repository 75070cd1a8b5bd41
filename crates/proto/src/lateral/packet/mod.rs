//! Packets of the lateral protocol. Each follows the common header of [`crate::wire`].

pub mod symbol;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::Field;
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{Class, GroupId, NodeId, Origin, PacketId, RateOfFire, SeqNo};

/// A lateral packet. Its variable parts are borrowed from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// A message or fragment, sent to the group.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    /// | 40 | n | [symbol] |
    ///
    /// Flag 1 ([`CONFIRM`]): every member replies with a [`Packet::Ack`].
    Data { seqno: SeqNo, confirm: bool, symbol: &'a [u8] },
    /// XOR of one or more symbols, for one node. The header's group is 0.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 1 | number of packets, 1 to 32 |
    /// | 37 | 3 | zero |
    /// | 40 | 16 n | [packet ids](WireId) |
    /// | 40 + 16 n | m | XOR of the symbols, as long as the longest |
    Repair { ids: &'a [WireId], sum: &'a [u8] },
    /// Request for packets that the header's sender is missing. The header's group is 0.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | cookie from the queried node's [`Packet::Challenge`]; 0 before the first |
    /// | 44 | 16 n | [packet ids](WireId), n >= 1 |
    Nak { cookie: u64, ids: &'a [WireId] },
    /// A data packet, sent again in reply to a [`Packet::Nak`].
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | original sender |
    /// | 44 | 4 | sequence number |
    /// | 48 | n | [symbol] |
    Retransmission { origin: NodeId, seqno: SeqNo, symbol: &'a [u8] },
    /// Reply to a [`Packet::Nak`] for packets that are lacking or expired. The header's group is 0.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 16 n | [packet ids](WireId), n >= 1 |
    ///
    /// Flag 1 ([`EXPIRED`]): the packets are held, but their deadline has passed.
    HaveNot { ids: &'a [WireId], expired: bool },
    /// Report of the header's sender on the end of its stream in the group.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | next sequence number of the stream |
    /// | 40 | 4 | first sequence number that the receiver is owed; 0 unless flag 2 is set |
    /// | 44 | 8 | nonce of the open that is answered; 0 unless flag 2 is set |
    ///
    /// * Flag 1 ([`CONFIRM`]): every member replies with a [`Packet::Ack`].
    /// * Flag 2 ([`FIRST`]): the heartbeat answers a [`Packet::Open`].
    Heartbeat { next: SeqNo, first: Option<SeqNo>, nonce: u64, confirm: bool },
    /// Position of a member in the stream of the node that receives this packet.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | sender of the stream |
    /// | 44 | 8 | its incarnation |
    /// | 52 | 4 | first sequence number that is neither delivered nor lost |
    /// | 56 | 4 | number of packets of the stream that were lost |
    Ack {
        /// Sender of the stream. Another incarnation may have taken over its address since.
        to: Origin,
        settled_to: SeqNo,
        lost: u32,
    },
    /// Reply to a [`Packet::Nak`] with a wrong cookie. It has the same length and layout as the
    /// NAK. With the right cookie, a node proves that it receives the datagrams sent to its
    /// address. Only then are packets retransmitted to it.
    Challenge { cookie: u64, ids: &'a [WireId] },
    /// Query for the part of the receiver's stream that the header's sender is owed: its first
    /// sequence number and the end of the stream.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | nonce, repeated in the answer; no other node receives it |
    Open { nonce: u64 },
}

/// A packet id on the wire.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | sender |
/// | 8 | 4 | group |
/// | 12 | 4 | sequence number |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct WireId {
    sender: U64,
    group: U32,
    seqno: U32,
}

/// Flag of data packets and heartbeats: acknowledgments are requested.
pub const CONFIRM: u8 = 1;
/// Flag of heartbeats: the first sequence number that the receiver is owed is present.
pub const FIRST: u8 = 2;
/// Flag of have-nots: the deadline of the packets has passed.
pub const EXPIRED: u8 = 1;

/// Size, in bytes, of a [`WireId`].
pub const ID_BYTES: usize = size_of::<WireId>();
/// Size, in bytes, of a repair without its ids and its XOR.
pub const REPAIR_BYTES: usize = HEADER_BYTES + 4;

const DATA: u8 = 1;
const REPAIR: u8 = 2;
const NAK: u8 = 3;
const RETRANSMISSION: u8 = 4;
const HAVE_NOT: u8 = 5;
const HEARTBEAT: u8 = 6;
const ACK: u8 = 7;
const OPEN: u8 = 8;
const CHALLENGE: u8 = 9;

impl From<PacketId> for WireId {
    fn from(id: PacketId) -> Self {
        Self {
            sender: U64::new(id.sender.0),
            group: U32::new(id.group.0),
            seqno: U32::new(id.seqno.0),
        }
    }
}

impl From<WireId> for PacketId {
    fn from(id: WireId) -> Self {
        Self {
            sender: NodeId(id.sender.get()),
            group: GroupId(id.group.get()),
            seqno: SeqNo(id.seqno.get()),
        }
    }
}

impl<'a> Packet<'a> {
    /// Returns the class of the packet, which is reported to the driver.
    pub fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Repair { .. } => Class::Repair,
            Self::Retransmission { .. } => Class::Retransmission,
            Self::Nak { .. } | Self::HaveNot { .. } | Self::Heartbeat { .. } => Class::Control,
            Self::Ack { .. } | Self::Open { .. } | Self::Challenge { .. } => Class::Control,
        }
    }

    /// Decodes a lateral datagram, including its header.
    ///
    /// # Errors
    /// Returns an error if the header or the body is invalid, or if the datagram belongs to another
    /// protocol.
    pub fn decode(datagram: &'a [u8]) -> Result<(Header, Self), DecodeError> {
        let (header, body) = Header::decode(datagram)?;
        Ok((header, Self::decode_body(&header, body)?))
    }

    pub(super) fn decode_body(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        if header.protocol != Protocol::Lateral {
            return Err(DecodeError::Kind);
        }
        let flag = |bit: u8| header.flags & bit != 0;
        let mut bytes = body;
        let bytes = &mut bytes;
        let packet = match header.kind {
            DATA => {
                let (seqno, symbol) = Field::take(bytes)?;
                Self::Data { seqno, confirm: flag(CONFIRM), symbol }
            }
            REPAIR => Self::take_repair(bytes)?,
            NAK => Self::Nak { cookie: Field::take(bytes)?, ids: take_ids(bytes)? },
            CHALLENGE => Self::Challenge { cookie: Field::take(bytes)?, ids: take_ids(bytes)? },
            RETRANSMISSION => {
                let (origin, seqno, symbol) = Field::take(bytes)?;
                Self::Retransmission { origin, seqno, symbol }
            }
            HAVE_NOT => Self::HaveNot { ids: take_ids(bytes)?, expired: flag(EXPIRED) },
            HEARTBEAT => {
                let (next, first, nonce) = Field::take(bytes)?;
                let first = flag(FIRST).then_some(first);
                Self::Heartbeat { next, first, nonce, confirm: flag(CONFIRM) }
            }
            ACK => {
                let (to, settled_to, lost) = Field::take(bytes)?;
                Self::Ack { to, settled_to, lost }
            }
            OPEN => Self::Open { nonce: Field::take(bytes)? },
            _ => return Err(DecodeError::Kind),
        };
        if bytes.is_empty() { Ok(packet) } else { Err(DecodeError::Length) }
    }

    /// Appends the datagram, including its header, to `out`.
    ///
    /// # Panics
    /// Panics if the datagram is longer than UDP allows. Packets of the engine never are.
    pub fn encode(&self, origin: impl Into<Origin>, group: GroupId, view: u32, out: &mut Vec<u8>) {
        let (kind, flags) = self.kind_and_flags();
        let protocol = Protocol::Lateral;
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view };
        let start = header.begin(out);
        match *self {
            Self::Data { seqno, symbol, .. } => (seqno, symbol).put(out),
            Self::Repair { ids, sum } => (ids.len() as u8, [0_u8; 3], ids, sum).put(out),
            Self::Nak { cookie, ids } | Self::Challenge { cookie, ids } => (cookie, ids).put(out),
            Self::HaveNot { ids, .. } => ids.put(out),
            Self::Retransmission { origin, seqno, symbol } => (origin, seqno, symbol).put(out),
            Self::Heartbeat { next, first, nonce, .. } => {
                (next, first.unwrap_or(SeqNo(0)), nonce).put(out);
            }
            Self::Ack { to, settled_to, lost } => (to, settled_to, lost).put(out),
            Self::Open { nonce } => nonce.put(out),
        }
        wire::seal(out, start);
    }

    fn kind_and_flags(&self) -> (u8, u8) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        match self {
            Self::Data { confirm, .. } => (DATA, flag(*confirm, CONFIRM)),
            Self::Repair { .. } => (REPAIR, 0),
            Self::Nak { .. } => (NAK, 0),
            Self::Challenge { .. } => (CHALLENGE, 0),
            Self::Retransmission { .. } => (RETRANSMISSION, 0),
            Self::HaveNot { expired, .. } => (HAVE_NOT, flag(*expired, EXPIRED)),
            Self::Heartbeat { first, confirm, .. } => {
                (HEARTBEAT, flag(*confirm, CONFIRM) | flag(first.is_some(), FIRST))
            }
            Self::Ack { .. } => (ACK, 0),
            Self::Open { .. } => (OPEN, 0),
        }
    }

    fn take_repair(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (count, zero) = <(u8, [u8; 3])>::take(bytes)?;
        if !(1..=RateOfFire::MAX_R).contains(&count) || zero != [0; 3] {
            return Err(DecodeError::Value);
        }
        let (ids, sum) = <[WireId]>::ref_from_prefix_with_elems(bytes, count.into())
            .map_err(|_| DecodeError::Length)?;
        *bytes = &[];
        Ok(Self::Repair { ids, sum })
    }
}

fn take_ids<'a>(bytes: &mut &'a [u8]) -> Result<&'a [WireId], DecodeError> {
    let ids = <&[WireId]>::take(bytes)?;
    if ids.is_empty() { Err(DecodeError::Length) } else { Ok(ids) }
}

/// Size, in bytes, of a data packet without its symbol.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<U32>();

/// Returns the number of ids, at least 1, that fit in a NAK or have-not of `datagram_bytes`.
pub fn ids_that_fit(datagram_bytes: usize) -> usize {
    (datagram_bytes.saturating_sub(HEADER_BYTES + size_of::<U64>()) / ID_BYTES).max(1)
}

// The payload length of a symbol is a 16-bit field, which suffices for any datagram.
const _: () = assert!(wire::MAX_DATAGRAM_BYTES <= U16::MAX_VALUE.get() as usize);

#[cfg(test)]
mod tests;
