//! The contract between protocol engines and their drivers.
//!
//! An engine is a deterministic state machine. It owns no clock, socket or thread, and its only
//! source of randomness is the seed that it was created with. A driver (the runtime on real
//! sockets, a simulator, a test) repeats these steps:
//!
//! 1. Call the input methods, once per input, such as [`Engine::join`], [`Engine::leave`],
//!    [`Engine::send`], [`Engine::confirm`], [`Engine::handle_datagram`], [`Engine::handle_view`],
//!    and [`Engine::handle_timeout`]. `now` must never decrease.
//! 2. Call [`Engine::poll_transmit`] until it returns `None`, and send each datagram.
//! 3. Call [`Engine::poll_event`] until it returns `None`, and deliver each event to the
//!    application.
//! 4. Wait for the next input, or until the time that [`Engine::poll_timeout`] returns.
//!
//! The same seed and the same inputs produce the same output bytes on every machine. No input from
//! the network causes an error or a panic: malformed or unexpected datagrams are dropped and
//! counted.
//!
//! ```
//! use carom_proto::lateral::{Config, Lateral};
//! use carom_proto::wire::Datagram;
//! use carom_proto::*;
//!
//! /// Delivers everything that `from` transmits to `to`, at once and without loss.
//! fn carry(now: Time, from: &mut Lateral, to: &mut Lateral) {
//!     let mut datagram = Vec::new();
//!     while from.poll_transmit(&mut datagram).is_some() {
//!         to.handle_datagram(now, &Datagram::parse(&datagram).expect("a datagram"));
//!         datagram.clear();
//!     }
//! }
//!
//! let (group, now) = (GroupId::of_name("prices.eu"), Time(1_000_000_000));
//! let settings = GroupSettings::new("prices.eu", Profile::TimeCritical(RateOfFire::new(8, 5)));
//! let mut alice = Lateral::new(NodeId(1), Config::default(), 42);
//! let mut bob = Lateral::new(NodeId(2), Config::default(), 43);
//! for (engine, other) in [(&mut alice, NodeId(2)), (&mut bob, NodeId(1))] {
//!     engine.join(now, group, settings)?;
//!     let kind = ViewChangeKind::Joined;
//!     engine.handle_view(now, &ViewChange { group, node: other, kind, version: 1 });
//! }
//!
//! alice.send(now, group, "EURUSD 1.0841".into(), SendOptions::default())?;
//! carry(now, &mut alice, &mut bob);
//! match bob.poll_event() {
//!     Some(Event::Message(message)) => assert_eq!(&message.payload[..], b"EURUSD 1.0841"),
//!     other => panic!("{other:?}"),
//! }
//!
//! // The driver waits until the engine's next timer is due.
//! let wakeup = alice.poll_timeout().expect("her message waits in a repair bin");
//! assert_eq!(wakeup.reason, "flush a repair bin");
//! alice.handle_timeout(wakeup.at);
//! carry(wakeup.at, &mut alice, &mut bob);
//! assert_eq!(bob.counters().repairs_received, 1);
//! # alice.check();
//! # bob.check();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::ring::Qos;
use crate::wire::Datagram;
use crate::{
    Endpoint, Event, GroupId, GroupSettings, JoinError, NodeId, Profile, SendError, SeqNo, Time,
    ViewChange,
};

/// A protocol engine. The [module documentation](self) describes how to drive it.
pub trait Engine: Send {
    /// Adds this node to `group`.
    ///
    /// # Errors
    /// Returns an error if the settings are out of bounds, if they contradict those of another
    /// group of this node, if this engine does not support the profile, or if the node is already
    /// in the group.
    fn join(&mut self, now: Time, group: GroupId, settings: GroupSettings)
    -> Result<(), JoinError>;

    /// Removes this node from `group`. Has no effect if the node is not in the group.
    ///
    /// An engine may continue to send packets of the group, such as the end of a stream.
    fn leave(&mut self, now: Time, group: GroupId);

    /// Multicasts `payload` in `group`.
    ///
    /// Returns the sequence number of the first packet of the message, which identifies the
    /// message.
    ///
    /// # Errors
    /// Returns the reason if the message was not accepted, in which case no part of it was sent.
    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError>;

    /// Requests confirmation of everything that this node sent in `group` so far.
    ///
    /// The engine reports [`Event::Confirmed`] when each message is settled, which means that the
    /// members have received or lost it. Has no effect if the node is not in the group.
    fn confirm(&mut self, now: Time, group: GroupId);

