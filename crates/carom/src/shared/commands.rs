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

/// A command to a node. A command with an outdated group handle has no effect.
pub(crate) enum NodeCommand {
    Join {
        name: String,
        profile: Profile,
        reply: ReplySender<Result<GroupParts, JoinGroupError>>,
    },
    Leave {
        shared: Arc<GroupShared>,
        reply: ReplySender<()>,
    },
    Confirm {
        shared: Arc<GroupShared>,
        /// Number of the message, or `None` for all published messages.
        message: Option<u64>,
        timeout: Duration,
        reply: ReplySender<Result<Confirmed, ConfirmError>>,
    },
    /// Without a group handle, the node need not have joined the group.
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
    ForceQuorum {
        group: GroupId,
        epoch: Epoch,
        lost: Vec<NodeId>,
    },
    Lock {
        shared: Arc<GroupShared>,
        name: LockName,
        waits: bool,
        reply: ReplySender<Result<LockGrant, LockError>>,
    },
    WithdrawLock {
        shared: Arc<GroupShared>,
        name: LockName,
    },
    Unlock {
        shared: Arc<GroupShared>,
        name: LockName,
        grant: u64,
    },
    Subscribe {
        shared: Arc<GroupShared>,
        topic: Topic,
        reply: ReplySender<EventReceiver>,
    },
    Room {
        group: GroupId,
    },
    Status {
        reply: ReplySender<Status>,
    },
    #[cfg(test)]
    Panic,
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

/// A channel for one reply. Dropping it without a reply closes the caller's end.
#[derive(Debug)]
pub(crate) struct ReplySender<T>(Sender<T>);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The member that holds the handler's lock has replied.
    Handled {
        /// Member that replied.
        by: NodeId,
        /// Payload of the reply.
        payload: Bytes,
    },
    /// A request without a handler was delivered with the requested quality of service.
    Acknowledged,
}

#[derive(Debug)]
pub(crate) struct LockGrant {
    pub(crate) fence: Timestamp,
    pub(crate) number: u64,
    /// Channel that closes when the lock is lost.
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
