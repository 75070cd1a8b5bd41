//! Ring events that an engine reports.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::change::ListChange;
use super::locks::LockNews;
use super::place::{Place, Process, Timestamp};
use super::request::{Answer, Request};
use super::view::RingView;
use crate::{GroupId, SeqNo};

/// An event of a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct RingEvent {
    /// Group of the ring.
    pub group: GroupId,
    /// Kind and content of the event.
    pub news: RingNews,
}

/// A kind of ring event, reported at its place among the messages.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RingNews {
    /// The members or the locks changed.
    View(Box<ViewEvent>),
    /// All members of the view have everything that was delivered here up to this place, or were
    /// admitted after it. Nothing up to this place is lost while one of them is alive, so an
    /// application can truncate a log there. Some messages may still be in another member's event
    /// queue.
    ///
    /// Reported when the place has advanced, at intervals of at least
    /// [`Config::stable_every`](crate::rmp::Config::stable_every).
    Stable {
        /// Last stable place. It is comparable with the places of this ring and its predecessors.
        up_to: Place,
        /// Number of members of the view, including this node.
        members: usize,
    },
    /// A lock that this node had requested was granted, refused, released or lost.
    Lock(LockNews),
    /// A request from a member or another caller, at its place among the messages.
    Request(Request),
    /// The outcome of a request that this node sent.
    Answer(Answer),
    /// This part of the ring may not continue and searches for the other members. Locks of this
    /// node are in doubt until the next view, or until they are reported as lost.
    Minority {
        /// Number of members of the last view.
        members: usize,
        /// Number of members that are needed; with an electorate, number of voters.
        needed: usize,
        /// Number of voters present in a ring of an electorate. The event repeats when it changes.
        voters: Option<usize>,
    },
    /// The [electorate](super::Quorum::QuorumOf) has all of its voters. This node keeps waiting.
    ElectorateFull {
        /// Number of voters of the ring.
        voters: usize,
    },
    /// The ring continues without this node.
    Removed {
        /// Reason for the removal.
        why: Removal,
        /// Range of sequence numbers that contains all messages of this node that were not
        /// delivered here.
        unsent: Option<(SeqNo, SeqNo)>,
        /// `true` if this node tries to join again as a new member.
        rejoins: bool,
    },
    /// This node is in a ring again, as a new member. The event with its view follows.
    Rejoined {
        /// Number of places that were not delivered here, including those of views and ACKs. `None`
        /// if this ring may not continue the order of the former ring.
        missed: Option<u64>,
    },
}

/// Cause of a member's removal from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// The other members could not reach the member.
    Removed,
    /// The member left to join another ring of the same group, usually a larger one.
    Merged,
    /// The member's application did not take the delivered events.
    TooSlow,
}

/// A change to the view, at its place among the messages (virtual synchrony).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewEvent {
    /// The view from this place on.
    pub view: RingView,
    /// Place of the change in the total order.
    pub place: Place,
    /// Members that joined.
    pub joined: Vec<Process>,
    /// Members that left on their own initiative.
    pub left: Vec<Process>,
    /// Members that were removed.
    pub failed: Vec<Process>,
    /// The member that decided the change.
    pub by: Process,
    /// The request that this change answers, if any.
    pub answered: Option<ListChange>,
}

impl ViewEvent {
    pub(crate) fn of(view: RingView, at: Timestamp, by: Process) -> Self {
        let (joined, left, failed) = (Vec::new(), Vec::new(), Vec::new());
        let place = Place { ring: view.epoch, at };
        Self { view, place, joined, left, failed, by, answered: None }
    }

    /// Returns `true` if the changes can be merged. A change that may answer a lock request is
    /// never merged.
    pub(crate) fn can_merge(&self, next: &Self) -> bool {
        [self, next]
            .into_iter()
            .filter_map(|event| event.answered)
            .all(|it| it.kind.is_of_members())
    }

    /// Merges the next change into this one. Returns the processes that joined and left again,
    /// which the merged change does not mention.
    pub(crate) fn merge(&mut self, next: Self) -> Vec<Process> {
        let (passed, stayed): (Vec<Process>, Vec<Process>) =
            self.joined.iter().partition(|process| !next.view.contains(**process));
        let is_mentioned = |process: &Process| !passed.contains(process);
        let joined = stayed.into_iter().chain(next.joined).collect();
        let union = |before: &[Process], after: Vec<Process>| {
            before.iter().copied().chain(after.into_iter().filter(is_mentioned)).collect()
        };
        let (left, failed) = (union(&self.left, next.left), union(&self.failed, next.failed));
        *self = Self { joined, left, failed, ..next };
        passed
    }
}
