//! Callers that wait until they can be sure.

use std::time::Duration;

use async_channel::Sender;
use carom_proto::{GroupId, NodeId, Safe, SeqNo, Time};

use crate::error::NotSafe;

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
