//! The multicast manager beside the sender (sections 3.1 and 3.4): who are the receivers, where is
//! their place, and how far each of them is.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::around::Around;
use super::config::Config;
use super::multicast_manager::{LinkReport, Manager, ManagerError, Patience, Placement};
use super::overlay;
use super::packet::{Packet, Place, Report, Seat};
use super::sites::Sites;
use super::topology::Vertex;
use super::tree::MulticastTree;
use crate::{GroupId, NodeId, Time};

/// The receivers of a stream and their places.
#[derive(Debug)]
pub(super) struct Placing {
    group: GroupId,
    manager: Manager,
    sites: Sites,
    receivers: BTreeMap<NodeId, Receiver>,
    /// The overlay children of the sender.
    children: Vec<NodeId>,
    /// When places are told again that were not taken.
    tell_at: Option<Time>,
}

/// A receiver as the sender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverState {
    /// The first packet for it.
    pub first: u64,
    /// The first packet that it lacks.
    pub next: u64,
    /// The number after the last packet that it expects.
    pub limit: u64,
    /// Packets that it got by the tree.
    pub by_tree: u64,
    /// Packets that it got as repairs.
    pub by_repair: u64,
    /// When it was left behind; `None` if the others wait for it.
    pub left_behind_at: Option<Time>,
    /// When it was heard last.
    pub heard_at: Time,
}

/// A receiver, and what it was told.
#[derive(Debug)]
struct Receiver {
    state: ReceiverState,
    /// Its place as it is to be told; `None` until the manager has given it one.
    place: Option<Place>,
    /// The epoch of the place that it has taken.
    taken: u32,
}

impl Placing {
    /// The receivers of the node's stream in a group: nobody yet.
    ///
    /// # Errors
    /// If the node is not where it could send.
    pub(super) fn new(around: &mut Around<'_>) -> Result<Self, ManagerError> {
        let (topology, mut sites) =
            Sites::of(&around.config.network, around.config.most_children());
        let nowhere = ManagerError::NoHost(Vertex(u32::MAX));
        let sender = sites.settle_sender(&around.config.network, around.node).ok_or(nowhere)?;
        let patience = Patience {
            retry_after: around.config.retry_link_after,
            settle: around.config.cut_after * 2,
        };
        let mut manager = Manager::new(topology, patience, around.rng.next_u64());
        manager.open(around.group, sender)?;
        Ok(Self {
            group: around.group,
            manager,
            sites,
            receivers: BTreeMap::new(),
            children: Vec::new(),
            tell_at: None,
        })
    }

    /// Nodes are in the group: they are receivers, who get what follows `first`.
    pub(super) fn join(&mut self, around: &mut Around<'_>, nodes: &[NodeId], first: u64) {
        let mut vertices = Vec::new();
        for node in nodes {
            let Some(vertex) = self.sites.settle(&around.config.network, *node) else {
                tracing::warn!(%node, group = %self.group, "no host of the topology: left out");
                continue;
            };
            // A node that it has displaced.
            self.manager.leave(self.group, vertex);
            vertices.push(vertex);
            let state = ReceiverState {
                first,
                next: first,
                limit: first,
                by_tree: 0,
                by_repair: 0,
                left_behind_at: None,
                heard_at: around.now,
            };
            let receiver = Receiver { state, place: None, taken: 0 };
            self.receivers.insert(*node, receiver);
        }
        if let Err(error) = self.manager.join_all(self.group, &vertices) {
            tracing::warn!(group = %self.group, %error, "a receiver was left out");
        }
        self.tell_changes(around);
    }

    /// A node has left the group.
    pub(super) fn leave(&mut self, around: &mut Around<'_>, node: NodeId) {
        if self.receivers.remove(&node).is_none() {
            return;
        }
        if let Some(vertex) = self.sites.host(node) {
            self.manager.leave(self.group, vertex);
        }
        self.sites.release(&around.config.network, node);
        self.tell_changes(around);
    }

    /// The others go on without a receiver; whether they waited for it until now.
    pub(super) fn leave_behind(&mut self, around: &mut Around<'_>, node: NodeId) -> bool {
        let Some(receiver) = self.receivers.get_mut(&node) else { return false };
        if receiver.state.left_behind_at.is_some() {
            return false;
        }
        receiver.state.left_behind_at = Some(around.now);
        receiver.place = None;
        if let Some(vertex) = self.sites.host(node) {
            self.manager.leave(self.group, vertex);
        }
        around.counters.left_behind += 1;
        self.tell_changes(around);
        true
    }

    /// The tree does not lead to those who were left behind: that somebody sends here they are told
    /// one by one, up to where. Who has no place asks for one then.
    pub(super) fn announce_to_left_behind(&self, around: &mut Around<'_>, end: u64) {
        let left = self.all().filter(|(_, state)| state.left_behind_at.is_some());
        for (node, _) in left {
            around.counters.announces_sent += 1;
            around.unicast(node, &Packet::Announce { end });
        }
    }

    /// A receiver that was left behind is a receiver again, of what follows `first`.
    pub(super) fn readmit(&mut self, around: &mut Around<'_>, node: NodeId, first: u64) {
        let Some(receiver) = self.receivers.get_mut(&node) else { return };
        receiver.state.left_behind_at = None;
        receiver.state.heard_at = around.now;
        receiver.state.first = first;
        receiver.state.next = receiver.state.next.max(first);
        if let Some(vertex) = self.sites.host(node)
            && let Err(error) = self.manager.join(self.group, vertex)
        {
            tracing::warn!(%node, group = %self.group, %error, "not taken in again");
        }
        around.counters.readmitted += 1;
        self.tell_changes(around);
    }

