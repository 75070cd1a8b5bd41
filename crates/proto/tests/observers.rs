//! Observers and registry processes. Connections have no delay.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::frame::ChangeKind;
use carom_proto::membership::service::*;
use carom_proto::*;

/// Two registry processes that share two partitions and a store, and one observer.
struct Lab {
    now: Time,
    servers: Vec<Server>,
    store: Vec<PartitionState>,
    owners: [Option<usize>; 2],
    observer: Observer,
    /// Process at the other end of each of the observer's connections.
    links: BTreeMap<LinkId, usize>,
    /// `true` for a process that cannot be reached.
    is_down: [bool; 2],
    changes: Vec<(u32, ChangeKind, u64)>,
}

fn address(process: usize) -> Endpoint {
    Endpoint(SocketAddr::from(([10, 0, 1, process as u8 + 1], 7402)))
}

fn settings(group: u32) -> GroupSettings {
    GroupSettings::new(&group.to_string(), Profile::TimeCritical(RateOfFire::default()))
}

/// Returns the connection number of a node. Those of observers are small.
fn link_of(node: u64) -> LinkId {
    LinkId(1000 + node)
}

impl Lab {
    fn new(group: Option<u32>, view_size: Option<usize>) -> Self {
        let view_size = view_size.and_then(NonZeroUsize::new);
        let config = ServerConfig { partitions: 2, view_size, ..ServerConfig::default() };
        let servers = (0..2).map(|process| Server::new(config.clone(), process)).collect();
        let group = group.map(GroupId);
        let observer =
            ObserverConfig { addresses: vec![address(0)], group, ..ObserverConfig::default() };
        let mut lab = Self {
            now: Time(1_000_000_000),
            servers,
            store: vec![PartitionState::default(); 2],
            owners: [None; 2],
            observer: Observer::new(observer, 7),
            links: BTreeMap::new(),
            is_down: [false; 2],
            changes: Vec::new(),
        };
        lab.give(0, 0);
        lab.give(1, 1);
        lab
    }

    /// Makes the process the owner of the partition.
    fn give(&mut self, partition: u16, process: usize) {
        let place = usize::from(partition);
        if let Some(before) = self.owners[place].replace(process) {
            self.servers[before].disown(self.now, partition);
        }
        let owners = self.owners.iter().enumerate();
        let owned =
            owners.filter_map(|(place, owner)| Some((place as u16, address((*owner)?)))).collect();
        let owners = Owners { partitions: 2, owned };
        self.servers[process].load(partition, self.store[place].clone());
        self.servers[process].own(self.now, partition);
        self.servers.iter_mut().for_each(|server| server.set_owners(owners.clone()));
    }

    fn hello(&mut self, process: usize, node: u64) {
        let endpoint = Endpoint(SocketAddr::from(([10, 0, 0, node as u8], 7400)));
        let member = Member { node: NodeId(node), incarnation: 0, start: Incarnation(0), endpoint };
        let (cluster, rack) = (String::new(), String::new());
        self.servers[process].handle_accepted(self.now, link_of(node), endpoint);
        self.say(process, node, &Frame::Hello(Hello { role: Role::Node, cluster, member, rack }));
    }

    fn say(&mut self, process: usize, node: u64, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let event = LinkEvent::Received(&bytes);
        self.servers[process].handle_link(self.now, link_of(node), event);
        self.carry();
    }

    fn join(&mut self, process: usize, node: u64, group: u32) {
        let settings = settings(group);
        self.say(process, node, &Frame::Join { request: group, group: GroupId(group), settings });
    }

    fn leave(&mut self, process: usize, node: u64, group: u32) {
        self.say(process, node, &Frame::Leave { request: 0, group: GroupId(group) });
    }

