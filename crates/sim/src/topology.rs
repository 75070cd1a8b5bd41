use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;

use crate::ethernet::Ethernet;
use crate::ids::{CableIx, HostIx, LinkIx, NodeIx};

/// The properties of a directed link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Propagation delay.
    pub delay: Duration,
    /// Random delay in addition to `delay`, drawn for each datagram.
    pub jitter: Jitter,
    /// Bandwidth, in bits per second, or `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Maximum backlog, in bytes, at which the link accepts another datagram. Has no effect without
    /// a bandwidth limit.
    pub queue_bytes: u64,
    /// Loss model for the datagrams selected by [`WorldConfig::lossy`](crate::WorldConfig::lossy).
    pub loss: Loss,
}

/// A random delay on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No random delay.
    None,
    /// A delay that is uniformly distributed from zero to this maximum.
    Uniform(Duration),
    /// An exponentially distributed delay with this mean.
    Exponential(Duration),
}

/// A network of hosts, switches, and the directed links between them.
///
/// Routes are shortest in hops. Among paths of equal length, a source uses the one that a
/// breadth-first search finds first, or one that can differ from source to source; see
/// [`Topology::with_spread_routes`]. Both choices are the same in every run.
///
/// Directed links are numbered in the order in which they were connected.
#[derive(Clone, Debug)]
pub struct Topology {
    hosts: u32,
    nodes: u32,
    hosts_forward: bool,
    spreads_routes: bool,
    pub(crate) links: Vec<Edge>,
    pub(crate) cables: Vec<Ethernet>,
    leaving: Vec<Vec<LinkIx>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) tail: NodeIx,
    pub(crate) head: NodeIx,
    pub(crate) link: Link,
    pub(crate) cable: Option<CableIx>,
}

/// A host or a switch of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The host with this number.
    Host(u32),
    /// The switch with this number.
    Switch(u32),
}

impl Default for Link {
    /// Returns a link with a delay of 50 us, without jitter, bandwidth limit or loss.
    fn default() -> Self {
        Self::of_delay(Duration::from_micros(50))
    }
}

impl Link {
    /// Creates a link with this delay, without jitter, bandwidth limit or loss.
    pub const fn of_delay(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Jitter::None,
            bandwidth: None,
            queue_bytes: 512 * 1024,
            loss: Loss::None,
        }
    }

    /// Creates a link without delay.
    pub const fn instant() -> Self {
        Self::of_delay(Duration::ZERO)
    }

    /// Sets the jitter.
    pub const fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// Sets the bandwidth, and the [maximum backlog](Link::queue_bytes).
    pub const fn with_bandwidth(self, bits_per_second: u64, queue_bytes: u64) -> Self {
        Self { bandwidth: Some(bits_per_second), queue_bytes, ..self }
    }

    /// Sets the loss model.
    pub const fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    pub(crate) fn latency(&self, rng: &mut Rng) -> Duration {
        self.delay + self.jitter.draw(rng)
    }
}

impl Jitter {
    /// Draws a delay. The software logarithm gives the same result on every platform.
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
    /// Creates hosts and switches without links.
    pub fn graph(hosts: u32, switches: u32) -> Self {
        let nodes = hosts + switches;
        let leaving = vec![Vec::new(); nodes as usize];
        let (hosts_forward, spreads_routes) = (false, false);
        let (links, cables) = (Vec::new(), Vec::new());
        Self { hosts, nodes, hosts_forward, spreads_routes, links, cables, leaving }
    }

    /// Creates hosts around one switch.
    ///
    /// `link` is the link from the switch to each host. The link from a host to the switch has the
    /// same bandwidth, but no delay, jitter or loss.
    pub fn lan(hosts: u32, link: Link) -> Self {
        let up = Link { delay: Duration::ZERO, jitter: Jitter::None, loss: Loss::None, ..link };
        let mut topology = Self::graph(hosts, 1);
        for host in 0..hosts {
            topology.connect_one_way(Place::Host(host), Place::Switch(0), up);
            topology.connect_one_way(Place::Switch(0), Place::Host(host), link);
        }
        topology
    }

    /// Creates hosts on one shared cable.
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

    /// Creates racks of hosts with one switch each, and a central switch that connects them, like
    /// the gateway of Slingshot 4.3.
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

    /// Lets hosts forward datagrams for others.
    pub fn with_forwarding_hosts(self) -> Self {
        Self { hosts_forward: true, ..self }
    }

    /// Lets sources choose different paths of equal length, as switches spread flows.
    pub fn with_spread_routes(self) -> Self {
        Self { spreads_routes: true, ..self }
    }

    /// Connects two places by a link in each direction. The link from `a` to `b` is the first one.
    ///
    /// # Panics
    /// Panics if one of the places does not exist.
    pub fn connect(&mut self, a: Place, b: Place, link: Link) {
        self.connect_one_way(a, b, link);
        self.connect_one_way(b, a, link);
    }

    /// Connects two places by a link in one direction.
    ///
    /// # Panics
    /// Panics if one of the places does not exist.
    pub fn connect_one_way(&mut self, from: Place, to: Place, link: Link) {
        let (tail, head) = (self.node(from), self.node(to));
        self.leaving[tail as usize].push(self.links.len() as LinkIx);
        self.links.push(Edge { tail, head, link, cable: None });
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Returns all hosts.
    pub fn all_hosts(&self) -> impl Iterator<Item = HostIx> + use<> {
        (0..self.hosts).map(HostIx)
    }

    /// Returns the links from one host to another, in reverse order, or `None` if there is no path.
    pub fn route(&self, from: HostIx, to: HostIx) -> Option<Vec<u32>> {
        let routes = self.routes_from(from.0, |_| true);
        let (mut node, mut links) = (to.0, Vec::new());
        while node != from.0 {
            let link = Some(routes[node as usize]).filter(|link| *link != NO_LINK)?;
            links.push(link);
            node = self.links[link as usize].tail;
        }
        Some(links)
    }

    /// Returns the two ends of each directed link, in order of the links' numbers.
    pub fn links(&self) -> impl Iterator<Item = [Place; 2]> {
        self.links.iter().map(|edge| [self.place(edge.tail), self.place(edge.head)])
    }

    fn is_host(&self, node: NodeIx) -> bool {
        node < self.hosts
    }

    /// Returns, for each node, the last link of its path from `source` over usable links. The entry
    /// is [`NO_LINK`] for the source and for unreachable nodes.
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
                    && preference(source, *link) > preference(source, *known)
                {
                    *known = *link;
                }
            }
        }
        reached_by
    }

    pub(crate) fn links_between(&self, a: Place, b: Place) -> Vec<LinkIx> {
        [self.links_from(a, b), self.links_from(b, a)].concat()
    }

    pub(crate) fn links_from(&self, from: Place, to: Place) -> Vec<LinkIx> {
        let (tail, head) = (self.node(from), self.node(to));
        let leaving = self.leaving[tail as usize].iter().copied();
        leaving.filter(|link| self.links[*link as usize].head == head).collect()
    }

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
            missing => panic!("{missing:?} is not in the topology"),
        };
        debug_assert!(node < self.nodes);
        node
    }
}

/// Returns the preference of a source for a link, by which it chooses among paths of equal length,
/// as switches choose by a hash of the addresses. The mixing function is that of SplitMix64 (G.
/// Steele, D. Lea, C. Flood, OOPSLA 2014).
fn preference(source: NodeIx, link: LinkIx) -> u64 {
    let mut mixed = (u64::from(source) << 32 | u64::from(link)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

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
        assert_eq!(topology.links[routes[2] as usize].tail, 4, "by way of the switches");
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
