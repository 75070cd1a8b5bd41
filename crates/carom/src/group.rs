//! A group that the application is in.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::{Receiver, TrySendError};
use bytes::Bytes;
use carom_proto::rmp::{LockName, Partition, Qos};
use carom_proto::{Event, GroupId, NodeId, Profile as Engine, Safe, SendOptions};
use futures_core::Stream;

use crate::alarms::{Sleep, before};
use crate::blocking::within;
use crate::command::NodeCommand;
use crate::delivery::Inlet;
use crate::error::{LockError, NotSafe, PublishError, Timeout, TryPublishError};
use crate::lock::{Asking, Lock};
use crate::node::NodeShared;
use crate::outgoing::{Outgoing, Queue, ReadyMark};
use crate::profile::Profile;
use crate::published::{Published, Receipt};

/// Membership in a group: publishes to the other members and receives what they publish. Dropping
/// it leaves the group. It can be used from several threads at once; each event goes to one of
/// those who receive.
pub struct Group {
    shared: Arc<GroupShared>,
    inlet: Inlet,
    node: Arc<NodeShared>,
}

/// How long after its multicast a message is still of use: nobody repairs it after that, and who
/// has not got it by then is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Duration);

impl From<Deadline> for SendOptions {
    fn from(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline.0), ..Self::default() }
    }
}

/// What the driver and the application know of a group.
#[derive(Debug)]
pub(crate) struct GroupShared {
    pub(crate) name: String,
    pub(crate) id: GroupId,
    pub(crate) profile: Profile,
    pub(crate) limits: PayloadLimits,
    pub(crate) ready: ReadyMark,
    pub(crate) queue: Queue,
    held_back: Mutex<Option<(NodeId, u32)>>,
    members: Mutex<Vec<NodeId>>,
}

