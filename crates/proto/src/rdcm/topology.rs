//! Network model of the multicast manager: hosts, switches, and the links between them.
//!
//! | builder | source |
//! |---|---|
//! | [`Topology::bcube`] | C. Guo et al., *BCube*, SIGCOMM 2009, 3.1; figure 4 of the paper |
//! | [`Topology::fat_tree`] | M. Al-Fares et al., SIGCOMM 2008, section 3; figure 2 |
//! | [`Topology::vl2`] | A. Greenberg et al., *VL2*, SIGCOMM 2009, 4.1; figure 3 |
//! | [`Topology::tree`] | a plain tree of switches |
//! | [`Topology::racks`] | a declared model, for networks whose switches are not controlled |

use core::fmt;
use core::ops::Range;

pub use super::link_speed::{LinkSpeed, LinkSpeedError};

/// Number of a host or a switch in a [`Topology`]. Hosts, except visitors, come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vertex(pub u32);

/// Number of a bidirectional link in a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A network of hosts and switches, and the links between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    hosts: u32,
    names: Vec<String>,
    /// Undeclared hosts, for nodes that are not in the topology. They follow the switches.
    visitors: Range<u32>,
    /// `true` if hosts forward packets of other hosts, like the servers of BCube.
    hosts_forward: bool,
    links: Vec<[Vertex; 2]>,
    /// Speeds of the links, by link number.
    speeds: Vec<LinkSpeed>,
    neighbours: Vec<Vec<(Vertex, LinkId)>>,
}

/// Reason why a topology cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A number is too small, or is odd although it has to be halved.
    #[error("{what} must be {must}, not {given}")]
    Shape {
        /// Description of the number.
        what: &'static str,
        /// Description of the permitted values.
        must: &'static str,
        /// The invalid number.
        given: u32,
    },
    /// The topology would have more hosts and switches than [`MAX_VERTICES`].
    #[error("the topology is too large: expected at most {MAX_VERTICES} hosts and switches")]
    TooLarge,
    /// A link refers to a vertex that does not exist, or connects a vertex to itself.
    #[error("a link must connect two hosts or switches of the topology, not {0} and {1}")]
    Link(Vertex, Vertex),
    /// There is no switch to which visitors can be connected.
    #[error("the topology has no switch for undeclared hosts")]
    NoSwitch,
}

/// The name of a vertex that does not exist in a [`Topology`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(pub String);

/// Number of racks for visitors, and number of places per rack.
const VISITOR_RACKS: u32 = 63;
const RACK_OF_VISITORS: u32 = 32;
/// Maximum number of hosts and switches in a topology.
pub const MAX_VERTICES: usize = 1 << 20;

impl fmt::Display for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl Topology {
    /// Creates a topology of hosts and switches with these names, without links. If `hosts_forward`
    /// is `true`, hosts forward packets of other hosts.
    ///
    /// # Errors
    /// Returns an error if there are too many hosts and switches.
    pub fn new(
        hosts: Vec<String>,
        switches: Vec<String>,
        hosts_forward: bool,
    ) -> Result<Self, TopologyError> {
        let count = hosts.len().saturating_add(switches.len());
        if count > MAX_VERTICES {
            return Err(TopologyError::TooLarge);
        }
        let (hosts, mut names) = (hosts.len() as u32, hosts);
        names.extend(switches);
        Ok(Self {
            hosts,
            names,
            visitors: 0..0,
            hosts_forward,
            links: Vec::new(),
            speeds: Vec::new(),
            neighbours: vec![Vec::new(); count],
        })
    }

    /// Adds a link of 1 Gbit/s between two vertices. Two vertices may have several links.
    ///
    /// # Errors
    /// Returns an error if a vertex does not exist, or if both are the same.
    pub fn link(&mut self, a: Vertex, b: Vertex) -> Result<LinkId, TopologyError> {
        self.link_of_speed(a, b, LinkSpeed::GIGABIT)
    }

    /// Adds a link of a given speed between two vertices, like [`Topology::link`].
    ///
    /// The speed has no effect on the multicast tree, which has shortest paths.
    ///
    /// # Errors
    /// Returns an error if a vertex does not exist, or if both are the same.
    pub fn link_of_speed(
        &mut self,
        a: Vertex,
        b: Vertex,
        speed: LinkSpeed,
    ) -> Result<LinkId, TopologyError> {
        if a == b || [a, b].iter().any(|end| end.0 as usize >= self.names.len()) {
            return Err(TopologyError::Link(a, b));
        }
        let link = LinkId(self.links.len() as u32);
        self.links.push([a, b]);
        self.speeds.push(speed);
        self.neighbours[a.0 as usize].push((b, link));
        self.neighbours[b.0 as usize].push((a, link));
        Ok(link)
    }

