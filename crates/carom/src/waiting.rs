//! Confirmations that callers wait for.

use std::time::Duration;

use async_channel::Sender;
use carom_proto::{GroupId, Safe, SeqNo, Time};

use crate::error::NotSafe;
use crate::given_up::Covered;

/// A pending confirmation. It waits until all queued messages are sent, and then for the members.
#[derive(Debug)]
pub(crate) struct PendingConfirm {
    pub(crate) group: GroupId,
    /// Messages that it covers. The engine is queried when the last of them has left the queue.
    pub(crate) covered: Covered,
    /// Last message that was sent when the engine was queried.
    pub(crate) up_to: Option<SeqNo>,
    pub(crate) deadline: Time,
    pub(crate) reply: Sender<Result<Safe, NotSafe>>,
}

impl PendingConfirm {
    /// Returns `true` if `safe` covers the messages of this confirmation.
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

/// Maximum time for which a node that is being closed waits for the rings of its groups to release
/// it.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(3);
