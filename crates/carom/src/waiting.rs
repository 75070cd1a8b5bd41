//! Callers that wait for an answer: those who join and those who want to be sure.

use std::time::Duration;

use async_channel::{Sender, TrySendError};
use carom_proto::{GroupId, NodeId, Safe, SeqNo, Time};

use crate::error::{JoinGroupError, NotSafe};
use crate::group::GroupParts;

/// Who has asked to join.
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

/// A confirmation that waits: first until all that was queued is sent, then for the members.
#[derive(Debug)]
pub(crate) struct PendingConfirm {
    pub(crate) group: GroupId,
    /// How many messages the engine must have taken before it is asked.
    pub(crate) after: u64,
    /// The last of those messages, once they are sent.
    pub(crate) up_to: Option<SeqNo>,
    pub(crate) deadline: Time,
    pub(crate) reply: Sender<Result<Safe, NotSafe>>,
}

impl PendingJoin {
    /// Refuses the join.
    pub(crate) fn refuse(self, error: JoinGroupError) {
        // The caller may be gone, with its thread or its task: nobody to tell then.
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

impl PendingConfirm {
    /// Whether `safe` covers what this one waits for.
    pub(crate) fn is_answered_by(&self, safe: &Safe) -> bool {
        let covers = |up_to: SeqNo| !up_to.is_after(safe.up_to);
        self.group == safe.group && self.up_to.is_some_and(covers)
    }

    pub(crate) fn succeed(self, safe: Safe) {
        let _ = self.reply.try_send(Ok(safe));
    }

    pub(crate) fn fail(self, waiting_for: Vec<NodeId>, closed: bool) {
        let _ = self.reply.try_send(Err(NotSafe { waiting_for, closed }));
    }
}

/// How long a node that is closed waits for the rings of its groups to let it go.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(3);
/// How long a join waits for the node to find its place.
pub(crate) const JOIN_WAIT: Duration = Duration::from_secs(2);
/// As [`JOIN_WAIT`], where seeds were given that must answer.
pub(crate) const SEED_WAIT: Duration = Duration::from_secs(3);
/// As [`JOIN_WAIT`], where a membership service must answer: for so long after its last answer, so
/// that a node which joins many groups at once waits as long as it gets on.
pub(crate) const SERVICE_WAIT: Duration = Duration::from_secs(5);