/// The largest messages of a group in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadLimits {
    /// Of any that is promised something.
    pub(crate) message: usize,
    /// Of unreliable ones in an ordered group.
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

    /// The group's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The group's id: the hash of its name.
    pub fn id(&self) -> GroupId {
        self.shared.id
    }

    /// The largest message in bytes; follows from r and the path MTU.
    pub fn payload_limit(&self) -> usize {
        self.shared.limits.message
    }

    /// The other members as this node sees them now, in order of their ids.
    pub fn members(&self) -> Vec<NodeId> {
        self.shared.members()
    }

    /// Multicasts `payload` to the other members. Blocks while a member that is too far behind
    /// holds the group back and its queue of 1024 messages is full.
    ///
    /// # Errors
    /// The message is too large, or the group is closed. Nothing was sent then.
    ///
    /// # Panics
    /// On a simulated node, if it would have to block: see [`Group::publish_async`].
    #[track_caller]
    pub fn publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, PublishError> {
        self.publish_blocking(payload.into(), SendOptions::default())
    }

    /// As [`Group::publish`], with what this message needs: a [`Deadline`], in an ordered group a
    /// [`Qos`], or both.
    ///
    /// # Errors
    /// As [`Group::publish`].
    ///
    /// # Panics
    /// As [`Group::publish`].
    #[track_caller]
    pub fn publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_blocking(payload.into(), options.into())
    }

    /// As [`Group::publish`], on any async runtime.
    ///
    /// # Errors
    /// As [`Group::publish`].
    pub async fn publish_async(
        &self,
        payload: impl Into<Bytes>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_waiting(payload.into(), SendOptions::default()).await
    }

    /// As [`Group::publish_with`], on any async runtime.
    ///
    /// # Errors
    /// As [`Group::publish`].
    pub async fn publish_with_async(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_waiting(payload.into(), options.into()).await
    }

    /// As [`Group::publish`], without ever blocking.
    ///
    /// # Errors
    /// As [`Group::publish`], or the queue is full; the error has the message and tells who holds
    /// the group back.
    pub fn try_publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, TryPublishError> {
        self.try_publish_with(payload, SendOptions::default())
    }

    /// As [`Group::publish_with`], without ever blocking.
    ///
    /// # Errors
    /// As [`Group::try_publish`].
    pub fn try_publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, TryPublishError> {
        let (outgoing, published) = self.outgoing(payload.into(), options.into())?;
        let Some(queue) = self.shared.queue.inlet() else { return Err(TryPublishError::Closed) };
        match queue.try_send(outgoing) {
            Ok(()) => {
                self.wake_driver();
                Ok(published)
            }
            Err(TrySendError::Full(Outgoing { payload, .. })) => {
                Err(TryPublishError::Full { held_back_by: self.shared.held_back(), payload })
            }
            Err(TrySendError::Closed(_)) => Err(TryPublishError::Closed),
        }
    }

    /// The next event; `None` once the group is closed and all events were taken. On any async
    /// runtime.
    pub async fn recv(&self) -> Option<Event> {
        let event = self.inlet.queue.recv().await.ok();
        self.tell_of_room();
        event
    }

    /// As [`Group::recv`], blocking the thread.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::recv`].
    #[track_caller]
    pub fn recv_blocking(&self) -> Option<Event> {
        self.must_not_block("Group::recv_blocking", "recv");
        let event = self.inlet.queue.recv_blocking().ok();
        self.tell_of_room();
        event
    }

    /// As [`Group::recv_blocking`], for no longer than `timeout`.
    ///
    /// # Errors
    /// Nothing happened in that time.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::recv_timeout_async`].
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Event>, Timeout> {
        self.must_not_block("Group::recv_timeout", "recv_timeout_async");
        if let Ok(event) = self.inlet.queue.try_recv() {
            self.tell_of_room();
            return Ok(Some(event));
        }
        within(timeout, self.recv()).ok_or(Timeout(timeout))
    }

    /// As [`Group::recv`], for no longer than `timeout` of the node's clock.
    ///
    /// # Errors
    /// Nothing happened in that time.
    pub async fn recv_timeout_async(&self, timeout: Duration) -> Result<Option<Event>, Timeout> {
        before(self.node.sleep(timeout), self.recv()).await.ok_or(Timeout(timeout))
    }

    /// The next event if there is one already.
    pub fn try_recv(&self) -> Option<Event> {
        let event = self.inlet.queue.try_recv().ok();
        self.tell_of_room();
        event
    }

    /// The events as a stream, which ends once the group is closed.
    pub fn stream(&self) -> impl Stream<Item = Event> + Unpin + '_ {
        Events { group: self, queue: Box::pin(self.inlet.queue.clone()) }
    }

    /// Blocks until everything that was published here so far is settled at all members: each has
    /// the message, or knows that it lost it ([`Safe::incomplete`] names those).
    ///
    /// # Errors
    /// Not within `timeout`, or the group was closed; the error names the members that are waited
    /// for.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::confirm_async`].
    #[track_caller]
    pub fn confirm(&self, timeout: Duration) -> Result<Safe, NotSafe> {
        self.must_not_block("Group::confirm", "confirm_async");
        let answer = self.ask_to_confirm(timeout);
        answer.recv_blocking().unwrap_or_else(|_| Err(self.not_safe()))
    }

    /// As [`Group::confirm`], on any async runtime.
    ///
    /// # Errors
    /// As [`Group::confirm`].
    pub async fn confirm_async(&self, timeout: Duration) -> Result<Safe, NotSafe> {
        let answer = self.ask_to_confirm(timeout);
        answer.recv().await.unwrap_or_else(|_| Err(self.not_safe()))
    }

    /// Waits for a lock of an ordered group, behind all who have asked before, on any async
    /// runtime. A lock is named by a text, or by a [`Handler`](crate::rmp::Handler). If the future
    /// is dropped before it ends, the lock is not waited for any more.
    ///
    /// # Errors
    /// The group is not ordered, the ring has gone on without this node, too many wait, or the
    /// group is closed.
    pub async fn lock(&self, name: impl Into<LockName>) -> Result<Lock<'_>, LockError> {
        self.ask_for_lock(name.into(), true).await
    }

    /// As [`Group::lock`], for no longer than `timeout` of the node's clock.
    ///
    /// # Errors
    /// As [`Group::lock`], or the time was over before.
    pub async fn lock_timeout_async(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock<'_>, LockError> {
        let lock = self.ask_for_lock(name.into(), true);
        before(self.node.sleep(timeout), lock).await.unwrap_or(Err(LockError::Timeout(timeout)))
    }

    /// As [`Group::lock`], blocking the thread for no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Group::lock`], or the time was over before.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::lock_timeout_async`].
    #[track_caller]
    pub fn lock_timeout(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock<'_>, LockError> {
        self.must_not_block("Group::lock_timeout", "lock_timeout_async");
        let lock = self.ask_for_lock(name.into(), true);
        within(timeout, lock).unwrap_or(Err(LockError::Timeout(timeout)))
    }

    /// As [`Group::lock`], but does not wait while another holds the lock.
    ///
    /// # Errors
    /// As [`Group::lock`], or another holds it; the error says who.
    pub async fn try_lock(&self, name: impl Into<LockName>) -> Result<Lock<'_>, LockError> {
        self.ask_for_lock(name.into(), false).await
    }

    /// Leaves the group. Messages that are still held back are not sent any more; see
    /// [`Group::confirm`].
    pub fn leave(self) {
        drop(self);
    }

    #[track_caller]
    fn publish_blocking(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<Published<'_>, PublishError> {
        let (outgoing, published) = self.outgoing(payload, options)?;
        let queue = self.shared.queue.inlet().ok_or(PublishError::Closed)?;
        match queue.try_send(outgoing) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Err(PublishError::Closed),
            Err(TrySendError::Full(outgoing)) => {
                self.must_not_block("Group::publish", "publish_async");
                queue.send_blocking(outgoing).map_err(|_| PublishError::Closed)?;
            }
        }
        self.wake_driver();
        Ok(published)
    }

    async fn publish_waiting(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<Published<'_>, PublishError> {
        let (outgoing, published) = self.outgoing(payload, options)?;
        let queue = self.shared.queue.inlet().ok_or(PublishError::Closed)?;
        queue.send(outgoing).await.map_err(|_| PublishError::Closed)?;
        self.wake_driver();
        Ok(published)
    }

    fn ask_to_confirm(&self, timeout: Duration) -> Receiver<Result<Safe, NotSafe>> {
        let group = self.id();
        self.node.ask(|reply| NodeCommand::Confirm { group, timeout, reply })
    }

    /// The group is closed, so nobody can say any more whether it is safe.
    fn not_safe(&self) -> NotSafe {
        NotSafe { waiting_for: self.members(), closed: true }
    }

    async fn ask_for_lock(&self, name: LockName, waits: bool) -> Result<Lock<'_>, LockError> {
        if !self.shared.profile.is_ordered() {
            return Err(LockError::NoLocks);
        }
        let group = self.id();
        let answer = self.node.ask(|reply| NodeCommand::Lock { group, name, waits, reply });
        let asking = Asking { group: self, name, answer };
        let grant = asking.answer.recv().await.unwrap_or(Err(LockError::Closed))?;
        Ok(Lock::new(self, name, grant))
    }

    pub(crate) fn shared(&self) -> &Arc<GroupShared> {
        &self.shared
    }

    pub(crate) fn tell(&self, command: NodeCommand) {
        self.node.home.tell(command);
    }

    /// The message as the driver gets it, and what the caller gets, if the group can take it.
    fn outgoing(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<(Outgoing, Published<'_>), PublishError> {
        let limit = self.shared.limit(options.qos)?;
        let bytes = payload.len();
        if bytes > limit {
            return Err(PublishError::TooLarge { bytes, limit });
        }
        let tracked = self.shared.profile.is_ordered().then(Receipt::new);
        let (receipt, answer) = tracked.unzip();
        Ok((Outgoing { payload, options, receipt }, Published::new(self, answer)))
    }

    /// Refuses a call that would block for ever.
    #[track_caller]
    pub(crate) fn must_not_block(&self, call: &str, instead: &str) {
        self.node.home.must_not_block(call, instead);
    }

    /// A time of the node's clock.
    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        self.node.sleep(span)
    }

    fn wake_driver(&self) {
        if self.node.parts.ready.enter(self.shared.id, &self.shared.ready) {
            self.node.home.wake();
        }
    }

    fn tell_of_room(&self) {
        if self.inlet.has_wanted_room() {
            self.node.home.tell(NodeCommand::Room { group: self.shared.id });
        }
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
            ready: ReadyMark::default(),
            queue: Queue::default(),
            held_back: Mutex::new(None),
            members: Mutex::new(Vec::new()),
        }
    }

    /// Bytes of the largest message with this promise.
    fn limit(&self, qos: Option<Qos>) -> Result<usize, PublishError> {
        let partition = match self.profile.settings() {
            Engine::Ordered(partition) => Some(partition),
            _ => None,
        };
        match (qos, partition) {
            (Some(Qos::Unreliable), Some(_)) => Ok(self.limits.unreliable),
            (Some(asked @ Qos::MajorityResilient), Some(Partition::AtLeast(_)))
            | (Some(asked), None) => Err(PublishError::Qos { asked }),
            _ => Ok(self.limits.message),
        }
    }

    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_members(&self, members: &[NodeId]) {
        let mut ours = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        ours.clear();
        ours.extend_from_slice(members);
    }

    pub(crate) fn set_held_back(&self, by: Option<(NodeId, u32)>) {
        *self.held_back.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    fn held_back(&self) -> Option<(NodeId, u32)> {
        *self.held_back.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`Group::stream`].
struct Events<'a> {
    group: &'a Group,
    queue: std::pin::Pin<Box<Receiver<Event>>>,
}

impl Stream for Events<'_> {
    type Item = Event;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Event>> {
        let polled = self.queue.as_mut().poll_next(context);
        if polled.is_ready() {
            self.group.tell_of_room();
        }
        polled
    }
}
