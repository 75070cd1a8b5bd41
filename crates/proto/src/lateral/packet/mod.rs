//! Packets of the lateral protocol. Each follows the common header of [`crate::wire`].

pub mod symbol;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{Class, GroupId, Incarnation, NodeId, Origin, PacketId, RateOfFire, SeqNo};

/// A lateral packet, whose variable parts are borrowed from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A message or fragment, sent to the group.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    /// | 40 | n | [symbol] |
    ///
    /// Flag 1 ([`CONFIRM`]): every member replies with a [`Packet::Ack`].
    Data {
        /// Sequence number in the stream of the header's sender.
        seqno: SeqNo,
        /// `true` if the packet requests acknowledgments.
        confirm: bool,
        /// Symbol.
        symbol: &'a [u8],
    },
    /// XOR of several symbols, for one node. The header's group is 0.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 1 | number of packets, 1 to 32 |
    /// | 37 | 3 | zero |
    /// | 40 | 16 n | [packet ids](WireId) |
    /// | 40 + 16 n | m | XOR of the symbols, as long as the longest |
    Repair {
        /// Packets whose symbols are in the XOR.
        ids: &'a [WireId],
        /// XOR of the symbols.
        sum: &'a [u8],
    },
    /// Request for packets that the header's sender is missing. The header's group is 0.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | cookie from the queried node's [`Packet::Challenge`]; 0 before the first |
    /// | 44 | 16 n | [packet ids](WireId), n >= 1 |
    Nak {
        /// Proof that the requester receives what is sent to its address.
        cookie: u64,
        /// Requested packets.
        ids: &'a [WireId],
    },
    /// A data packet, sent again by a node that was queried for it.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | original sender |
    /// | 44 | 4 | sequence number |
    /// | 48 | n | [symbol] |
    Retransmission {
        /// Original sender.
        origin: NodeId,
        /// Sequence number in the stream of the original sender.
        seqno: SeqNo,
        /// Symbol.
        symbol: &'a [u8],
    },
    /// Reply to a [`Packet::Nak`] for packets that are not retransmitted. The header's group is 0.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 16 n | [packet ids](WireId), n >= 1 |
    ///
    /// Flag 1 ([`EXPIRED`]): the packets are held, but their deadline has passed.
    HaveNot {
        /// Packets that the header's sender does not retransmit.
        ids: &'a [WireId],
        /// `true` if the packets' deadline has passed.
        expired: bool,
    },
    /// End of the stream that the header's sender has in the group.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | next sequence number that it will use |
    /// | 40 | 4 | first sequence number that the receiver is owed; 0 unless flag 2 is set |
    /// | 44 | 8 | nonce of the open that this answers; 0 unless flag 2 is set |
    ///
    /// * Flag 1 ([`CONFIRM`]): every member replies with a [`Packet::Ack`].
    /// * Flag 2 ([`FIRST`]): this answers a [`Packet::Open`].
    Heartbeat {
        /// Next sequence number of the stream.
        next: SeqNo,
        /// First sequence number that the receiver is owed, in the answer to an open.
        first: Option<SeqNo>,
        /// Nonce of the [`Packet::Open`] that this answers, or 0.
        nonce: u64,
        /// `true` if the heartbeat requests acknowledgments.
        confirm: bool,
    },
    /// Position of a member in the stream of the node that this is sent to.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | sender of the stream |
    /// | 44 | 8 | its incarnation |
    /// | 52 | 4 | first sequence number that is neither delivered nor lost |
    /// | 56 | 4 | number of packets of the stream that were lost |
    Ack {
        /// Incarnation of the sender that is meant. Another one may have its address when this
        /// arrives.
        to: Origin,
        /// Sequence number before which every packet is settled.
        settled_to: SeqNo,
        /// Number of packets of the stream that were lost so far.
        lost: u32,
    },
    /// Reply to a [`Packet::Nak`] with a wrong cookie, with the same length and layout. A node
    /// proves with the right cookie that it receives what is sent to its address. Only then are
    /// packets retransmitted to it.
    Challenge {
        /// Right cookie.
        cookie: u64,
        /// Requested packets.
        ids: &'a [WireId],
    },
    /// Query for the first sequence number of the receiver's stream that the header's sender is
    /// owed, and for the end of the stream.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | nonce, repeated in the answer; no other node receives it |
    Open {
        /// Nonce.
        nonce: u64,
    },
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
/// Flag of heartbeats: the first sequence number owed is present.
pub const FIRST: u8 = 2;
/// Flag of have-nots: the deadline has passed.
pub const EXPIRED: u8 = 1;

