//! A group that the application has joined.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use carom_proto::rmp::{Partition, Qos};
use carom_proto::{Event, GroupId, NodeId, Profile as Engine, Safe, View, ViewChange};
use futures_core::Stream;

use crate::alarms::{Sleep, before};
use crate::blocking::within;
use crate::command::NodeCommand;
use crate::error::{NotSafe, PublishError, Timeout};
use crate::mailbox::{Arrival, Found, Inlet, Room};
use crate::node::NodeShared;
use crate::outgoing::{Queue, ReadyMark};
use crate::profile::Profile;

mod publishing;

pub use self::publishing::Deadline;

/// Membership in a group: publishes to the other members and receives what they publish.
///
/// Dropping it leaves the group. It can be used from several threads at once; each event goes to
/// one of the receivers.
pub struct Group {
    shared: Arc<GroupShared>,
    inlet: Inlet,
    node: Arc<NodeShared>,
}

/// State of a group that the driver and the application share.
#[derive(Debug)]
pub(crate) struct GroupShared {
    pub(crate) name: String,
    pub(crate) id: GroupId,
    pub(crate) profile: Profile,
    pub(crate) limits: PayloadLimits,
    unreliable_limit: AtomicUsize,
    pub(crate) ready: ReadyMark,
    pub(crate) queue: Queue,
    held_back: Mutex<Option<(NodeId, u32)>>,
    members: Mutex<View>,
}

/// Maximum sizes of a group's messages in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadLimits {
    /// Limit of messages with any guarantee.
    pub(crate) message: usize,
    /// Initial limit of unreliable messages in an ordered group. The limit follows the path MTU.
    pub(crate) unreliable: usize,
}

/// The application's ends of a group's queues, on their way to the application.
#[derive(Debug)]
pub(crate) struct GroupParts {
    pub(crate) shared: Arc<GroupShared>,
    pub(crate) inlet: Inlet,
}

impl Group {
    pub(crate) fn new(parts: GroupParts, node: Arc<NodeShared>) -> Self {
        let GroupParts { shared, inlet } = parts;
        Self { shared, inlet, node }
    }

    /// Returns the group's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the group's id: the hash of its name.
    pub fn id(&self) -> GroupId {
        self.shared.id
    }

    /// Returns the maximum size of a message in bytes: 16 MiB, unless the engine's settings set
    /// another limit.
    pub fn payload_limit(&self) -> usize {
        self.shared.limits.message
    }

    /// Returns the other members in this node's current view, in order of their ids.
    pub fn members(&self) -> Vec<NodeId> {
        self.shared.members()
    }

    /// Receives the next event, on any async runtime.
    ///
    /// Returns `None` once the group is closed and all events were received.
    pub async fn recv(&self) -> Option<Event> {
        self.taken(self.inlet.next().await)
    }

    /// Like [`Group::recv`], but blocks the thread.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::recv`].
    #[track_caller]
    pub fn recv_blocking(&self) -> Option<Event> {
        self.must_not_block("Group::recv_blocking", "recv");
        self.taken(self.inlet.next_blocking())
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
        self.must_not_block("Group::recv_timeout", "recv_timeout_async");
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
        before(self.node.sleep(timeout), self.recv()).await.ok_or(Timeout(timeout))
    }

