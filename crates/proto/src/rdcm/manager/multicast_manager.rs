use alloc::collections::{BTreeMap, BTreeSet};

use super::super::network::Network;
use super::super::packet::{Place, Seat};
use super::super::topology::Vertex;
use super::installer::{Installation, TreeChange, TreeInstaller, TreeLink, TreeMember, links_of};
use super::messages::PlaceChange;
use super::overlay;
use super::placement::{NodePlacement, Placed};
use super::tree_manager::{LinkReport, LinkTiming, ManagerError, SeatChange, TreeManager};
use crate::{GroupId, NodeId, Time};

#[derive(Debug)]
pub(crate) struct MulticastManager {
    pub(crate) trees: TreeManager,
    placement: NodePlacement,
    groups: BTreeMap<GroupId, BTreeSet<NodeId>>,
    uses: BTreeMap<NodeId, u32>,
    /// Receivers without hosts, until their senders are notified.
    unplaced: BTreeSet<(GroupId, NodeId)>,
    /// `None` if trees are not installed in the network.
    installer: Option<TreeInstaller>,
}

impl MulticastManager {
    pub(crate) fn new(
        network: &Network,
        most_children: usize,
        timing: LinkTiming,
        seed: u64,
    ) -> Self {
        let (topology, placement) = NodePlacement::new(network, most_children);
        let trees = TreeManager::new(topology, timing, seed);
        let (groups, uses) = (BTreeMap::new(), BTreeMap::new());
        Self { trees, placement, groups, uses, unplaced: BTreeSet::new(), installer: None }
    }

    /// Lets the driver install the trees in the network.
    pub(crate) fn install_trees(&mut self) {
        self.trees.track_moved();
        self.installer.get_or_insert_default();
    }

    /// Returns the next tree to be installed.
    pub(crate) fn poll_tree(&mut self, now: Time) -> Option<TreeChange> {
        self.pass_trees(now);
        self.installer.as_mut()?.poll(now)
    }

    /// Passes changed trees to the installer. A tree without receivers counts as closed, because a
    /// sender that reconnects opens its group before its receivers join.
    fn pass_trees(&mut self, now: Time) {
        let Some(installer) = &mut self.installer else { return };
        while let Some(group) = self.trees.pop_moved() {
            let placement = &self.placement;
            let member = |host: Vertex| Some(TreeMember { node: placement.node_at(host)?, host });
            let tree = self.trees.tree(group).filter(|tree| !tree.receivers().is_empty());
            match tree.and_then(|tree| Some((tree, member(tree.sender())?))) {
                Some((tree, sender)) => {
                    let receivers = tree.receivers().iter().filter_map(|it| member(*it)).collect();
                    installer.set(now, group, sender, receivers, tree);
                }
                None => installer.close(now, group),
            }
        }
    }

    /// Processes the end of the command that installed a tree. Returns `true` if it was running.
    pub(crate) fn on_installed(
        &mut self,
        now: Time,
        group: GroupId,
        result: Result<(), String>,
    ) -> bool {
        self.installer.as_mut().is_some_and(|installer| installer.on_result(now, group, result))
    }

    /// Leaves all trees installed: another process decides about them now.
    pub(crate) fn leave_trees(&mut self) {
        while self.trees.pop_moved().is_some() {}
        if let Some(installer) = &mut self.installer {
            installer.give_up();
        }
    }