/// Size of a [`WireId`], in bytes.
pub const ID_BYTES: usize = size_of::<WireId>();
/// Size of a repair without its ids and the XOR, in bytes.
pub const REPAIR_BYTES: usize = HEADER_BYTES + size_of::<RawRepair>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRepair {
    count: u8,
    zero: [u8; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRetransmission {
    origin: U64,
    seqno: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeartbeat {
    next: U32,
    first: U32,
    nonce: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAck {
    node: U64,
    incarnation: U64,
    settled_to: U32,
    lost: U32,
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Data = 1,
    Repair = 2,
    Nak = 3,
    Retransmission = 4,
    HaveNot = 5,
    Heartbeat = 6,
    Ack = 7,
    Open = 8,
    Challenge = 9,
}

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
    /// Returns the packet's class, by which a driver handles it.
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
    /// If the header or the body is invalid, or the datagram is of another protocol.
    pub fn decode(datagram: &'a [u8]) -> Result<(Header, Self), DecodeError> {
        let (header, body) = Header::decode(datagram)?;
        Ok((header, Self::decode_body(&header, body)?))
    }

    pub(super) fn decode_body(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        if header.protocol != Protocol::Lateral {
            return Err(DecodeError::Kind);
        }
        let flag = |bit: u8| header.flags & bit != 0;
        Ok(match header.kind {
            k if k == Kind::Data as u8 => Self::decode_data(body, flag(CONFIRM))?,
            k if k == Kind::Repair as u8 => Self::decode_repair(body)?,
            k if k == Kind::Nak as u8 => {
                let (cookie, ids) = decode_cookie(body)?;
                Self::Nak { cookie, ids }
            }
            k if k == Kind::Challenge as u8 => {
                let (cookie, ids) = decode_cookie(body)?;
                Self::Challenge { cookie, ids }
            }
            k if k == Kind::Retransmission as u8 => Self::decode_retransmission(body)?,
            k if k == Kind::HaveNot as u8 => {
                Self::HaveNot { ids: decode_ids(body)?, expired: flag(EXPIRED) }
            }
            k if k == Kind::Heartbeat as u8 => {
                let raw = RawHeartbeat::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                let (next, nonce) = (SeqNo(raw.next.get()), raw.nonce.get());
                let first = flag(FIRST).then_some(SeqNo(raw.first.get()));
                Self::Heartbeat { next, first, nonce, confirm: flag(CONFIRM) }
            }
            k if k == Kind::Ack as u8 => {
                let raw = RawAck::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                let incarnation = Incarnation(raw.incarnation.get());
                let to = Origin { node: NodeId(raw.node.get()), incarnation };
                let (settled_to, lost) = (SeqNo(raw.settled_to.get()), raw.lost.get());
                Self::Ack { to, settled_to, lost }
            }
            k if k == Kind::Open as u8 => {
                let nonce = U64::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
                Self::Open { nonce: nonce.get() }
            }
            _ => return Err(DecodeError::Kind),
        })
    }

    /// Appends the whole datagram to `out`.
    ///
    /// # Panics
    /// If the datagram would be longer than UDP can carry. The engine fits its packets into the
    /// path MTU.
    pub fn encode(&self, origin: impl Into<Origin>, group: GroupId, view: u32, out: &mut Vec<u8>) {
        let (kind, flags) = self.kind_and_flags();
        let (protocol, kind) = (Protocol::Lateral, kind as u8);
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view };
        let start = header.begin(out);
        match *self {
            Self::Data { seqno, symbol, .. } => {
                out.extend_from_slice(&seqno.0.to_be_bytes());
                out.extend_from_slice(symbol);
            }
            Self::Repair { ids, sum } => {
                let raw = RawRepair { count: ids.len() as u8, zero: [0; 3] };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(ids.as_bytes());
                out.extend_from_slice(sum);
            }
            Self::Nak { cookie, ids } | Self::Challenge { cookie, ids } => {
                out.extend_from_slice(&cookie.to_be_bytes());
                out.extend_from_slice(ids.as_bytes());
            }
            Self::HaveNot { ids, .. } => out.extend_from_slice(ids.as_bytes()),
            Self::Retransmission { origin, seqno, symbol } => {
                let (origin, seqno) = (U64::new(origin.0), U32::new(seqno.0));
                out.extend_from_slice(RawRetransmission { origin, seqno }.as_bytes());
                out.extend_from_slice(symbol);
            }
            Self::Heartbeat { next, first, nonce, .. } => {
                let (next, first) = (U32::new(next.0), U32::new(first.map_or(0, |f| f.0)));
                let nonce = U64::new(nonce);
                out.extend_from_slice(RawHeartbeat { next, first, nonce }.as_bytes());
            }
            Self::Ack { to, settled_to, lost } => {
                let (node, incarnation) = (U64::new(to.node.0), U64::new(to.incarnation.0));
                let (settled_to, lost) = (U32::new(settled_to.0), U32::new(lost));
                out.extend_from_slice(RawAck { node, incarnation, settled_to, lost }.as_bytes());
            }
            Self::Open { nonce } => out.extend_from_slice(&nonce.to_be_bytes()),
        }
        wire::seal(out, start);
    }

    fn kind_and_flags(&self) -> (Kind, u8) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        match self {
            Self::Data { confirm, .. } => (Kind::Data, flag(*confirm, CONFIRM)),
            Self::Repair { .. } => (Kind::Repair, 0),
            Self::Nak { .. } => (Kind::Nak, 0),
            Self::Challenge { .. } => (Kind::Challenge, 0),
            Self::Retransmission { .. } => (Kind::Retransmission, 0),
            Self::HaveNot { expired, .. } => (Kind::HaveNot, flag(*expired, EXPIRED)),
            Self::Heartbeat { first, confirm, .. } => {
                (Kind::Heartbeat, flag(*confirm, CONFIRM) | flag(first.is_some(), FIRST))
            }
            Self::Ack { .. } => (Kind::Ack, 0),
            Self::Open { .. } => (Kind::Open, 0),
        }
    }

    fn decode_data(body: &'a [u8], confirm: bool) -> Result<Self, DecodeError> {
        let (seqno, symbol) = U32::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
        Ok(Self::Data { seqno: SeqNo(seqno.get()), confirm, symbol })
    }

    fn decode_repair(body: &'a [u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = RawRepair::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
        if raw.count == 0 || raw.count > RateOfFire::MAX_R || raw.zero != [0; 3] {
            return Err(DecodeError::Value);
        }
        let count = usize::from(raw.count);
        let (ids, sum) =
            <[WireId]>::ref_from_prefix_with_elems(rest, count).map_err(|_| DecodeError::Length)?;
        Ok(Self::Repair { ids, sum })
    }

    fn decode_retransmission(body: &'a [u8]) -> Result<Self, DecodeError> {
        let (raw, symbol) =
            RawRetransmission::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
        let (origin, seqno) = (NodeId(raw.origin.get()), SeqNo(raw.seqno.get()));
        Ok(Self::Retransmission { origin, seqno, symbol })
    }
}

fn decode_ids(body: &[u8]) -> Result<&[WireId], DecodeError> {
    let ids = <[WireId]>::ref_from_bytes(body).map_err(|_| DecodeError::Length)?;
    if ids.is_empty() { Err(DecodeError::Length) } else { Ok(ids) }
}

fn decode_cookie(body: &[u8]) -> Result<(u64, &[WireId]), DecodeError> {
    let (cookie, rest) = U64::ref_from_prefix(body).map_err(|_| DecodeError::Length)?;
    Ok((cookie.get(), decode_ids(rest)?))
}

/// Size of a data packet without its symbol, in bytes.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<U32>();

/// Returns the number of ids that fit into a NAK or a have-not of at most `datagram_bytes`, at
/// least 1.
pub fn ids_that_fit(datagram_bytes: usize) -> usize {
    (datagram_bytes.saturating_sub(HEADER_BYTES + size_of::<U64>()) / ID_BYTES).max(1)
}

// A symbol's payload length has 16 bits, and no datagram is longer than that.
const _: () = assert!(wire::MAX_DATAGRAM_BYTES <= U16::MAX_VALUE.get() as usize);

#[cfg(test)]
mod tests;
