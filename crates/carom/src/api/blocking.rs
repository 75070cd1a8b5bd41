//! Blocking versions of the types in the crate's root, for programs without an async runtime.
//!
//! Each type wraps the type of the same name in the crate's root and has the same methods. A method
//! blocks the calling thread where the wrapped type returns a future. For methods that never wait,
//! each type dereferences to the wrapped type. The limit of a call whose name ends in `_timeout` is
//! measured by the calling thread's clock. [`Group::split`] returns a handle for publishing and an
//! iterator over events, instead of a sink and a stream.
//!
//! ```no_run
//! use carom::Profile;
//! use carom::blocking::Node;
//!
//! let node = Node::start(Node::builder())?;
//! let prices = node.join("prices.eu", Profile::time_critical())?;
//! prices.wait_for_members(1)?;
//! prices.publish("EURUSD 1.0841")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors and panics
//! Each call returns the same errors as the async call.
//!
//! On a node in a simulated world, a call that would have to block panics: the world runs on the
//! calling thread and could not make progress.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{
    LockName, LockNews, ReplyError, Request, RequestId, RequestOptions, RingStatus,
};
use carom_proto::{Confirmed, Event, SendOptions};

use super::builder::Builder;
use super::handle::NodeHandle;
use crate::shared::block_on::block_on_for;
use crate::shared::commands::Reply;
use crate::shared::error::{
    ConfirmError, DeliveryError, GroupClosed, JoinGroupError, LockError, PublishError, QueryError,
    RequestError, StartError, Timeout,
};
use crate::shared::profile::Profile;
use crate::shared::status::Status;

/// A node; see [`crate::Node`].
#[derive(Debug)]
pub struct Node(crate::Node);

/// A membership in a group; see [`crate::Group`].
#[derive(Clone, Debug)]
pub struct Group(crate::Group);

/// A group handle for publishing; see [`Group::split`].
#[derive(Clone, Debug)]
pub struct Sender(Group);

/// A group handle that iterates over the group's events; see [`Group::split`].
#[derive(Debug)]
pub struct Receiver(Group);

/// A message that a group has accepted; see [`crate::Published`].
#[derive(Debug)]
pub struct Published(crate::Published);

/// A lock of an ordered group; see [`crate::Lock`].
#[derive(Debug)]
pub struct Lock(crate::Lock);

/// A stream of the requests of an ordered group; see [`crate::Requests`].
#[derive(Debug)]
pub struct Requests(crate::Requests);

/// A stream of the changes of this node's locks in an ordered group; see [`crate::Locks`].
#[derive(Debug)]
pub struct Locks(crate::Locks);

/// An ordered group whose members share a state; see [`crate::SharedState`].
#[derive(Debug)]
pub struct SharedState(crate::SharedState);

impl Node {
    /// Returns the default settings of a new node.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a node; see [`Builder::start`].
    pub fn start(builder: Builder) -> Result<Self, StartError> {
        builder.start().map(Self)
    }

    /// Returns the async handle of the node.
    pub fn as_async(&self) -> &crate::Node {
        &self.0
    }

    /// Joins a group; see [`crate::Node::join`].
    #[track_caller]
    pub fn join(&self, name: &str, profile: Profile) -> Result<Group, JoinGroupError> {
        self.wait(self.0.join(name, profile)).map(Group)
    }

    /// Waits until the node has settled; see [`crate::Node::settled`].
    #[track_caller]
    pub fn settled(&self, timeout: Duration) -> bool {
        self.wait(self.0.settled(timeout))
    }

    /// Returns a snapshot of the node; see [`crate::Node::status`].
    #[track_caller]
    pub fn status(&self) -> Status {
        self.wait(self.0.status())
    }

    /// Waits for the duration `span` by the node's clock; see [`crate::Node::sleep`].
    #[track_caller]
    pub fn sleep(&self, span: Duration) {
        self.wait(self.0.sleep(span));
    }

