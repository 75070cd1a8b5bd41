//! RMP's packets (figure 4.1). Each follows the common header of [`crate::wire`], whose view field
//! is the version of the sender's [`Epoch`].
//!
//! All numbers are big-endian. A list is a count u16 followed by its entries. A [`Process`] is its
//! node u64 and its life u64. An [`Epoch`] is its version u32 and its creator.

use alloc::vec::Vec;

use bytes::Bytes;

pub use super::ring::{Accepted, GuestState, Position, Proposal, Snapshot, SourceState};
use super::ring::{Data, Ring};
use super::ring::{Round, Run, What};
use crate::codec::Variants;
use crate::ring::{Epoch, ListChange, Process, Timestamp};
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, NodeId, Origin, SeqNo};

mod fields;
pub(super) mod fragment;

/// A packet of the RMP engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum Packet {
    /// A fragment of a message. A packet that names its source was retransmitted by another member.
    Data(DataPacket),
    /// A round that orders packets and passes the token.
    Ack { epoch: Epoch, round: Round },
    /// A report that the token of the round at this place was accepted.
    Confirm { epoch: Epoch, at: Timestamp },
    /// A request for the packets and rounds that the header's sender is missing.
    Nack(Nack),
    /// A change to the view, a snapshot of the ring, or the list of a reformation.
    NewList(NewList),
    /// A request for a change to the view.
    ListChangeRequest {
        /// The ring, or `None` in a query and from a joiner that accepts any ring. A query requests
        /// to leave, which is always refused with a snapshot of the ring. The request number of the
        /// change is then the number of earlier tries without an answer.
        epoch: Option<Epoch>,
        change: ListChange,
    },
    /// A request to vote in a reformation, and the initiator's position.
    RecoveryStart {
        epoch: Epoch,
        ballot: Epoch,
        /// Position of the initiator, which all members have to reach.
        position: Position,
        /// Earlier ballots that can never hold.
        #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
        refuted: Vec<Epoch>,
        /// Ballots of lists that members no longer commit.
        #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
        released: Vec<Epoch>,
    },
    /// A vote: the answer to [`Packet::RecoveryStart`].
    RecoveryVote {
        epoch: Epoch,
        ballot: Epoch,
        position: Position,
        /// The new lists of earlier ballots that the voter has acknowledged.
        #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
        accepted: Vec<Accepted>,
    },
    /// A report that the new list of this ballot is accepted.
    RecoveryAckNewList { ballot: Epoch },
    /// A report that a ballot was given up or refused.
    RecoveryAbort {
        ballot: Epoch,
        /// The highest ballot that the header's sender has seen.
        seen: Epoch,
    },
    /// A command from an operator to continue without a majority of the electorate.
    ForceQuorum {
        epoch: Epoch,
        /// The lost voters of the ring. Every voter that no longer answers must be named.
        #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
        lost: Vec<NodeId>,
    },
    /// A packet from a node that is not a member.
    NonMemberData(NonMemberData),
    /// The answer to a [`Packet::NonMemberData`].
    NonMemberAck(NonMemberAck),
    /// A part of a packet that does not fit in a datagram.
    Part(Part),
}

/// One part of a packet that is too large for a datagram.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 4 | id of the packet among those of the header's sender |
/// | 40 | 1 | index of the part, from 0 |
/// | 41 | 1 | number of parts, at least 1 |
/// | 42 | n | the part of the packet's own datagram |
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub struct Part {
    pub id: u32,
    pub index: u8,
    pub count: u8,
    #[cfg_attr(test, proptest(strategy = "crate::strategies::bytes()"))]
    pub bytes: Bytes,
}

