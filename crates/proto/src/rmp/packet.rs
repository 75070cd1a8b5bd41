//! RMP's packets (figure 4.1). Each follows the common header of [`crate::wire`], whose view field
//! is the version of the sender's [`Epoch`].
//!
//! All numbers are big-endian. Lists are a count u16 and then their entries. A [`Process`] is its
//! node u64 and its life u64; an [`Epoch`] its version u32 and its creator.

use alloc::vec::Vec;

use bytes::Bytes;

use super::calls::Seen;
use super::log::{ListChange, Round, Run};
use super::names::{Epoch, Process, Timestamp};
use super::stream::Data;
use super::view::RingView;
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, NodeId, Origin, SeqNo};

mod decoding;
mod encoding;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A piece of a message, from its source or, if that is named, from a member that was asked
    /// for it.
    Data(DataPacket),
    /// A round that orders packets and passes the token.
    Ack {
        /// The ring.
        epoch: Epoch,
        /// The round.
        round: Round,
    },
    /// The token of the round at this place was accepted.
    Confirm {
        /// The ring.
        epoch: Epoch,
        /// The round that passed it.
        at: Timestamp,
    },
    /// What the header's sender lacks.
    Nack(Nack),
    /// A new view.
    NewList(NewList),
    /// A change of the view is asked for.
    ListChangeRequest {
        /// The ring; `None` from who wants to be in any, or asks to leave to be refused: the
        /// answer shows it the ring. The number is how often it has asked in vain then.
        epoch: Option<Epoch>,
        /// The change.
        change: ListChange,
    },
    /// A reformation begins or goes on.
    RecoveryStart {
        /// The ring that is reformed.
        epoch: Epoch,
        /// The ballot of the new one.
        ballot: Epoch,
        /// How far the initiator has come: all are to come as far.
        position: Position,
        /// Earlier ballots that can never hold any more.
        refuted: Vec<Epoch>,
        /// Ballots of lists that members do not commit any more.
        released: Vec<Epoch>,
    },
    /// An answer to that.
    RecoveryVote {
        /// The ring that is reformed.
        epoch: Epoch,
        /// The ballot.
        ballot: Epoch,
        /// How far the voter has come.
        position: Position,
        /// The new lists of earlier ballots that it has acknowledged.
        accepted: Vec<Accepted>,
    },
    /// The new list of this ballot is accepted.
    RecoveryAckNewList {
        /// The ballot.
        ballot: Epoch,
    },
    /// A ballot is given up.
    RecoveryAbort {
        /// The ballot that is given up or refused.
        ballot: Epoch,
        /// The highest that the header's sender has seen.
        seen: Epoch,
    },
    /// An operator lets the ring continue without a majority of its electorate.
    ForceQuorum {
        /// The ring.
        epoch: Epoch,
        /// The voters of it that are lost: all that do not answer any more have to be named.
        lost: Vec<NodeId>,
    },
    /// From a node that is not a member.
    NonMemberData(NonMemberData),
    /// An answer to that.
    NonMemberAck(NonMemberAck),
    /// A piece of a packet that does not fit a datagram.
    Part(Part),
}

/// A piece of a packet.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 4 | which packet of the header's sender |
/// | 40 | 1 | which piece, from 0 |
/// | 41 | 1 | how many there are, at least 1 |
/// | 42 | n | the piece of the packet's own datagram |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which packet.
    pub id: u32,
    /// Which piece.
    pub index: u8,
    /// How many there are.
    pub count: u8,
    /// The piece.
    pub bytes: Bytes,
}

/// A piece of a message.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 36 | 8 | life of the source |
/// | 44 | 4 | number of the packet; 0 and of no meaning in unreliable ones |
/// | 48 | 4 | number of the message |
/// | 52 | 2 | [quality of service](super::Qos) |
/// | 54 | 1 | handler plus 1, 0 for none |
/// | 55 | 1 | flags: 1 first, 2 last piece of the message, 4 the source has more, 8 a call |
/// | 56 | 8 | source, only with the header's flag 1 |
/// | 56 or 64 | n | the piece |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// Who sent it first.
    pub source: Process,
    /// Its number among the packets of the source.
    pub seqno: SeqNo,
    /// The piece, and what its message is promised.
    pub data: Data,
}