    /// Returns the next event if one has arrived, without waiting.
    pub fn try_recv(&self) -> Option<Event> {
        match self.inlet.take() {
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
    /// A message is settled at a member that has it, or knows that it lost it; [`Safe::incomplete`]
    /// lists the members that lost messages. If nothing was published, the call returns at once.
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
    pub fn confirm(&self, timeout: Duration) -> Result<Safe, NotSafe> {
        self.must_not_block("Group::confirm", "confirm_async");
        let answer = self.ask_to_confirm(None, timeout);
        answer.recv_blocking().unwrap_or(Err(NotSafe::Closed))
    }

    /// Like [`Group::confirm`], but on any async runtime.
    ///
    /// # Errors
    /// See [`Group::confirm`].
    pub async fn confirm_async(&self, timeout: Duration) -> Result<Safe, NotSafe> {
        let answer = self.ask_to_confirm(None, timeout);
        answer.recv().await.unwrap_or(Err(NotSafe::Closed))
    }

    /// Waits until the message with this number is settled at all members.
    pub(crate) async fn confirm_message(&self, number: u64) -> Result<Safe, NotSafe> {
        let answer = self.ask_to_confirm(Some(number), Duration::MAX);
        answer.recv().await.unwrap_or(Err(NotSafe::Closed))
    }

    /// Leaves the group.
    ///
    /// The node remains a member in the background until the other members have what it has sent,
    /// for at most 2 s. Messages that are still held back are not sent; see [`Group::confirm`].
    pub fn leave(self) {
        drop(self);
    }

    fn ask_to_confirm(
        &self,
        message: Option<u64>,
        timeout: Duration,
    ) -> Receiver<Result<Safe, NotSafe>> {
        let shared = Arc::clone(&self.shared);
        self.node.ask(|reply| NodeCommand::Confirm { shared, message, timeout, reply })
    }

    pub(crate) fn shared(&self) -> &Arc<GroupShared> {
        &self.shared
    }

    /// Returns the id of the node that has joined the group.
    pub fn node_id(&self) -> NodeId {
        self.node.parts.first_status.id
    }

    /// Sends a command to the node. If the node is closed, the returned channel is closed without a
    /// reply.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> NodeCommand) -> Receiver<T> {
        self.node.ask(command)
    }

    pub(crate) fn tell(&self, command: NodeCommand) {
        self.node.home.tell(command);
    }

    /// Panics if the call would block forever.
    #[track_caller]
    pub(crate) fn must_not_block(&self, call: &str, instead: &str) {
        self.node.home.must_not_block(call, instead);
    }

    /// Returns a sleep of `span` on the node's clock.
    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        self.node.sleep(span)
    }

    fn wake_driver(&self) {
        if self.node.parts.ready.enter(self.shared.id, &self.shared.ready) {
            self.node.home.wake();
        }
    }

    /// Returns the event that the application has taken, after notifying the driver if it waits for
    /// room.
    fn taken(&self, found: Option<(Event, Room)>) -> Option<Event> {
        let (event, room) = found?;
        if room == Room::Wanted {
            self.node.home.tell(NodeCommand::Room { group: self.shared.id });
        }
        Some(event)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.node.home.tell(NodeCommand::Leave { shared: Arc::clone(&self.shared) });
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl GroupShared {
    pub(crate) fn new(name: &str, id: GroupId, profile: Profile, limits: PayloadLimits) -> Self {
        Self {
            name: name.into(),
            id,
            profile,
            limits,
            unreliable_limit: AtomicUsize::new(limits.unreliable),
            ready: ReadyMark::default(),
            queue: Queue::default(),
            held_back: Mutex::new(None),
            members: Mutex::default(),
        }
    }

    /// Returns the maximum size in bytes of a message with this quality of service.
    fn limit(&self, qos: Option<Qos>) -> Result<usize, PublishError> {
        let partition = match self.profile.settings() {
            Engine::Ordered(partition) => Some(partition),
            _ => None,
        };
        match (qos, partition) {
            (Some(Qos::Unreliable), Some(_)) => Ok(self.unreliable_limit.load(Relaxed)),
            (Some(asked @ Qos::Resilient(0)), Some(_))
            | (Some(asked @ Qos::MajorityResilient), Some(Partition::AtLeast(_)))
            | (Some(asked), None) => Err(PublishError::Qos { asked }),
            _ => Ok(self.limits.message),
        }
    }

    /// Follows a change of the path MTU.
    pub(crate) fn set_unreliable_limit(&self, bytes: usize) {
        self.unreliable_limit.store(bytes, Relaxed);
    }

    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).members().to_vec()
    }

    pub(crate) fn set_members(&self, members: Vec<NodeId>) {
        let members = View::from_iter(members);
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Follows a change of one member. The list is not copied: when a rack of a thousand groups
    /// fails, there are thousands of changes.
    pub(crate) fn change_members(&self, change: &ViewChange) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).apply(change);
    }

    pub(crate) fn set_held_back(&self, by: Option<(NodeId, u32)>) {
        *self.held_back.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    fn held_back(&self) -> Option<(NodeId, u32)> {
        *self.held_back.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stream of [`Group::stream`].
struct Events<'a> {
    group: &'a Group,
    arrival: Arrival,
}

impl Stream for Events<'_> {
    type Item = Event;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Event>> {
        let Self { group, arrival } = &mut *self;
        group.inlet.poll_next(context, arrival).map(|found| group.taken(found))
    }
}
