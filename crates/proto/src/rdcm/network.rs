use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::topology::{Topology, Vertex};
use crate::{Endpoint, NodeId};

/// Network for which the multicast tree and the overlay are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The network is unknown. Hosts are assumed to be in racks of 32, in order of joining.
    Unknown,
    /// The topology is known, and nodes are mapped to its hosts.
    Known {
        /// The hosts, switches and links.
        topology: Box<Topology>,
        /// Hosts of the nodes. A node without a host, or whose host already has another node, gets
        /// one of the topology's [places for visitors](Topology::with_visitors). If there are no
        /// such places, a node without a host gets no place. Of several nodes on one host, only a
        /// sender or the last one to join is then placed, because a restarted node has another id.
        hosts: Hosts,
    },
}

impl Network {
    /// Records that a node is reachable at `endpoint`; see [`Hosts::node_up`].
    pub fn node_up(&mut self, node: NodeId, endpoint: Endpoint) {
        if let Self::Known { hosts, .. } = self {
            hosts.node_up(node, endpoint);
        }
    }

    /// Records that a node is gone.
    pub fn node_down(&mut self, node: NodeId) {
        if let Self::Known { hosts, .. } = self {
            hosts.node_down(node);
        }
    }

    pub(super) fn host_of(&self, node: NodeId) -> Option<Vertex> {
        match self {
            Self::Unknown => None,
            Self::Known { hosts, .. } => hosts.of(node),
        }
    }

    pub(super) fn declares(&self, host: Vertex) -> bool {
        match self {
            Self::Unknown => false,
            Self::Known { topology, .. } => !topology.visitors().contains(&host.0),
        }
    }
}

/// Hosts of nodes in a [`Topology`], by the ids of the nodes or by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    nodes: BTreeMap<NodeId, Vertex>,
    /// Hosts by address, for the node with this port or for any node at the address.
    addresses: BTreeMap<(IpAddr, Option<u16>), Vertex>,
    online: BTreeMap<NodeId, Vertex>,
}

impl Hosts {
    /// Maps the node with this id to a host.
    pub fn place_node(&mut self, node: NodeId, host: Vertex) {
        self.nodes.insert(node, host);
    }

    /// Maps nodes at an address to a host. With a UDP port, this applies only to the node with that
    /// port. Otherwise, it applies to all nodes at the address without a more specific mapping.
    pub fn place_address(&mut self, ip: IpAddr, port: Option<u16>, host: Vertex) {
        self.addresses.insert((ip, port), host);
    }

    /// Records that a node is reachable at `endpoint`. If the node was at another address before,
    /// its former host is dropped. An unspecified address is unknown, and changes nothing.
    pub fn node_up(&mut self, node: NodeId, endpoint: Endpoint) {
        let (ip, port) = (endpoint.0.ip(), endpoint.0.port());
        if ip.is_unspecified() {
            return;
        }
        let exact = self.addresses.get(&(ip, Some(port)));
        match exact.or_else(|| self.addresses.get(&(ip, None))) {
            Some(host) => self.online.insert(node, *host),
            None => self.online.remove(&node),
        };
    }

    /// Records that a node is gone.
    pub fn node_down(&mut self, node: NodeId) {
        self.online.remove(&node);
    }

    pub(super) fn vertices(&self) -> impl Iterator<Item = Vertex> {
        self.nodes.values().chain(self.addresses.values()).copied()
    }

    /// Returns the host of a node, or `None` if it has none.
    pub fn of(&self, node: NodeId) -> Option<Vertex> {
        self.nodes.get(&node).or_else(|| self.online.get(&node)).copied()
    }
}

impl FromIterator<(NodeId, Vertex)> for Hosts {
    fn from_iter<T: IntoIterator<Item = (NodeId, Vertex)>>(nodes: T) -> Self {
        Self { nodes: nodes.into_iter().collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_placed_by_its_id_then_port_then_address() {
        let at = |port| Endpoint(([10, 0, 0, 1], port).into());
        let mut hosts = Hosts::default();
        hosts.place_address(at(0).0.ip(), None, Vertex(0));
        hosts.place_address(at(0).0.ip(), Some(7500), Vertex(1));
        hosts.place_node(NodeId(9), Vertex(2));
        for node in [7, 9] {
            hosts.node_up(NodeId(node), at(7400));
        }
        hosts.node_up(NodeId(8), at(7500));
        hosts.node_up(NodeId(6), Endpoint(([10, 0, 0, 2], 7500).into()));
        let places = [6, 7, 8, 9].map(|node| hosts.of(NodeId(node)));
        assert_eq!(places, [None, Some(Vertex(0)), Some(Vertex(1)), Some(Vertex(2))]);
        hosts.node_down(NodeId(7));
        hosts.node_down(NodeId(9));
        assert_eq!([7, 9].map(|node| hosts.of(NodeId(node))), [None, Some(Vertex(2))]);
    }

    #[test]
    fn node_that_moved_to_an_unlisted_address_has_no_host() {
        let at = |last| Endpoint(([10, 0, 0, last], 7400).into());
        let mut hosts = Hosts::default();
        hosts.place_address(at(1).0.ip(), None, Vertex(0));
        hosts.place_address(at(2).0.ip(), None, Vertex(1));
        hosts.node_up(NodeId(7), at(1));
        hosts.node_up(NodeId(7), Endpoint(([0, 0, 0, 0], 0).into()));
        assert_eq!(hosts.of(NodeId(7)), Some(Vertex(0)), "an unknown address changes nothing");
        hosts.node_up(NodeId(7), at(2));
        assert_eq!(hosts.of(NodeId(7)), Some(Vertex(1)));
        hosts.node_up(NodeId(7), at(3));
        assert_eq!(hosts.of(NodeId(7)), None);
    }
}
