//! Requests to groups, and replies (multi-RPC).

use bytes::Bytes;
use carom_proto::rmp::{ReplyError, RequestId, RequestOptions};

use super::group::Group;
use crate::shared::commands::{NodeCommand, Reply};
use crate::shared::error::RequestError;

impl Group {
    /// Sends a request to the group and waits for the answer.
    ///
    /// The request has its place in the order of messages: all members receive it as
    /// [`RingNews::Request`](crate::RingNews::Request). With a [`Handler`](crate::Handler),
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
    ) -> Result<Reply, RequestError> {
        if !self.handle().shared.profile.is_ordered() {
            return Err(RequestError::NoRequests);
        }
        let (group, shared) = (self.id(), Some(self.handle().shared()));
        let (payload, options) = (payload.into(), options.into());
        let request = |reply| NodeCommand::Request { group, shared, payload, options, reply };
        let answer = self.handle().node.call(request);
        answer.recv().await.unwrap_or(Err(RequestError::Closed))
    }

    /// Replies to a request that [this member has to answer](crate::Request::is_ours).
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
}
