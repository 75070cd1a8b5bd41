use alloc::vec::Vec;

use crate::ring::{Epoch, Process, RingView, Timestamp};
use crate::rmp::seen::Seen;
use crate::{NodeId, SeqNo};

/// State of a ring after a round. For a node outside the ring, the lists of sources, guests and
/// delivered requests are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Snapshot {
    /// Members and locks of the ring.
    pub view: RingView,
    /// Place where the next round begins.
    pub next: Timestamp,
    /// Last round that ordered packets or accepted a lock request, or 0 if there is none.
    pub ordered: Timestamp,
    /// Process that holds the token.
    pub token: Process,
    /// `true` if the ring is not being reformed.
    pub is_working: bool,
    /// Progress of each member as a source.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub sources: Vec<SourceState>,
    /// Callers that are not members.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub guests: Vec<GuestState>,
    /// Delivered requests of each caller. The most recent caller is the last.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub seen: Vec<(NodeId, Seen)>,
}

/// A caller that is not a member, and its progress in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct GuestState {
    /// Process of the caller.
    pub source: Process,
    /// The same as [`SourceState::open_from`].
    pub open_from: SeqNo,
    /// First packet without a place.
    pub ordered_to: SeqNo,
    /// Last round that assigned a place to a packet of the caller.
    pub used: Timestamp,
}

/// Progress of a source in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct SourceState {
    /// Process that sends the packets.
    pub source: Process,
    /// First packet of the message of which only some packets have places, or `ordered_to` if there
    /// is none.
    pub open_from: SeqNo,
    /// First packet without a place.
    pub ordered_to: SeqNo,
    /// Number of the source's last request that a New List answered.
    pub request: u32,
}

/// Progress of a member in the total order: its sync point (4.4).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Position {
    /// Place of the first round that the member has not applied.
    pub next: Timestamp,
    /// `true` if the member has the beginnings of all messages that only partly have places.
    pub is_whole: bool,
    /// First missing number of each source with packets without a place, in order of sources.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub received: Vec<(Process, SeqNo)>,
}

/// The list with which a reformation ends if all members of the list accept it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Proposal {
    /// Epoch of the ring that is reformed.
    pub base: Epoch,
    /// The common position of all members of the list.
    pub position: Position,
    /// The view of the new ring. Its epoch is the ballot.
    pub view: RingView,
    /// Earlier ballots that can never hold.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub refuted: Vec<Epoch>,
}

/// A list that a member has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Accepted {
    /// Ballot of the list.
    pub ballot: Epoch,
    /// Number of voters of the list that a part of it needs to continue.
    pub least: u16,
    /// Members of the list.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))]
    pub members: Vec<Process>,
}
