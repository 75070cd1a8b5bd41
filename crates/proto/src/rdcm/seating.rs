//! The multicast manager in terms of nodes (section 3.1): the assignment of places to nodes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::config::Network;
use super::multicast_manager::{LinkReport, Manager, ManagerError, Patience, Placement};
use super::overlay;
use super::packet::{Place, Seat};
use super::sites::Sites;
use super::topology::Vertex;
use super::tree::MulticastTree;
use crate::{GroupId, NodeId, Time};

/// The multicast manager of a network, by the ids of nodes. Each call gets the network with the
/// current hosts of the nodes.
#[derive(Debug)]
pub struct Seating {
    manager: Manager,
    sites: Sites,
    /// Nodes of each group, including the sender.
    groups: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Number of groups of each node.
    uses: BTreeMap<NodeId, u32>,
}

/// A changed place of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seated {
    /// Group of the receiver.
    pub group: GroupId,
    /// Receiver whose place has changed.
    pub receiver: NodeId,
    /// New place, without the fields that the sender fills in: the first packet and the number of
    /// receivers. `None` if the receiver has no place any more.
    pub place: Option<Place>,
}

impl Seating {
    /// Creates the manager of a network. In an unknown network, no switch has more than
    /// `most_children` others below it.
    pub fn new(network: &Network, most_children: usize, patience: Patience, seed: u64) -> Self {
        let (topology, sites) = Sites::of(network, most_children);
        let manager = Manager::new(topology, patience, seed);
        Self { manager, sites, groups: BTreeMap::new(), uses: BTreeMap::new() }
    }

    /// Opens a group for a sender. Its places have epochs above `above`, the highest one assigned
    /// before.
    ///
    /// # Errors
    /// Fails if the sender has no host, or if the group has a sender.
    pub fn open(
        &mut self,
        network: &Network,
        group: GroupId,
        sender: NodeId,
        above: u32,
    ) -> Result<(), ManagerError> {
        let nowhere = ManagerError::NoHost(Vertex(u32::MAX));
        let vertex = self.sites.settle_sender(network, sender).ok_or(nowhere)?;
        self.manager.open(group, vertex, above)?;
        self.groups.insert(group, BTreeSet::new());
        self.enter(group, sender);
        Ok(())
    }

    fn enter(&mut self, group: GroupId, node: NodeId) {
        let is_new = self.groups.get_mut(&group).is_some_and(|nodes| nodes.insert(node));
        if is_new {
            *self.uses.entry(node).or_default() += 1;
        }
    }

    fn forget(&mut self, network: &Network, node: NodeId) {
        let Some(uses) = self.uses.get_mut(&node) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(&node);
            self.sites.release(network, node);
        }
    }

    /// Removes a group, without changed places. Returns its nodes, including the sender.
    pub fn close(&mut self, network: &Network, group: GroupId) -> Vec<NodeId> {
        self.manager.close(group);
        let nodes = self.groups.remove(&group).unwrap_or_default();
        nodes.iter().for_each(|node| self.forget(network, *node));
        nodes.into_iter().collect()
    }

    /// Returns `true` if the node is in a group.
    pub fn seats(&self, node: NodeId) -> bool {
        self.uses.contains_key(&node)
    }

    /// Adds receivers. Nodes without a host or a path are left out.
    pub fn join(&mut self, network: &Network, group: GroupId, nodes: &[NodeId]) {
        let mut vertices = Vec::new();
        for node in nodes {
            let Some(members) = self.groups.get(&group) else { return };
            let is_new = !members.contains(node);
            let Some(vertex) = self.sites.settle(network, *node) else {
                tracing::warn!(%node, %group, "receiver left out: not a host of the topology");
                continue;
            };
            if is_new {
                // The node may have displaced another one from its host.
                self.manager.leave(group, vertex);
            }
            self.enter(group, *node);
            vertices.push(vertex);
        }
        if let Err(error) = self.manager.join_all(group, &vertices) {
            tracing::warn!(%group, %error, "receivers were left out");
        }
    }

    /// Removes a receiver.
    pub fn leave(&mut self, network: &Network, group: GroupId, node: NodeId) {
        if let Some(vertex) = self.sites.host(node) {
            self.manager.leave(group, vertex);
        }
        if self.groups.get_mut(&group).is_some_and(|nodes| nodes.remove(&node)) {
            self.forget(network, node);
        }
    }

    /// Handles a report that the tree does not reach a member of a ring. Returns the number of
    /// links that are newly believed dead.
    pub fn report(&mut self, now: Time, group: GroupId, ring: u32, successor: NodeId) -> usize {
        let Some(successor) = self.sites.host(successor) else { return 0 };
        let dead = self.manager.report(now, LinkReport { group, ring: Vertex(ring), successor });
        if !dead.is_empty() {
            tracing::info!(%group, links = dead.len(), "links are presumed dead");
        }
        dead.len()
    }

    /// Returns a place that has changed and was not returned yet.
    pub fn poll(&mut self) -> Option<Seated> {
        loop {
            let placement = self.manager.poll_placement()?;
            // A node that is gone needs no place.
            if let Some(receiver) = self.sites.node(placement.receiver) {
                let place = placement.seats.as_ref().and_then(|it| self.place(&placement, it));
                return Some(Seated { group: placement.group, receiver, place });
            }
        }
    }

    fn place(&self, placement: &Placement, seats: &overlay::Seats) -> Option<Place> {
        let seat = |seat: &overlay::Seat| {
            Some(Seat {
                ring: seat.ring.0,
                predecessor: self.sites.node(seat.predecessor)?,
                successor: self.sites.node(seat.successor)?,
                parent: self.sites.node(seat.parent)?,
            })
        };
        let children: Option<Vec<NodeId>> =
            seats.children.iter().map(|child| self.sites.node(*child)).collect();
        Some(Place {
            epoch: placement.epoch,
            first: 0,
            owed_from: 0,
            receivers: 0,
            leaf: seat(&seats.leaf)?,
            proxy: match &seats.proxy {
                Some(proxy) => Some(seat(proxy)?),
                None => None,
            },
            children_ring: seats.children_ring.map_or(0, |ring| ring.0),
            children: children?,
            relays: Vec::new(),
        })
    }

    /// Makes links available again whose time has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.manager.handle_timeout(now);
    }

    /// Returns when [`Seating::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.manager.poll_timeout()
    }

    /// Returns the tree of a group.
    pub fn tree(&self, group: GroupId) -> Option<&MulticastTree> {
        self.manager.tree(group)
    }

    /// Returns the underlying manager and its view of the network.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    pub(super) fn check(&self) {
        let uses: u32 = self.uses.values().sum();
        let members: usize = self.groups.values().map(BTreeSet::len).sum();
        assert_eq!(uses as usize, members, "uses of hosts are counted wrongly");
    }
}