    /// Runs for `span`, in which the nodes in `alive` renew their leases.
    fn run_for(&mut self, span: Duration, alive: &[(usize, u64)]) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Duration::from_millis(50);
            for (process, node) in alive {
                self.say(*process, *node, &Frame::Alive);
            }
            self.observer.handle_timeout(self.now);
            self.servers.iter_mut().for_each(|server| server.handle_timeout(self.now));
            self.carry();
        }
    }

    /// Delivers everything that is due now.
    fn carry(&mut self) {
        while self.carry_servers() | self.carry_observer() {}
        while let Some((group, change)) = self.observer.poll_change() {
            self.changes.push((group.0, change.kind, change.member.node.0));
        }
        self.servers.iter().for_each(Server::check);
    }

    fn carry_servers(&mut self) -> bool {
        let mut has_work = false;
        for process in 0..2 {
            while let Some(commit) = self.servers[process].poll_commit() {
                for change in &commit.changes {
                    self.store[usize::from(commit.partition)].apply(change);
                }
                self.servers[process].handle_committed(self.now, commit.id);
                has_work = true;
            }
            while let Some(command) = self.servers[process].poll_link() {
                has_work = true;
                let (LinkCommand::Send { link, .. } | LinkCommand::Close { link }) = &command
                else {
                    panic!("a process opened a link");
                };
                // The numbers are those of the observer's connections. Frames to nodes are ignored.
                if self.links.get(link) != Some(&process) || self.is_down[process] {
                    continue;
                }
                match command {
                    LinkCommand::Send { link, bytes } => {
                        self.observer.handle_link(self.now, link, LinkEvent::Received(&bytes));
                    }
                    LinkCommand::Close { link } => {
                        let end = LinkEvent::Closed { why: LinkEnd::ByPeer };
                        self.observer.handle_link(self.now, link, end);
                    }
                    LinkCommand::Open { .. } => {}
                }
            }
        }
        has_work
    }

    fn carry_observer(&mut self) -> bool {
        let mut has_work = false;
        while let Some(command) = self.observer.poll_link() {
            has_work = true;
            match command {
                LinkCommand::Open { link, to } => {
                    let process = (0..2).find(|process| address(*process) == to).unwrap();
                    if self.is_down[process] {
                        let end = LinkEvent::Closed { why: LinkEnd::Refused };
                        self.observer.handle_link(self.now, link, end);
                    } else {
                        self.links.insert(link, process);
                        self.servers[process].handle_accepted(self.now, link, to);
                        self.observer.handle_link(self.now, link, LinkEvent::Opened);
                    }
                }
                LinkCommand::Send { link, bytes } => {
                    let process = self.links[&link];
                    let event = LinkEvent::Received(&bytes);
                    self.servers[process].handle_link(self.now, link, event);
                }
                LinkCommand::Close { link } => {
                    let Some(process) = self.links.remove(&link) else { continue };
                    let end = LinkEvent::Closed { why: LinkEnd::ByPeer };
                    self.servers[process].handle_link(self.now, link, end);
                }
            }
        }
        has_work
    }

    /// Breaks the connections to the process, and makes it unreachable.
    fn cut_off(&mut self, process: usize) {
        self.is_down[process] = true;
        let links: Vec<LinkId> =
            self.links.iter().filter(|(_, to)| **to == process).map(|(link, _)| *link).collect();
        for link in links {
            self.links.remove(&link);
            let end = || LinkEvent::Closed { why: LinkEnd::Broken };
            self.observer.handle_link(self.now, link, end());
            self.servers[process].handle_link(self.now, link, end());
        }
        self.carry();
    }

    fn seen(&self) -> Vec<(u32, Vec<u64>)> {
        let groups = self.observer.groups().iter();
        let ids = |it: &Observed| it.members.keys().map(|node| node.0).collect();
        groups.map(|(group, it)| (group.0, ids(it))).collect()
    }

    fn new_changes(&mut self) -> Vec<(u32, ChangeKind, u64)> {
        std::mem::take(&mut self.changes)
    }
}

const STEP: Duration = Duration::from_millis(100);

