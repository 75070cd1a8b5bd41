use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use carom_netns::{Error, Namespace};
use carom_proto::rdcm::topology::{LinkId, Topology, Vertex};

/// The server of the sender and of the registry.
pub(super) const SENDER: Vertex = Vertex(0);
/// The paper's figure 7 does not name its nine receivers legibly. These are on all switches.
pub(super) const RECEIVERS: [Vertex; 9] = [
    Vertex(1),
    Vertex(2),
    Vertex(4),
    Vertex(6),
    Vertex(7),
    Vertex(9),
    Vertex(11),
    Vertex(13),
    Vertex(14),
];
/// A BCube of network namespaces: one for each server and switch, with a bridge in each.
///
/// A server forwards in its bridge, which joins its two interfaces. Only installed entries carry
/// multicast. Unicast follows static entries on shortest paths, as source routing does in a BCube.
pub(super) struct Fabric {
    topology: Topology,
    nodes: Vec<Namespace>,
}

impl Fabric {
    pub(super) fn build(topology: Topology) -> Result<Self, Error> {
        let vertices = (0..topology.len() as u32).map(Vertex);
        let nodes = vertices.map(|it| Namespace::create(name(&topology, it)));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let fabric = Self { topology, nodes };
        for vertex in fabric.vertices() {
            fabric.build_bridge(vertex)?;
        }
        for [a, b] in fabric.topology.links() {
            let [from, to] = [a, b].map(|it| name(&fabric.topology, *it));
            fabric.node(*a).ip(&format!("link add {to} type veth peer name {from} netns {to}"))?;
        }
        for vertex in fabric.vertices() {
            fabric.build_ports(vertex)?;
        }
        fabric.route(None)?;
        Ok(fabric)
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(super) fn node(&self, vertex: Vertex) -> &Namespace {
        &self.nodes[vertex.0 as usize]
    }

    /// Returns the vertex of a namespace.
    pub(super) fn vertex(&self, name: &str) -> Option<Vertex> {
        let place = self.nodes.iter().position(|node| node.name() == name)?;
        Some(Vertex(place as u32))
    }

    fn vertices(&self) -> impl Iterator<Item = Vertex> + use<> {
        (0..self.topology.len() as u32).map(Vertex)
    }

    fn servers(&self) -> impl Iterator<Item = Vertex> + use<> {
        (0..self.topology.hosts()).map(Vertex)
    }

    fn build_bridge(&self, vertex: Vertex) -> Result<(), Error> {
        let is_server = self.topology.is_host(vertex);
        let own = if is_server { format!("address {}", mac(vertex)) } else { String::new() };
        // The querier keeps the entry of the server's own membership. It begins after the response
        // interval of the time when it is set.
        let mut lines = format!(
            "link add br0 {own} type bridge mcast_snooping 1 mcast_router 0 \
                mcast_query_response_interval 10 mcast_startup_query_count 1
            link set br0 up
            link set br0 type bridge mcast_querier 1\n"
        );
        if is_server {
            let address = address(vertex);
            let _ = writeln!(lines, "address add {address}/24 dev br0");
            let _ = writeln!(lines, "route add default dev br0");
            for other in self.servers().filter(|other| *other != vertex) {
                let (address, mac) = (self::address(other), mac(other));
                let _ =
                    writeln!(lines, "neighbour add {address} lladdr {mac} nud permanent dev br0");
            }
        }
        self.node(vertex).ip(&lines)
    }

    fn build_ports(&self, vertex: Vertex) -> Result<(), Error> {
        let (mut links, mut ports) = (String::new(), String::new());
        for (neighbour, _) in self.topology.neighbours(vertex) {
            let port = name(&self.topology, *neighbour);
            let _ = writeln!(links, "link set {port} master br0 up");
            let _ = writeln!(
                ports,
                "link set dev {port} flood off mcast_flood off bcast_flood off learning off \
                    mcast_router 0"
            );
        }
        self.node(vertex).ip(&links)?;
        self.node(vertex).bridge(&ports)
    }

    /// Sets the unicast paths between all servers, without the link `dead`.
    pub(super) fn route(&self, dead: Option<LinkId>) -> Result<(), Error> {
        let mut lines: BTreeMap<Vertex, String> = BTreeMap::new();
        for server in self.servers() {
            for (vertex, next) in next_hops(&self.topology, dead, server) {
                let (mac, port) = (mac(server), name(&self.topology, next));
                let entry = format!("fdb replace {mac} dev {port} master static\n");
                lines.entry(vertex).or_default().push_str(&entry);
            }
        }
        lines.iter().try_for_each(|(vertex, lines)| self.node(*vertex).bridge(lines))
    }

    /// Takes a link down.
    pub(super) fn cut(&self, [a, b]: [Vertex; 2]) -> Result<(), Error> {
        let port = name(&self.topology, b);
        self.node(a).ip(&format!("link set {port} down"))
    }
}

/// Returns the name of a namespace, and of the ports that lead to it.
pub(super) fn name(topology: &Topology, vertex: Vertex) -> String {
    topology.name(vertex).replace([' ', ':'], "-")
}

/// Returns the address of a server.
pub(super) fn address(server: Vertex) -> Ipv4Addr {
    Ipv4Addr::new(10, 15, 0, server.0 as u8 + 1)
}

fn mac(server: Vertex) -> String {
    format!("02:00:00:00:00:{:02x}", server.0 + 1)
}

/// Returns the next hop to `server` from each other vertex.
fn next_hops(
    topology: &Topology,
    dead: Option<LinkId>,
    server: Vertex,
) -> BTreeMap<Vertex, Vertex> {
    let mut hops = BTreeMap::new();
    let mut open = VecDeque::from([server]);
    while let Some(vertex) = open.pop_front() {
        for (neighbour, link) in topology.neighbours(vertex) {
            if Some(*link) == dead || *neighbour == server || hops.contains_key(neighbour) {
                continue;
            }
            hops.insert(*neighbour, vertex);
            open.push_back(*neighbour);
        }
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicast_paths_are_shortest_and_avoid_a_dead_link() {
        let topology = Topology::bcube(4, 1).expect("a BCube");
        let steps = |dead, from: Vertex, to: Vertex| {
            let hops = next_hops(&topology, dead, to);
            core::iter::successors(Some(from), |it| hops.get(it).copied()).count() - 1
        };
        assert_eq!(steps(None, Vertex(1), Vertex(0)), 2);
        assert_eq!(steps(None, Vertex(5), Vertex(0)), 4);
        let own = topology.neighbours(Vertex(0)).iter();
        let to_level_0 = own.map(|(_, link)| *link).next();
        assert_eq!(steps(to_level_0, Vertex(1), Vertex(0)), 6, "over the other level");
    }
}
