//! Nodes, control processes and a store in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::frame::{Owners, partition_of};
use carom_proto::membership::service::*;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::*;
use carom_sim::control::Store;

pub(crate) const PARTITIONS: u16 = 4;
pub(crate) const START: Time = Time(1_000_000_000);

/// The whole; everything random comes from one seed.
pub(crate) struct Rig {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Host>,
    pub(crate) processes: Vec<Process>,
    pub(crate) store: Store,
    /// How long a commit takes to the store, and its answer back.
    pub(crate) store_delay: Duration,
    pub(crate) config: ServerConfig,
    pub(crate) rng: Rng,
    events: BTreeMap<(Time, u64), Happening>,
    counted: u64,
    links: Vec<Link>,
}

/// One node with what its provider has told so far.
pub(crate) struct Host {
    pub(crate) service: Service,
    pub(crate) id: NodeId,
    /// Gone for good, without a word.
    pub(crate) is_crashed: bool,
    /// Does not run; what arrives waits.
    pub(crate) is_paused: bool,
    /// Neither sends nor gets datagrams.
    pub(crate) is_deaf: bool,
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) views: BTreeMap<GroupId, View>,
    pub(crate) changes: Vec<ViewChange>,
    pub(crate) refused: Vec<(GroupId, JoinError)>,
    pub(crate) settled_at: Option<Time>,
    pub(crate) is_away: bool,
    met: BTreeMap<NodeId, Endpoint>,
    waiting: VecDeque<Happening>,
}

pub(crate) struct Process {
    /// `None` while it is dead.
    pub(crate) server: Option<Server>,
    accepted: u64,
    /// Does not run; what arrives waits.
    is_stopped: bool,
    waiting: VecDeque<Happening>,
}

struct Link {
    node: usize,
    process: usize,
    at_node: LinkId,
    /// `None` until it is accepted.
    at_process: Option<LinkId>,
    is_open: bool,
    to_node: FrameReader,
    last_arrivals: [Time; 2],
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

impl Rig {
    /// As many processes, which share the partitions.
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

    /// A node that knows the address of one process, or of all.
    pub(crate) fn add_node(&mut self) -> usize {
        let addresses = (0..self.processes.len()).map(address).collect();
        self.add_node_with(ServiceConfig { addresses, ..ServiceConfig::default() })
    }

    pub(crate) fn add_node_with(&mut self, config: ServiceConfig) -> usize {
        let node = self.nodes.len();
        let bound = Endpoint(SocketAddr::from(([0, 0, 0, 0], 7400)));
        let service = Service::new(node_id(node), bound, config, self.rng.next_u64());
        self.nodes.push(Host {
            service,
            id: node_id(node),
            is_crashed: false,
            is_paused: false,
            is_deaf: false,
            groups: BTreeSet::new(),
            views: BTreeMap::new(),
            changes: Vec::new(),
            refused: Vec::new(),
            settled_at: None,
            is_away: false,
            met: BTreeMap::new(),
            waiting: VecDeque::new(),
        });
        node
    }

    pub(crate) fn join(&mut self, node: usize, group: GroupId) {
        self.join_with(node, group, settings(8)).expect("the node is not in the group");
    }

    pub(crate) fn join_with(
        &mut self,
        node: usize,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        let host = &mut self.nodes[node];
        host.service.join(self.now, group, settings)?;
        host.groups.insert(group);
        host.views.insert(group, View::default());
        self.drain_node(node);
        Ok(())
    }

    pub(crate) fn leave(&mut self, node: usize, group: GroupId) {
        let host = &mut self.nodes[node];
        host.service.leave(self.now, group);
        host.groups.remove(&group);
        host.views.remove(&group);
        self.drain_node(node);
    }

    pub(crate) fn shut_down(&mut self, node: usize) {
        self.nodes[node].service.shut_down(self.now);
        self.drain_node(node);
        self.nodes[node].is_crashed = true;
    }

    pub(crate) fn resume(&mut self, node: usize) {
        self.nodes[node].is_paused = false;
        while let Some(happening) = self.nodes[node].waiting.pop_front() {
            self.happen(happening);
        }
    }

