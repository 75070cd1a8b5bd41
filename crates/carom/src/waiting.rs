//! Callers that wait until they can be sure.

use std::time::Duration;

use async_channel::Sender;
use carom_proto::{GroupId, Safe, SeqNo, Time};

use crate::error::NotSafe;
use crate::given_up::Covered;

/// A confirmation that waits: first until all that was queued is sent, then for the members.
#[derive(Debug)]
pub(crate) struct PendingConfirm {
    pub(crate) group: GroupId,
    /// The messages that it covers. The engine is asked when the last of them has left the queue.
    pub(crate) covered: Covered,
    /// The last message that was sent when the engine was asked.
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

    pub(crate) fn fail(self, why: NotSafe) {
        let _ = self.reply.try_send(Err(why));
    }
}

/// How long a node that is closed waits for the rings of its groups to let it go.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(3);
