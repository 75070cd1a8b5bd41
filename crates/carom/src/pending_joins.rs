//! Pending joins, by group and by deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_channel::{Sender, TrySendError};
use carom_proto::{GroupId, Time};

use crate::error::JoinGroupError;
use crate::group::GroupParts;

/// Reply channel of a join.
pub(crate) type Joiner = Sender<Result<GroupParts, JoinGroupError>>;

/// A join that waits until the node has settled, so that a conflict with existing members is its
/// error.
#[derive(Debug)]
pub(crate) struct PendingJoin {
    pub(crate) group: GroupId,
    pub(crate) parts: GroupParts,
    pub(crate) deadline: Time,
    pub(crate) reply: Joiner,
}

/// Pending joins of a node, at most one per group. A program may join thousands of groups at once.
/// Each join is therefore examined only after a change for it, or when its time is over.
#[derive(Debug, Default)]
pub(crate) struct PendingJoins {
    by_group: BTreeMap<GroupId, PendingJoin>,
    by_deadline: BTreeSet<(Time, GroupId)>,
    /// Groups whose join may have completed since the last check.
    changed: BTreeSet<GroupId>,
    /// Time of the last answer of the membership service.
    last_answer: Option<Time>,
    /// Groups whose join the service has confirmed.
    admitted: BTreeSet<GroupId>,
}

impl PendingJoin {
    /// Fails the join.
    pub(crate) fn refuse(self, error: JoinGroupError) {
        // The send fails if the caller has dropped its receiver.
        let _ = self.reply.try_send(Err(error));
    }

    /// Passes the group to the caller. Returns it if the caller is gone.
    pub(crate) fn succeed(self) -> Result<(), GroupParts> {
        match self.reply.try_send(Ok(self.parts)) {
            Err(TrySendError::Closed(Ok(parts)) | TrySendError::Full(Ok(parts))) => Err(parts),
            _ => Ok(()),
        }
    }
}

impl PendingJoins {
    /// Adds a join, to be examined. Its group has no other.
    pub(crate) fn insert(&mut self, join: PendingJoin) {
        let group = join.group;
        self.by_deadline.insert((join.deadline, group));
        self.changed.insert(group);
        let former = self.by_group.insert(group, join);
        debug_assert!(former.is_none(), "{group} is joined already");
    }

    pub(crate) fn remove(&mut self, group: GroupId) -> Option<PendingJoin> {
        let join = self.by_group.remove(&group)?;
        self.by_deadline.remove(&(join.deadline, group));
        self.changed.remove(&group);
        self.admitted.remove(&group);
        Some(join)
    }

    /// Handles the membership service's confirmation of the join of `group`. From now on it waits
    /// for a ring.
    pub(crate) fn admit(&mut self, now: Time, group: GroupId) {
        self.last_answer = Some(now);
        if self.by_group.contains_key(&group) {
            self.changed.insert(group);
            self.admitted.insert(group);
            self.set_deadline(group, now + JOIN_WAIT);
        }
    }

    /// Marks the join of `group` as changed.
    pub(crate) fn note_change(&mut self, group: GroupId) {
        if self.by_group.contains_key(&group) {
            self.changed.insert(group);
        }
    }

    /// Marks all joins as changed.
    pub(crate) fn note_change_of_all(&mut self) {
        self.changed.extend(self.by_group.keys());
    }

    /// Returns the next group whose join may have completed.
    pub(crate) fn pop_changed(&mut self) -> Option<GroupId> {
        self.changed.pop_first()
    }

    /// Removes a join whose time is over. While the service answers other joins, those without an
    /// answer continue to wait.
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

    /// Returns the time of the next call of [`PendingJoins::pop_late`].
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

/// Maximum wait of a join for the node to settle, or for a ring to form.
pub(crate) const JOIN_WAIT: Duration = Duration::from_secs(2);
/// Maximum wait of a join on a node with seeds, one of which must answer.
pub(crate) const SEED_WAIT: Duration = Duration::from_secs(3);
/// Maximum wait of a join on a node with a membership service. It starts again with each answer of
/// the service, so that a node can join many groups at once.
pub(crate) const SERVICE_WAIT: Duration = Duration::from_secs(5);
