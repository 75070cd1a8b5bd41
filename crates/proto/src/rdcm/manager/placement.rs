use std::collections::{BTreeMap, BTreeSet};

use core::ops::Range;

use super::super::network::Network;
use super::super::topology::{Topology, Vertex};
use crate::NodeId;

/// Host of a node, and the node that this node has displaced from it, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) vertex: Vertex,
    pub(super) displaced: Option<NodeId>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NodePlacement {
    hosts: BTreeMap<NodeId, Vertex>,
    nodes: BTreeMap<Vertex, NodeId>,
    free: Vec<Vertex>,
    fresh: Range<u32>,
    /// Hosts of senders, which are never displaced.
    senders: BTreeSet<Vertex>,
}

impl NodePlacement {
    /// Creates a placement and its topology: at most `most_children` racks for an unknown network.
    pub(super) fn new(network: &Network, most_children: usize) -> (Topology, Self) {
        let (topology, fresh) = match network {
            Network::Known { topology, .. } => ((**topology).clone(), topology.visitors()),
            Network::Unknown => {
                let racks = vec![RACK; RACKS.min(most_children)];
                let topology = Topology::racks(&racks).expect("such racks are possible");
                let hosts = 0..topology.hosts();
                (topology, hosts)
            }
        };
        (topology, Self { fresh, ..Self::default() })
    }

    pub(super) fn place_sender(&mut self, network: &Network, node: NodeId) -> Option<Placed> {
        let placed = self.place(network, node)?;
        self.senders.insert(placed.vertex);
        Some(placed)
    }

    /// Places a node. If its host is occupied or unknown, the node gets a place for visitors. If
    /// there is none, it displaces a receiver on its host, because a restarted node has another id.
    pub(super) fn place(&mut self, network: &Network, node: NodeId) -> Option<Placed> {
        if let Some(vertex) = self.hosts.get(&node) {
            return Some(Placed { vertex: *vertex, displaced: None });
        }
        let declared = network.host_of(node);
        let vacant = declared.filter(|vertex| !self.nodes.contains_key(vertex));
        let displaced = declared.filter(|vertex| !self.senders.contains(vertex));
        let vertex = vacant.or_else(|| self.vacant()).or(displaced)?;
        self.hosts.insert(node, vertex);
        let former = self.nodes.insert(vertex, node);
        if let Some(former) = former {
            self.hosts.remove(&former);
        }
        Some(Placed { vertex, displaced: former })
    }

    /// Releases and returns the host of a receiver that is elsewhere now. A receiver on a place for
    /// visitors leaves it if its own host is vacant.
    pub(super) fn leave_former_host(&mut self, network: &Network, node: NodeId) -> Option<Vertex> {
        let vertex = *self.hosts.get(&node).filter(|vertex| !self.senders.contains(vertex))?;
        let declared = network.host_of(node);
        let is_free = |vertex: Vertex| !self.nodes.contains_key(&vertex);
        let has_moved =
            declared != Some(vertex) && (network.declares(vertex) || declared.is_some_and(is_free));
        has_moved.then(|| {
            self.release(network, node);
            vertex
        })
    }

    fn vacant(&mut self) -> Option<Vertex> {
        self.free.pop().or_else(|| self.fresh.next().map(Vertex))
    }

    pub(super) fn release(&mut self, network: &Network, node: NodeId) {
        let Some(vertex) = self.hosts.remove(&node) else { return };
        self.nodes.remove(&vertex);
        self.senders.remove(&vertex);
        if !network.declares(vertex) {
            self.free.push(vertex);
        }
    }

    pub(super) fn node_at(&self, vertex: Vertex) -> Option<NodeId> {
        self.nodes.get(&vertex).copied()
    }

    pub(super) fn host_of(&self, node: NodeId) -> Option<Vertex> {
        self.hosts.get(&node).copied()
    }
}

