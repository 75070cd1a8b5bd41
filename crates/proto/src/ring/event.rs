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
    /// [`Config::stable_every`](crate::rmp::Config::stable_every).
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

/// A change of the view, at its place among the messages (virtual synchrony).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewEvent {
    /// The view from this place on.
    pub view: RingView,
    /// Its place in the order.
    pub place: Place,
    /// Members that joined.
    pub joined: Vec<Process>,
    /// Members that left in order.
    pub left: Vec<Process>,
    /// Members that were removed.
    pub failed: Vec<Process>,
    /// The member that decided the change.
    pub by: Process,
    /// The request that this change answers, if any.
    pub answered: Option<ListChange>,
}

impl ViewEvent {
    /// Creates an event in which `by` installs `view`, without members that joined or left.
    pub(crate) fn of(view: RingView, at: Timestamp, by: Process) -> Self {
        let (joined, left, failed) = (Vec::new(), Vec::new(), Vec::new());
        let place = Place { ring: view.epoch, at };
        Self { view, place, joined, left, failed, by, answered: None }
    }

    /// Returns `true` if `next`, which follows at once, can be delivered together with this change:
    /// neither answers a lock request.
    pub(crate) fn can_merge(&self, next: &Self) -> bool {
        [self, next]
            .into_iter()
            .filter_map(|event| event.answered)
            .all(|it| it.kind.is_of_members())
    }

    /// Merges `next` into this change. Returns the processes that joined in this change and are
    /// gone in `next`. The merged change does not mention them.
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
