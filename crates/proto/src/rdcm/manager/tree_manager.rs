//! Groups of hosts with their receivers, trees and overlays. All groups share the links that are
//! assumed to be dead (sections 3.1 and 3.4).

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use super::super::topology::{LinkId, Topology, Vertex};
use super::overlay::{Overlay, Seats};
use super::tree::MulticastTree;
use crate::{GroupId, Rng, Time, Timers};

/// The trees and overlays of all groups of one network, by host.
#[derive(Debug)]
pub struct TreeManager {
    topology: Topology,
    timing: LinkTiming,
    groups: BTreeMap<GroupId, ManagedGroup>,
    /// Links that receivers have reported as cut, until they are tried again.
    suspects: Timers<LinkId>,
    /// Links that were reported from outside as down.
    down: BTreeSet<LinkId>,
    rng: Rng,
    changed: BTreeSet<GroupId>,
    /// Groups whose trees may have changed since the last call of `pop_moved`, which is only called
    /// if trees are installed in the network.
    moved: Option<BTreeSet<GroupId>>,
}

/// State of a link, as reported by an operator or by the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The link carries packets.
    Up,
    /// The link carries no packets, or must not be used.
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkTiming {
    pub(crate) retry_after: Duration,
    /// Time after a rebuild of a tree for which reports are attributed to the former tree, longer
    /// than the time for which receivers observe the tree.
    pub(crate) settle: Duration,
}