    /// Sends a request to a group; see [`crate::Node::request`].
    #[track_caller]
    pub fn request(
        &self,
        group: &str,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Reply, RequestError> {
        self.wait(self.0.request(group, payload, options))
    }

    /// Queries the rings of a group; see [`crate::Node::query`].
    #[track_caller]
    pub fn query(&self, group: &str, timeout: Duration) -> Result<Vec<RingStatus>, QueryError> {
        self.wait(self.0.query(group, timeout))
    }

    /// Closes the node; see [`crate::Node::close`].
    pub fn close(self) {
        drop(self);
    }

    #[track_caller]
    fn wait<F: Future>(&self, future: F) -> F::Output {
        wait(self.0.handle(), future)
    }
}

impl Group {
    /// Returns the async handle of the group.
    pub fn as_async(&self) -> &crate::Group {
        &self.0
    }

    /// Splits the handle into one for publishing and one that iterates over the events.
    ///
    /// The iterator blocks until the next event, and ends once the group is closed.
    ///
    /// ```no_run
    /// use carom::blocking::Node;
    /// use carom::{Event, Profile};
    ///
    /// let node = Node::start(Node::builder())?;
    /// let (sender, receiver) = node.join("prices.eu", Profile::time_critical())?.split();
    /// let printer = std::thread::spawn(move || {
    ///     for event in receiver {
    ///         if let Event::Message(message) = event {
    ///             println!("{:?}", message.payload);
    ///         }
    ///     }
    /// });
    /// sender.publish("EURUSD 1.0841")?;
    /// node.close();
    /// printer.join().expect("it does not panic");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split(self) -> (Sender, Receiver) {
        (Sender(self.clone()), Receiver(self))
    }

    /// Waits for other members; see [`crate::Group::wait_for_members`].
    #[track_caller]
    pub fn wait_for_members(&self, count: usize) -> Result<(), GroupClosed> {
        self.wait(self.0.wait_for_members(count))
    }

    /// Multicasts a message; see [`crate::Group::publish`].
    #[track_caller]
    pub fn publish(&self, payload: impl Into<Bytes>) -> Result<Published, PublishError> {
        self.publish_with(payload, SendOptions::default())
    }

    /// Multicasts a message with options; see [`crate::Group::publish_with`].
    #[track_caller]
    pub fn publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published, PublishError> {
        self.wait(self.0.publish_with(payload, options)).map(Published)
    }

    /// Receives the next event; see [`crate::Group::recv`].
    #[track_caller]
    pub fn recv(&self) -> Option<Event> {
        self.wait(self.0.recv())
    }

    /// Receives the next event within `timeout`; see [`crate::Group::recv_timeout`].
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Event>, Timeout> {
        wait_for(&self.0.handle().node, timeout, self.0.recv()).ok_or(Timeout(timeout))
    }

    /// Waits for the members to confirm; see [`crate::Group::confirm`].
    #[track_caller]
    pub fn confirm(&self, timeout: Duration) -> Result<Confirmed, ConfirmError> {
        self.wait(self.0.confirm(timeout))
    }

    /// Waits for a lock; see [`crate::Group::lock`].
    #[track_caller]
    pub fn lock(&self, name: impl Into<LockName>) -> Result<Lock, LockError> {
        self.lock_timeout(name, Duration::MAX)
    }

    /// Waits for a lock for at most `timeout`; see [`crate::Group::lock_timeout`].
    #[track_caller]
    pub fn lock_timeout(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock, LockError> {
        wait_for(&self.0.handle().node, timeout, self.0.lock(name))
            .unwrap_or(Err(LockError::Timeout(timeout)))
            .map(Lock)
    }

    /// Takes a lock if it is free; see [`crate::Group::lock_if_free`].
    #[track_caller]
    pub fn lock_if_free(&self, name: impl Into<LockName>) -> Result<Lock, LockError> {
        self.wait(self.0.lock_if_free(name)).map(Lock)
    }

    /// Sends a request to the group; see [`crate::Group::request`].
    #[track_caller]
    pub fn request(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Reply, RequestError> {
        self.wait(self.0.request(payload, options))
    }

    /// Replies to a request; see [`crate::Group::reply`].
    #[track_caller]
    pub fn reply(&self, request: RequestId, payload: impl Into<Bytes>) -> Result<(), ReplyError> {
        self.wait(self.0.reply(request, payload))
    }

    /// Moves all further requests to a separate stream; see [`crate::Group::requests`].
    #[track_caller]
    pub fn requests(&self) -> Requests {
        Requests(self.wait(self.0.requests()))
    }

    /// Moves all further changes of locks to a separate stream; see [`crate::Group::locks`].
    #[track_caller]
    pub fn locks(&self) -> Locks {
        Locks(self.wait(self.0.locks()))
    }

    /// Leaves the group; see [`crate::Group::leave`].
    #[track_caller]
    pub fn leave(self) {
        wait(&self.0.handle().node.clone(), self.0.leave());
    }

    #[track_caller]
    fn wait<F: Future>(&self, future: F) -> F::Output {
        wait(&self.0.handle().node, future)
    }
}

impl Iterator for Receiver {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.recv()
    }
}

impl Published {
    /// Returns the async handle of the message.
    pub fn into_async(self) -> crate::Published {
        self.0
    }

