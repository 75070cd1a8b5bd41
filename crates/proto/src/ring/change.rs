//! Changes to a ring's view that members and joiners request.

use super::locks::LockName;
use super::place::Process;
use super::view::Member;

/// A change to the view, requested by a member or a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct ListChange {
    /// The process that requested the change.
    pub process: Process,
    /// Number of the request among those of the process. It is 0 in a request to join.
    pub request: u32,
    /// The requested change.
    pub kind: ListChangeKind,
}

/// A kind of change to the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum ListChangeKind {
    /// A member is added.
    Join {
        /// The member to add.
        member: Member,
        /// The [check](crate::GroupId::name_check) of the group's name, as the joiner knows it.
        name_check: u32,
    },
    /// The process is removed from the members.
    Leave,
    /// The process acquires a lock, or waits for it.
    Lock {
        /// Name of the lock.
        name: LockName,
        /// `true` if the process waits for the lock while it is held.
        waits: bool,
    },
    /// A lock is released, or a place in its queue.
    Unlock(LockName),
    /// Nothing changes: the lock is [refused](super::LockChange::Refused). Occurs only in New
    /// Lists.
    Refused(LockName),
}

impl ListChangeKind {
    pub(crate) fn is_of_members(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Leave)
    }
}
