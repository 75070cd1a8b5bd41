//! Networks that carry a world's datagrams in real time, in place of the simulated one.

use core::fmt::Debug;
use core::time::Duration;

use carom_proto::{Class, GroupId};

use crate::ids::HostIx;
use crate::topology::Topology;
use crate::tree::Goal;

/// A network between the hosts of one [`World`](crate::World), such as sockets in network
/// namespaces.
///
/// The world's time then passes as the medium's does. Losses, partitions and disturbances take
/// place when a datagram arrives, as in a simulated world. The links of the [`Topology`] carry
/// nothing: their delays, losses and faults have no effect, except on connections, which remain
/// simulated.
pub trait Medium {
    /// Returns the time since the first call to [`Medium::receive`], or zero before it. It never
    /// decreases. It may stand still while the medium prepares a subscription.
    fn elapsed(&self) -> Duration;

    /// Subscribes `host` to the multicasts of `group`.
    fn subscribe(&mut self, host: HostIx, group: GroupId);

    /// Ends the subscription of `host` to `group`.
    fn unsubscribe(&mut self, host: HostIx, group: GroupId);

    /// Sends a datagram, at the latest with the next call to [`Medium::receive`]. It does not reach
    /// the sender itself.
    fn send(&mut self, from: HostIx, to: Goal, class: Class, datagram: &[u8]);

    /// Returns the next datagram that a host receives, after waiting for at most `most`.
    fn receive(&mut self, most: Duration) -> Option<Arrival<'_>>;

    /// Handles the report that the world processed an event this long after it was due. A world
    /// that cannot keep up is late by a growing time.
    fn note_lag(&mut self, _lag: Duration) {}
}

/// A datagram that has reached a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The receiver.
    pub host: HostIx,
    /// The sender.
    pub source: HostIx,
    /// The class with which the datagram was sent.
    pub class: Class,
    /// `true` if the datagram was sent to a group or to all hosts.
    pub is_multicast: bool,
    /// The content.
    pub datagram: &'a [u8],
}

/// A source of media, one for each world.
pub trait Media: Debug + Send + Sync {
    /// Creates a medium for the hosts of `topology`. If it fails, the medium carries nothing.
    fn create(&self, topology: &Topology) -> Box<dyn Medium>;
}