    /// Waits until the guarantee is fulfilled; see [`crate::Published::delivered`].
    #[track_caller]
    pub fn delivered(self) -> Result<(), DeliveryError> {
        self.delivered_timeout(Duration::MAX)
    }

    /// Like [`Published::delivered`], but waits for at most `timeout`.
    #[track_caller]
    pub fn delivered_timeout(self, timeout: Duration) -> Result<(), DeliveryError> {
        let group = Arc::clone(&self.0.group);
        wait_for(&group.node, timeout, self.0.delivered())
            .unwrap_or(Err(DeliveryError::Timeout(timeout)))
    }
}

impl Lock {
    /// Waits until the lock is lost; see [`crate::Lock::lost`].
    #[track_caller]
    pub fn lost(&self) {
        wait(&self.0.group.node, self.0.lost());
    }
}

impl Requests {
    /// Receives the next request; see [`crate::Requests::recv`].
    #[track_caller]
    pub fn recv(&mut self) -> Option<Request> {
        wait(&self.0.0.group.handle().node.clone(), self.0.recv())
    }
}

impl Locks {
    /// Receives the next change; see [`crate::Locks::recv`].
    #[track_caller]
    pub fn recv(&mut self) -> Option<LockNews> {
        wait(&self.0.0.group.handle().node.clone(), self.0.recv())
    }
}

impl SharedState {
    /// Founds the group's state; see [`crate::SharedState::founding`].
    pub fn founding(group: Group) -> Self {
        Self(crate::SharedState::founding(group.0))
    }

    /// Shares the state that the group already has; see [`crate::SharedState::joining`].
    pub fn joining(group: Group) -> Self {
        Self(crate::SharedState::joining(group.0))
    }

    /// Publishes a message that all members apply; see [`crate::SharedState::publish`].
    #[track_caller]
    pub fn publish(
        &self,
        payload: &[u8],
        options: impl Into<SendOptions>,
    ) -> Result<Published, PublishError> {
        wait(&self.0.group().handle().node, self.0.publish(payload, options)).map(Published)
    }

    /// Sends the state to the members that lack it; see [`crate::SharedState::give`].
    #[track_caller]
    pub fn give(&self, state: &[u8]) -> Result<(), PublishError> {
        wait(&self.0.group().handle().node, self.0.give(state))
    }

    /// Returns the next action that the application must take; see [`crate::SharedState::recv`].
    #[track_caller]
    pub fn recv(&self) -> Option<crate::StateEvent> {
        wait(&self.0.group().handle().node, self.0.recv())
    }
}

#[track_caller]
fn wait<F: Future>(node: &NodeHandle, future: F) -> F::Output {
    wait_for(node, Duration::MAX, future).expect("there is no time limit")
}

/// Panics if the node is simulated and the future is not ready.
#[track_caller]
fn wait_for<F: Future>(node: &NodeHandle, timeout: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // Most calls complete without waiting, and need no waker.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Some(output);
    }
    assert!(
        node.driver.may_block(),
        "this call would block the thread that runs the simulated world: use the async call"
    );
    block_on_for(timeout, future)
}

impl From<crate::Node> for Node {
    fn from(node: crate::Node) -> Self {
        Self(node)
    }
}

impl From<crate::Group> for Group {
    fn from(group: crate::Group) -> Self {
        Self(group)
    }
}

macro_rules! dereference {
    ($($wrapper:ty => $wrapped:ty,)*) => {$(
        impl Deref for $wrapper {
            type Target = $wrapped;

            fn deref(&self) -> &$wrapped {
                &self.0
            }
        }
    )*};
}

dereference! {
    Node => crate::Node,
    Group => crate::Group,
    Sender => Group,
    Receiver => Group,
    Lock => crate::Lock,
    SharedState => crate::SharedState,
}