    /// Creates BCube(`ports`, `k`), which has `ports`^(k+1) servers that forward packets. Each
    /// server has k + 1 links, one to a switch of each level. The name of a server contains its
    /// address. The name of a switch contains its level and the digits that its servers have in
    /// common.
    ///
    /// # Errors
    /// Returns an error if `ports` is less than 2, or if the topology is too large.
    pub fn bcube(ports: u32, k: u32) -> Result<Self, TopologyError> {
        at_least("the number of ports of a switch", ports, 2)?;
        let levels = k.checked_add(1).ok_or(TopologyError::TooLarge)?;
        let servers = ports.checked_pow(levels).ok_or(TopologyError::TooLarge)?;
        let per_level = servers / ports;
        let switches = (k + 1).checked_mul(per_level).ok_or(TopologyError::TooLarge)?;
        check_size(u64::from(servers) + u64::from(switches))?;
        let digits = |number: u32, count: u32| {
            let digit = |place| (number / ports.pow(place) % ports).to_string();
            (0..count).rev().map(digit).collect::<Vec<_>>().join(".")
        };
        let switch_name = |number: u32| {
            format!("switch {}:{}", number / per_level, digits(number % per_level, k))
        };
        let mut topology = Self::new(
            (0..servers).map(|number| format!("server {}", digits(number, k + 1))).collect(),
            (0..switches).map(switch_name).collect(),
            true,
        )?;
        for server in 0..servers {
            for level in 0..=k {
                // The address without the digit of this level.
                let low = server % ports.pow(level);
                let high = server / ports.pow(level) / ports * ports.pow(level);
                let switch = servers + level * per_level + high + low;
                topology.link(Vertex(server), Vertex(switch))?;
            }
        }
        Ok(topology)
    }

    /// Creates a fat tree of switches with `ports` ports, which has `ports`^3 / 4 hosts in `ports`
    /// pods.
    ///
    /// # Errors
    /// Returns an error if `ports` is odd or zero, or if the topology is too large.
    pub fn fat_tree(ports: u32) -> Result<Self, TopologyError> {
        even("the number of ports of a switch", ports)?;
        let half = ports / 2;
        let (wide, core) = (u64::from(half), u64::from(half).saturating_mul(half.into()));
        let pods = core.saturating_add(2 * wide).saturating_mul(ports.into());
        check_size(pods.saturating_add(core))?;
        let hosts = half * half * ports;
        let name = |kind: &str, per_pod: u32, number: u32| {
            format!("{kind} {}.{}", number / per_pod, number % per_pod)
        };
        let in_pods = ports * half;
        let mut switches: Vec<String> = (0..in_pods).map(|it| name("edge", half, it)).collect();
        switches.extend((0..in_pods).map(|it| name("aggregation", half, it)));
        switches.extend((0..half * half).map(|it| name("core", half, it)));
        let names = (0..hosts).map(|it| name("host", half * half, it)).collect();
        let mut topology = Self::new(names, switches, false)?;
        let (edge, aggregation) = (hosts, hosts + in_pods);
        let core = aggregation + in_pods;
        for host in 0..hosts {
            topology.link(Vertex(host), Vertex(edge + host / half))?;
        }
        for pod in 0..ports {
            for upper in 0..half {
                let above = Vertex(aggregation + pod * half + upper);
                for lower in 0..half {
                    topology.link(Vertex(edge + pod * half + lower), above)?;
                    topology.link(above, Vertex(core + upper * half + lower))?;
                }
            }
        }
        Ok(topology)
    }

