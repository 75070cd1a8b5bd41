//! State that members send each other, for joiners and in reformations.

use alloc::vec::Vec;

use crate::ring::{Epoch, Process, RingView, Timestamp};
use crate::rmp::seen::Seen;
use crate::{NodeId, SeqNo};

/// State of a ring after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The view.
    pub view: RingView,
    /// Place where the next round begins.
    pub next: Timestamp,
    /// Last round that assigned a place to a message or changed a lock; 0 before the first.
    pub ordered: Timestamp,
    /// The token holder.
    pub token: Process,
    /// `true` if the ring works: it is not being reformed, and may continue.
    pub is_working: bool,
    /// Progress of each source.
    pub sources: Vec<SourceState>,
    /// Callers that are not members.
    pub guests: Vec<GuestState>,
    /// Delivered requests of each caller, the most recent caller last.
    pub seen: Vec<(NodeId, Seen)>,
}

/// A caller that is not a member, and its progress in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestState {
    /// The caller.
    pub source: Process,
    /// The same as [`SourceState::open_from`].
    pub open_from: SeqNo,
    /// First packet without a place.
    pub ordered_to: SeqNo,
    /// Last round that assigned a place to one of its packets.
    pub used: Timestamp,
}

/// Progress of a source in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The source.
    pub source: Process,
    /// First packet of the message that has places only in part; `ordered_to` if there is none.
    pub open_from: SeqNo,
    /// First packet without a place.
    pub ordered_to: SeqNo,
    /// Number of its last request that a New List answered.
    pub request: u32,
}

/// Progress of a member: its sync point (4.4).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Position {
    /// Place where its next round begins.
    pub next: Timestamp,
    /// `true` if it has the beginnings of all messages that have places only in part.
    pub is_whole: bool,
    /// First missing number of each source with packets that have no place. Ordered by source.
    pub received: Vec<(Process, SeqNo)>,
}

/// The list with which a reformation is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The ring that is reformed.
    pub base: Epoch,
    /// The common position of all its members.
    pub position: Position,
    /// The new ring. Its epoch is the ballot.
    pub view: RingView,
    /// Earlier ballots that can never hold any more.
    pub refuted: Vec<Epoch>,
}

/// A list that a member has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its ballot.
    pub ballot: Epoch,
    /// Number of its members that a part of it needs to continue.
    pub least: u16,
    /// Its members.
    pub members: Vec<Process>,
}
