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

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The reply of the member that holds the handler's lock.
    Reply {
        /// Who has replied.
        by: NodeId,
        /// The reply.
        payload: Bytes,
    },
    /// No handler was named: the request was delivered to the group, as promised.
    Acknowledged,
}

/// Where a caller waits.
pub(crate) type Caller = Sender<Result<Answered, NotAnswered>>;

impl Group {
    /// Makes a request to the group, and waits for the answer; on any async runtime. It has its
    /// place among the messages: all members are told of it by
    /// [`RingNews::Request`](crate::RingNews::Request). With a
    /// [`Handler`](crate::rmp::Handler) the member that holds the handler's lock replies, by
    /// [`Group::reply`]; a handler that dies is followed by the next that waits for its lock, so
    /// the work may be done twice, but there is one answer. Without a handler the request is
    /// acknowledged when it is delivered as its `qos` says.
    ///
    /// # Errors
    /// There was no answer within the patience of the request, the group cannot take it, or it is
    /// closed.
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

    /// As [`Group::request`], blocking the thread.
    ///
    /// # Errors
    /// As [`Group::request`].
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

    /// Replies to a request that [is this member's](crate::rmp::Request::is_ours) to reply to; on
    /// any async runtime. Ends when the reply is on its way, which is then seen to.
    ///
    /// # Errors
    /// The request is not open, the reply is too large or too much waits to be sent, or the group
    /// is closed.
    pub async fn reply(
        &self,
        request: RequestId,
        payload: impl Into<Bytes>,
    ) -> Result<(), ReplyError> {
        let (shared, payload) = (Arc::clone(self.shared()), payload.into());
        let answer = self.ask(|reply| NodeCommand::Reply { shared, request, payload, reply });
        answer.recv().await.unwrap_or(Err(ReplyError::NotJoined))
    }

    /// As [`Group::reply`], blocking the thread.
    ///
    /// # Errors
    /// As [`Group::reply`].
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
    /// As [`Group::request`], to the ordered group called `group`, in which this node need not be:
    /// it need not hear what the group says.
    ///
    /// # Errors
    /// As [`Group::request`]. If there is no such group there is no answer.
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

    /// As [`Node::request`], blocking the thread.
    ///
    /// # Errors
    /// As [`Node::request`].
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

/// What the caller is told.
pub(crate) fn told(outcome: Outcome) -> Result<Answered, NotAnswered> {
    match outcome {
        Outcome::Reply { by, payload } => Ok(Answered::Reply { by, payload }),
        Outcome::Acknowledged => Ok(Answered::Acknowledged),
        Outcome::Unanswered => Err(NotAnswered::Unanswered),
    }
}