    /// Creates a VL2 network of aggregation switches with `aggregation_ports` ports and
    /// intermediate switches with `intermediate_ports` ports. The number of top-of-rack switches is
    /// a quarter of the product of both. Each of them has `per_rack` hosts. The links of hosts have
    /// 1 Gbit/s, and those between switches 10 Gbit/s.
    ///
    /// # Errors
    /// Returns an error if a number of ports is odd or zero, if `per_rack` is zero, or if the
    /// topology is too large.
    pub fn vl2(
        aggregation_ports: u32,
        intermediate_ports: u32,
        per_rack: u32,
    ) -> Result<Self, TopologyError> {
        even("the number of ports of an aggregation switch", aggregation_ports)?;
        even("the number of ports of an intermediate switch", intermediate_ports)?;
        at_least("the number of hosts in a rack", per_rack, 1)?;
        let (half, aggregations) = (aggregation_ports / 2, intermediate_ports);
        let racks = u64::from(half) * u64::from(aggregations / 2);
        check_size(
            racks
                .saturating_mul(u64::from(per_rack) + 1)
                .saturating_add(u64::from(aggregations) + u64::from(half)),
        )?;
        let racks = racks as u32;
        let hosts = racks * per_rack;
        let counts = [("rack", racks), ("aggregation", aggregations), ("intermediate", half)];
        let switches = counts.into_iter().flat_map(|(kind, count)| numbered(kind, count));
        let names = (0..hosts).map(|it| format!("host {}.{}", it / per_rack, it % per_rack));
        let mut topology = Self::new(names.collect(), switches.collect(), false)?;
        let intermediate = hosts + racks + aggregations;
        for host in 0..hosts {
            topology.link(Vertex(host), Vertex(hosts + host / per_rack))?;
        }
        for rack in 0..racks {
            // Each pair of aggregation switches has as many racks as one has ports for racks.
            let pair = hosts + racks + rack / half * 2;
            for aggregation in [pair, pair + 1] {
                let rack = Vertex(hosts + rack);
                topology.link_of_speed(rack, Vertex(aggregation), LinkSpeed::TEN_GIGABIT)?;
            }
        }
        for aggregation in 0..aggregations {
            for upper in 0..half {
                let lower = Vertex(hosts + racks + aggregation);
                let upper = Vertex(intermediate + upper);
                topology.link_of_speed(lower, upper, LinkSpeed::TEN_GIGABIT)?;
            }
        }
        Ok(topology)
    }

    /// Creates a tree of switches. The first of `fanouts` is the number of vertices below the top
    /// switch, and so on. The last one is the number of hosts below each of the lowest switches.
    ///
    /// # Errors
    /// Returns an error if `fanouts` is empty or contains zero, or if the topology is too large.
    pub fn tree(fanouts: &[u32]) -> Result<Self, TopologyError> {
        at_least("the number of levels", fanouts.len() as u32, 1)?;
        let mut widths = vec![1_u64];
        for fanout in fanouts {
            at_least("a fan-out", *fanout, 1)?;
            widths.push(widths[widths.len() - 1].saturating_mul(u64::from(*fanout)));
            check_size(widths.iter().fold(0, |sum, width| sum.saturating_add(*width)))?;
        }
        let depth = fanouts.len();
        let hosts = widths[depth] as u32;
        let name = |level: usize, it: u64| format!("switch {level}.{it}");
        let switches =
            (0..depth).flat_map(|level| (0..widths[level]).map(move |it| name(level, it)));
        let mut topology = Self::new(numbered("host", hosts), switches.collect(), false)?;
        let mut above = hosts;
        for (level, fanout) in fanouts.iter().enumerate() {
            let below = if level + 1 == depth { 0 } else { above + widths[level] as u32 };
            for child in 0..widths[level + 1] as u32 {
                topology.link(Vertex(above + child / fanout), Vertex(below + child))?;
            }
            above = below;
        }
        Ok(topology)
    }

    /// Creates racks with these numbers of hosts, which may be 0. All racks are below one switch.
    ///
    /// # Errors
    /// Returns an error if the topology is too large.
    pub fn racks(hosts_of: &[u32]) -> Result<Self, TopologyError> {
        let hosts = hosts_of.iter().fold(0_u64, |sum, count| sum.saturating_add((*count).into()));
        check_size(hosts.saturating_add(hosts_of.len() as u64 + 1))?;
        let hosts = hosts as u32;
        let mut switches = numbered("rack", hosts_of.len() as u32);
        switches.push("core".to_owned());
        let mut topology = Self::new(numbered("host", hosts), switches, false)?;
        let core = Vertex(hosts + hosts_of.len() as u32);
        let mut host = 0;
        for (rack, count) in hosts_of.iter().enumerate() {
            let rack = Vertex(hosts + rack as u32);
            for _ in 0..*count {
                topology.link(Vertex(host), rack)?;
                host += 1;
            }
            topology.link(rack, core)?;
        }
        Ok(topology)
    }

