//! The contract that every protocol engine keeps.
//!
//! An engine is a plain state machine: it owns no clock, no socket, no thread and no source of
//! randomness but the seed it was made with. A driver (the runtime on real sockets, a simulator, a
//! test) calls its verbs:
//!
//! 1. Call any of the input verbs, as often as there is input: [`Engine::join`],
//!    [`Engine::leave`], [`Engine::send`], [`Engine::confirm`], [`Engine::handle_datagram`],
//!    [`Engine::handle_view`], [`Engine::handle_timeout`]. `now` never decreases.
//! 2. Drain [`Engine::poll_transmit`], and send what it gives.
//! 3. Drain [`Engine::poll_event`], and hand out what it gives.
//! 4. Wait for the next input, or until [`Engine::poll_timeout`], then begin again.
//!
//! The same seed and the same inputs give the same bytes, on every machine. Nothing that arrives
//! from the network is an error or a panic: nonsense is dropped and counted.
//!
//! ```
//! use carom_proto::lateral::{Config, Lateral};
//! use carom_proto::*;
//!
//! /// Delivers everything that `from` transmits to `to`, at once and without loss.
//! fn carry(now: Time, from: &mut Lateral, to: &mut Lateral) {
//!     let mut datagram = Vec::new();
//!     while from.poll_transmit(&mut datagram).is_some() {
//!         to.handle_datagram(now, &datagram);
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
//! // Time passes: the driver waits until the engine wants to be called again.
//! let wakeup = alice.poll_timeout().expect("her message waits in a repair bin");
//! assert_eq!(wakeup.reason, "flush a repair bin");
//! alice.handle_timeout(wakeup.at);
//! carry(wakeup.at, &mut alice, &mut bob);
//! assert_eq!(bob.counters().repairs_received, 1);
//! # alice.check();
//! # bob.check();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::rdcm::Limiting;
use crate::rmp::{Qos, RingEvent};
use crate::{
    Endpoint, GroupId, GroupSettings, JoinError, NodeId, Profile, SendError, SeqNo, Time,
    ViewChange,
};

/// A protocol engine; the module says how it is driven.
pub trait Engine: Send {
    /// This node is in `group` from now on.
    ///
    /// # Errors
    /// The settings are out of bounds, or contradict those of another group of this node.
    fn join(&mut self, now: Time, group: GroupId, settings: GroupSettings)
    -> Result<(), JoinError>;

    /// This node is no longer in `group`.
    fn leave(&mut self, now: Time, group: GroupId);

    /// Multicasts `payload` in `group`; returns its sequence number, that of its first packet.
    ///
    /// # Errors
    /// The message is the caller's again: nothing of it was sent.
    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError>;

    /// Asks the members of `group` to confirm what was sent so far; [`Event::Safe`] answers.
    fn confirm(&mut self, now: Time, group: GroupId);

    /// A datagram arrived. Returns who sent it if it is whole, and not this node itself: that node
    /// was alive when it sent it, whatever became of the rest. Whoever drives the engine may tell
    /// the membership ([`Membership::heard`](crate::membership::Membership::heard)).
    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId>;

    /// These datagrams wait, and will be handled next in this order. It changes nothing, and may be
    /// left out: an engine that knows more than the processor's cache holds can fetch what several
    /// of them need at the same time. Up to [`LOOK_AHEAD`] at once are of use.
    fn look_ahead(&self, _waiting: &mut dyn Iterator<Item = &[u8]>) {}

    /// The view of a group changed.
    fn handle_view(&mut self, now: Time, change: &ViewChange);

    /// Time has passed.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next datagram to `out` and says where it goes.
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit>;

    /// Where a datagram goes whose destination is the [tree](Destination::Tree) of a group.
    fn hops(&self, _group: GroupId) -> Hops<'_> {
        Hops { by_multicast: true, relays: &[] }
    }

    /// The next thing the application should know.
    fn poll_event(&mut self) -> Option<Event>;

    /// When [`Engine::handle_timeout`] should be called next, and why.
    fn poll_timeout(&self) -> Option<Wakeup>;

    /// IP packets of more bytes do not reach everybody; more than the settings allow are not used
    /// all the same. What was cut to another size before may still be sent, and sent again: whoever
    /// drives the engine carries it in parts.
    fn set_path_mtu(&mut self, _bytes: u16) {}

    /// Bytes of the largest message that [`Engine::send`] takes in a group of this profile.
    fn payload_limit(&self, profile: Profile) -> usize;

    /// Bytes of messages and packets that the engine keeps, its own and others': what its settings
    /// bound.
    fn held_bytes(&self) -> usize;

    /// All counters, by name.
    fn stats(&self) -> Vec<(&'static str, u64)>;

    /// Asserts the engine's invariants.
    ///
    /// # Panics
    /// If one of them is broken: that is a bug in the engine.
    fn check(&self);
}

/// Datagrams for [`Engine::look_ahead`] at once: what they need fits the nearest cache.
pub const LOOK_AHEAD: usize = 32;

/// How one message is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// How long after its multicast the message is still of use. Nobody repairs it after that, and
    /// who has not got it by then is told so. `None`: as long as the engine's own limit.
    pub deadline: Option<Duration>,
    /// What the message is promised, in an ordered group. `None`: totally ordered.
    pub qos: Option<Qos>,
}

