//! Requests to groups, and replies (multi-RPC).

use std::future::Future;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use carom_proto::rmp::{Outcome, ReplyError, RequestId, RequestOptions};
use carom_proto::{GroupId, NodeId};

use crate::blocking::within;
use crate::command::NodeCommand;
use crate::error::NotAnswered;
use crate::group::Group;
use crate::node::Node;

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Reply of the member that holds the handler's lock.
    Reply {
        /// Member that replied.
        by: NodeId,
        /// Payload of the reply.
        payload: Bytes,
    },
    /// No handler was named, and the request was delivered to the group with the requested quality
    /// of service.
    Acknowledged,
}

/// Reply channel of a waiting caller.
pub(crate) type Caller = Sender<Result<Answered, NotAnswered>>;

impl Group {
    /// Sends a request to the group and waits for the answer, on any async runtime.
    ///
    /// The request has its place in the order of messages: all members receive it as
    /// [`RingNews::Request`](crate::RingNews::Request). With a [`Handler`](crate::rmp::Handler),
    /// the member that holds the handler's lock replies with [`Group::reply`]. If it fails, the
    /// next member that waits for the lock takes over, so that the work can be done twice, but
    /// there is only one answer. Without a handler the request is acknowledged when it is delivered
    /// with its `qos`.
    ///
    /// # Errors
    /// There was no answer within the patience of the request, the group cannot accept the request,
    /// or it is closed.
    pub async fn request(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Answered, NotAnswered> {
        if !self.shared().profile.is_ordered() {
            return Err(NotAnswered::NoRequests);
        }
        let (group, shared) = (self.id(), Some(Arc::clone(self.shared())));
        let (payload, options) = (payload.into(), options.into());
        let request = |reply| NodeCommand::Request { group, shared, payload, options, reply };
        answered(self.ask(request)).await
    }

    /// Like [`Group::request`], but blocks the thread.
    ///
    /// # Errors
    /// See [`Group::request`].
    ///
    /// # Panics
    /// On a simulated node: see [`Group::request`].
    #[track_caller]
    pub fn request_blocking(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Answered, NotAnswered> {
        self.must_not_block("Group::request_blocking", "request");
        blocking(self.request(payload, options))
    }

    /// Replies to a request that [this member has to answer](crate::rmp::Request::is_ours), on any
    /// async runtime.
    ///
    /// Returns when the reply is queued. The engine then delivers it reliably.
    ///
    /// # Errors
    /// The request is not open, the reply is too large, too many replies wait to be sent, or the
    /// group is closed.
    pub async fn reply(
        &self,
        request: RequestId,
        payload: impl Into<Bytes>,
    ) -> Result<(), ReplyError> {
        let (shared, payload) = (Arc::clone(self.shared()), payload.into());
        let answer = self.ask(|reply| NodeCommand::Reply { shared, request, payload, reply });
        answer.recv().await.unwrap_or(Err(ReplyError::NotJoined))
    }

    /// Like [`Group::reply`], but blocks the thread.
    ///
    /// # Errors
    /// See [`Group::reply`].
    ///
    /// # Panics
    /// On a simulated node: see [`Group::reply`].
    #[track_caller]
    pub fn reply_blocking(
        &self,
        request: RequestId,
        payload: impl Into<Bytes>,
    ) -> Result<(), ReplyError> {
        self.must_not_block("Group::reply_blocking", "reply");
        blocking(self.reply(request, payload))
    }
}

impl Node {
    /// Like [`Group::request`], but to the ordered group called `group`, which this node need not
    /// have joined.
    ///
    /// # Errors
    /// See [`Group::request`]. If no such group exists, there is no answer.
    pub async fn request(
        &self,
        group: &str,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Answered, NotAnswered> {
        let group = GroupId::of_name(group);
        let (shared, payload, options) = (None, payload.into(), options.into());
        let request = |reply| NodeCommand::Request { group, shared, payload, options, reply };
        answered(self.ask(request)).await
    }

    /// Like [`Node::request`], but blocks the thread.
    ///
    /// # Errors
    /// See [`Node::request`].
    ///
    /// # Panics
    /// On a simulated node: see [`Node::request`].
    #[track_caller]
    pub fn request_blocking(
        &self,
        group: &str,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Answered, NotAnswered> {
        self.must_not_block("Node::request_blocking", "request");
        blocking(self.request(group, payload, options))
    }
}

async fn answered(
    answer: Receiver<Result<Answered, NotAnswered>>,
) -> Result<Answered, NotAnswered> {
    answer.recv().await.unwrap_or(Err(NotAnswered::Closed))
}

fn blocking<T>(future: impl Future<Output = T>) -> T {
    within(std::time::Duration::MAX, future).expect("this time never ends")
}

/// Returns the caller's result of an outcome.
pub(crate) fn told(outcome: Outcome) -> Result<Answered, NotAnswered> {
    match outcome {
        Outcome::Reply { by, payload } => Ok(Answered::Reply { by, payload }),
        Outcome::Acknowledged => Ok(Answered::Acknowledged),
        Outcome::Unanswered => Err(NotAnswered::Unanswered),
    }
}
