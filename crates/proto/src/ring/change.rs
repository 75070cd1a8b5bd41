//! Changes of a ring's view that members and joiners request.

use super::locks::LockName;
use super::place::Process;
use super::view::Member;

/// A change of the view, requested by a member or a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Process that requested it.
    pub process: Process,
    /// Number of the request among those of the process, which are served in order.
    pub request: u32,
    /// The requested change.
    pub kind: ListChangeKind,
}

/// Kinds of changes of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChangeKind {
    /// Addition of a member.
    Join {
        /// The member.
        member: Member,
        /// The [check](crate::GroupId::name_check) of the name of the group that the joiner means.
        name_check: u32,
    },
    /// Removal of the process from the members.
    Leave,
    /// Acquisition of a lock.
    Lock {
        /// The lock.
        name: LockName,
        /// `true` if the process waits for the lock while it is held.
        waits: bool,
    },
    /// Release of a lock, or of a place in its queue.
    Unlock(LockName),
    /// No change: the lock is held, or the ring has too many locks. Only in New Lists.
    Refused(LockName),
}

impl ListChangeKind {
    pub(crate) fn is_of_members(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Leave)
    }
}
