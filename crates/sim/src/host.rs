//! One host: its machine, receive buffer, clock and processor.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carom_proto::loss::{Loss, LossInjector};
use carom_proto::{Endpoint, GroupId, NodeId, Rng, Time};

use crate::clock::Clock;
use crate::packets::PacketIx;

/// The number of a host in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIx(pub u32);

/// A host and its machine.
pub(crate) struct Host<M> {
    pub(crate) tenant: Option<Tenant<M>>,
    /// Number of machines that have run here so far.
    pub(crate) incarnation: u32,
    /// Groups that the machine has subscribed to.
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) clock: Clock,
    pub(crate) loss: LossInjector,
    /// Datagrams that wait for the processor, at most `capacity`.
    pub(crate) waiting: VecDeque<PacketIx>,
    pub(crate) capacity: usize,
    /// Processing time of a datagram.
    pub(crate) cost: Duration,
    /// Additional processing time while the host is slow.
    pub(crate) slowness: Duration,
    pub(crate) is_paused: bool,
    /// `true` if the host sends no replies for its former machine: it has no power, or no network.
    pub(crate) is_dark: bool,
    /// `true` if a datagram is being processed. Its end is scheduled.
    pub(crate) is_serving: bool,
    /// Commands that fell due during a pause.
    pub(crate) held_commands: Vec<u64>,
    /// Scheduled time of the machine's next timer, or [`Time::MAX`] if there is none.
    pub(crate) wake: Time,
    rng: Rng,
}

/// A machine, and the id by which other machines reach it.
pub(crate) struct Tenant<M> {
    pub(crate) id: NodeId,
    pub(crate) machine: M,
}

impl<M> Host<M> {
    pub(crate) fn new(loss: Loss, capacity: usize, cost: Duration, rng: &mut Rng) -> Self {
        Self {
            tenant: None,
            incarnation: 0,
            groups: BTreeSet::new(),
            clock: Clock::default(),
            loss: LossInjector::new(loss, rng.next_u64()),
            waiting: VecDeque::new(),
            capacity,
            cost,
            slowness: Duration::ZERO,
            is_paused: false,
            is_dark: false,
            is_serving: false,
            held_commands: Vec::new(),
            wake: Time::MAX,
            rng: Rng::new(rng.next_u64()),
        }
    }

    /// Returns `true` if an arriving datagram cannot be handled at once.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_paused || self.is_serving || !self.service_time().is_zero()
    }

    /// Pauses the machine, if there is one.
    pub(crate) fn pause(&mut self) {
        self.is_paused = self.tenant.is_some();
    }

    /// Returns the processing time of the next datagram.
    pub(crate) fn service_time(&self) -> Duration {
        self.cost + self.slowness
    }

    /// Queues a datagram. If the buffer is full, removes and returns a random one, like the receive
    /// buffer of the runtime (Ricochet 3.2.5).
    pub(crate) fn wait(&mut self, packet: PacketIx) -> Option<PacketIx> {
        let mut victim = None;
        if self.waiting.len() >= self.capacity {
            victim = self.waiting.remove(self.rng.below(self.waiting.len()));
        }
        self.waiting.push_back(packet);
        victim
    }
}

impl HostIx {
    /// Returns the host's address: 10.x.y.z, port 7400.
    pub fn endpoint(self) -> Endpoint {
        let [_, x, y, z] = (self.0 + 1).to_be_bytes();
        Endpoint(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, x, y, z)), PORT))
    }

    /// Returns the host at `endpoint`, if that is an address of a simulated host.
    pub(crate) fn at(endpoint: Endpoint) -> Option<Self> {
        let SocketAddr::V4(address) = endpoint.0 else { return None };
        let [ten, x, y, z] = address.ip().octets();
        let number = u32::from_be_bytes([0, x, y, z]);
        (ten == 10 && address.port() == PORT && number > 0).then(|| Self(number - 1))
    }
}

impl fmt::Display for HostIx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

/// The UDP port of every simulated node.
pub(crate) const PORT: u16 = 7400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_at_its_address() {
        for number in [0, 1, 254, 255, 70_000] {
            let host = HostIx(number);
            assert_eq!(HostIx::at(host.endpoint()), Some(host));
        }
        assert_eq!(HostIx(0).endpoint().to_string(), "10.0.0.1:7400");
        assert_eq!(HostIx::at(Endpoint("10.0.0.1:80".parse().expect("an address"))), None);
    }
}