    pub(crate) fn installations(&self) -> impl Iterator<Item = Installation<'_>> {
        self.installer.iter().flat_map(TreeInstaller::installations)
    }

    /// Returns `true` if the driver installs the trees in the network.
    pub(crate) fn installs_trees(&self) -> bool {
        self.installer.is_some()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let installer = self.installer.as_ref().and_then(TreeInstaller::poll_timeout);
        self.trees.poll_timeout().into_iter().chain(installer).min()
    }

    pub(crate) fn open(
        &mut self,
        network: &Network,
        group: GroupId,
        sender: NodeId,
        above: u32,
    ) -> Result<(), ManagerError> {
        let nowhere = ManagerError::NoHost(Vertex(u32::MAX));
        let placed = self.placement.place_sender(network, sender).ok_or(nowhere)?;
        self.vacate(placed);
        self.trees.open(group, placed.vertex, above)?;
        self.groups.insert(group, BTreeSet::new());
        self.add(group, sender);
        Ok(())
    }

    /// Removes a host from the trees of the node that was displaced from it.
    fn vacate(&mut self, Placed { vertex, displaced }: Placed) {
        if let Some(former) = displaced {
            self.remove_from_trees(former, vertex);
        }
    }

    /// Removes the host that a node has lost from the trees of the node's groups, which it returns.
    fn remove_from_trees(&mut self, node: NodeId, host: Vertex) -> Vec<GroupId> {
        let groups = self.groups.iter().filter(|(_, nodes)| nodes.contains(&node));
        let groups: Vec<GroupId> = groups.map(|(group, _)| *group).collect();
        for group in &groups {
            self.trees.leave(*group, host);
            self.unplaced.insert((*group, node));
        }
        groups
    }

    /// Places a receiver. If it has moved to another host, it moves in the trees of all its groups.
    fn place(&mut self, network: &Network, node: NodeId) -> Option<Vertex> {
        let former = self.placement.leave_former_host(network, node);
        let groups = former.map_or_else(Vec::new, |host| self.remove_from_trees(node, host));
        let placed = self.placement.place(network, node)?;
        self.vacate(placed);
        for group in groups {
            self.join_trees(group, &[placed.vertex]);
        }
        Some(placed.vertex)
    }

    fn join_trees(&mut self, group: GroupId, hosts: &[Vertex]) {
        if let Err(error) = self.trees.join(group, hosts) {
            tracing::warn!(%group, %error, "some receivers were not placed");
        }
    }

    fn add(&mut self, group: GroupId, node: NodeId) {
        if self.groups.get_mut(&group).is_some_and(|nodes| nodes.insert(node)) {
            *self.uses.entry(node).or_default() += 1;
        }
    }

    fn remove(&mut self, network: &Network, node: NodeId) {
        let Some(uses) = self.uses.get_mut(&node) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(&node);
            self.placement.release(network, node);
        }
    }

    pub(crate) fn close(&mut self, network: &Network, group: GroupId) -> Vec<NodeId> {
        self.trees.close(group);
        let nodes = self.groups.remove(&group).unwrap_or_default();
        self.unplaced.retain(|(unplaced_in, _)| *unplaced_in != group);
        nodes.iter().for_each(|node| self.remove(network, *node));
        nodes.into_iter().collect()
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.uses.contains_key(&node)
    }

    pub(crate) fn join(&mut self, network: &Network, group: GroupId, nodes: &[NodeId]) {
        let mut vertices = Vec::new();
        for node in nodes {
            if !self.groups.contains_key(&group) {
                return;
            }
            let Some(vertex) = self.place(network, *node) else {
                tracing::warn!(%node, %group, "the topology has no host for the receiver");
                self.unplaced.insert((group, *node));
                continue;
            };
            self.add(group, *node);
            vertices.push(vertex);
        }
        self.join_trees(group, &vertices);
    }

    pub(crate) fn leave(&mut self, network: &Network, group: GroupId, node: NodeId) {
        if let Some(vertex) = self.placement.host_of(node) {
            self.trees.leave(group, vertex);
        }
        self.unplaced.remove(&(group, node));
        if self.groups.get_mut(&group).is_some_and(|nodes| nodes.remove(&node)) {
            self.remove(network, node);
        }
    }

    pub(crate) fn report(
        &mut self,
        now: Time,
        group: GroupId,
        ring: u32,
        successor: NodeId,
    ) -> usize {
        let Some(successor) = self.placement.host_of(successor) else { return 0 };
        let report = LinkReport { group, ring: Vertex(ring), successor };
        if self.is_installing(now, report) {
            return 0;
        }
        let dead = self.trees.report(now, report);
        if !dead.is_empty() {
            tracing::info!(%group, links = dead.len(), "links are assumed to be dead");
        }
        dead.len()
    }

    /// Returns `true` if receivers may miss the tree only because the network does not carry all
    /// links of their path yet. A reported link that a former tree had too may have lost the links
    /// above it.
    fn is_installing(&mut self, now: Time, report: LinkReport) -> bool {
        self.pass_trees(now);
        let group = report.group;
        let (Some(installer), Some(tree)) = (&self.installer, self.trees.tree(group)) else {
            return false;
        };
        let path = self.trees.path(report);
        let links = links_of(tree).into_iter().filter(|it| path.contains(&it.link));
        let links: Vec<TreeLink> = links.collect();
        installer.is_installing(now, group, &links, self.trees.settle())
    }

    pub(crate) fn poll(&mut self) -> Option<PlaceChange> {
        while let Some((group, receiver)) = self.unplaced.pop_first() {
            // A node that has got another host has another place.
            if self.placement.host_of(receiver).is_none() {
                return Some(PlaceChange { group, receiver, place: None });
            }
        }
        loop {
            let change = self.trees.poll_change()?;
            let node = self.placement.node_at(change.receiver);
            // A node that is gone needs no place, and another node may be on its host.
            if let Some(receiver) = node.filter(|node| self.is_member(change.group, *node)) {
                let place = self.place_of(&change);
                return Some(PlaceChange { group: change.group, receiver, place });
            }
        }
    }

    fn is_member(&self, group: GroupId, node: NodeId) -> bool {
        self.groups.get(&group).is_some_and(|nodes| nodes.contains(&node))
    }

    fn place_of(&self, change: &SeatChange) -> Option<Place> {
        let seats = change.seats.as_ref()?;
        let seat = |seat: &overlay::Seat| {
            Some(Seat {
                ring: seat.ring.0,
                predecessor: self.placement.node_at(seat.predecessor)?,
                successor: self.placement.node_at(seat.successor)?,
                parent: self.placement.node_at(seat.parent)?,
            })
        };
        let children: Option<Vec<NodeId>> =
            seats.children.iter().map(|child| self.placement.node_at(*child)).collect();
        Some(Place {
            epoch: change.epoch,
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

    #[cfg(test)]
    fn receivers(&self, group: GroupId) -> Vec<NodeId> {
        let tree = self.trees.tree(group).into_iter();
        tree.flat_map(|it| it.receivers()).filter_map(|it| self.placement.node_at(*it)).collect()
    }

    pub(super) fn check(&self) {
        let uses: u32 = self.uses.values().sum();
        let members: usize = self.groups.values().map(BTreeSet::len).sum();
        assert_eq!(uses as usize, members, "the uses of hosts were miscounted");
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::super::network::Hosts;
    use super::super::super::topology::Topology;
    use super::*;

    const GROUPS: [GroupId; 2] = [GroupId(1), GroupId(2)];
    const TIMING: LinkTiming =
        LinkTiming { retry_after: Duration::from_secs(30), settle: Duration::from_millis(400) };

    /// Nodes 5 and 9 are on the same host.
    fn manager() -> (Network, MulticastManager) {
        let topology = Topology::racks(&[2, 2]).expect("racks");
        let hosts = [(1, 0), (2, 1), (3, 2), (5, 3), (9, 3)];
        let hosts = hosts.into_iter().map(|(node, host)| (NodeId(node), Vertex(host))).collect();
        let network = Network::Known { topology: topology.into(), hosts };
        let mut manager = MulticastManager::new(&network, 100, TIMING, 1);
        for (group, sender) in GROUPS.into_iter().zip([1, 2]) {
            manager.open(&network, group, NodeId(sender), 0).expect("a host");
            manager.join(&network, group, &[NodeId(3), NodeId(5)]);
        }
        (network, manager)
    }

    /// Returns the changed receivers, with `true` for those that have a place.
    fn changes(manager: &mut MulticastManager) -> Vec<(GroupId, NodeId, bool)> {
        let changes = core::iter::from_fn(|| manager.poll());
        changes.map(|it| (it.group, it.receiver, it.place.is_some())).collect()
    }

    #[test]
    fn displaced_receiver_loses_its_place_in_all_groups() {
        let (network, mut manager) = manager();
        while manager.poll().is_some() {}
        manager.join(&network, GROUPS[0], &[NodeId(9)]);
        let receivers = GROUPS.map(|group| manager.receivers(group));
        assert_eq!(receivers, [vec![NodeId(3), NodeId(9)], vec![NodeId(3)]]);
        let [one, two] = GROUPS;
        let lost = [(one, NodeId(5), false), (two, NodeId(5), false)];
        let placed = [(one, NodeId(3), true), (one, NodeId(9), true), (two, NodeId(3), true)];
        assert_eq!(changes(&mut manager), [&lost[..], &placed].concat());
        // The displaced node gets the host back, and the other one loses it.
        manager.join(&network, GROUPS[0], &[NodeId(5)]);
        assert_eq!(changes(&mut manager)[0], (one, NodeId(9), false));
        manager.check();
    }

    #[test]
    fn moved_receiver_moves_in_the_trees_of_all_groups() {
        let at = |last| crate::Endpoint(([10, 0, 0, last], 7400).into());
        let mut hosts = Hosts::default();
        (1..=4).for_each(|it| hosts.place_address(at(it).0.ip(), None, Vertex(u32::from(it) - 1)));
        (1..=3).for_each(|it| hosts.node_up(NodeId(it.into()), at(it)));
        let topology = Topology::racks(&[2, 2]).expect("racks");
        let mut network = Network::Known { topology: topology.into(), hosts };
        let mut manager = MulticastManager::new(&network, 100, TIMING, 1);
        for (group, sender) in GROUPS.into_iter().zip([1, 2]) {
            manager.open(&network, group, NodeId(sender), 0).expect("a host");
            manager.join(&network, group, &[NodeId(3)]);
        }
        while manager.poll().is_some() {}
        network.node_up(NodeId(3), at(4));
        manager.join(&network, GROUPS[0], &[NodeId(3)]);
        let hosts = GROUPS.map(|group| manager.trees.tree(group).expect("open").receivers());
        assert_eq!(hosts, [&BTreeSet::from([Vertex(3)]); 2]);
        assert_eq!(changes(&mut manager), GROUPS.map(|group| (group, NodeId(3), true)));
        // The topology has no host at this address.
        network.node_up(NodeId(3), at(9));
        manager.join(&network, GROUPS[0], &[NodeId(3)]);
        assert_eq!(changes(&mut manager), GROUPS.map(|group| (group, NodeId(3), false)));
        manager.check();
    }

    #[test]
    fn receiver_displaced_by_a_sender_is_removed_from_all_trees() {
        let (network, mut manager) = manager();
        manager.close(&network, GROUPS[1]);
        manager.open(&network, GROUPS[1], NodeId(9), 0).expect("a host");
        assert_eq!(manager.receivers(GROUPS[0]), [NodeId(3)]);
        assert!(changes(&mut manager).contains(&(GROUPS[0], NodeId(5), false)));
        // A later departure of the displaced node changes nothing for the node on its host.
        manager.leave(&network, GROUPS[0], NodeId(5));
        manager.join(&network, GROUPS[1], &[NodeId(3)]);
        assert_eq!(manager.receivers(GROUPS[1]), [NodeId(3)]);
        manager.check();
    }
}