/// A fragment of a message.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 8 | life of the source |
/// | 44 | 4 | number of the packet; meaningless in unreliable packets |
/// | 48 | 4 | number of the message |
/// | 52 | 2 | [delivery guarantee](crate::ring::Qos) |
/// | 54 | 1 | handler plus 1, 0 for none |
/// | 55 | 1 | flags: 1 first, 2 last fragment of the message, 4 may wait for its place, 8 a call |
/// | 56 | 8 | node of the source, only with the header's flag 1 |
/// | 56 or 64 | n | the fragment |
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub struct DataPacket {
    pub source: Process,
    pub seqno: SeqNo,
    pub data: Data,
}

/// A request for missing rounds and packets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub struct Nack {
    pub epoch: Epoch,
    /// Node that must answer, or `None` if any member may answer.
    pub asked: Option<NodeId>,
    /// First missing round.
    pub from: Timestamp,
    /// End of the missing rounds, or `from` if none is missing.
    pub to: Timestamp,
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub runs: Vec<Run>,
}

/// A New List packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum NewList {
    /// A change to the view of a working ring.
    Change { epoch: Epoch, round: Round },
    /// A snapshot of the ring, for a joiner or a node that is not in it.
    Whole(Snapshot),
    /// The list of a reformation.
    Formation { proposal: Proposal, is_committed: bool },
}

/// A Non Member Data packet.
///
/// The paper's flags that request an acknowledgment or a repetition of replies are not sent. A
/// request without a handler expects an acknowledgment, any other request a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum NonMemberData {
    /// A fragment of a request.
    Data {
        /// The ring or one of its ancestors, or `None` for any ring of the group.
        epoch: Option<Epoch>,
        /// `true` if the caller introduces itself with this packet.
        is_first: bool,
        data: DataPacket,
    },
    /// A request for further fragments of a reply.
    Pull { number: u32, offset: u32 },
}

/// A Non Member ACK packet: an acknowledgment or a fragment of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum NonMemberAck {
    /// A report that the caller's packets before `to` have their places.
    Placed { epoch: Epoch, life: u64, to: SeqNo },
    /// A report that a request was delivered with its guarantee.
    Delivered { epoch: Epoch, number: u32 },
    /// A fragment of the reply to a request.
    Reply {
        epoch: Epoch,
        number: u32,
        /// Size of the complete reply, in bytes.
        total: u32,
        offset: u32,
        /// `true` if no further fragment is sent until the caller requests it.
        is_end: bool,
        #[cfg_attr(test, proptest(strategy = "crate::strategies::bytes()"))]
        bytes: Bytes,
    },
}

/// Size of a part without its content, in bytes.
pub const PART_BYTES: usize = HEADER_BYTES + 6;
/// Size of a data packet without its fragment, in bytes.
pub const DATA_BYTES: usize = HEADER_BYTES + 20;

/// Number of bytes by which a non-member's data packet is larger than a member's.
pub(super) const NON_MEMBER_BYTES: usize = 2 + EPOCH_BYTES;

const PROCESS_BYTES: usize = 16;
const EPOCH_BYTES: usize = 4 + PROCESS_BYTES;
pub(super) const RUN_BYTES: usize = PROCESS_BYTES + 6;
pub(super) const ACK_BYTES: usize = HEADER_BYTES + EPOCH_BYTES + 8 + 2 * PROCESS_BYTES + 3;

crate::variants! {
    Packet {
        DATA => Data(packet),
        2 => Ack { epoch, round },
        3 => Confirm { epoch, at },
        4 => Nack(nack),
        5 => NewList(list),
        6 => ListChangeRequest { epoch, change },
        7 => RecoveryStart { epoch, ballot, position, refuted, released },
        8 => RecoveryVote { epoch, ballot, position, accepted },
        9 => RecoveryAckNewList { ballot },
        10 => RecoveryAbort { ballot, seen },
        NON_MEMBER_DATA => NonMemberData(packet),
        12 => NonMemberAck(ack),
        13 => Part(part),
        14 => ForceQuorum { epoch, lost },
    };
}

const DATA: u8 = 1;
const NON_MEMBER_DATA: u8 = 11;

