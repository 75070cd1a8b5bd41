//! What an engine tells of its rings.

use alloc::boxed::Box;

use super::calls::{Answer, Request};
use super::delivery::ViewEvent;
use super::locks::LockNews;
use super::names::Place;
use crate::{GroupId, SeqNo};

/// News of a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct RingEvent {
    /// The group.
    pub group: GroupId,
    /// What happened.
    pub news: RingNews,
}

/// What happened to a ring, at its place among the messages.
#[derive(Clone, Debug, PartialEq)]
pub enum RingNews {
    /// Members or locks changed.
    View(Box<ViewEvent>),
    /// All members of the view have everything that was delivered here up to this place, or were
    /// let in after it: nothing up to here is lost as long as one of them lives. So a log may be
    /// cut, or a client answered, whatever level its message had. The application of another
    /// member may not have taken yet what the member has.
    ///
    /// It is told when that has advanced, and not more often than
    /// [`Config::stable_every`](super::Config::stable_every).
    Stable {
        /// The place; comparable with those of messages and views of this ring and those that it
        /// followed.
        up_to: Place,
        /// Members of the view, with this one.
        members: usize,
    },
    /// A lock that this node has asked for was granted, refused, given back or lost.
    Lock(LockNews),
    /// A request of a member or of a node that is not one, at its place among the messages.
    Request(Request),
    /// What became of a request of this node's own.
    Answer(Answer),
    /// This partition may not go on: it looks for the others. Locks that this node holds are in
    /// doubt until the next view, which still shows them, or until they are told as lost.
    Minority {
        /// Members of the last view.
        members: usize,
        /// How many of them it takes; with an electorate how many voters.
        needed: usize,
        /// With an electorate: the voters that this node knows to be here. It is told again
        /// whenever that has changed.
        voters: Option<usize>,
    },
    /// The [electorate](super::Partition::QuorumOf) of the group has all its voters: this node is
    /// not let in as another one before one of them is gone. It asks again.
    ElectorateFull {
        /// How many voters there are.
        voters: usize,
    },
    /// The ring goes on without this member.
    Removed {
        /// Why.
        why: Removal,
        /// The first and the last of the own messages among which are all that were not delivered
        /// here: nobody here knows whether the others have them.
        unsent: Option<(SeqNo, SeqNo)>,
        /// Whether this node asks to be let in again, as a new member.
        rejoins: bool,
    },
    /// This node is in a ring again after it was [removed](Self::Removed), as a new member. The
    /// view follows.
    Rejoined {
        /// Number of places of the order that were not delivered here: those of messages, of
        /// changes of the view and of ACKs, so at least as many as the messages that were missed.
        /// `None` if this ring does not continue the order of the former one, or may not because
        /// of [`Partition::AtLeast`](super::Partition::AtLeast): then the number is not known.
        missed: Option<u64>,
    },
}

/// Why a member is not in the ring any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The others could not reach it.
    Removed,
    /// There was a larger ring of the same group.
    Merged,
    /// Its application did not take what was delivered.
    TooSlow,
}
