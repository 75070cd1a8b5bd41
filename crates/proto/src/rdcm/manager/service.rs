//! The multicast manager in the registry (section 3.1), which serves all senders of a network.

use alloc::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use super::super::limits::MAX_PORTS;
use super::super::network::Network;
use super::super::topology::Vertex;
use super::messages::{Answer, Command, MAX_PLACES, PlaceChange, Refusal, Request};
use super::multicast_manager::MulticastManager;
use super::tree_manager::{LinkTiming, ManagerError, TreeManager};
use crate::{Endpoint, GroupId, NodeId, Time};

/// The multicast manager of a network for remote senders.
#[derive(Debug)]
pub struct ManagerService {
    network: Network,
    manager: MulticastManager,
    ports: usize,
    senders: BTreeMap<GroupId, Sender>,
    answers: VecDeque<(NodeId, Answer)>,
    counters: ManagerCounters,
}

#[derive(Clone, Copy, Debug)]
struct Sender {
    node: NodeId,
    opening: u32,
    number: u32,
}

crate::counters! {
    /// Counters of the multicast manager in the registry.
    #[allow(missing_docs, reason = "the names say what is counted")]
    pub struct ManagerCounters {
        requests = "manager_requests",
        requests_malformed = "manager_requests_malformed",
        requests_late = "manager_requests_late",
        refused = "manager_refused",
        placed = "manager_placed",
        cuts = "manager_cuts",
        links_found_dead = "manager_links_found_dead",
    }
}

impl ManagerService {
    /// Creates the manager of a network, which draws all random values from `seed`.
    pub fn new(network: Network, seed: u64) -> Self {
        let manager = MulticastManager::new(&network, MAX_PORTS, TIMING, seed);
        let topology = manager.trees.topology();
        let vertices = (0..topology.len() as u32).map(Vertex);
        let ports = vertices.map(|it| topology.neighbours(it).len()).max().unwrap_or(0);
        let (senders, answers) = (BTreeMap::new(), VecDeque::new());
        Self { network, manager, ports, senders, answers, counters: ManagerCounters::default() }
    }

    /// Handles a request of the node `from`, which is reachable at `endpoint`.
    pub fn handle(&mut self, now: Time, from: NodeId, endpoint: Endpoint, request: &[u8]) {
        self.counters.requests += 1;
        let Ok(request) = Request::decode(request) else {
            self.counters.requests_malformed += 1;
            return;
        };
        let Request { group, opening, number, command } = request;
        let requester = Sender { node: from, opening, number };
        if let Command::Open { above, most_children } = command {
            self.network.node_up(from, endpoint);
            match self.open(group, requester, above, most_children) {
                Ok(()) => self.answer(group),
                Err(refusal) => self.refuse(group, requester, refusal),
            }
            self.forget_unused(&[from]);
            return;
        }
        let sender = self.senders.get_mut(&group);
        let Some(sender) = sender.filter(|it| it.node == from && it.opening == opening) else {
            self.counters.requests_late += 1;
            if command != Command::Close {
                self.refuse(group, requester, Refusal::Unknown);
            }
            return;
        };
        sender.number = number;
        match command {
            Command::Open { .. } => {}
            Command::Join(nodes) => {
                nodes.iter().for_each(|(node, endpoint)| self.network.node_up(*node, *endpoint));
                let nodes: Vec<NodeId> = nodes.into_iter().map(|(node, _)| node).collect();
                self.manager.join(&self.network, group, &nodes);
                self.forget_unused(&nodes);
            }
            Command::Leave(node) => {
                self.manager.leave(&self.network, group, node);
                self.forget_unused(&[node]);
            }
            Command::Cut { ring, successor } => {
                self.counters.cuts += 1;
                let dead = self.manager.report(now, group, ring, successor);
                self.counters.links_found_dead += dead as u64;
            }
            Command::Close => {
                self.close(group);
                return;
            }
        }
        self.answer(group);
    }

    fn open(
        &mut self,
        group: GroupId,
        sender: Sender,
        above: u32,
        most_children: u16,
    ) -> Result<(), Refusal> {
        if self.ports > usize::from(most_children) {
            return Err(Refusal::Ports);
        }
        match self.senders.get(&group) {
            Some(other) if other.node != sender.node => return Err(Refusal::HasSender),
            Some(_) => self.close(group),
            None if self.senders.len() >= MAX_GROUPS => return Err(Refusal::Full),
            None => {}
        }
        match self.manager.open(&self.network, group, sender.node, above) {
            Ok(()) => {}
            Err(ManagerError::HasSender(_)) => return Err(Refusal::HasSender),
            Err(_) => return Err(Refusal::NoHost),
        }
        self.senders.insert(group, sender);
        Ok(())
    }

