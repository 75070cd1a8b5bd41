//! Requests to groups, and replies (multi-RPC).

use async_channel::Receiver;
use bytes::Bytes;
use carom_proto::rmp::{ReplyError, RequestId, RequestOptions};

use super::blocking::wait;
use super::group::Group;
use crate::shared::commands::{Answered, NodeCommand};
use crate::shared::error::RequestError;

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
    ) -> Result<Answered, RequestError> {
        if !self.handle().shared.profile.is_ordered() {
            return Err(RequestError::NoRequests);
        }
        let (group, shared) = (self.id(), Some(self.handle().shared()));
        let (payload, options) = (payload.into(), options.into());
        let request = |reply| NodeCommand::Request { group, shared, payload, options, reply };
        answer(self.handle().node.call(request)).await
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
    ) -> Result<Answered, RequestError> {
        self.handle().node.must_not_block("Group::request_blocking", "request");
        wait(self.request(payload, options))
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
        let (shared, payload) = (self.handle().shared(), payload.into());
        let reply = |reply| NodeCommand::Reply { shared, request, payload, reply };
        let answer = self.handle().node.call(reply);
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
        self.handle().node.must_not_block("Group::reply_blocking", "reply");
        wait(self.reply(request, payload))
    }
}

/// Returns the answer to a request.
pub(crate) async fn answer(
    answer: Receiver<Result<Answered, RequestError>>,
) -> Result<Answered, RequestError> {
    answer.recv().await.unwrap_or(Err(RequestError::Closed))
}