    /// Adds places for nodes whose position is unknown. There are 63 racks of 32 places below a
    /// switch, which is linked to one of the switches that are farthest from the hosts.
    ///
    /// # Errors
    /// Returns an error if there is no switch, or if the topology is too large.
    pub fn with_visitors(mut self) -> Result<Self, TopologyError> {
        let top = self.top().ok_or(TopologyError::NoSwitch)?;
        let first = self.names.len() as u32;
        let visitors = first..first + VISITOR_RACKS * RACK_OF_VISITORS;
        check_size(u64::from(visitors.end) + u64::from(VISITOR_RACKS) + 1)?;
        self.names.extend(numbered("visitor", visitors.len() as u32));
        self.names.extend(numbered("visitors' rack", VISITOR_RACKS));
        self.names.push("visitors".to_owned());
        self.neighbours.resize(self.names.len(), Vec::new());
        let entry = Vertex(visitors.end + VISITOR_RACKS);
        self.link(top, entry)?;
        for rack in 0..VISITOR_RACKS {
            let switch = Vertex(visitors.end + rack);
            self.link(switch, entry)?;
            for place in 0..RACK_OF_VISITORS {
                self.link(Vertex(first + rack * RACK_OF_VISITORS + place), switch)?;
            }
        }
        self.visitors = visitors;
        Ok(self)
    }

    fn top(&self) -> Option<Vertex> {
        let mut seen: Vec<bool> = (0..self.len() as u32).map(|it| it < self.hosts).collect();
        let mut edge: Vec<Vertex> = (0..self.hosts).map(Vertex).collect();
        let mut top = None;
        while !edge.is_empty() {
            let next = edge.iter().flat_map(|vertex| self.neighbours(*vertex));
            let mut next: Vec<Vertex> = next.map(|(vertex, _)| *vertex).collect();
            next.sort_unstable();
            next.retain(|vertex| !core::mem::replace(&mut seen[vertex.0 as usize], true));
            top = next.first().copied().or(top);
            edge = next;
        }
        top
    }

    /// Returns the numbers of the hosts that are places for [visitors](Topology::with_visitors).
    pub fn visitors(&self) -> Range<u32> {
        self.visitors.clone()
    }

    /// Returns the number of hosts, excluding places for visitors. Hosts are the first vertices.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Returns the number of hosts and switches.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns `true` if there are no hosts and no switches.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns `true` if a vertex is a host.
    pub fn is_host(&self, vertex: Vertex) -> bool {
        vertex.0 < self.hosts || self.visitors.contains(&vertex.0)
    }

    /// Returns `true` if a vertex forwards packets of other vertices.
    pub fn forwards(&self, vertex: Vertex) -> bool {
        self.hosts_forward || !self.is_host(vertex)
    }

    /// Returns the name of a vertex, or an empty string if it does not exist.
    pub fn name(&self, vertex: Vertex) -> &str {
        self.names.get(vertex.0 as usize).map_or("", String::as_str)
    }

    /// Returns the two ends of each link, by link number.
    pub fn links(&self) -> &[[Vertex; 2]] {
        &self.links
    }

    /// Returns the speed of a link, or `None` if the link does not exist.
    pub fn speed(&self, link: LinkId) -> Option<LinkSpeed> {
        self.speeds.get(link.0 as usize).copied()
    }

    /// Returns the speed of the slowest link, or `None` if there are no links.
    pub fn slowest(&self) -> Option<LinkSpeed> {
        self.speeds.iter().copied().min()
    }

    /// Returns the links between two vertices given by name, or the name that does not exist.
    pub fn links_between(&self, a: &str, b: &str) -> Result<Vec<LinkId>, UnknownName> {
        let find = |name: &str| {
            let found = self.names.iter().position(|it| it == name);
            found.map(|it| Vertex(it as u32)).ok_or_else(|| UnknownName(name.to_owned()))
        };
        let (a, b) = (find(a)?, find(b)?);
        let between = self.neighbours(a).iter().filter(|(vertex, _)| *vertex == b);
        Ok(between.map(|(_, link)| *link).collect())
    }

    /// Returns the neighbors of a vertex and the links to them.
    pub fn neighbours(&self, vertex: Vertex) -> &[(Vertex, LinkId)] {
        self.neighbours.get(vertex.0 as usize).map_or(&[], Vec::as_slice)
    }
}

fn numbered(kind: &str, count: u32) -> Vec<String> {
    (0..count).map(|it| format!("{kind} {it}")).collect()
}

fn at_least(what: &'static str, given: u32, least: u32) -> Result<(), TopologyError> {
    let must = if least == 1 { "at least 1" } else { "at least 2" };
    if given < least { Err(TopologyError::Shape { what, must, given }) } else { Ok(()) }
}

fn even(what: &'static str, given: u32) -> Result<(), TopologyError> {
    let must = "even and at least 2";
    let is_odd = given == 0 || !given.is_multiple_of(2);
    if is_odd { Err(TopologyError::Shape { what, must, given }) } else { Ok(()) }
}

fn check_size(vertices: u64) -> Result<(), TopologyError> {
    if vertices > MAX_VERTICES as u64 { Err(TopologyError::TooLarge) } else { Ok(()) }
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
