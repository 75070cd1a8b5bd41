//! What is connected to what: hosts, switches, and the links between them.

use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;

use crate::HostIx;
use crate::ethernet::{CableIx, Ethernet};

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// How long a bit travels.
    pub delay: Duration,
    /// What chance adds to that, drawn for each datagram.
    pub jitter: Jitter,
    /// Bits per second; `None` is beyond measure.
    pub bandwidth: Option<u64>,
    /// Bytes that wait for the link at most; what comes on top is dropped. Of no meaning without
    /// a bandwidth.
    pub queue_bytes: u64,
    /// What the link loses of the datagrams that [`WorldConfig::lossy`](crate::WorldConfig::lossy)
    /// names.
    pub loss: Loss,
}

/// Random delay on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// None.
    None,
    /// Anything up to this, each equally likely.
    Uniform(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
}

/// Hosts, switches and directed links. Routes are shortest in hops; of equal ones the first link
/// that was connected wins, or, in a [cluster](Topology::cluster), one that differs from host to
/// host. Either way they are the same in every run.
#[derive(Clone, Debug)]
pub struct Topology {
    hosts: u32,
    nodes: u32,
    /// Whether hosts pass on what is meant for others.
    pub(crate) hosts_forward: bool,
    /// Whether hosts choose differently among equal ways.
    pub(crate) spreads_routes: bool,
    links: Vec<Edge>,
    cables: Vec<Ethernet>,
    /// The links that leave each node, in the order in which they were connected.
    leaving: Vec<Vec<LinkIx>>,
}

/// A directed link with its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) tail: NodeIx,
    pub(crate) head: NodeIx,
    pub(crate) link: Link,
    /// The shared cable that it leads over.
    pub(crate) cable: Option<CableIx>,
}

/// A host or a switch: the hosts come first.
pub(crate) type NodeIx = u32;
/// The number of a directed link.
pub(crate) type LinkIx = u32;

/// A host or a switch of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The host with this number.
    Host(u32),
    /// The switch with this number.
    Switch(u32),
}

impl Default for Link {
    /// 50 us, without jitter, limit or loss.
    fn default() -> Self {
        Self::of_delay(Duration::from_micros(50))
    }
}

impl Link {
    /// A link that only takes time.
    pub const fn of_delay(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Jitter::None,
            bandwidth: None,
            queue_bytes: 512 * 1024,
            loss: Loss::None,
        }
    }

    /// A link that takes no time either.
    pub const fn instant() -> Self {
        Self::of_delay(Duration::ZERO)
    }

    /// The same link with `jitter`.
    pub const fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// The same link with so many bits per second and a queue of so many bytes.
    pub const fn with_bandwidth(self, bits_per_second: u64, queue_bytes: u64) -> Self {
        Self { bandwidth: Some(bits_per_second), queue_bytes, ..self }
    }

    /// The same link with `loss`.
    pub const fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The time for one datagram, from its last bit's departure to its arrival.
    pub(crate) fn latency(&self, rng: &mut Rng) -> Duration {
        self.delay + self.jitter.draw(rng)
    }
}

impl Jitter {
    /// One delay. Portable: the logarithm is computed in software.
    pub(crate) fn draw(self, rng: &mut Rng) -> Duration {
        let (unit, fraction) = match self {
            Self::None => return Duration::ZERO,
            Self::Uniform(max) => (max, rng.fraction()),
            Self::Exponential(mean) => (mean, -libm::log(1.0 - rng.fraction())),
        };
        Duration::from_nanos((unit.as_nanos() as f64 * fraction) as u64)
    }
}

impl Topology {
    /// So many hosts and switches, nothing connected yet.
    pub fn graph(hosts: u32, switches: u32) -> Self {
        let nodes = hosts + switches;
        let leaving = vec![Vec::new(); nodes as usize];
        let (hosts_forward, spreads_routes) = (false, false);
        let (links, cables) = (Vec::new(), Vec::new());
        Self { hosts, nodes, hosts_forward, spreads_routes, links, cables, leaving }
    }

    /// Hosts around one switch. The way from any host to any other is one `link`: the other half,
    /// from the sender to the switch, takes no time but has the same bandwidth.
    pub fn lan(hosts: u32, link: Link) -> Self {
        let up = Link { delay: Duration::ZERO, jitter: Jitter::None, loss: Loss::None, ..link };
        let mut topology = Self::graph(hosts, 1);
        for host in 0..hosts {
            topology.connect_one_way(Place::Host(host), Place::Switch(0), up);
            topology.connect_one_way(Place::Switch(0), Place::Host(host), link);
        }
        topology
    }

    /// Hosts on one shared cable.
    pub fn ethernet(hosts: u32, ethernet: Ethernet) -> Self {
        let mut topology = Self::graph(hosts, 1);
        topology.cables.push(ethernet);
        for host in 0..hosts {
            topology.connect_one_way(Place::Host(host), Place::Switch(0), Link::instant());
            topology.links.last_mut().expect("it was connected").cable = Some(0);
            let ear = Link::of_delay(ethernet.propagation);
            topology.connect_one_way(Place::Switch(0), Place::Host(host), ear);
        }
        topology
    }