#[test]
fn observer_sees_all_members_of_all_groups_and_each_change() {
    // Each node is shown one other member. An observer sees all of them.
    let mut lab = Lab::new(None, Some(1));
    for node in [1, 2, 3] {
        lab.hello(0, node);
        lab.join(0, node, 2);
    }
    assert!(!lab.observer.is_current());
    lab.run_for(STEP, &[]);
    assert!(lab.observer.is_current());
    assert_eq!(lab.seen(), [(2, vec![1, 2, 3])]);
    lab.new_changes();
    lab.hello(1, 4);
    lab.join(1, 4, 3);
    lab.leave(0, 2, 2);
    assert_eq!(lab.new_changes(), [(3, ChangeKind::Joined, 4), (2, ChangeKind::Left, 2)]);
    lab.run_for(Duration::from_secs(4), &[(0, 1), (1, 4)]);
    assert_eq!(lab.new_changes(), [(2, ChangeKind::Failed, 3)]);
    // The last member leaves and joins again. The group is then a new one.
    lab.leave(1, 4, 3);
    assert_eq!(lab.seen(), [(2, vec![1])]);
    lab.join(1, 4, 3);
    let again = [(3, ChangeKind::Left, 4), (3, ChangeKind::Joined, 4)];
    assert_eq!(lab.new_changes(), again);
    assert_eq!(lab.seen(), [(2, vec![1]), (3, vec![4])]);
}

#[test]
fn observer_of_one_group_sees_no_other() {
    let mut lab = Lab::new(Some(2), None);
    lab.run_for(STEP, &[]);
    assert!(lab.observer.is_current(), "a group without members is known, too");
    lab.hello(0, 1);
    lab.join(0, 1, 4);
    assert_eq!(lab.seen(), []);
    lab.join(0, 1, 2);
    assert_eq!(lab.seen(), [(2, vec![1])]);
    lab.cut_off(1);
    assert!(lab.observer.is_current(), "the other process has nothing to do with it");
}

#[test]
fn observer_keeps_an_old_view_until_the_process_returns() {
    let mut lab = Lab::new(None, None);
    for node in [1, 2] {
        lab.hello(0, node);
        lab.join(0, node, 2);
        lab.join(0, node, 4);
    }
    lab.run_for(STEP, &[]);
    lab.new_changes();
    lab.cut_off(0);
    assert!(!lab.observer.is_current());
    lab.leave(0, 1, 2);
    lab.leave(0, 1, 4);
    lab.leave(0, 2, 4);
    lab.join(0, 2, 6);
    assert_eq!(lab.seen(), [(2, vec![1, 2]), (4, vec![1, 2])]);
    lab.is_down[0] = false;
    lab.run_for(Duration::from_secs(2), &[(0, 1), (0, 2)]);
    assert!(lab.observer.is_current());
    assert_eq!(lab.seen(), [(2, vec![2]), (6, vec![2])]);
    let mut changes = lab.new_changes();
    changes.sort_unstable();
    let left = |group, node| (group, ChangeKind::Left, node);
    assert_eq!(changes, [left(2, 1), left(4, 1), left(4, 2), (6, ChangeKind::Joined, 2)]);
}

#[test]
fn moved_partition_is_reported_by_its_new_process() {
    let mut lab = Lab::new(None, None);
    lab.hello(0, 1);
    lab.join(0, 1, 2);
    lab.run_for(STEP, &[]);
    lab.new_changes();
    lab.give(0, 1);
    lab.carry();
    assert!(lab.observer.is_current());
    assert_eq!(lab.new_changes(), [], "it is told again, but nothing has changed");
    lab.hello(1, 5);
    lab.join(1, 5, 2);
    assert_eq!(lab.new_changes(), [(2, ChangeKind::Joined, 5)]);
    assert_eq!(lab.seen(), [(2, vec![1, 5])]);
}

#[test]
fn observer_that_is_silent_for_a_lease_is_dropped() {
    let mut lab = Lab::new(None, None);
    lab.run_for(STEP, &[]);
    let stat = |server: &Server, name: &str| {
        server.stats().iter().find(|(it, _)| *it == name).expect("a counter").1
    };
    lab.run_for(Duration::from_secs(10), &[]);
    assert_eq!(stat(&lab.servers[0], "observers_opened"), 1);
    lab.links.clear();
    for _ in 0..5 {
        lab.now = lab.now + Duration::from_secs(1);
        lab.servers[0].handle_timeout(lab.now);
    }
    assert_eq!(stat(&lab.servers[0], "observers_silent"), 1);
    lab.servers[0].check();
}
