//! A group that the application has joined.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::{Confirmed, Event, GroupId, NodeId, SendOptions};
use futures_core::Stream;

use super::blocking::within;
use super::handle::{GroupHandle, NodeHandle};
use super::publish::Published;
use crate::shared::commands::NodeCommand;
use crate::shared::error::{ConfirmError, PublishError, Timeout, TryPublishError};
use crate::shared::event_queue::{Arrival, EventReceiver, Found, Room};
use crate::shared::group::GroupParts;
use crate::shared::sleep::before;

/// Membership in a group: publishes to the other members and receives what they publish.
///
/// Dropping it leaves the group. It can be used from several threads at once; each event goes to
/// one of the receivers.
pub struct Group {
    handle: GroupHandle,
    events: EventReceiver,
}

impl Group {
    pub(crate) fn new(parts: GroupParts, node: NodeHandle) -> Self {
        let GroupParts { shared, events } = parts;
        Self { handle: GroupHandle { node, shared }, events }
    }

    pub(crate) fn handle(&self) -> &GroupHandle {
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

    /// Returns the maximum size of a message in bytes: 16 MiB, unless the engine's settings set
    /// another limit.
    pub fn payload_limit(&self) -> usize {
        self.handle.shared.limits.message
    }

    /// Returns the other members in this node's current view, in order of their ids.
    pub fn members(&self) -> Vec<NodeId> {
        self.handle.shared.members()
    }

    /// Multicasts `payload` to the other members.
    ///
    /// The outgoing queue holds 1024 messages, of which 4 may be larger than 64 KiB. The call
    /// blocks while the queue is full, because a member lags too far behind, or because messages
    /// are published faster than they can be sent. A blocked call continues when half of the queue
    /// is free.
    ///
    /// # Errors
    /// The message is too large, or the group is closed. Nothing was sent then.
    ///
    /// # Panics
    /// On a simulated node, if it would have to block: see [`Group::publish_async`].
    #[track_caller]
    pub fn publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, PublishError> {
        self.publish_with(payload, SendOptions::default())
    }

    /// Like [`Group::publish`], but with options for this message: a
    /// [`Deadline`](crate::Deadline), a [`Qos`](crate::Qos) in an ordered group, or both.
    ///
    /// # Errors
    /// See [`Group::publish`]; also if the group does not offer the requested quality of service.
    ///
    /// # Panics
    /// See [`Group::publish`].
    #[track_caller]
    pub fn publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        Published::when_room_blocking(&self.handle, payload.into(), options.into())
    }

    /// Like [`Group::publish`], but on any async runtime.
    ///
    /// # Errors
    /// See [`Group::publish`].
    pub async fn publish_async(
        &self,
        payload: impl Into<Bytes>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_with_async(payload, SendOptions::default()).await
    }

    /// Like [`Group::publish_with`], but on any async runtime.
    ///
    /// # Errors
    /// See [`Group::publish_with`].
    pub async fn publish_with_async(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        Published::when_room(&self.handle, payload.into(), options.into()).await
    }

    /// Like [`Group::publish`], but never blocks.
    ///
    /// # Errors
    /// See [`Group::publish`]; also if the queue is full. The error then contains the message, and
    /// the member that holds the group back.
    pub fn try_publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, TryPublishError> {
        self.try_publish_with(payload, SendOptions::default())
    }

    /// Like [`Group::publish_with`], but never blocks.
    ///
    /// # Errors
    /// See [`Group::publish_with`] and [`Group::try_publish`].
    pub fn try_publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, TryPublishError> {
        Published::at_once(&self.handle, payload.into(), options.into())
    }

    /// Receives the next event, on any async runtime.
    ///
    /// Returns `None` once the group is closed and all events were received.
    pub async fn recv(&self) -> Option<Event> {
        self.taken(self.events.next().await)
    }

