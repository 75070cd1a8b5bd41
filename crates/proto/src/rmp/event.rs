//! Ring events that an engine reports.

use alloc::boxed::Box;

use super::ids::Place;
use super::locks::LockNews;
use super::request::{Answer, Request};
use super::ring::ViewEvent;
use crate::{GroupId, SeqNo};

/// An event of a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct RingEvent {
    /// The group.
    pub group: GroupId,
    /// The event.
    pub news: RingNews,
}

/// Kinds of ring events, reported at their place among the messages.
#[derive(Clone, Debug, PartialEq)]
pub enum RingNews {
    /// The members or the locks changed.
    View(Box<ViewEvent>),
    /// All members of the view have everything that was delivered here up to this place, or were
    /// admitted after it. Nothing up to this place is lost while one of these members is alive. An
    /// application can therefore truncate a log there, or answer a client, at any delivery
    /// guarantee. The application of another member may not have taken everything from its event
    /// queue yet.
    ///
    /// Reported when the place has advanced, at intervals of at least
    /// [`Config::stable_every`](super::Config::stable_every).
    Stable {
        /// The place. It is comparable with the places of messages and views of this ring and of
        /// its predecessors.
        up_to: Place,
        /// Number of members of the view, including this one.
        members: usize,
    },
    /// A lock that this node has requested was granted, refused, released or lost.
    Lock(LockNews),
    /// A request of a member or of another caller, at its place among the messages.
    Request(Request),
    /// The outcome of a request of this node.
    Answer(Answer),
    /// This part may not continue and searches for the other members. Locks that this node holds
    /// are in doubt until the next view, which still contains them, or until they are reported as
    /// lost.
    Minority {
        /// Number of members of the last view.
        members: usize,
        /// Number of members that are needed; with an electorate, the number of voters.
        needed: usize,
        /// With an electorate, the number of voters that are present from this node's perspective.
        /// The event is repeated whenever the number changes.
        voters: Option<usize>,
    },
    /// The [electorate](super::Quorum::QuorumOf) of the group has all its voters. This node is
    /// not admitted as another voter until one of them is gone, and keeps requesting it.
    ElectorateFull {
        /// Number of voters of the ring.
        voters: usize,
    },
    /// The ring continues without this member.
    Removed {
        /// Reason of the removal.
        why: Removal,
        /// First and last number of the range of own messages that contains all those not delivered
        /// here. The range may contain messages that the other members have.
        unsent: Option<(SeqNo, SeqNo)>,
        /// `true` if this node requests to join again as a new member.
        rejoins: bool,
    },
    /// This node is in a ring again, as a new member, after it was [removed](Self::Removed). The
    /// view follows.
    Rejoined {
        /// Number of places in the order that were not delivered here. Views and ACKs have places
        /// too, so this is at least the number of missed messages. `None` if the number is not
        /// known, because this ring does not continue the order of the former one, or may not
        /// continue it with [`Quorum::AtLeast`](super::Quorum::AtLeast).
        missed: Option<u64>,
    },
}

/// Reason why a member is no longer in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The other members could not reach it.
    Removed,
    /// It left for a larger ring of the same group.
    Merged,
    /// Its application did not take the delivered events.
    TooSlow,
}
