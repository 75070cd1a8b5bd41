//! Which node is which host of the topology.

use std::collections::BTreeMap;

use super::config::Network;
use super::topology::{Topology, Vertex};
use crate::NodeId;

/// The hosts of nodes.
#[derive(Clone, Debug)]
pub(super) struct Sites {
    /// Whether nodes are given hosts as they come.
    grows: bool,
    hosts: BTreeMap<NodeId, Vertex>,
    nodes: BTreeMap<Vertex, NodeId>,
    /// Hosts that are free again, the next one that never was taken, and how many there are.
    free: Vec<Vertex>,
    next: u32,
    count: u32,
}

impl Sites {
    /// The topology of a network, and the hosts in it. Where nothing is known no switch has more
    /// than `most_children` others below it.
    pub(super) fn of(network: &Network, most_children: usize) -> (Topology, Self) {
        match network {
            Network::Known { topology, hosts } => {
                let nodes = hosts.iter().map(|(node, vertex)| (*vertex, *node)).collect();
                let count = topology.hosts();
                let (hosts, free) = (hosts.clone(), Vec::new());
                let sites = Self { grows: false, hosts, nodes, free, next: count, count };
                ((**topology).clone(), sites)
            }
            Network::Unknown => {
                let racks = vec![RACK; RACKS.min(most_children)];
                let topology = Topology::racks(&racks).expect("such racks are possible");
                let sites = Self {
                    grows: true,
                    hosts: BTreeMap::new(),
                    nodes: BTreeMap::new(),
                    free: Vec::new(),
                    next: 0,
                    count: topology.hosts(),
                };
                (topology, sites)
            }
        }
    }

    /// The host of a node, which is given one if it can have one.
    pub(super) fn settle(&mut self, node: NodeId) -> Option<Vertex> {
        if let Some(vertex) = self.hosts.get(&node) {
            // Several nodes may run on a host of a known network, one after the other.
            self.nodes.insert(*vertex, node);
            return Some(*vertex);
        }
        if !self.grows {
            return None;
        }
        let vertex = self.free.pop().or_else(|| {
            let fresh = (self.next < self.count).then_some(Vertex(self.next));
            self.next += u32::from(fresh.is_some());
            fresh
        })?;
        self.hosts.insert(node, vertex);
        self.nodes.insert(vertex, node);
        Some(vertex)
    }

    /// A node is gone: another may have its host.
    pub(super) fn release(&mut self, node: NodeId) {
        if self.grows
            && let Some(vertex) = self.hosts.remove(&node)
        {
            self.nodes.remove(&vertex);
            self.free.push(vertex);
        }
    }

    /// The node on a host.
    pub(super) fn node(&self, vertex: Vertex) -> Option<NodeId> {
        self.nodes.get(&vertex).copied()
    }

    /// The host of a node.
    pub(super) fn host(&self, node: NodeId) -> Option<Vertex> {
        self.hosts.get(&node).copied()
    }
}

/// Hosts in a rack, where nothing is known of the network, and racks.
const RACK: u32 = 32;
const RACKS: usize = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_an_unknown_network_get_hosts_as_they_come_and_leave_them_to_others() {
        let (topology, mut sites) = Sites::of(&Network::Unknown, 100);
        let first = sites.settle(NodeId(7)).expect("a host");
        assert!(topology.is_host(first));
        assert_eq!(sites.settle(NodeId(7)), Some(first));
        let second = sites.settle(NodeId(8)).expect("a host");
        assert_ne!(first, second);
        sites.release(NodeId(7));
        assert_eq!((sites.host(NodeId(7)), sites.node(first)), (None, None));
        assert_eq!(sites.settle(NodeId(9)), Some(first));
        assert_eq!(sites.node(first), Some(NodeId(9)));
        let all = (100..).map_while(|node| sites.settle(NodeId(node))).count();
        assert_eq!(all as u32 + 2, topology.hosts(), "then there is no room");
    }

    #[test]
    fn nodes_of_a_known_network_are_where_they_are() {
        let topology = Topology::racks(&[2, 2]).expect("racks");
        let hosts = [(NodeId(5), Vertex(3))].into();
        let (_, mut sites) = Sites::of(&Network::Known { topology: topology.into(), hosts }, 100);
        assert_eq!(sites.settle(NodeId(5)), Some(Vertex(3)));
        assert_eq!(sites.settle(NodeId(6)), None);
        sites.release(NodeId(5));
        assert_eq!(sites.node(Vertex(3)), Some(NodeId(5)));
        let topology = Topology::racks(&[2, 2]).expect("racks");
        let hosts = [(NodeId(5), Vertex(3)), (NodeId(9), Vertex(3))].into();
        let (_, mut sites) = Sites::of(&Network::Known { topology: topology.into(), hosts }, 100);
        for node in [5, 9, 5].map(NodeId) {
            assert_eq!(sites.settle(node), Some(Vertex(3)));
            assert_eq!(sites.node(Vertex(3)), Some(node), "who came last");
        }
    }
}