    /// Like [`Group::recv`], but blocks the thread.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::recv`].
    #[track_caller]
    pub fn recv_blocking(&self) -> Option<Event> {
        self.handle.node.must_not_block("Group::recv_blocking", "recv");
        self.taken(self.events.next_blocking())
    }

    /// Like [`Group::recv_blocking`], but for at most `timeout`.
    ///
    /// # Errors
    /// No event arrived within `timeout`.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::recv_timeout_async`].
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Event>, Timeout> {
        self.handle.node.must_not_block("Group::recv_timeout", "recv_timeout_async");
        if let Some(event) = self.try_recv() {
            return Ok(Some(event));
        }
        within(timeout, self.recv()).ok_or(Timeout(timeout))
    }

    /// Like [`Group::recv`], but for at most `timeout` of the node's clock.
    ///
    /// # Errors
    /// No event arrived within `timeout`.
    pub async fn recv_timeout_async(&self, timeout: Duration) -> Result<Option<Event>, Timeout> {
        before(self.handle.node.sleep(timeout), self.recv()).await.ok_or(Timeout(timeout))
    }

    /// Returns the next event if one has arrived, without waiting.
    pub fn try_recv(&self) -> Option<Event> {
        match self.events.take() {
            Found::Event(event, room) => self.taken(Some((event, room))),
            Found::Nothing | Found::End => None,
        }
    }

    /// Returns the events as a stream that ends once the group is closed.
    pub fn stream(&self) -> impl Stream<Item = Event> + Unpin + '_ {
        Events { group: self, arrival: Arrival::default() }
    }

    /// Blocks until everything that was published here so far is settled at all members.
    ///
    /// A message is settled at a member that has it, or knows that it lost it;
    /// [`Confirmed::incomplete`] lists the members that lost messages. If nothing was published,
    /// the call returns at once.
    ///
    /// Messages that were given up are never confirmed: those of a bulk group's sender that has
    /// yielded to another, and those of an ordered group that were not confirmed when this node was
    /// removed from its ring. Each confirmation that covers such a message fails, and so do all
    /// later ones until something is published again. A confirmation then covers what was published
    /// after the failed one. [`Published::delivered`](crate::Published::delivered) reports the
    /// outcome of a single message.
    ///
    /// # Errors
    /// Members have not confirmed within `timeout`, and are listed; no other member is in the
    /// group; messages were given up; the group was closed.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::confirm_async`].
    #[track_caller]
    pub fn confirm(&self, timeout: Duration) -> Result<Confirmed, ConfirmError> {
        self.handle.node.must_not_block("Group::confirm", "confirm_async");
        let answer = self.handle.confirm(None, timeout);
        answer.recv_blocking().unwrap_or(Err(ConfirmError::Closed))
    }

    /// Like [`Group::confirm`], but on any async runtime.
    ///
    /// # Errors
    /// See [`Group::confirm`].
    pub async fn confirm_async(&self, timeout: Duration) -> Result<Confirmed, ConfirmError> {
        let answer = self.handle.confirm(None, timeout);
        answer.recv().await.unwrap_or(Err(ConfirmError::Closed))
    }

    /// Leaves the group.
    ///
    /// The node remains a member in the background until the other members have what it has sent,
    /// for at most 2 s. Messages that are still held back are not sent; see [`Group::confirm`].
    pub fn leave(self) {
        drop(self);
    }

    /// Returns the event that the application has taken, after notifying the driver if it waits for
    /// room.
    fn taken(&self, found: Option<(Event, Room)>) -> Option<Event> {
        let (event, room) = found?;
        if room == Room::Wanted {
            self.handle.node.driver.send(NodeCommand::Room { group: self.handle.shared.id });
        }
        Some(event)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.handle.node.driver.send(NodeCommand::Leave { shared: self.handle.shared() });
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

struct Events<'a> {
    group: &'a Group,
    arrival: Arrival,
}

impl Stream for Events<'_> {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let Self { group, arrival } = &mut *self;
        group.events.poll_next(context, arrival).map(|found| group.taken(found))
    }
}