    /// Racks of hosts, a switch in each, and one switch that connects the racks.
    pub fn rack(racks: u32, hosts_per_rack: u32, host_link: Link, uplink: Link) -> Self {
        let mut topology = Self::graph(racks * hosts_per_rack, racks + 1);
        for rack in 0..racks {
            topology.connect(Place::Switch(rack), Place::Switch(racks), uplink);
            for host in 0..hosts_per_rack {
                let host = Place::Host(rack * hosts_per_rack + host);
                topology.connect(host, Place::Switch(rack), host_link);
            }
        }
        topology
    }

    /// Switches in a star around a gateway, hosts under each: as racks, in the terms of Slingshot
    /// 4.3, which has 20 of 20.
    pub fn star(switches: u32, hosts_per_switch: u32, host_link: Link, uplink: Link) -> Self {
        Self::rack(switches, hosts_per_switch, host_link, uplink)
    }

    /// Connects two places, `link` in each direction.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn connect(&mut self, a: Place, b: Place, link: Link) {
        self.connect_one_way(a, b, link);
        self.connect_one_way(b, a, link);
    }

    /// Connects two places in one direction.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn connect_one_way(&mut self, from: Place, to: Place, link: Link) {
        let (tail, head) = (self.node(from), self.node(to));
        self.leaving[tail as usize].push(self.links.len() as LinkIx);
        self.links.push(Edge { tail, head, link, cable: None });
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// All hosts.
    pub fn all_hosts(&self) -> impl Iterator<Item = HostIx> + use<> {
        (0..self.hosts).map(HostIx)
    }

    pub(crate) fn is_host(&self, node: NodeIx) -> bool {
        node < self.hosts
    }

    pub(crate) fn edges(&self) -> &[Edge] {
        &self.links
    }

    pub(crate) fn cables(&self) -> &[Ethernet] {
        &self.cables
    }

    /// The link over which each node is reached from `source` by links that are usable;
    /// [`NO_LINK`] for the source itself and for what is not connected.
    pub(crate) fn routes_from(
        &self,
        source: NodeIx,
        is_usable: impl Fn(LinkIx) -> bool,
    ) -> Vec<LinkIx> {
        let mut reached_by = vec![NO_LINK; self.nodes as usize];
        let mut hops = vec![0_u32; self.nodes as usize];
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            let steps = hops[node as usize] + 1;
            for link in self.leaving[node as usize].iter().filter(|link| is_usable(**link)) {
                let head = self.links[*link as usize].head;
                if head == source {
                    continue;
                }
                let known = &mut reached_by[head as usize];
                if *known == NO_LINK {
                    (*known, hops[head as usize]) = (*link, steps);
                    if self.forwards(head) {
                        queue.push_back(head);
                    }
                } else if self.spreads_routes
                    && hops[head as usize] == steps
                    && liking(source, *link) > liking(source, *known)
                {
                    *known = *link;
                }
            }
        }
        reached_by
    }

    /// The links between two places, in either direction.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub(crate) fn links_between(&self, a: Place, b: Place) -> Vec<LinkIx> {
        [self.links_from(a, b), self.links_from(b, a)].concat()
    }

    /// The links from one place to another.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub(crate) fn links_from(&self, from: Place, to: Place) -> Vec<LinkIx> {
        let (tail, head) = (self.node(from), self.node(to));
        let leaving = self.leaving[tail as usize].iter().copied();
        leaving.filter(|link| self.links[*link as usize].head == head).collect()
    }

    /// The place that a node is.
    pub(crate) fn place(&self, node: NodeIx) -> Place {
        if self.is_host(node) { Place::Host(node) } else { Place::Switch(node - self.hosts) }
    }

    fn forwards(&self, node: NodeIx) -> bool {
        self.hosts_forward || !self.is_host(node)
    }

    fn node(&self, place: Place) -> NodeIx {
        let node = match place {
            Place::Host(host) if host < self.hosts => host,
            Place::Switch(switch) if switch < self.nodes - self.hosts => self.hosts + switch,
            missing => panic!("the topology has no {missing:?}"),
        };
        debug_assert!(node < self.nodes);
        node
    }
}

/// How much a source likes to be led over a link: of equal ways it takes the one that it likes
/// most, as switches choose by a hash of the addresses. The mixing is that of SplitMix64
/// (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
fn liking(source: NodeIx, link: LinkIx) -> u64 {
    let mut mixed = (u64::from(source) << 32 | u64::from(link)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// In place of a link where there is none.
pub(crate) const NO_LINK: LinkIx = LinkIx::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_shortest_and_hosts_do_not_forward() {
        let mut topology = Topology::graph(3, 2);
        let link = Link::default();
        topology.connect(Place::Host(0), Place::Host(1), link);
        topology.connect(Place::Host(1), Place::Host(2), link);
        topology.connect(Place::Host(0), Place::Switch(0), link);
        topology.connect(Place::Switch(0), Place::Switch(1), link);
        topology.connect(Place::Switch(1), Place::Host(2), link);
        let routes = topology.routes_from(0, |_| true);
        assert_eq!(routes[1], 0, "the cable between the two");
        assert_eq!(topology.edges()[routes[2] as usize].tail, 4, "by way of the switches");
        assert_eq!(routes[0], NO_LINK);
    }

    #[test]
    fn exponential_jitter_has_its_mean() {
        let mut rng = Rng::new(3);
        let jitter = Jitter::Exponential(Duration::from_micros(30));
        let total: Duration = (0..100_000).map(|_| jitter.draw(&mut rng)).sum();
        let mean = total.as_nanos() as f64 / 1e5;
        assert!((29_500.0..30_500.0).contains(&mean), "{mean} ns");
    }
}