    /// Processes a received datagram.
    ///
    /// Returns the sender if the datagram is intact and not from this node. The sender was alive
    /// when it sent the datagram, even if the engine discards the content. The driver may report
    /// this to the membership ([`Membership::heard`](crate::membership::Membership::heard)).
    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) -> Option<NodeId>;

    /// Announces the received datagrams that will be processed next, in this order.
    ///
    /// This is a hint. It changes no state, and a driver may omit it. An engine whose state exceeds
    /// the processor's cache can use it to prefetch the memory that several datagrams need.
    fn look_ahead(&self, _waiting: &[Datagram<'_>]) {}

    /// Applies a change to the view of a group.
    fn handle_view(&mut self, now: Time, change: &ViewChange);

    /// Processes the timers that are due at `now`. Calls before a timer is due are allowed.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next outgoing datagram to `out` and returns its destination and class.
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit>;

    /// Returns the next event for the application, or `None` if there is none.
    fn poll_event(&mut self) -> Option<Event>;

    /// Returns the time and the reason of the next required call to [`Engine::handle_timeout`].
    fn poll_timeout(&self) -> Option<Wakeup>;

    /// Applies a change in the driver's network.
    fn handle_network(&mut self, _now: Time, _change: &NetworkChange) {}

    /// Sets the backlog of events that the application of `group` has not received yet. It is a
    /// fraction of the event queue: 0 if the application keeps up, 1 if the queue is full.
    ///
    /// An engine that supports flow control slows down the senders of the group.
    fn set_backpressure(&mut self, _now: Time, _group: GroupId, _backlog: f64) {}

    /// Leaves `group` immediately. The other members may have to detect it.
    ///
    /// The default implementation calls [`Engine::leave`].
    fn abandon(&mut self, now: Time, group: GroupId) {
        self.leave(now, group);
    }

    /// Returns `true` if the engine uses `group`, for example for requests, while this node is not
    /// a member.
    fn calls(&self, _group: GroupId) -> bool {
        false
    }

    /// Returns the members of `group` that have not confirmed everything that this node sent.
    fn unconfirmed(&self, _group: GroupId) -> Vec<NodeId> {
        Vec::new()
    }

    /// Returns the next encoded request to the registry's multicast manager, or `None`.
    fn poll_manager_request(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Processes a reply or a status change of the multicast manager in the registry.
    fn handle_manager(&mut self, _now: Time, _news: &ManagerNews) {}

    /// Returns the next group in which this node can no longer use the registry's multicast
    /// manager for the messages that it sends, or `None` if there is none.
    fn poll_manager_lost(&mut self) -> Option<GroupId> {
        None
    }

    /// Returns the maximum payload of [`Engine::send`], in bytes, for groups of this profile. It
    /// may be lower for a message with [`Qos::Unreliable`].
    fn payload_limit(&self, profile: Profile) -> usize;

    /// Returns the memory, in bytes, that the engine uses for messages and packets of this and
    /// other nodes.
    ///
    /// The engine's settings bound this value.
    fn held_bytes(&self) -> usize;

    /// Returns all counters with their names.
    fn stats(&self) -> Vec<(&'static str, u64)>;

    /// Asserts the engine's invariants.
    ///
    /// # Panics
    /// Panics if an invariant is broken, which is a bug in the engine.
    fn check(&self);
}

/// A change in the driver's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkChange {
    /// The size, in bytes, of the largest IP packet that reaches all members.
    ///
    /// A value above the configured size does not increase the size of packets. Packets that were
    /// built for an earlier, larger size may still be sent and retransmitted. The driver must send
    /// these in parts.
    PathMtu(u16),
    /// The network accepts no data while this is `true`.
    ///
    /// Meanwhile, bulk data waits in the engine, where it is bounded, instead of being lost in the
    /// driver. Other packets are still sent.
    Blocked(bool),
    /// The nodes that this node's multicast does not reach. Initially, there are none.
    Unreached(BTreeSet<NodeId>),
    /// The node can be reached at this endpoint.
    Met(NodeId, Endpoint),
    /// The node has failed or stopped.
    Parted(NodeId),
}

/// News from the multicast manager in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerNews {
    /// The manager is reachable.
    Reached,
    /// The manager is no longer reachable. It may or may not have received the last requests.
    Lost,
    /// The manager has sent this reply.
    Answered(Vec<u8>),
}

/// Maximum useful number of datagrams per call to [`Engine::look_ahead`]. The data that they need
/// fits in the processor's first-level cache.
pub const LOOK_AHEAD: usize = 32;

/// Options of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Time for which the message is useful. Each node counts it from the time at which it received
    /// the message or found it to be missing.
    ///
    /// After this time, a node no longer retransmits the message, and reports it as lost if it was
    /// missing until then. The engine's own limit for repairs always applies. Only time-critical
    /// groups use the deadline.
    pub deadline: Option<Duration>,
    /// Delivery guarantee of the message in an ordered group. If `None`, the message is totally
    /// ordered.
    ///
    /// In time-critical and bulk groups, every guarantee is refused with [`SendError::Qos`].
    pub qos: Option<Qos>,
}

impl From<Qos> for SendOptions {
    fn from(qos: Qos) -> Self {
        Self { qos: Some(qos), ..Self::default() }
    }
}

/// Destination of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// All members of the group. Members that multicast does not reach get unicast copies.
    Group(GroupId),
    /// The next hops in a relay tree of the group.
    ///
    /// Only these hops receive the datagram. The driver adds no unicast copies.
    Tree(GroupId, Hops),
    /// One node.
    Node(NodeId),
    /// An address that need not belong to a known node (membership only).
    Endpoint(Endpoint),
    /// All nodes on the local network that listen for hellos (membership only).
    Lan,
}

/// Next hops of a datagram in a [relay tree](Destination::Tree). Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hops {
    /// `true` if the datagram is multicast to the group.
    pub by_multicast: bool,
    /// Nodes that receive a unicast copy, and forward it to their own next hops, if any.
    pub relays: Arc<[NodeId]>,
}

/// Destination and class of an outgoing datagram. Its bytes are in the buffer that was passed to
/// `poll_transmit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination of the datagram.
    pub destination: Destination,
    /// Class of the datagram, for drivers that count the classes or treat them differently.
    pub class: Class,
}

/// Class of a datagram, independent of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// First transmission of a message or fragment, or a copy that is forwarded.
    Data,
    /// Redundancy that was not requested: a repair or a parity packet.
    Repair,
    /// A message that is sent again because it was requested or not acknowledged.
    Retransmission,
    /// All other datagrams: requests, acknowledgments, heartbeats, digests, membership.
    Control,
}

/// Time and reason of an engine's next timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// Time at which the timer is due.
    pub at: Time,
    /// The work that is due then, for debugging.
    pub reason: &'static str,
}

impl Wakeup {
    /// Returns the earlier of up to two wakeups, or `a` if their times are equal.
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}