/// Number of hosts per rack, and maximum number of racks, in an unknown network.
const RACK: u32 = 32;
const RACKS: usize = 127;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(placement: &mut NodePlacement, network: &Network, node: NodeId) -> Option<Vertex> {
        placement.place(network, node).map(|placed| placed.vertex)
    }

    #[test]
    fn nodes_of_an_unknown_network_get_hosts_and_free_them() {
        let network = Network::Unknown;
        let (topology, mut placement) = NodePlacement::new(&network, 100);
        let first = place(&mut placement, &network, NodeId(7)).expect("a host");
        assert!(topology.is_host(first));
        assert_eq!(place(&mut placement, &network, NodeId(7)), Some(first));
        let second = place(&mut placement, &network, NodeId(8)).expect("a host");
        assert_ne!(first, second);
        placement.release(&network, NodeId(7));
        assert_eq!((placement.host_of(NodeId(7)), placement.node_at(first)), (None, None));
        assert_eq!(place(&mut placement, &network, NodeId(9)), Some(first));
        assert_eq!(placement.node_at(first), Some(NodeId(9)));
        let all = (100..).map_while(|node| place(&mut placement, &network, NodeId(node))).count();
        assert_eq!(all as u32 + 2, topology.hosts(), "all places are then in use");
    }

    fn known(topology: Topology, hosts: &[(u64, u32)]) -> Network {
        let hosts = hosts.iter().map(|(node, vertex)| (NodeId(*node), Vertex(*vertex)));
        Network::Known { topology: topology.into(), hosts: hosts.collect() }
    }

    #[test]
    fn nodes_of_a_known_network_are_where_they_are() {
        let racks = || Topology::racks(&[2, 2]).expect("racks");
        let network = known(racks(), &[(5, 3)]);
        let (_, mut placement) = NodePlacement::new(&network, 100);
        assert_eq!(place(&mut placement, &network, NodeId(5)), Some(Vertex(3)));
        assert_eq!(place(&mut placement, &network, NodeId(6)), None);
        let network = known(racks(), &[(4, 2), (5, 3), (9, 3), (8, 2)]);
        let (_, mut placement) = NodePlacement::new(&network, 100);
        let sender = placement.place_sender(&network, NodeId(4));
        assert_eq!(sender, Some(Placed { vertex: Vertex(2), displaced: None }));
        for node in [5, 9, 5].map(NodeId) {
            assert_eq!(place(&mut placement, &network, node), Some(Vertex(3)));
            assert_eq!(placement.node_at(Vertex(3)), Some(node), "the last node to join is placed");
        }
        assert_eq!(placement.host_of(NodeId(9)), None, "it was displaced");
        placement.release(&network, NodeId(9));
        assert_eq!(placement.node_at(Vertex(3)), Some(NodeId(5)), "the first node stays");
        assert_eq!(
            place(&mut placement, &network, NodeId(8)),
            None,
            "the sender is never displaced"
        );
    }

    #[test]
    fn visitors_and_second_nodes_of_a_host_get_places_of_their_own() {
        let topology = Topology::racks(&[2, 2]).and_then(Topology::with_visitors).expect("racks");
        let network = known(topology, &[(5, 3), (9, 3)]);
        let (topology, mut placement) = NodePlacement::new(&network, 100);
        let places =
            [5, 9, 6].map(|node| place(&mut placement, &network, NodeId(node)).expect("a place"));
        assert_eq!(places[0], Vertex(3));
        for (place, node) in places.into_iter().zip([5, 9, 6]) {
            assert!(topology.is_host(place));
            assert_eq!(placement.node_at(place), Some(NodeId(node)));
        }
        placement.release(&network, NodeId(9));
        assert_eq!(place(&mut placement, &network, NodeId(10)), Some(places[1]));
        placement.release(&network, NodeId(5));
        assert_eq!(place(&mut placement, &network, NodeId(9)), Some(Vertex(3)));
    }
}