    fn close(&mut self, group: GroupId) {
        self.senders.remove(&group);
        let nodes = self.manager.close(&self.network, group);
        self.forget_unused(&nodes);
    }

    fn forget_unused(&mut self, nodes: &[NodeId]) {
        for node in nodes.iter().filter(|node| !self.manager.contains(**node)) {
            self.network.node_down(*node);
        }
    }

    /// Closes the groups of a sender that is gone or disconnected.
    pub fn forget(&mut self, node: NodeId) {
        let groups = self.senders.iter().filter(|(_, sender)| sender.node == node);
        let groups: Vec<GroupId> = groups.map(|(group, _)| *group).collect();
        groups.into_iter().for_each(|group| self.close(group));
        self.answers.retain(|(to, _)| *to != node);
    }

    /// Closes all groups and refuses their senders: this process no longer runs the manager.
    pub fn give_up(&mut self) {
        let senders: Vec<(GroupId, Sender)> =
            self.senders.iter().map(|(group, sender)| (*group, *sender)).collect();
        for (group, sender) in senders {
            self.close(group);
            self.refuse(group, sender, Refusal::NoManager);
        }
    }

    fn refuse(&mut self, group: GroupId, sender: Sender, refusal: Refusal) {
        self.counters.refused += 1;
        let Sender { node, opening, number } = sender;
        let answer = Answer { group, opening, number, result: Err(refusal) };
        self.answers.push_back((node, answer));
    }

    fn answer(&mut self, requester: GroupId) {
        let mut placed: BTreeMap<GroupId, Vec<PlaceChange>> = BTreeMap::new();
        placed.insert(requester, Vec::new());
        while let Some(change) = self.manager.poll() {
            placed.entry(change.group).or_default().push(change);
        }
        for (group, places) in placed {
            self.counters.placed += places.len() as u64;
            let Some(Sender { node, opening, number }) = self.senders.get(&group).copied() else {
                continue;
            };
            let mut parts: Vec<Vec<PlaceChange>> =
                places.chunks(MAX_PLACES).map(<[PlaceChange]>::to_vec).collect();
            if parts.is_empty() {
                parts.push(Vec::new());
            }
            let last = parts.len() - 1;
            for (part, places) in parts.into_iter().enumerate() {
                // Only the last part confirms the request.
                let number = if part == last { number } else { number.wrapping_sub(1) };
                let answer = Answer { group, opening, number, result: Ok(places) };
                self.answers.push_back((node, answer));
            }
        }
    }

    /// Returns the next encoded answer and its destination, or `None` if there is none.
    pub fn poll_answer(&mut self) -> Option<(NodeId, Vec<u8>)> {
        self.answers.pop_front().map(|(to, answer)| (to, answer.encode()))
    }

    /// Handles the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.manager.trees.handle_timeout(now);
    }

    /// Returns the time of the next required call to [`ManagerService::handle_timeout`], or `None`
    /// if no timer is set.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.manager.trees.poll_timeout()
    }

    /// Returns the trees of all groups, with the network and the links that are assumed to be dead.
    pub fn trees(&self) -> &TreeManager {
        &self.manager.trees
    }

    /// Returns the open groups and their senders.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, NodeId)> {
        self.senders.iter().map(|(group, sender)| (*group, sender.node))
    }

    /// Returns the counters of the manager.
    pub fn counters(&self) -> ManagerCounters {
        self.counters
    }

    /// Asserts the manager's invariants.
    ///
    /// # Panics
    /// Panics if an invariant is broken, which is a bug.
    pub fn check(&self) {
        self.manager.check();
        for group in self.senders.keys() {
            assert!(self.manager.trees.tree(*group).is_some(), "{group} is open but has no tree");
        }
    }
}

/// `settle` is twice the time for which receivers observe the tree. `retry_after` is the default of
/// senders. See [`Config`](super::super::Config).
const TIMING: LinkTiming =
    LinkTiming { retry_after: Duration::from_secs(30), settle: Duration::from_millis(400) };
const MAX_GROUPS: usize = 4096;

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