    /// A receiver reports. Whether it is one whom the others wait for.
    pub(super) fn on_report(&mut self, now: Time, node: NodeId, report: &Report) -> bool {
        let Some(receiver) = self.receivers.get_mut(&node) else { return false };
        let state = &mut receiver.state;
        if report.epoch == 0 {
            // It has no place. Who was told one and does not say that it has taken it is left
            // behind in time, and is given another one then.
            return state.left_behind_at.is_none();
        }
        state.heard_at = now;
        state.next = state.next.max(report.next);
        state.limit = report.limit;
        (state.by_tree, state.by_repair) = (report.by_tree, report.by_repair);
        receiver.taken = receiver.taken.max(report.epoch);
        state.left_behind_at.is_none()
    }

    /// The tree does not reach a receiver; whether links are believed dead now.
    pub(super) fn on_cut(&mut self, around: &mut Around<'_>, ring: u32, successor: NodeId) -> bool {
        let Some(successor) = self.sites.host(successor) else { return false };
        let report = LinkReport { group: self.group, ring: Vertex(ring), successor };
        let dead = self.manager.report(around.now, report);
        if !dead.is_empty() {
            tracing::info!(group = %self.group, links = dead.len(), "links are believed dead");
        }
        self.tell_changes(around);
        !dead.is_empty()
    }

    /// Tells all places that have changed.
    fn tell_changes(&mut self, around: &mut Around<'_>) {
        let mut changed = Vec::new();
        while let Some(placement) = self.manager.poll_placement() {
            changed.push(placement);
        }
        for placement in &changed {
            self.take_placement(placement);
        }
        if changed.is_empty() {
            return;
        }
        self.children = self.find_children();
        self.tell(around);
    }

    fn take_placement(&mut self, placement: &Placement) {
        let Some(node) = self.sites.node(placement.receiver) else { return };
        let place = placement.seats.as_ref().and_then(|seats| self.place(placement, seats));
        if let Some(receiver) = self.receivers.get_mut(&node) {
            receiver.place = place.map(|place| Place { first: receiver.state.first, ..place });
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
            receivers: self.receivers.len() as u32,
            leaf: seat(&seats.leaf)?,
            proxy: match &seats.proxy {
                Some(proxy) => Some(seat(proxy)?),
                None => None,
            },
            children_ring: seats.children_ring.map_or(0, |ring| ring.0),
            children: children?,
        })
    }

    fn find_children(&self) -> Vec<NodeId> {
        let Some(overlay) = self.manager.overlay(self.group) else { return Vec::new() };
        let sender = self.tree().sender();
        let ring = overlay.rings().values().find(|ring| ring.parent == sender);
        let members = ring.map_or(&[][..], |ring| &ring.members);
        members.iter().filter_map(|member| self.sites.node(member.proxy)).collect()
    }

    /// Tells places that were not taken yet.
    fn tell(&mut self, around: &mut Around<'_>) {
        let untaken = self.receivers.iter().filter_map(|(node, receiver)| {
            let place = receiver.place.as_ref().filter(|place| place.epoch > receiver.taken)?;
            Some((*node, place.clone()))
        });
        let untaken: Vec<(NodeId, Place)> = untaken.collect();
        self.tell_at = match untaken.is_empty() {
            true => None,
            false => Some(around.now + around.config.report_interval(untaken.len() as u32)),
        };
        for (node, place) in untaken {
            around.counters.places_sent += 1;
            around.unicast(node, &Packet::Place(place));
        }
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, around: &mut Around<'_>) {
        self.manager.handle_timeout(around.now);
        if self.tell_at.is_some_and(|at| at <= around.now) {
            self.tell(around);
        }
    }

    /// When [`Placing::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Time {
        let times = [self.tell_at, self.manager.poll_timeout()];
        times.into_iter().flatten().fold(Time::MAX, Time::min)
    }

    /// Whether all receivers have taken their places.
    pub(super) fn is_settled(&self) -> bool {
        self.waited_for().all(|(_, receiver)| {
            receiver.place.as_ref().is_none_or(|place| place.epoch <= receiver.taken)
        })
    }

    fn waited_for(&self) -> impl Iterator<Item = (NodeId, &Receiver)> {
        let waits = |it: &(&NodeId, &Receiver)| it.1.state.left_behind_at.is_none();
        self.receivers.iter().filter(waits).map(|(node, receiver)| (*node, receiver))
    }

    /// The receivers whom the others wait for.
    pub(super) fn current(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.waited_for().map(|(node, receiver)| (node, &receiver.state))
    }

    /// All receivers.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.receivers.iter().map(|(node, receiver)| (*node, &receiver.state))
    }

    /// One receiver.
    pub(super) fn receiver(&self, node: NodeId) -> Option<&ReceiverState> {
        self.receivers.get(&node).map(|receiver| &receiver.state)
    }

    /// The overlay children of the sender.
    pub(super) fn children(&self) -> &[NodeId] {
        &self.children
    }

    /// The multicast tree.
    pub(super) fn tree(&self) -> &MulticastTree {
        self.manager.tree(self.group).expect("the group was opened")
    }

    /// How often each receiver reports.
    pub(super) fn report_interval(&self, config: &Config) -> core::time::Duration {
        config.report_interval(self.receivers.len() as u32)
    }

    pub(super) fn check(&self) {
        for (node, receiver) in &self.receivers {
            let is_waited_for = receiver.state.left_behind_at.is_none();
            assert!(receiver.place.is_none() || is_waited_for, "{node} has a place and is out");
        }
    }
}