    pub(crate) fn stop(&mut self, process: usize) {
        self.processes[process].is_stopped = true;
    }

    /// The process runs again, and looks at its timers before it reads what has arrived.
    pub(crate) fn go_on(&mut self, process: usize) {
        self.processes[process].is_stopped = false;
        if let Some(server) = &mut self.processes[process].server {
            server.handle_timeout(self.now);
        }
        self.drain_process(process);
        while let Some(happening) = self.processes[process].waiting.pop_front() {
            self.happen(happening);
        }
    }

    /// The process is gone without a word; its links end, and what it sent arrives or not.
    pub(crate) fn kill(&mut self, process: usize) {
        self.processes[process].server = None;
        for link in 0..self.links.len() {
            if self.links[link].process == process && self.links[link].is_open {
                self.links[link].is_open = false;
                self.schedule(link, 1, Happening::EndAtNode(link, LinkEnd::Broken));
            }
        }
        self.store.release(process as u64);
        self.publish_owners();
    }

    pub(crate) fn start_process(&mut self, process: usize) {
        let server = Server::new(self.config.clone(), self.rng.next_u64());
        self.processes[process].server = Some(server);
        self.publish_owners();
    }

    /// All partitions that nobody owns are taken by those processes that have the fewest.
    pub(crate) fn share_partitions(&mut self) {
        for partition in 0..PARTITIONS {
            if let Some(owner) = self.owner(partition) {
                // A process that lost a partition which the store says is its own takes it again.
                let server = self.processes[owner].server.as_ref();
                if server.is_some_and(|server| !server.is_owned(partition)) {
                    self.give(partition, owner);
                }
                continue;
            }
            let owned = || self.store.owned().map(|(_, owner)| owner as usize);
            let load = |process: &usize| owned().filter(|owner| owner == process).count();
            let alive = (0..self.processes.len()).filter(|it| self.processes[*it].server.is_some());
            if let Some(process) = alive.min_by_key(load) {
                self.give(partition, process);
            }
        }
    }

    /// The partition becomes this process's; whoever had it is told when the store answers it.
    pub(crate) fn give(&mut self, partition: u16, process: usize) {
        self.store.give(partition, process as u64);
        let state = self.store.state(partition).clone();
        if let Some(server) = &mut self.processes[process].server {
            // It may believe that it owns the partition still, from before another did.
            server.disown(self.now, partition);
            server.load(partition, state);
            server.own(self.now, partition);
        }
        self.publish_owners();
        (0..self.processes.len()).for_each(|process| self.drain_process(process));
    }

