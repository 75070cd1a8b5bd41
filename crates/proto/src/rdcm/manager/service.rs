//! The multicast manager in the registry (section 3.1), which serves all senders of a network.

use alloc::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use super::super::limits::MAX_PORTS;
use super::super::network::Network;
use super::super::topology::{UnknownName, Vertex};
use super::installer::{Installation, TreeChange};
use super::messages::{Answer, Command, MAX_PLACES, PlaceChange, Refusal, Request};
use super::multicast_manager::MulticastManager;
use super::tree_manager::{LinkState, LinkTiming, ManagerError, TreeManager};
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
        links_reported = "manager_links_reported",
        trees_installed = "manager_trees_installed",
        trees_not_installed = "manager_trees_not_installed",
    }
}

/// Reason why a report on a link has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkReportError {
    /// The topology has no switch, rack or host with this name.
    #[error("the topology has no switch, rack or host '{0}'")]
    Unknown(String),
    /// The topology has no link between the two.
    #[error("the topology has no link between '{0}' and '{1}'")]
    NotLinked(String, String),
}

impl LinkReportError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "use a name of the topology file",
            Self::NotLinked(..) => "use the two ends of one link of the topology file",
        }
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
                Ok(()) => self.answer(Some(group)),
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
        self.answer(Some(group));
    }

    /// Applies a report on the links between two switches, racks or hosts, given by the names of
    /// the topology. Links that are down are taken out of all trees at once, for as long as they
    /// are not reported as up. Returns the number of links.
    ///
    /// # Errors
    /// Returns the reason if there are no such links.
    pub fn report_link(
        &mut self,
        now: Time,
        [a, b]: [&str; 2],
        state: LinkState,
    ) -> Result<usize, LinkReportError> {
        let found = self.manager.trees.topology().links_between(a, b);
        let links = found.map_err(|UnknownName(name)| LinkReportError::Unknown(name))?;
        if links.is_empty() {
            return Err(LinkReportError::NotLinked(a.to_owned(), b.to_owned()));
        }
        self.counters.links_reported += links.len() as u64;
        tracing::info!(%a, %b, ?state, "a link was reported");
        self.manager.trees.set_links(now, &links, state);
        self.answer(None);
        Ok(links.len())
    }

    /// Lets the driver install the trees of all groups in the network; see
    /// [`ManagerService::poll_tree`].
    pub fn install_trees(&mut self) {
        self.manager.install_trees();
    }

    /// Returns the next tree that the driver must install in the network, and report with
    /// [`ManagerService::handle_installed`]. At most one tree of a group is being installed.
    pub fn poll_tree(&mut self, now: Time) -> Option<TreeChange> {
        self.manager.poll_tree(now)
    }

    /// Processes the end of an installation. After a failure, the tree is returned again.
    pub fn handle_installed(&mut self, now: Time, group: GroupId, result: Result<(), String>) {
        let is_installed = result.is_ok();
        if self.manager.on_installed(now, group, result) {
            self.counters.trees_installed += u64::from(is_installed);
            self.counters.trees_not_installed += u64::from(!is_installed);
        }
    }

    /// Returns the states of the installations of all trees.
    pub fn installations(&self) -> impl Iterator<Item = Installation<'_>> {
        self.manager.installations()
    }

    /// Returns `true` if the driver installs the trees in the network.
    pub fn installs_trees(&self) -> bool {
        self.manager.installs_trees()
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
        self.manager.leave_trees();
    }

    fn refuse(&mut self, group: GroupId, sender: Sender, refusal: Refusal) {
        self.counters.refused += 1;
        let Sender { node, opening, number } = sender;
        let answer = Answer { group, opening, number, result: Err(refusal) };
        self.answers.push_back((node, answer));
    }

    fn answer(&mut self, requester: Option<GroupId>) {
        let mut placed: BTreeMap<GroupId, Vec<PlaceChange>> =
            requester.map(|group| (group, Vec::new())).into_iter().collect();
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
        self.manager.poll_timeout()
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
