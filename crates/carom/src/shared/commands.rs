//! Commands of the handles to a node, with their replies.

use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, TrySendError};
use bytes::Bytes;
use carom_proto::ring::{
    Epoch, LockName, QueryOptions, ReplyError, RequestId, RequestOptions, RingEvent, RingNews,
    RingStatus, Timestamp,
};
use carom_proto::{Confirmed, Event, GroupId, NodeId};

use super::error::{ConfirmError, JoinGroupError, LockError, QueryError, RequestError};
use super::event_queue::EventReceiver;
use super::group::{GroupParts, GroupShared};
use super::profile::Profile;
use super::status::Status;

/// Command to one node. If its group handle was replaced, the reply channel is dropped instead.
pub(crate) enum NodeCommand {
    Join {
        name: String,
        profile: Profile,
        reply: ReplySender<Result<GroupParts, JoinGroupError>>,
    },
    /// Leaves a group, if this handle of it is still in use.
    Leave {
        shared: Arc<GroupShared>,
        reply: ReplySender<()>,
    },
    /// Waits until what was sent is settled at all members.
    Confirm {
        shared: Arc<GroupShared>,
        /// Number of the message; `None` for all that were published.
        message: Option<u64>,
        timeout: Duration,
        reply: ReplySender<Result<Confirmed, ConfirmError>>,
    },
    /// Sends a request to a group: as a member with this handle, or from outside the group.
    Request {
        group: GroupId,
        shared: Option<Arc<GroupShared>>,
        payload: Bytes,
        options: RequestOptions,
        reply: ReplySender<Result<Reply, RequestError>>,
    },
    Reply {
        shared: Arc<GroupShared>,
        request: RequestId,
        payload: Bytes,
        reply: ReplySender<Result<(), ReplyError>>,
    },
    Query {
        group: GroupId,
        options: QueryOptions,
        reply: ReplySender<Result<Vec<RingStatus>, QueryError>>,
    },
    /// Requests the members of a ring to continue without a quorum.
    ForceQuorum {
        group: GroupId,
        epoch: Epoch,
        lost: Vec<NodeId>,
    },
    /// Requests a lock, and waits for it if `waits` is `true`.
    Lock {
        shared: Arc<GroupShared>,
        name: LockName,
        waits: bool,
        reply: ReplySender<Result<LockGrant, LockError>>,
    },
    /// Withdraws the lock requests of tasks that no longer wait.
    WithdrawLock {
        shared: Arc<GroupShared>,
        name: LockName,
    },
    Unlock {
        shared: Arc<GroupShared>,
        name: LockName,
        grant: u64,
    },
    /// Moves the events of a topic to a queue of their own.
    Subscribe {
        shared: Arc<GroupShared>,
        topic: Topic,
        reply: ReplySender<EventReceiver>,
    },
    /// Reports that the application has made room in the group's event queue.
    Room {
        group: GroupId,
    },
    Status {
        reply: ReplySender<Status>,
    },
    /// Panics, to test the handles.
    #[cfg(test)]
    Panic,
    /// Notifies the other nodes, and closes the node.
    Close {
        reply: ReplySender<()>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Requests,
    Locks,
}

impl Topic {
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let Event::Ring(RingEvent { news, .. }) = event else { return None };
        match news {
            RingNews::Request(_) => Some(Self::Requests),
            RingNews::Lock(_) => Some(Self::Locks),
            _ => None,
        }
    }
}

/// Sender of one reply. Dropping it without a reply closes the caller's channel.
#[derive(Debug)]
pub(crate) struct ReplySender<T>(Sender<T>);

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// Reply of the member that holds the handler's lock.
    Handled {
        /// Member that replied.
        by: NodeId,
        /// Payload of the reply.
        payload: Bytes,
    },
    /// Without a handler, the request was delivered with the requested quality of service.
    Acknowledged,
}

#[derive(Debug)]
pub(crate) struct LockGrant {
    pub(crate) fence: Timestamp,
    pub(crate) number: u64,
    /// Closes when the lock is lost.
    pub(crate) lost: Receiver<()>,
}

impl<T> ReplySender<T> {
    pub(crate) fn channel() -> (Self, Receiver<T>) {
        let (sender, receiver) = async_channel::bounded(1);
        (Self(sender), receiver)
    }

    pub(crate) fn send(self, reply: T) -> Result<(), T> {
        self.0.try_send(reply).map_err(|error| match error {
            TrySendError::Closed(reply) | TrySendError::Full(reply) => reply,
        })
    }

    pub(crate) fn send_if_wanted(self, reply: T) {
        let _ = self.send(reply);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}