    pub(crate) fn publish_owners(&mut self) {
        let owned = self.store.owned().map(|(part, owner)| (part, address(owner as usize)));
        let owners = Owners { partitions: PARTITIONS, owned: owned.collect() };
        for process in &mut self.processes {
            if let Some(server) = &mut process.server {
                server.set_owners(owners.clone());
            }
        }
        (0..self.processes.len()).for_each(|process| self.drain_process(process));
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Runs until `done` or for `span`; returns whether `done` came true.
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

    /// Whether store and views are as the nodes' groups demand.
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

    /// Bytes that reach the process on the link of a node, whatever its provider says.
    pub(crate) fn say(&mut self, process: usize, link: u64, bytes: &[u8]) -> Vec<Frame> {
        let server = self.processes[process].server.as_mut().expect("the process is alive");
        let link = LinkId(link);
        server.handle_accepted(self.now, link, endpoint(99));
        server.handle_link(self.now, link, LinkEvent::Received(bytes));
        let mut reader = FrameReader::default();
        let mut frames = Vec::new();
        while let Some(command) = server.poll_link() {
            match command {
                LinkCommand::Send { link: to, bytes } if to == link => reader.push(&bytes),
                other => assert_eq!(other, LinkCommand::Close { link }),
            }
        }
        while let Ok(Some(frame)) = reader.next_frame() {
            frames.push(frame);
        }
        frames
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

    fn happen_at_node(&mut self, node: usize, happening: Happening) {
        let (now, service) = (self.now, &mut self.nodes[node].service);
        match happening {
            Happening::Opened(link) => {
                service.handle_link(now, self.links[link].at_node, LinkEvent::Opened);
            }
            Happening::ToNode(link, bytes) => {
                let at_node = self.links[link].at_node;
                service.handle_link(now, at_node, LinkEvent::Received(&bytes));
            }
            Happening::EndAtNode(link, why) => {
                service.handle_link(now, self.links[link].at_node, LinkEvent::Closed { why });
            }
            Happening::Datagram(source, _, datagram) => {
                service.handle_datagram(now, source, &datagram);
            }
            _ => unreachable!("the others happen at a process"),
        }
        self.drain_node(node);
    }

    fn connect(&mut self, link: usize) {
        let process = self.links[link].process;
        let from = endpoint(self.links[link].node);
        let Process { server, accepted, .. } = &mut self.processes[process];
        let Some(server) = server else {
            self.links[link].is_open = false;
            return self.schedule(link, 1, Happening::EndAtNode(link, LinkEnd::Refused));
        };
        *accepted += 1;
        let accepted = LinkId(*accepted);
        server.handle_accepted(self.now, accepted, from);
        self.links[link].at_process = Some(accepted);
        self.schedule(link, 1, Happening::Opened(link));
        self.drain_process(process);
    }

    fn at_process(&mut self, link: usize, event: LinkEvent<'_>) {
        let Link { process, at_process, is_open, .. } = self.links[link];
        let is_end = matches!(event, LinkEvent::Closed { .. });
        let Some(server) = self.processes[process].server.as_mut().filter(|_| is_open || is_end)
        else {
            return;
        };
        let Some(at_process) = at_process else { return };
        self.links[link].is_open &= !is_end;
        server.handle_link(self.now, at_process, event);
        self.drain_process(process);
    }

    /// A commit has arrived at the store.
    fn commit(&mut self, process: usize, term: u64, commit: &Commit) {
        let result = self.store.commit(process as u64, term, commit, &mut self.rng);
        let at = self.now + self.store_delay;
        self.push(at, Happening::Answer(process, commit.id, result));
    }

    /// Which process has the partition, by the store's account.
    pub(crate) fn owner(&self, partition: u16) -> Option<usize> {
        self.store.owner(partition).map(|owner| owner as usize)
    }

    pub(crate) fn drain_process(&mut self, process: usize) {
        while let Some(server) = &mut self.processes[process].server {
            if let Some(commit) = server.poll_commit() {
                let at = self.now + self.store_delay;
                let term = self.store.term(commit.partition);
                self.push(at, Happening::Store(process, term, commit));
                continue;
            }
            let Some(command) = server.poll_link() else { return };
            let find = |at: LinkId| {
                let of = |it: &Link| it.process == process && it.at_process == Some(at);
                self.links.iter().rposition(|it| of(it) && it.is_open)
            };
            match command {
                LinkCommand::Send { link, bytes } => {
                    let Some(link) = find(link) else { continue };
                    self.look_at(link, &bytes);
                    self.schedule(link, 1, Happening::ToNode(link, bytes));
                }
                LinkCommand::Close { link } => {
                    let Some(link) = find(link) else { continue };
                    self.links[link].is_open = false;
                    let end = Happening::EndAtNode(link, LinkEnd::ByPeer);
                    self.schedule(link, 1, end);
                }
                LinkCommand::Open { .. } => panic!("a process opened a link"),
            }
        }
    }

    /// What is acknowledged must be in the store.
    fn look_at(&mut self, link: usize, bytes: &[u8]) {
        let Link { node, to_node, .. } = &mut self.links[link];
        to_node.push(bytes);
        while let Some(frame) = to_node.next_frame().expect("a process sends frames") {
            if let Frame::Joined { group, .. } = frame {
                let node = node_id(*node);
                let is_stored = self.store.was_member(group, node);
                assert!(is_stored, "{node:?} was told of a join that is not stored");
            }
        }
    }

    pub(crate) fn drain_node(&mut self, node: usize) {
        while let Some(command) = self.nodes[node].service.poll_link() {
            match command {
                LinkCommand::Open { link, to } => {
                    let process = (0..self.processes.len()).find(|it| address(*it) == to);
                    self.links.push(Link {
                        node,
                        process: process.expect("nodes know the processes' addresses"),
                        at_node: link,
                        at_process: None,
                        is_open: true,
                        to_node: FrameReader::default(),
                        last_arrivals: [self.now; 2],
                    });
                    let link = self.links.len() - 1;
                    self.schedule(link, 0, Happening::Connect(link));
                }
                LinkCommand::Send { link, bytes } => {
                    let Some(link) = self.link_of(node, link) else { continue };
                    self.schedule(link, 0, Happening::ToProcess(link, bytes));
                }
                LinkCommand::Close { link } => {
                    let Some(link) = self.link_of(node, link) else { continue };
                    self.schedule(link, 0, Happening::EndAtProcess(link));
                }
            }
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = self.nodes[node].service.poll_transmit(&mut datagram) {
            let Destination::Endpoint(to) = transmit.destination else { panic!("{transmit:?}") };
            let found = (0..self.nodes.len()).find(|it| endpoint(*it) == to);
            let found = found.filter(|it| !self.nodes[*it].is_deaf && !self.nodes[node].is_deaf);
            if let Some(to) = found {
                let arrival = Happening::Datagram(endpoint(node), to, datagram.clone());
                self.push(self.now + Duration::from_micros(150), arrival);
            }
            datagram.clear();
        }
        let now = self.now;
        self.nodes[node].take_events(now);
    }

    fn link_of(&self, node: usize, at_node: LinkId) -> Option<usize> {
        let mut links = self.links.iter();
        links.rposition(|link| link.node == node && link.at_node == at_node)
    }

    /// Arrives after what was sent before in the same direction: 0 to the process, 1 to the node.
    fn schedule(&mut self, link: usize, direction: usize, happening: Happening) {
        let delay = Duration::from_micros(50 + self.rng.below(300) as u64);
        let last = &mut self.links[link].last_arrivals[direction];
        let at = (*last).max(self.now + delay);
        *last = at;
        self.push(at, happening);
    }

    fn push(&mut self, at: Time, happening: Happening) {
        self.counted += 1;
        self.events.insert((at, self.counted), happening);
    }
}

impl Host {
    fn take_events(&mut self, now: Time) {
        while let Some(event) = self.service.poll_event() {
            match event {
                MembershipEvent::Met(node, at) => {
                    assert_ne!(node, self.id, "a node met itself");
                    assert!(!at.0.ip().is_unspecified(), "a node was met nowhere");
                    assert!(self.met.insert(node, at).is_none(), "{node:?} was met twice");
                }
                MembershipEvent::Parted(node) => {
                    assert!(self.met.remove(&node).is_some(), "parted from a stranger");
                    let still = self.views.values().any(|view| view.contains(node));
                    assert!(!still, "{node:?} is gone but still in a view");
                }
                MembershipEvent::View(change) => {
                    assert!(self.met.contains_key(&change.node), "a stranger in a view");
                    // Events of a group that was just left come out with the leaving.
                    let Some(view) = self.views.get_mut(&change.group) else { continue };
                    assert_eq!(change.version, view.version() + 1, "a version was left out");
                    assert!(view.apply(&change), "{change:?} changed nothing");
                    self.changes.push(change);
                }
                MembershipEvent::Settled => {
                    assert!(self.settled_at.is_none(), "settled twice");
                    self.settled_at = Some(now);
                }
                MembershipEvent::Away => {
                    assert!(!core::mem::replace(&mut self.is_away, true), "away twice");
                }
                MembershipEvent::Returned => {
                    assert!(core::mem::replace(&mut self.is_away, false), "it was never away");
                }
                MembershipEvent::Refused(group, error) => {
                    assert!(self.groups.remove(&group), "refused but not joined");
                    self.views.remove(&group);
                    self.refused.push((group, error));
                }
            }
        }
    }
}

fn find(stats: &[(&str, u64)], name: &str) -> u64 {
    let found = stats.iter().find(|(counter, _)| *counter == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

pub(crate) fn partition(group: GroupId) -> u16 {
    partition_of(group, PARTITIONS)
}