/// What somebody lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The ring.
    pub epoch: Epoch,
    /// Who is to answer; `None`: whoever can.
    pub asked: Option<NodeId>,
    /// The first missing round.
    pub from: Timestamp,
    /// Where the missing rounds end; `from` if none is missing.
    pub to: Timestamp,
    /// The missing data packets.
    pub runs: Vec<Run>,
}

/// A New List packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewList {
    /// A change of the view, in order.
    Change {
        /// The ring.
        epoch: Epoch,
        /// The round.
        round: Round,
    },
    /// All that a member knows of the ring: for a joiner, or somebody who is not in it.
    Whole(Snapshot),
    /// The list of a reformation.
    Formation {
        /// The list.
        proposal: Proposal,
        /// Whether it holds already.
        is_committed: bool,
    },
}

/// A ring as it is after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The members.
    pub view: RingView,
    /// Where the next round begins.
    pub next: Timestamp,
    /// The last round that has given a message its place, or changed a lock; 0 before the first.
    pub ordered: Timestamp,
    /// Whose turn it is.
    pub token: Process,
    /// Whether the ring works: it is not being reformed, and may go on.
    pub is_working: bool,
    /// How far each source has come.
    pub sources: Vec<SourceState>,
    /// Callers that are not members.
    pub guests: Vec<GuestState>,
    /// Which requests of each caller were delivered, the caller heard of last in the end.
    pub seen: Vec<(NodeId, Seen)>,
}

/// A caller that is not a member, and how far it has come in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestState {
    /// The caller.
    pub source: Process,
    /// As with [`SourceState`].
    pub open_from: SeqNo,
    /// The first packet without a place.
    pub ordered_to: SeqNo,
    /// The last round that gave a packet of its a place.
    pub used: Timestamp,
}

/// A Non Member Data packet.
///
/// The paper's flags that ask for an acknowledgement or for replies again are not sent: a packet
/// without a handler asks for the one, a packet with one for the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NonMemberData {
    /// A piece of a request.
    Data {
        /// The ring, or one that it descends from; `None`: whichever has the group's name.
        epoch: Option<Epoch>,
        /// Whether the caller introduces itself with it.
        is_first: bool,
        /// The piece.
        data: DataPacket,
    },
    /// More of a reply is wanted.
    Pull {
        /// The request.
        number: u32,
        /// From here on.
        offset: u32,
    },
}

/// A Non Member ACK packet: an acknowledgement or a piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NonMemberAck {
    /// The caller's packets before this have their places.
    Placed {
        /// The ring.
        epoch: Epoch,
        /// Life of the caller.
        life: u64,
        /// The first packet without a place.
        to: SeqNo,
    },
    /// A request was delivered as it was promised.
    Delivered {
        /// The ring.
        epoch: Epoch,
        /// The request.
        number: u32,
    },
    /// A piece of the reply to a request.
    Reply {
        /// The ring.
        epoch: Epoch,
        /// The request.
        number: u32,
        /// Bytes of the whole reply.
        total: u32,
        /// Where the piece stands in it.
        offset: u32,
        /// Whether nothing more comes unless the caller asks for it.
        is_end: bool,
        /// The piece.
        bytes: Bytes,
    },
}

/// How far a source has come in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The source.
    pub source: Process,
    /// The first packet of the message that has places only in part; `ordered_to` if none has.
    pub open_from: SeqNo,
    /// The first packet without a place.
    pub ordered_to: SeqNo,
    /// The last request that a New List answered.
    pub request: u32,
}

/// How far a member has come: its sync point (4.4).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Position {
    /// Where its next round begins.
    pub next: Timestamp,
    /// Whether it has the beginnings of all messages that have places only in part, as a joiner has
    /// after a while.
    pub is_whole: bool,
    /// Of the sources of which it has packets without a place: the first number that it has not,
    /// by source.
    pub received: Vec<(Process, SeqNo)>,
}

/// The list that a reformation is to end with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The ring that is reformed.
    pub base: Epoch,
    /// How far all its members have come.
    pub position: Position,
    /// The new ring; its epoch is the ballot.
    pub view: RingView,
    /// Earlier ballots that can never hold any more.
    pub refuted: Vec<Epoch>,
}

