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

/// A kind of ring event. Views, locks and ordered requests are reported at their places.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RingNews {
    /// A new view: the members or the locks changed, or a lock request was refused.
    View(Box<ViewEvent>),
    /// All members of the view that were admitted before this place have everything that was
    /// delivered here up to it. Nothing up to this place is lost while one of these members is
    /// alive, so an application can truncate a log there. Some messages may still be in another
    /// member's event queue.
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
    /// A request from a member or another caller.
    Request(Request),
    /// The outcome of a request that this node sent.
    Answer(Answer),
    /// This part of the ring may not continue, or too few voters of the electorate are present.
    /// This node searches for the others. Its locks are in doubt until the next view, or until they
    /// are reported as lost.
    Minority {
        /// Number of members of the last view, or 0 if this node is in no ring.
        members: usize,
        /// Number of members that are needed; with an electorate, number of voters.
        needed: usize,
        /// Number of voters present, or `None` without an electorate. Reported when it changes.
        voters: Option<usize>,
    },
    /// The [electorate](super::Quorum::QuorumOf) has all of its voters. This node keeps waiting.
    ElectorateFull {
        /// Number of voters of the ring.
        voters: usize,
    },
    /// This node lost its membership in the ring.
    Removed {
        /// Reason for the removal.
        why: Removal,
        /// First and last sequence number of a range that contains all messages of this node that
        /// were not delivered here, except unreliable ones. `None` if there are none.
        unsent: Option<(SeqNo, SeqNo)>,
        /// `true` if this node tries to join again as a new member.
        rejoins: bool,
    },
    /// This node is in a ring again, as a new member. The event with its view follows.
    Rejoined {
        /// Number of places that were not delivered here, including those of views and ACKs. `None`
        /// unless this ring is known to continue the order of the former ring.
        missed: Option<u64>,
    },
}

/// Cause of a member's removal from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// The others continued without the member, or the member is a client that found no voter.
    Removed,
    /// The member left for another ring of the same group, usually a larger one.
    Merged,
    /// The member's application did not take the delivered events in time.
    TooSlow,
}

/// A change to the view, at its place among the messages (virtual synchrony).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewEvent {
    /// The view from this place on.
    pub view: RingView,
    /// Place of the change in the total order.
    pub place: Place,
    /// Members that joined. In the first view of this node, all members.
    pub joined: Vec<Process>,
    /// Members that left, including former lives of nodes that join again.
    pub left: Vec<Process>,
    /// Members that a reformation removed.
    pub failed: Vec<Process>,
    /// The member that decided the change. In the first view of this node, its own process.
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

    /// Returns `true` if the changes can be merged. A change that answers a lock request is never
    /// merged.
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
