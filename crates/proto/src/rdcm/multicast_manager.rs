//! The multicast manager (sections 3.1 and 3.4): who is in which group, its tree, its overlay, and
//! the links that are believed dead, which all groups share.
//!
//! It says what has changed as [`Placement`]s, one for each receiver that has another place than
//! before. Messages to and from it are not its business: it runs in the membership service as well
//! as beside a sender that has none.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use super::overlay::{Overlay, Seats};
use super::topology::{LinkId, Topology, Vertex};
use super::tree::MulticastTree;
use crate::{GroupId, Rng, Time, Timers};

/// The manager of all groups of one network.
#[derive(Debug)]
pub struct Manager {
    topology: Topology,
    patience: Patience,
    groups: BTreeMap<GroupId, Managed>,
    /// The links that are believed dead, and when each is tried again.
    dead: Timers<LinkId>,
    rng: Rng,
    changed: BTreeSet<GroupId>,
}

/// For how long what was reported holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After this time a link that is believed dead is used again.
    pub retry_after: Duration,
    /// For this time after a tree was built anew reports on its links are taken to be about the
    /// former one. It should be somewhat longer than receivers look at the tree before they report.
    pub settle: Duration,
}

/// A group.
#[derive(Debug)]
struct Managed {
    receivers: BTreeSet<Vertex>,
    tree: MulticastTree,
    overlay: Overlay,
    seats: BTreeMap<Vertex, Seats>,
    /// Counts what the tree and the overlay have been.
    epoch: u32,
    /// Until when reports are taken to be about a former tree.
    settled_at: Time,
    /// Receivers whose place is another than they were told.
    untold: BTreeSet<Vertex>,
}

/// The place of a receiver in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The group.
    pub group: GroupId,
    /// Whose place it is.
    pub receiver: Vertex,
    /// How often the group's overlay had changed: of two placements of a receiver that of the
    /// higher epoch holds.
    pub epoch: u32,
    /// The sender.
    pub sender: Vertex,
    /// Its place; `None` if it is no receiver any more.
    pub seats: Option<Seats>,
}

/// A receiver that gets everything by repair, as its predecessor reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// The group.
    pub group: GroupId,
    /// The ring that both are in, by its tree parent.
    pub ring: Vertex,
    /// Whom the tree does not reach.
    pub successor: Vertex,
}

/// Why the manager does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagerError {
    /// No such group was opened.
    #[error("there is no sender in this group")]
    NoGroup,
    /// The group has a sender already.
    #[error("the group has a sender already: {0}")]
    HasSender(Vertex),
    /// It is not a host of the topology.
    #[error("{0} is no host of the topology")]
    NoHost(Vertex),
    /// The sender of a group cannot be a receiver in it.
    #[error("{0} is the sender of the group")]
    IsSender(Vertex),
    /// There is no way from the sender, dead links or not.
    #[error("there is no way from the sender to {0}")]
    NoWay(Vertex),
}

impl Manager {
    /// The manager of a network.
    pub fn new(topology: Topology, patience: Patience, seed: u64) -> Self {
        Self {
            topology,
            patience,
            groups: BTreeMap::new(),
            dead: Timers::new(),
            rng: Rng::new(seed),
            changed: BTreeSet::new(),
        }
    }

    /// The network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The links that are believed dead.
    pub fn dead_links(&self) -> BTreeSet<LinkId> {
        self.dead.keys().collect()
    }

    /// The tree of a group.
    pub fn tree(&self, group: GroupId) -> Option<&MulticastTree> {
        self.groups.get(&group).map(|managed| &managed.tree)
    }

    /// The overlay of a group.
    pub fn overlay(&self, group: GroupId) -> Option<&Overlay> {
        self.groups.get(&group).map(|managed| &managed.overlay)
    }

    /// Opens a group for a sender. Placements have epochs above `above`, which was told before by
    /// another manager; 0 if none was.
    ///
    /// # Errors
    /// If it is no host, or the group has a sender.
    pub fn open(&mut self, group: GroupId, sender: Vertex, above: u32) -> Result<(), ManagerError> {
        if !self.topology.is_host(sender) {
            return Err(ManagerError::NoHost(sender));
        }
        if let Some(managed) = self.groups.get(&group) {
            return Err(ManagerError::HasSender(managed.tree.sender()));
        }
        let managed = Managed {
            receivers: BTreeSet::new(),
            tree: MulticastTree::of_sender(sender),
            overlay: Overlay::default(),
            seats: BTreeMap::new(),
            epoch: above,
            settled_at: Time::ZERO,
            untold: BTreeSet::new(),
        };
        self.groups.insert(group, managed);
        Ok(())
    }

    /// Forgets a group; nobody is told.
    pub fn close(&mut self, group: GroupId) {
        self.groups.remove(&group);
        self.changed.remove(&group);
    }

    /// Takes a receiver in by the shortest way from the tree as it is. One that is in already
    /// stays.
    ///
    /// # Errors
    /// If there is no such group, host or way.
    pub fn join(&mut self, group: GroupId, receiver: Vertex) -> Result<(), ManagerError> {
        self.join_all(group, &[receiver])
    }

