//! Nodes, registry processes and a store in virtual time.

mod host;
mod link;
mod process;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use carom_conformance::providers::Store;
use carom_proto::membership::Membership;
use carom_proto::membership::link::{LinkEnd, LinkEvent};
use carom_proto::membership::service::frame::partition_of;
use carom_proto::membership::service::*;
use carom_proto::*;

pub(crate) use host::Host;

use link::Link;
use process::Process;

/// The test environment. All randomness comes from one seed.
pub(crate) struct Rig {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Host>,
    pub(crate) processes: Vec<Process>,
    pub(crate) store: Store,
    /// One-way delay between processes and store.
    pub(crate) store_delay: Duration,
    pub(crate) config: ServerConfig,
    pub(crate) rng: Rng,
    events: BTreeMap<(Time, u64), Happening>,
    counted: u64,
    links: Vec<Link>,
}

enum Happening {
    Connect(usize),
    Opened(usize),
    ToProcess(usize, Vec<u8>),
    ToNode(usize, Vec<u8>),
    EndAtProcess(usize),
    EndAtNode(usize, LinkEnd),
    Store(usize, u64, Commit),
    Answer(usize, CommitId, Result<(), CommitFailure>),
    Datagram(Endpoint, usize, Vec<u8>),
}

impl Rig {
    /// Creates `processes` processes, which share the partitions.
    pub(crate) fn new(processes: usize, config: ServerConfig, seed: u64) -> Self {
        let config = ServerConfig { partitions: PARTITIONS, ..config };
        let mut rig = Self {
            now: START,
            nodes: Vec::new(),
            processes: Vec::new(),
            store: Store::new(PARTITIONS),
            store_delay: Duration::from_micros(500),
            config,
            rng: Rng::new(seed),
            events: BTreeMap::new(),
            counted: 0,
            links: Vec::new(),
        };
        for process in 0..processes {
            let (is_stopped, waiting) = (false, VecDeque::new());
            rig.processes.push(Process { server: None, accepted: 0, is_stopped, waiting });
            rig.start_process(process);
        }
        rig.share_partitions();
        rig
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Runs until `done`, for at most `span`. Returns `true` if it was reached.
    pub(crate) fn run_until(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + span;
        loop {
            if done(self) {
                return true;
            }
            let nodes = self.nodes.iter().enumerate();
            let nodes = nodes.filter(|(_, host)| !host.is_crashed && !host.is_paused);
            let node = nodes.filter_map(|(n, host)| Some((host.service.poll_timeout()?.at, n)));
            let node = node.min();
            let processes = self.processes.iter().enumerate().filter(|(_, it)| !it.is_stopped);
            let process = processes
                .filter_map(|(p, it)| Some((it.server.as_ref()?.poll_timeout()?.at, p)))
                .min();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let times = [node.map(|it| it.0), process.map(|it| it.0), event];
            let next = times.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return done(self);
            };
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, happening) = self.events.pop_first().expect("it was looked at");
                self.happen(happening);
            } else if let Some((_, node)) = node.filter(|(at, _)| *at == next) {
                self.nodes[node].service.handle_timeout(self.now);
                self.drain_node(node);
            } else if let Some((_, process)) = process {
                if let Some(server) = &mut self.processes[process].server {
                    server.handle_timeout(self.now);
                }
                self.drain_process(process);
            }
        }
    }

    /// Returns `true` if the store and all views match the nodes' groups.
    pub(crate) fn agrees(&self) -> bool {
        let mut members: BTreeMap<GroupId, Vec<NodeId>> = BTreeMap::new();
        for host in self.nodes.iter().filter(|host| !host.is_crashed) {
            for group in &host.groups {
                members.entry(*group).or_default().push(host.id);
            }
        }
        members.values_mut().for_each(|nodes| nodes.sort());
        let stored = self.store.members().into_iter();
        let stored: BTreeMap<GroupId, Vec<NodeId>> =
            stored.map(|(group, nodes)| (group, nodes.into_iter().collect())).collect();
        stored == members
            && self.nodes.iter().filter(|host| !host.is_crashed).all(|host| {
                host.views.iter().all(|(group, view)| {
                    let others = members[group].iter().filter(|node| **node != host.id);
                    view.members().iter().eq(others)
                })
            })
    }

    pub(crate) fn check(&self) {
        self.nodes.iter().for_each(|host| host.service.check());
        let servers = self.processes.iter().filter_map(|process| process.server.as_ref());
        servers.for_each(Server::check);
        self.store.check();
    }

    pub(crate) fn stat(&self, node: usize, name: &str) -> u64 {
        find(&self.nodes[node].service.stats(), name)
    }

    pub(crate) fn process_stat(&self, process: usize, name: &str) -> u64 {
        let server = self.processes[process].server.as_ref().expect("the process is alive");
        find(&server.stats(), name)
    }

    fn happen(&mut self, happening: Happening) {
        let node = match &happening {
            Happening::Opened(link) | Happening::ToNode(link, _) => Some(self.links[*link].node),
            Happening::EndAtNode(link, _) => Some(self.links[*link].node),
            Happening::Datagram(_, node, _) => Some(*node),
            _ => None,
        };
        if let Some(node) = node {
            if self.nodes[node].is_paused {
                self.nodes[node].waiting.push_back(happening);
            } else if !self.nodes[node].is_crashed {
                self.happen_at_node(node, happening);
            }
            return;
        }
        let process = match &happening {
            Happening::Connect(link) | Happening::ToProcess(link, _) => self.links[*link].process,
            Happening::EndAtProcess(link) => self.links[*link].process,
            Happening::Store(process, ..) | Happening::Answer(process, ..) => *process,
            _ => unreachable!("the others happen at a node"),
        };
        if self.processes[process].is_stopped && !matches!(happening, Happening::Store(..)) {
            return self.processes[process].waiting.push_back(happening);
        }
        match happening {
            Happening::Connect(link) => self.connect(link),
            Happening::ToProcess(link, bytes) => {
                self.at_process(link, LinkEvent::Received(&bytes));
            }
            Happening::EndAtProcess(link) => {
                self.at_process(link, LinkEvent::Closed { why: LinkEnd::ByPeer });
            }
            Happening::Store(process, term, commit) => self.commit(process, term, &commit),
            Happening::Answer(process, id, result) => {
                let Some(server) = &mut self.processes[process].server else { return };
                match result {
                    Ok(()) => server.handle_committed(self.now, id),
                    Err(why) => server.handle_commit_failed(self.now, id, why),
                }
                self.drain_process(process);
            }
            _ => unreachable!("the others happen at a node"),
        }
    }

    fn push(&mut self, at: Time, happening: Happening) {
        self.counted += 1;
        self.events.insert((at, self.counted), happening);
    }
}

pub(crate) fn address(process: usize) -> Endpoint {
    Endpoint(SocketAddr::from(([10, 0, 1, process as u8 + 1], 7480)))
}

pub(crate) fn endpoint(node: usize) -> Endpoint {
    Endpoint(SocketAddr::from(([10, 0, 0, node as u8 + 1], 7400)))
}

pub(crate) fn node_id(node: usize) -> NodeId {
    // Scattered, so that the order of ids is not the order of nodes.
    NodeId((node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(crate) fn group(number: usize) -> GroupId {
    GroupId(number as u32 + 1)
}

pub(crate) fn settings(r: u8) -> GroupSettings {
    let profile = Profile::TimeCritical(RateOfFire::new(r, 5));
    GroupSettings { profile, name_check: 7 }
}

pub(crate) fn partition(group: GroupId) -> u16 {
    partition_of(group, PARTITIONS)
}

fn find(stats: &[(&str, u64)], name: &str) -> u64 {
    let found = stats.iter().find(|(counter, _)| *counter == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

pub(crate) const PARTITIONS: u16 = 4;
pub(crate) const START: Time = Time(1_000_000_000);