#[derive(Debug)]
struct ManagedGroup {
    tree: MulticastTree,
    overlay: Overlay,
    seats: BTreeMap<Vertex, Seats>,
    epoch: u32,
    settled_at: Time,
    changed: BTreeSet<Vertex>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeatChange {
    pub(super) group: GroupId,
    pub(super) receiver: Vertex,
    /// Of two changes for the same receiver, the one with the higher epoch applies.
    pub(super) epoch: u32,
    pub(super) seats: Option<Seats>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkReport {
    pub(super) group: GroupId,
    pub(super) ring: Vertex,
    pub(super) successor: Vertex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ManagerError {
    #[error("the group has no sender")]
    NoGroup,
    #[error("the group already has a sender: {0}")]
    HasSender(Vertex),
    #[error("{0} is not a host of the topology")]
    NoHost(Vertex),
    #[error("{0} is the sender of the group")]
    IsSender(Vertex),
    /// The sender cannot reach the receiver, even over links that are assumed to be dead.
    #[error("there is no path from the sender to {0}")]
    NoPath(Vertex),
}

impl TreeManager {
    pub(super) fn new(topology: Topology, timing: LinkTiming, seed: u64) -> Self {
        Self {
            topology,
            timing,
            groups: BTreeMap::new(),
            suspects: Timers::new(),
            down: BTreeSet::new(),
            rng: Rng::new(seed),
            changed: BTreeSet::new(),
            moved: None,
        }
    }

    /// Returns the topology of the network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the links that are assumed to be dead, and those that were reported as down.
    pub fn dead_links(&self) -> BTreeSet<LinkId> {
        self.suspects.keys().chain(self.down.iter().copied()).collect()
    }

    /// Returns the links that were reported as down.
    pub fn down_links(&self) -> &BTreeSet<LinkId> {
        &self.down
    }

    /// Returns the tree of a group, or `None` if the group is not open.
    pub fn tree(&self, group: GroupId) -> Option<&MulticastTree> {
        self.groups.get(&group).map(|managed| &managed.tree)
    }

    #[cfg(test)]
    pub(super) fn overlay(&self, group: GroupId) -> Option<&Overlay> {
        self.groups.get(&group).map(|managed| &managed.overlay)
    }

    /// Opens a group. Its changes have epochs above `above`, the highest epoch of another manager.
    pub(super) fn open(
        &mut self,
        group: GroupId,
        sender: Vertex,
        above: u32,
    ) -> Result<(), ManagerError> {
        if !self.topology.is_host(sender) {
            return Err(ManagerError::NoHost(sender));
        }
        if let Some(managed) = self.groups.get(&group) {
            return Err(ManagerError::HasSender(managed.tree.sender()));
        }
        let managed = ManagedGroup {
            tree: MulticastTree::of_sender(sender),
            overlay: Overlay::default(),
            seats: BTreeMap::new(),
            epoch: above,
            settled_at: Time::ZERO,
            changed: BTreeSet::new(),
        };
        self.groups.insert(group, managed);
        Ok(())
    }

    pub(super) fn close(&mut self, group: GroupId) {
        self.groups.remove(&group);
        self.changed.remove(&group);
        self.note_moved(group);
    }

    fn note_moved(&mut self, group: GroupId) {
        if let Some(moved) = &mut self.moved {
            moved.insert(group);
        }
    }

    pub(super) fn track_moved(&mut self) {
        self.moved.get_or_insert_default();
    }

    pub(super) fn pop_moved(&mut self) -> Option<GroupId> {
        self.moved.as_mut()?.pop_first()
    }

    /// Adds receivers, except those that are rejected, and returns the first error.
    pub(super) fn join(
        &mut self,
        group: GroupId,
        receivers: &[Vertex],
    ) -> Result<(), ManagerError> {
        let dead = self.dead_links();
        let managed = self.groups.get_mut(&group).ok_or(ManagerError::NoGroup)?;
        let count = managed.tree.receivers().len();
        let mut add = |receiver| managed.add(&self.topology, &dead, receiver);
        let rejected: Vec<_> = receivers.iter().filter_map(|it| add(*it).err()).collect();
        let joined = managed.tree.receivers().len();
        if joined > 2 * count {
            // If most receivers are new, a new tree is better than an extended one.
            managed.rebuild(&self.topology, &dead);
        }
        if joined > count {
            self.rebuild_overlay(group);
        }
        rejected.into_iter().next().map_or(Ok(()), Err)
    }

    pub(super) fn leave(&mut self, group: GroupId, receiver: Vertex) -> bool {
        let Some(managed) = self.groups.get_mut(&group) else { return false };
        let was_receiver = managed.tree.prune(receiver);
        if was_receiver {
            self.rebuild_overlay(group);
        }
        was_receiver
    }

    /// Handles a report that a receiver gets everything by repair. One of the links from the
    /// branching vertex of its ring down to the next branching vertex, or to the receiver, must be
    /// dead. None of these links is used again for some time in any group. A link that is the only
    /// path to a receiver remains in use.
    ///
    /// Returns the links that are newly assumed to be dead. There are none if the tree has just
    /// been rebuilt, or if the ring does not contain the receiver.
    pub(super) fn report(&mut self, now: Time, report: LinkReport) -> Vec<LinkId> {
        if self.groups.get(&report.group).is_none_or(|managed| now < managed.settled_at) {
            return Vec::new();
        }
        let suspects = self.suspects(report);
        let fresh: Vec<LinkId> = suspects.into_iter().filter(|link| !self.is_dead(*link)).collect();
        for link in &fresh {
            self.suspects.set(*link, now + self.timing.retry_after);
        }
        self.avoid(now, &fresh);
        fresh
    }

    /// Returns the links one of which must be dead if a report is true.
    fn suspects(&self, report: LinkReport) -> Vec<LinkId> {
        let managed = self.groups.get(&report.group);
        managed.map_or_else(Vec::new, |it| it.suspects(report.ring, report.successor))
    }

    /// Returns the links on the path from the sender through the suspects of a report.
    pub(super) fn path(&self, report: LinkReport) -> Vec<LinkId> {
        let Some(managed) = self.groups.get(&report.group) else { return Vec::new() };
        let tree = &managed.tree;
        let above = core::iter::successors(tree.above(report.ring), |it| tree.above(it.vertex));
        let mut path = managed.suspects(report.ring, report.successor);
        path.extend(above.map(|it| it.link));
        path
    }

    fn is_dead(&self, link: LinkId) -> bool {
        self.suspects.is_set(link) || self.down.contains(&link)
    }

    /// Takes links that are down out of all trees. Links that are up become available again, also
    /// if receivers had reported them. Of the trees, only those change that use a dead link because
    /// there was no other path.
    pub(super) fn set_links(&mut self, now: Time, links: &[LinkId], state: LinkState) {
        match state {
            LinkState::Down => {
                self.down.extend(links);
                self.avoid(now, links);
            }
            LinkState::Up => {
                for link in links {
                    self.down.remove(link);
                    self.suspects.cancel(*link);
                }
                let dead: Vec<LinkId> = self.dead_links().into_iter().collect();
                self.avoid(now, &dead);
            }
        }
    }

    /// Returns the time for which reports can refer to a former state of the network.
    pub(super) fn settle(&self) -> Duration {
        self.timing.settle
    }

    fn avoid(&mut self, now: Time, links: &[LinkId]) {
        let dead = self.dead_links();
        let mut hit = Vec::new();
        for (group, managed) in &mut self.groups {
            if managed.tree.links().any(|link| links.contains(&link)) {
                managed.rebuild(&self.topology, &dead);
                managed.settled_at = now + self.timing.settle;
                hit.push(*group);
            }
        }
        for group in hit {
            self.rebuild_overlay(group);
        }
    }

    /// Makes links available again. Trees that avoid these links do not change.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while self.suspects.pop_due(now).is_some() {}
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.suspects.next_due()
    }

    pub(super) fn poll_change(&mut self) -> Option<SeatChange> {
        loop {
            let group = *self.changed.first()?;
            let managed = self.groups.get_mut(&group);
            if let Some(change) = managed.and_then(|managed| managed.pop_changed(group)) {
                return Some(change);
            }
            self.changed.remove(&group);
        }
    }

    fn rebuild_overlay(&mut self, group: GroupId) {
        if let Some(managed) = self.groups.get_mut(&group) {
            managed.rebuild_overlay(&mut self.rng);
            self.changed.insert(group);
            self.note_moved(group);
        }
    }
}

impl ManagedGroup {
    fn add(
        &mut self,
        topology: &Topology,
        dead: &BTreeSet<LinkId>,
        receiver: Vertex,
    ) -> Result<(), ManagerError> {
        if !topology.is_host(receiver) {
            return Err(ManagerError::NoHost(receiver));
        }
        if receiver == self.tree.sender() {
            return Err(ManagerError::IsSender(receiver));
        }
        if !self.tree.receivers().contains(&receiver) && !self.graft(topology, dead, receiver) {
            return Err(ManagerError::NoPath(receiver));
        }
        Ok(())
    }

    fn graft(&mut self, topology: &Topology, dead: &BTreeSet<LinkId>, receiver: Vertex) -> bool {
        self.tree.graft(topology, dead, receiver)
            || self.tree.graft(topology, &BTreeSet::new(), receiver)
    }

    fn rebuild(&mut self, topology: &Topology, dead: &BTreeSet<LinkId>) {
        let (sender, receivers) = (self.tree.sender(), self.tree.receivers());
        let (tree, unreached) = MulticastTree::shortest(topology, dead, sender, receivers);
        self.tree = tree;
        for receiver in unreached {
            let is_reached = self.graft(topology, dead, receiver);
            assert!(is_reached, "a receiver that was accepted can always be reached");
        }
    }

    fn suspects(&self, ring: Vertex, member: Vertex) -> Vec<LinkId> {
        let members = self.overlay.rings.get(&ring).map_or(&[][..], |ring| &ring.members);
        let Some(seat) = members.iter().find(|seat| seat.proxy == member) else {
            return Vec::new();
        };
        let mut links = Vec::new();
        let mut vertex = seat.branch;
        while vertex != ring
            && let Some(above) = self.tree.above(vertex)
        {
            links.push(above.link);
            let mut children = self.tree.children(vertex);
            match (children.next(), children.next()) {
                (Some(only), None) if !self.tree.receivers().contains(&vertex) => vertex = only,
                _ => break,
            }
        }
        links
    }

    fn rebuild_overlay(&mut self, rng: &mut Rng) {
        self.epoch += 1;
        self.overlay = Overlay::of_tree(&self.tree, Some(&self.overlay), rng);
        let seats = self.overlay.seats();
        for (receiver, seats) in &seats {
            if self.seats.get(receiver) != Some(seats) {
                self.changed.insert(*receiver);
            }
        }
        let gone = self.seats.keys().filter(|receiver| !seats.contains_key(receiver));
        self.changed.extend(gone);
        self.seats = seats;
    }

    fn pop_changed(&mut self, group: GroupId) -> Option<SeatChange> {
        let receiver = self.changed.pop_first()?;
        let seats = self.seats.get(&receiver).cloned();
        Some(SeatChange { group, receiver, epoch: self.epoch, seats })
    }
}

#[cfg(test)]
#[path = "tree_manager_tests.rs"]
mod tests;