    /// Takes receivers in; the overlay changes once. If they are more than there were, the tree is
    /// built anew.
    ///
    /// # Errors
    /// As [`Manager::join`], of the first one that is not taken in. All others are in.
    pub fn join_all(&mut self, group: GroupId, receivers: &[Vertex]) -> Result<(), ManagerError> {
        let dead = self.dead_links();
        let managed = self.groups.get_mut(&group).ok_or(ManagerError::NoGroup)?;
        let count = managed.receivers.len();
        let mut take_in = |receiver| managed.take_in(&self.topology, &dead, receiver);
        let refused: Vec<_> = receivers.iter().filter_map(|it| take_in(*it).err()).collect();
        if managed.receivers.len() > 2 * count {
            // Most of the group is new: a tree for all of them is better than one that grew.
            managed.rebuild(&self.topology, &dead);
        }
        if managed.receivers.len() > count {
            self.place(group);
        }
        refused.into_iter().next().map_or(Ok(()), Err)
    }

    /// Takes out a receiver that has left, or that is reported to be gone. Whether it was one.
    pub fn leave(&mut self, group: GroupId, receiver: Vertex) -> bool {
        let Some(managed) = self.groups.get_mut(&group) else { return false };
        if !managed.receivers.remove(&receiver) {
            return false;
        }
        managed.tree.prune(receiver);
        self.place(group);
        true
    }

    /// A receiver gets everything by repair. One of the links between the branching of its ring and
    /// the next branching below, or the receiver, must be dead: none of them is used again for some
    /// time, in no group. A link that is the only way to somebody stays in use.
    ///
    /// Returns the links that are believed dead now and were not before; none if the report is of
    /// a former tree, or of a ring in which the receiver is not.
    pub fn report(&mut self, now: Time, report: LinkReport) -> Vec<LinkId> {
        let Some(managed) = self.groups.get(&report.group) else { return Vec::new() };
        if now < managed.settled_at {
            return Vec::new();
        }
        let suspects = managed.suspects(report.ring, report.successor);
        let fresh: Vec<LinkId> =
            suspects.into_iter().filter(|link| !self.dead.is_set(*link)).collect();
        for link in &fresh {
            self.dead.set(*link, now + self.patience.retry_after);
        }
        self.avoid(now, &fresh);
        fresh
    }

    /// Builds the trees anew that go over one of these links.
    fn avoid(&mut self, now: Time, links: &[LinkId]) {
        let dead = self.dead_links();
        let mut hit = Vec::new();
        for (group, managed) in &mut self.groups {
            if managed.tree.links().any(|link| links.contains(&link)) {
                managed.rebuild(&self.topology, &dead);
                managed.settled_at = now + self.patience.settle;
                hit.push(*group);
            }
        }
        for group in hit {
            self.place(group);
        }
    }

    /// Gives links another chance whose time has come. Trees that do without them stay as they are:
    /// the links serve those that are built from now on.
    pub fn handle_timeout(&mut self, now: Time) {
        while self.dead.pop_due(now).is_some() {}
    }

    /// When [`Manager::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.dead.next_due()
    }

    /// A place that has changed and was not told yet.
    pub fn poll_placement(&mut self) -> Option<Placement> {
        loop {
            let group = *self.changed.first()?;
            let untold = self.groups.get_mut(&group);
            let Some(placement) = untold.and_then(|managed| managed.pop_untold(group)) else {
                self.changed.remove(&group);
                continue;
            };
            return Some(placement);
        }
    }

    /// Builds the overlay of a group whose tree has changed.
    fn place(&mut self, group: GroupId) {
        if let Some(managed) = self.groups.get_mut(&group) {
            managed.place(&mut self.rng);
            self.changed.insert(group);
        }
    }
}

impl Managed {
    fn take_in(
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
        if self.receivers.contains(&receiver) {
            return Ok(());
        }
        if !self.graft(topology, dead, receiver) {
            return Err(ManagerError::NoWay(receiver));
        }
        self.receivers.insert(receiver);
        Ok(())
    }

    /// Lets the tree reach a receiver, over a dead link only where there is no other way.
    fn graft(&mut self, topology: &Topology, dead: &BTreeSet<LinkId>, receiver: Vertex) -> bool {
        self.tree.graft(topology, dead, receiver)
            || self.tree.graft(topology, &BTreeSet::new(), receiver)
    }

    fn rebuild(&mut self, topology: &Topology, dead: &BTreeSet<LinkId>) {
        let sender = self.tree.sender();
        let (tree, unreached) = MulticastTree::shortest(topology, dead, sender, &self.receivers);
        self.tree = tree;
        for receiver in unreached {
            let is_reached = self.graft(topology, dead, receiver);
            assert!(is_reached, "who was let in has a way, dead links or not");
        }
    }

    /// The links between the branching of a ring and the next one on the way to its member, or the
    /// member.
    fn suspects(&self, ring: Vertex, member: Vertex) -> Vec<LinkId> {
        let members = self.overlay.rings().get(&ring).map_or(&[][..], |ring| &ring.members);
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

    fn place(&mut self, rng: &mut Rng) {
        self.epoch += 1;
        self.overlay = Overlay::of_tree(&self.tree, Some(&self.overlay), rng);
        let seats = self.overlay.seats();
        for (receiver, seats) in &seats {
            if self.seats.get(receiver) != Some(seats) {
                self.untold.insert(*receiver);
            }
        }
        let gone = self.seats.keys().filter(|receiver| !seats.contains_key(receiver));
        self.untold.extend(gone);
        self.seats = seats;
    }

    fn pop_untold(&mut self, group: GroupId) -> Option<Placement> {
        let receiver = self.untold.pop_first()?;
        let seats = self.seats.get(&receiver).cloned();
        Some(Placement { group, receiver, epoch: self.epoch, sender: self.tree.sender(), seats })
    }
}

#[cfg(test)]
#[path = "multicast_manager_tests.rs"]
mod tests;
