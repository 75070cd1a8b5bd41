//! Mapping of nodes to the hosts of a known network.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::topology::Vertex;
use crate::{Endpoint, NodeId};

/// Hosts of nodes in a [topology](super::topology::Topology), by the ids of the nodes or by their
/// addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    nodes: BTreeMap<NodeId, Vertex>,
    /// Hosts by address: of the node with this port, or of any node at the address.
    addresses: BTreeMap<(IpAddr, Option<u16>), Vertex>,
    /// Online nodes whose address is mapped.
    met: BTreeMap<NodeId, Vertex>,
}

impl Hosts {
    /// Maps the node with an id to a host.
    pub fn place_node(&mut self, node: NodeId, host: Vertex) {
        self.nodes.insert(node, host);
    }

    /// Maps nodes at an address to a host. With a UDP port, this applies to the node with that
    /// port. Without a port, it applies to all nodes at the address that have no more specific
    /// mapping.
    pub fn place_address(&mut self, ip: IpAddr, port: Option<u16>, host: Vertex) {
        self.addresses.insert((ip, port), host);
    }

    /// Records that a node can be reached at `endpoint`.
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        let (ip, port) = (endpoint.0.ip(), endpoint.0.port());
        let exact = self.addresses.get(&(ip, Some(port)));
        if let Some(host) = exact.or_else(|| self.addresses.get(&(ip, None))) {
            self.met.insert(node, *host);
        }
    }

    /// Records that a node is gone.
    pub fn part(&mut self, node: NodeId) {
        self.met.remove(&node);
    }

    /// Returns all hosts of the mapping.
    pub(super) fn vertices(&self) -> impl Iterator<Item = Vertex> {
        self.nodes.values().chain(self.addresses.values()).copied()
    }

    /// Returns the host of a node. Returns `None` if it has none.
    pub fn of(&self, node: NodeId) -> Option<Vertex> {
        self.nodes.get(&node).or_else(|| self.met.get(&node)).copied()
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
            hosts.meet(NodeId(node), at(7400));
        }
        hosts.meet(NodeId(8), at(7500));
        hosts.meet(NodeId(6), Endpoint(([10, 0, 0, 2], 7500).into()));
        let places = [6, 7, 8, 9].map(|node| hosts.of(NodeId(node)));
        assert_eq!(places, [None, Some(Vertex(0)), Some(Vertex(1)), Some(Vertex(2))]);
        hosts.part(NodeId(7));
        hosts.part(NodeId(9));
        assert_eq!([7, 9].map(|node| hosts.of(NodeId(node))), [None, Some(Vertex(2))]);
    }
}
