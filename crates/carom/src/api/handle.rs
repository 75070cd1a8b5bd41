use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use bytes::Bytes;
use carom_proto::{Confirmed, SendOptions};

use crate::shared::commands::{NodeCommand, ReplySender};
use crate::shared::driver_handle::DriverHandle;
use crate::shared::error::{ConfirmError, PublishError};
use crate::shared::event_queue::EventReceiver;
use crate::shared::group::GroupShared;
use crate::shared::node::NodeState;
use crate::shared::receipt::{Outcome, Receipt};
use crate::shared::send_queue::Outgoing;
use crate::shared::sleep::Sleep;

#[derive(Clone)]
pub(crate) struct NodeHandle {
    pub(crate) driver: Arc<dyn DriverHandle>,
    pub(crate) state: Arc<NodeState>,
}

/// A handle of a group. The group is left when the last public value that shares it is dropped.
pub(crate) struct GroupHandle {
    pub(crate) node: NodeHandle,
    pub(crate) shared: Arc<GroupShared>,
    pub(crate) events: EventReceiver,
}

impl NodeHandle {
    /// Sends a command. If the node is closed, the channel is closed without a reply.
    pub(crate) fn call<T>(
        &self,
        command: impl FnOnce(ReplySender<T>) -> NodeCommand,
    ) -> Receiver<T> {
        let (reply, answer) = ReplySender::channel();
        self.driver.send(command(reply));
        answer
    }

    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        Sleep::new(Arc::clone(&self.driver), self.driver.now() + span)
    }
}

impl GroupHandle {
    pub(crate) fn shared(&self) -> Arc<GroupShared> {
        Arc::clone(&self.shared)
    }

    pub(crate) fn confirm(
        &self,
        message: Option<u64>,
        timeout: Duration,
    ) -> Receiver<Result<Confirmed, ConfirmError>> {
        let shared = self.shared();
        self.node.call(|reply| NodeCommand::Confirm { shared, message, timeout, reply })
    }

    pub(crate) fn leave(&self) -> Receiver<()> {
        let shared = self.shared();
        self.node.call(|reply| NodeCommand::Leave { shared, reply })
    }

    pub(crate) fn outgoing(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<(Outgoing, Option<Outcome>), PublishError> {
        let limit = self.shared.limit(options.qos)?;
        let bytes = payload.len();
        if bytes > limit {
            return Err(PublishError::TooLarge { bytes, limit });
        }
        let tracked = self.shared.profile.is_ordered().then(Receipt::new);
        let (receipt, outcome) = tracked.unzip();
        Ok((Outgoing { payload, options, receipt }, outcome))
    }

    pub(crate) fn wake_driver(&self) {
        if self.node.state.ready.enter(self.shared.id, &self.shared.queue) {
            self.node.driver.wake();
        }
    }
}

impl Drop for GroupHandle {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for GroupHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("name", &self.shared.name).finish_non_exhaustive()
    }
}