/// Flag of data packets whose source is not the header's sender.
const ON_BEHALF: u8 = 1;
/// Flag of unicast packets that the receiver has to multicast (3.4).
pub(super) const FORWARD: u8 = 2;

impl Packet {
    /// Appends the datagram of the packet to `out`, with `origin` as its sender. `version` is the
    /// version of the sender's ring.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        group: GroupId,
        origin: impl Into<Origin>,
        version: u32,
    ) {
        self.encode_with(0, out, group, origin.into(), version);
    }

    pub(crate) fn encode_with(
        &self,
        flags: u8,
        out: &mut Vec<u8>,
        group: GroupId,
        origin: Origin,
        version: u32,
    ) {
        let Origin { node: sender, incarnation } = origin;
        let forwarded = match self {
            Self::Data(data) if data.source.node != sender => Some(data),
            _ => None,
        };
        let flags = flags | if forwarded.is_some() { ON_BEHALF } else { 0 };
        let (protocol, kind) = (Protocol::Ordered, self.tag());
        let header = Header { protocol, kind, flags, group, sender, incarnation, view: version };
        let start = header.begin(out);
        match forwarded {
            Some(data) => data.put_with(Some(data.source.node), out),
            None => self.put_fields(out),
        }
        wire::seal_in_parts(out, start);
    }

    /// Decodes the body of a datagram.
    ///
    /// # Errors
    /// Returns the error for the first invalid field.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, DecodeError> {
        let (is_on_behalf, others) = (header.flags & ON_BEHALF != 0, !(ON_BEHALF | FORWARD));
        match header.kind {
            DATA | NON_MEMBER_DATA if header.flags & others != 0 => return Err(DecodeError::Value),
            // A node that is not a member sends only its own packets.
            NON_MEMBER_DATA if is_on_behalf => return Err(DecodeError::Value),
            DATA if is_on_behalf => return DataPacket::take_on_behalf(body).map(Self::Data),
            _ => {}
        }
        let mut packet = Self::take_body(header.kind, body)?;
        if let Self::Data(data) | Self::NonMemberData(NonMemberData::Data { data, .. }) =
            &mut packet
        {
            data.source.node = header.sender;
        }
        Ok(packet)
    }

    pub(super) fn of_round(epoch: Epoch, round: &Round) -> Self {
        let round = round.clone();
        match round.what {
            What::Order(_) => Self::Ack { epoch, round },
            What::List(_) => Self::NewList(NewList::Change { epoch, round }),
        }
    }

    /// Returns `true` if the packet shows that its sender is an active member of the ring.
    pub(super) fn is_of_member(&self, ring: &Ring, sender: NodeId) -> bool {
        match self {
            Self::Data(data) => data.source.node == sender && ring.view().contains(data.source),
            Self::Ack { epoch, .. }
            | Self::Confirm { epoch, .. }
            | Self::Nack(Nack { epoch, .. })
            | Self::NewList(NewList::Change { epoch, .. }) => *epoch == ring.epoch(),
            _ => false,
        }
    }

    /// Returns the author of a packet that other members may repeat, and `None` for other packets.
    pub(super) fn author(&self) -> Option<Process> {
        match self {
            Self::Data(data) => Some(data.source),
            Self::Ack { round, .. } | Self::NewList(NewList::Change { round, .. }) => {
                Some(round.site)
            }
            _ => None,
        }
    }
}

impl NonMemberAck {
    /// Returns the epoch of the ring that sent the acknowledgment.
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Placed { epoch, .. }
            | Self::Delivered { epoch, .. }
            | Self::Reply { epoch, .. } => *epoch,
        }
    }
}

impl DataPacket {
    pub(super) fn kept(ring: &Ring, source: Process, seqno: SeqNo) -> Option<Self> {
        let data = ring.sources().get(source)?.packet(seqno)?.clone();
        Some(Self { source, seqno, data })
    }
}

#[cfg(test)]
mod tests;
