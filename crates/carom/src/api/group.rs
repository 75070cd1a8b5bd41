use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{ReplyError, RequestId, RequestOptions};
use carom_proto::{Confirmed, Event, GroupId, NodeId, SendOptions};

use super::handle::{GroupHandle, NodeHandle};
use super::publish::Published;
use crate::shared::commands::{NodeCommand, Reply};
use crate::shared::error::{ConfirmError, GroupClosed, PublishError, RequestError, Timeout};
use crate::shared::event_queue::Room;
use crate::shared::group::GroupParts;
use crate::shared::sleep::before;

/// A membership in a group, which publishes messages to the other members and receives theirs.
///
/// All clones share one membership. Each event is received by only one of them. The node leaves the
/// group on [`Group::leave`], or once all clones and all values made from them, such as
/// [`Sender`](crate::Sender), [`Receiver`](crate::Receiver), [`Lock`](crate::Lock) and
/// [`Published`], have been dropped.
#[derive(Clone)]
pub struct Group {
    handle: Arc<GroupHandle>,
}

impl Group {
    pub(crate) fn new(parts: GroupParts, node: NodeHandle) -> Self {
        let GroupParts { shared, events } = parts;
        Self { handle: Arc::new(GroupHandle { node, shared, events }) }
    }

    pub(crate) fn handle(&self) -> &Arc<GroupHandle> {
        &self.handle
    }

    /// Returns the group's name.
    pub fn name(&self) -> &str {
        &self.handle.shared.name
    }

    /// Returns the group's id: the hash of its name.
    pub fn id(&self) -> GroupId {
        self.handle.shared.id
    }

    /// Returns the maximum size of a message, in bytes. The default of every engine is 16 MiB.
    pub fn payload_limit(&self) -> usize {
        self.handle.shared.limits.message
    }

    /// Returns the other members in this node's current view, in order of their ids.
    pub fn members(&self) -> Vec<NodeId> {
        self.handle.shared.members()
    }

    /// Waits until the group has at least `count` other members.
    ///
    /// A message reaches only the nodes that are members when it is published.
    ///
    /// # Errors
    /// Returns an error if the group is closed.
    pub async fn wait_for_members(&self, count: usize) -> Result<(), GroupClosed> {
        self.handle.shared.wait_for_members(count).await
    }

    /// Queues `payload` for multicast to the other members.
    ///
    /// The send queue holds 1024 messages, of which 4 may be larger than 64 KiB. If the queue is
    /// full, the call waits until half of it is free. A fifth large message waits until one of the
    /// four has been sent.
    ///
    /// # Errors
    /// Returns an error if the message is too large or the group is closed. In either case, nothing
    /// was sent.
    pub async fn publish(&self, payload: impl Into<Bytes>) -> Result<Published, PublishError> {
        self.publish_with(payload, SendOptions::default()).await
    }

    /// Like [`Group::publish`], but with options for this message: a
    /// [`Deadline`](crate::Deadline), a [`Qos`](crate::Qos) in an ordered group, or both.
    ///
    /// # Errors
    /// See [`Group::publish`]; also if the group does not offer the requested quality of service.
    pub async fn publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published, PublishError> {
        Published::when_room(&self.handle, payload.into(), options.into()).await
    }

    /// Like [`Group::publish`], but never waits.
    ///
    /// # Errors
    /// See [`Group::publish`]; also if the queue is full, or other calls wait for room in it. That
    /// error contains the message.
    pub fn try_publish(&self, payload: impl Into<Bytes>) -> Result<Published, PublishError> {
        self.try_publish_with(payload, SendOptions::default())
    }

    /// Like [`Group::publish_with`], but never waits.
    ///
    /// # Errors
    /// See [`Group::publish_with`] and [`Group::try_publish`].
    pub fn try_publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published, PublishError> {
        Published::at_once(&self.handle, payload.into(), options.into())
    }

    /// Receives the next event.
    ///
    /// Returns `None` once the group is closed and all events have been received.
    pub async fn recv(&self) -> Option<Event> {
        self.taken(self.handle.events.next().await)
    }

    /// Like [`Group::recv`], but waits for at most `timeout` by the node's clock.
    ///
    /// # Errors
    /// Returns an error if no event arrived within `timeout`.
    pub async fn recv_timeout(&self, timeout: Duration) -> Result<Option<Event>, Timeout> {
        before(self.handle.node.sleep(timeout), self.recv()).await.ok_or(Timeout(timeout))
    }

    /// Returns the next event if one has already arrived.
    pub fn try_recv(&self) -> Option<Event> {
        match self.handle.events.take() {
            Poll::Ready(found) => self.taken(found),
            Poll::Pending => None,
        }
    }

    /// Waits until all messages that this node has published so far are settled at all members.
    ///
    /// A message is settled at a member that has received it or has given it up as lost.
    /// [`Confirmed::incomplete`] lists the members that lost messages. If nothing was published,
    /// the call returns immediately.
    ///
    /// Messages not yet confirmed are given up if another node sends in the bulk group, or if this
    /// node is removed from an ordered group. Each confirmation that covers such a message fails,
    /// until another message is published. [`Published::delivered`] reports the outcome of a single
    /// message.
    ///
    /// # Errors
    /// Returns an error if members have not confirmed within `timeout` (the error lists them), no
    /// other member is in the group, messages were given up, or the group is closed.
    pub async fn confirm(&self, timeout: Duration) -> Result<Confirmed, ConfirmError> {
        let answer = self.handle.confirm(None, timeout);
        answer.recv().await.unwrap_or(Err(ConfirmError::Closed))
    }

    /// Leaves the group and closes it for all handles.
    ///
    /// The node remains a member in the background until the other members have received its
    /// messages, for at most 2 s. Messages that are still held back are not sent; see
    /// [`Group::confirm`].
    pub async fn leave(self) {
        let _ = self.handle.leave().recv().await;
    }

    pub(super) fn taken(&self, found: Option<(Event, Room)>) -> Option<Event> {
        let (event, room) = found?;
        if room == Room::Wanted {
            self.handle.node.driver.send(NodeCommand::Room { group: self.handle.shared.id });
        }
        Some(event)
    }

    /// Sends a request to the group and waits for the answer.
    ///
    /// All members receive the request at its place in the order, as
    /// [`RingNews::Request`](crate::RingNews::Request). With a [`Handler`](crate::Handler), the
    /// member that holds the handler's lock replies with [`Group::reply`]. If that member fails,
    /// the next holder takes over: the work can then be done twice, but there is only one answer.
    /// Without a handler, the request is acknowledged once it is delivered with its `qos`.
    ///
    /// # Errors
    /// Returns an error if there was no answer within the patience of the request, the group cannot
    /// accept the request, or the group is closed.
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

    /// Replies to a request that [this member must answer](crate::Request::is_ours).
    ///
    /// Returns once the reply is queued. The engine then delivers it reliably.
    ///
    /// # Errors
    /// Returns an error if the request is not open, the reply cannot be accepted, or the group is
    /// closed.
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

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