impl From<Qos> for SendOptions {
    fn from(qos: Qos) -> Self {
        Self { qos: Some(qos), ..Self::default() }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// All members of the group, by multicast or whatever stands in for it.
    Group(GroupId),
    /// Those who come next in the tree of a bulk group: see [`Engine::hops`]. Nobody else gets it,
    /// whatever stands in for multicast elsewhere.
    Tree(GroupId),
    /// One node.
    Node(NodeId),
    /// An address that is not yet known to belong to a node (membership only).
    Endpoint(Endpoint),
    /// Everyone on the local network who listens for hellos (membership only).
    Lan,
}

/// Whom a datagram goes to whose destination is the [tree](Destination::Tree) of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hops<'a> {
    /// Whether it is multicast to the group.
    pub by_multicast: bool,
    /// The nodes that get a unicast copy, to be passed on.
    pub relays: &'a [NodeId],
}

/// A datagram on its way out; its bytes are in the buffer that was given to `poll_transmit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub destination: Destination,
    /// What it is, for a driver that counts or treats the classes apart.
    pub class: Class,
}

/// What a datagram is, whatever its protocol calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A message on its first way to the group.
    Data,
    /// Redundancy that was not asked for: a repair, a parity packet.
    Repair,
    /// A message sent again because it was asked for or not acknowledged.
    Retransmission,
    /// Everything else: requests, acknowledgements, heartbeats, digests, membership.
    Control,
}

/// When an engine wants to be called, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The time.
    pub at: Time,
    /// What is due then, for whoever debugs.
    pub reason: &'static str,
}

impl Wakeup {
    /// The earlier of two wake-ups.
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// What an engine tells the application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A message of the group, at most once.
    Message(Message),
    /// Messages that this node should have and will not get.
    Lost(Lost),
    /// Another member came or went.
    View(ViewChange),
    /// A member is so far behind that it is no longer waited for.
    Slow(Slow),
    /// A receiver of this node's bulk stream slows the others down.
    Limiting(Limiting),
    /// Everything sent up to here is with the members.
    Safe(Safe),
    /// The ring of an ordered group changed, at its place among the messages.
    Ring(RingEvent),
}

impl Event {
    /// The group that the event concerns.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Message(message) => message.group,
            Self::Lost(lost) => lost.group,
            Self::View(change) => change.group,
            Self::Slow(slow) => slow.group,
            Self::Limiting(limiting) => limiting.group,
            Self::Safe(safe) => safe.group,
            Self::Ring(event) => event.group,
        }
    }
}

/// A message as delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The group it was sent in.
    pub group: GroupId,
    /// Who multicast it.
    pub sender: NodeId,
    /// Its number among the sender's packets in the group. A message that does not fit a packet
    /// takes one number for each of its packets; this is the first of them.
    pub seqno: SeqNo,
    /// The message. It may share its allocation with its neighbours: copy it to keep it for long.
    pub payload: Bytes,
    /// How it came here. Of several packets, the one that was missing longest before it was
    /// repaired, if any was.
    pub how: How,
    /// How long after its multicast it was delivered; `None` where the two clocks disagree.
    pub age: Option<Duration>,
    /// How long it was known to be missing; zero unless it was repaired. Of several packets, the
    /// longest such time.
    pub missing_for: Duration,
    /// Its place in the order: of messages that were promised the [total
    /// order](crate::rmp::Qos::TotallyOrdered) or more, and of no others.
    pub place: Option<crate::rmp::Place>,
}

/// How a message came here, and from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the sender's multicast.
    Direct,
    /// Solved out of repairs, the last of them from this node.
    Recovered(NodeId),
    /// Sent again by this node, which was asked for it.
    Retransmitted(NodeId),
}

/// Messages that are lost to this node: all whose number, which is that of their first packet, is
/// in the range. Each is told once, and none that was delivered. Where all messages fit a packet,
/// each number is a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The group they were sent in.
    pub group: GroupId,
    /// Who multicast them.
    pub sender: NodeId,
    /// The first number.
    pub first: SeqNo,
    /// The last number, not before the first.
    pub last: SeqNo,
    /// Why they will not come.
    pub cause: LossCause,
}

impl Lost {
    /// How many packets are lost: as many messages, where all messages fit a packet.
    pub fn count(&self) -> u32 {
        self.last.0.wrapping_sub(self.first.0).wrapping_add(1)
    }
}

/// Why a message was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// Its deadline, or the engine's limit for repairs, passed before it was repaired.
    DeadlinePassed,
    /// Everybody who was asked for it did not answer or did not have it.
    AttemptsSpent,
    /// This node fell so far behind the sender that it does not try to catch up.
    TooFarBehind,
    /// It arrived, but the application left its queue full.
    QueueFull,
    /// It did not fit a packet, and there was no room to put its pieces together.
    NoRoom,
    /// This node published it, and another node sends in the group, which goes on. Messages that
    /// never were given a number have the number 0.
    AnotherSender,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadlinePassed => "deadline passed",
            Self::AttemptsSpent => "nobody asked had it",
            Self::TooFarBehind => "too far behind the sender",
            Self::QueueFull => "the application's queue was full",
            Self::NoRoom => "no room to put its pieces together",
            Self::AnotherSender => "another node sends in the group",
        })
    }
}

/// A member that does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The group in which it lags.
    pub group: GroupId,
    /// The member.
    pub node: NodeId,
    /// How many packets of this node it has not confirmed.
    pub behind: u32,
}

/// The answer to [`Engine::confirm`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Safe {
    /// The group.
    pub group: GroupId,
    /// All messages of this node up to here are settled at every member.
    pub up_to: SeqNo,
    /// The number of members that confirmed, including those that left with everything since the
    /// last confirmation. Members that joined after the last of these messages are not counted. 0
    /// if there was none: see [`Safe::is_unconfirmed`].
    pub members: usize,
    /// Members that lost some of them, and how many packets each; those that have left meanwhile
    /// too.
    pub incomplete: Vec<(NodeId, u32)>,
}
