//! Joins that wait for an answer, by their groups and by their deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_channel::{Sender, TrySendError};
use carom_proto::{GroupId, Time};

use crate::error::JoinGroupError;
use crate::group::GroupParts;

/// The caller of a join.
pub(crate) type Joiner = Sender<Result<GroupParts, JoinGroupError>>;

/// A join that waits until the node has found its place, so that a contradiction with members
/// that are there already is its error.
#[derive(Debug)]
pub(crate) struct PendingJoin {
    pub(crate) group: GroupId,
    pub(crate) parts: GroupParts,
    pub(crate) deadline: Time,
    pub(crate) reply: Joiner,
}

/// The joins of a node, at most one for each group. A program may join thousands of groups at once,
/// so each is looked at only when something has changed for it, or when its time is over.
#[derive(Debug, Default)]
pub(crate) struct PendingJoins {
    by_group: BTreeMap<GroupId, PendingJoin>,
    by_deadline: BTreeSet<(Time, GroupId)>,
    /// Groups that may have been joined since they were looked at.
    changed: BTreeSet<GroupId>,
    /// When the membership service has answered last.
    last_answer: Option<Time>,
    /// Those that it has answered.
    admitted: BTreeSet<GroupId>,
}

impl PendingJoin {
    /// Refuses the join.
    pub(crate) fn refuse(self, error: JoinGroupError) {
        // The send fails if the caller has dropped its receiver.
        let _ = self.reply.try_send(Err(error));
    }

    /// Hands the group to the caller; gives it back if the caller is gone.
    pub(crate) fn succeed(self) -> Result<(), GroupParts> {
        match self.reply.try_send(Ok(self.parts)) {
            Err(TrySendError::Closed(Ok(parts)) | TrySendError::Full(Ok(parts))) => Err(parts),
            _ => Ok(()),
        }
    }
}

impl PendingJoins {
    /// Adds a join, which is to be looked at. Its group has no other.
    pub(crate) fn insert(&mut self, join: PendingJoin) {
        let group = join.group;
        self.by_deadline.insert((join.deadline, group));
        self.changed.insert(group);
        let former = self.by_group.insert(group, join);
        debug_assert!(former.is_none(), "{group} is joined already");
    }

    /// Takes the join of `group` out.
    pub(crate) fn remove(&mut self, group: GroupId) -> Option<PendingJoin> {
        let join = self.by_group.remove(&group)?;
        self.by_deadline.remove(&(join.deadline, group));
        self.changed.remove(&group);
        self.admitted.remove(&group);
        Some(join)
    }

    /// The membership service has answered the join of `group`: from now on it waits for a ring.
    pub(crate) fn admit(&mut self, now: Time, group: GroupId) {
        self.last_answer = Some(now);
        if self.by_group.contains_key(&group) {
            self.changed.insert(group);
            self.admitted.insert(group);
            self.set_deadline(group, now + JOIN_WAIT);
        }
    }

    /// Something has changed for `group`.
    pub(crate) fn note_change(&mut self, group: GroupId) {
        if self.by_group.contains_key(&group) {
            self.changed.insert(group);
        }
    }

    /// Something has changed for all groups.
    pub(crate) fn note_change_of_all(&mut self) {
        self.changed.extend(self.by_group.keys());
    }

    /// The next group that may have been joined since it was looked at.
    pub(crate) fn pop_changed(&mut self) -> Option<GroupId> {
        self.changed.pop_first()
    }

    /// Takes out a join whose time is over. While the service gets on with others, those that it
    /// has not answered yet wait on.
    pub(crate) fn pop_late(&mut self, now: Time) -> Option<PendingJoin> {
        loop {
            let &(deadline, group) = self.by_deadline.first()?;
            if deadline > now {
                return None;
            }
            match self.last_answer.map(|at| at + SERVICE_WAIT) {
                Some(later) if later > now && !self.admitted.contains(&group) => {
                    self.set_deadline(group, later);
                }
                _ => return self.remove(group),
            }
        }
    }

    /// When [`PendingJoins::pop_late`] is to be called.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    fn set_deadline(&mut self, group: GroupId, deadline: Time) {
        let Some(join) = self.by_group.get_mut(&group) else { return };
        let former = std::mem::replace(&mut join.deadline, deadline);
        self.by_deadline.remove(&(former, group));
        self.by_deadline.insert((deadline, group));
    }
}

/// How long a join waits for the node to find its place, or for a ring that it was admitted to.
pub(crate) const JOIN_WAIT: Duration = Duration::from_secs(2);
/// The same wait for a node with seeds, one of which must answer.
pub(crate) const SEED_WAIT: Duration = Duration::from_secs(3);
/// The same wait for a node with a membership service. It starts again with each answer of the
/// service, so that a node may join many groups at once.
pub(crate) const SERVICE_WAIT: Duration = Duration::from_secs(5);