/// A list that somebody has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its ballot.
    pub ballot: Epoch,
    /// How many of its members a part of it needs to go on.
    pub least: u16,
    /// Its members.
    pub members: Vec<Process>,
}

/// Bytes of a part around its piece.
pub const PART_BYTES: usize = HEADER_BYTES + 6;
/// Bytes of a data packet around its piece.
pub const DATA_BYTES: usize = HEADER_BYTES + 20;

/// Bytes that a non-member's packet has more than a member's.
pub(super) const NON_MEMBER_BYTES: usize = 2 + EPOCH_BYTES;

/// Bytes of a [`Process`].
const PROCESS_BYTES: usize = 16;
/// Bytes of an [`Epoch`].
const EPOCH_BYTES: usize = 4 + PROCESS_BYTES;
/// Bytes of a [`Run`].
pub(super) const RUN_BYTES: usize = PROCESS_BYTES + 6;
/// Bytes of an ACK around its runs.
pub(super) const ACK_BYTES: usize = HEADER_BYTES + EPOCH_BYTES + 8 + 2 * PROCESS_BYTES + 3;

const DATA: u8 = 1;
const ACK: u8 = 2;
const CONFIRM: u8 = 3;
const NACK: u8 = 4;
const NEW_LIST: u8 = 5;
const LIST_CHANGE_REQUEST: u8 = 6;
const RECOVERY_START: u8 = 7;
const RECOVERY_VOTE: u8 = 8;
const RECOVERY_ACK_NEW_LIST: u8 = 9;
const RECOVERY_ABORT: u8 = 10;
const NON_MEMBER_DATA: u8 = 11;
const NON_MEMBER_ACK: u8 = 12;
const PART: u8 = 13;
const FORCE_QUORUM: u8 = 14;

/// Flag of data packets: the source is not the header's sender.
const ON_BEHALF: u8 = 1;
/// Flag of packets that were sent by unicast: who gets it multicasts it on (3.4).
pub(super) const FORWARD: u8 = 2;

impl Packet {
    /// Appends the datagram of `sender`, whose ring has this version, to `out`.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        group: GroupId,
        origin: impl Into<Origin>,
        version: u32,
    ) {
        self.encode_with(0, out, group, origin.into(), version);
    }

    /// Appends the datagram with these flags in its header, too.
    pub(super) fn encode_with(
        &self,
        flags: u8,
        out: &mut Vec<u8>,
        group: GroupId,
        origin: Origin,
        version: u32,
    ) {
        let Origin { node: sender, incarnation } = origin;
        let is_foreign = matches!(self, Self::Data(data) if data.source.node != sender);
        let flags = flags | if is_foreign { ON_BEHALF } else { 0 };
        let protocol = Protocol::Ordered;
        let kind = self.kind();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view: version };
        let start = header.begin(out);
        encoding::put_body(self, is_foreign, out);
        wire::seal_in_parts(out, start);
    }

    /// Reads the body of a datagram.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, DecodeError> {
        decoding::take_body(header, body)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data(_) => DATA,
            Self::Ack { .. } => ACK,
            Self::Confirm { .. } => CONFIRM,
            Self::Nack(_) => NACK,
            Self::NewList(_) => NEW_LIST,
            Self::ListChangeRequest { .. } => LIST_CHANGE_REQUEST,
            Self::RecoveryStart { .. } => RECOVERY_START,
            Self::RecoveryVote { .. } => RECOVERY_VOTE,
            Self::RecoveryAckNewList { .. } => RECOVERY_ACK_NEW_LIST,
            Self::RecoveryAbort { .. } => RECOVERY_ABORT,
            Self::NonMemberData(_) => NON_MEMBER_DATA,
            Self::NonMemberAck(_) => NON_MEMBER_ACK,
            Self::Part(_) => PART,
            Self::ForceQuorum { .. } => FORCE_QUORUM,
        }
    }
}

impl NonMemberAck {
    /// The ring that answers.
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Placed { epoch, .. }
            | Self::Delivered { epoch, .. }
            | Self::Reply { epoch, .. } => *epoch,
        }
    }
}

impl DataPacket {
    /// A copy of the bytes of its piece, so that it owns nothing of the datagram.
    fn piece(bytes: &[u8]) -> Bytes {
        Bytes::copy_from_slice(bytes)
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
