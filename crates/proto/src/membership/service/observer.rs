//! Observer: a client that receives the members of groups without joining them.
//!
//! The owner of a group sends the group's members and changes to the observer. When a process is
//! unreachable, its groups remain as they were last reported, and the observer is not *current*
//! until it has received the partitions again. An observer sends no datagrams, and only the
//! registry processes know of it.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use super::contract::Client;
use super::processes::{ProcessEvent, Processes};
use super::protocol::frame::{
    ChangeKind, Frame, FrameError, Hello, Member, MemberChange, Refusal, Role, Snapshot, Update,
    partition_of,
};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::{Endpoint, GroupId, GroupSettings, Incarnation, NodeId, Time, Wakeup};

/// Settings of an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverConfig {
    /// TCP addresses of registry processes. One is enough: it announces all partition owners.
    pub addresses: Vec<Endpoint>,
    /// Cluster name, which must be that of the registry. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Group to observe. Default: `None`, all groups.
    pub group: Option<GroupId>,
    /// Maximum time to open a connection and receive the welcome. Default: 3 s.
    pub greeting_time: Duration,
    /// Pause between two attempts to reach a process, varied by up to a quarter. Default: 1 s.
    pub retry_after: Duration,
}

impl Default for ObserverConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            cluster: String::new(),
            group: None,
            greeting_time: Duration::from_secs(3),
            retry_after: Duration::from_secs(1),
        }
    }
}

/// A client that receives the members of groups without joining them.
#[derive(Debug)]
pub struct Observer {
    group: Option<GroupId>,
    processes: Processes,
    partitions: Option<u16>,
    owners: BTreeMap<u16, Endpoint>,
    groups: BTreeMap<GroupId, Observed>,
    parts: BTreeMap<Endpoint, Vec<Member>>,
    changes: VecDeque<(GroupId, MemberChange)>,
    changes_dropped: u64,
}

/// Last reported state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Settings of the group.
    pub settings: GroupSettings,
    /// Version of the group.
    pub version: u64,
    /// Members of the group.
    pub members: BTreeMap<NodeId, Member>,
    owner: Option<Endpoint>,
}

const MAX_CHANGES: usize = 65_536;

impl Observer {
    /// Creates an observer. `seed` is the source of all randomness.
    ///
    /// # Panics
    /// Panics if `config` has no address, or if `greeting_time` or `retry_after` is zero.
    pub fn new(config: ObserverConfig, seed: u64) -> Self {
        let ObserverConfig { addresses, cluster, group, greeting_time, retry_after } = config;
        let endpoint = Endpoint(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let member = Member { node: NodeId(seed), incarnation: 0, start: Incarnation(0), endpoint };
        let hello = Hello { role: Role::Observer, cluster, member, rack: String::new() };
        Self {
            group,
            processes: Processes::new(addresses, greeting_time, retry_after, hello, seed),
            partitions: None,
            owners: BTreeMap::new(),
            groups: BTreeMap::new(),
            parts: BTreeMap::new(),
            changes: VecDeque::new(),
            changes_dropped: 0,
        }
    }

    /// Returns the next change, in the order of the reports. Changes during an outage of the
    /// registry are reported as differences: a member that is no longer in the group has *left*.
    /// While 65,536 changes wait, further ones are dropped.
    pub fn poll_change(&mut self) -> Option<(GroupId, MemberChange)> {
        self.changes.pop_front()
    }

    /// Returns the groups that have members, as they were last reported.
    pub fn groups(&self) -> &BTreeMap<GroupId, Observed> {
        &self.groups
    }

    /// Returns `true` if all observed groups are up to date.
    pub fn is_current(&self) -> bool {
        let Some(partitions) = self.partitions else { return false };
        match self.group {
            Some(group) => self.owners.contains_key(&partition_of(group, partitions)),
            None => self.owners.len() == usize::from(partitions),
        }
    }

    /// Returns the known addresses of registry processes, with `true` for those that are connected.
    pub fn processes(&self) -> impl Iterator<Item = (Endpoint, bool)> {
        self.processes.connections.addresses()
    }

    /// Returns the last refusal by a registry process, or `None` if a welcome has followed it.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.processes.connections.last_refusal.as_ref()
    }

    /// Returns all counters with their names.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.processes.stats().chain([("changes_dropped", self.changes_dropped)]).collect()
    }

    fn process_events(&mut self, now: Time) {
        while let Some((from, event)) = self.processes.poll_event() {
            let is_sound = match event {
                ProcessEvent::Welcomed { partitions, .. } => self.on_welcomed(from, partitions),
                ProcessEvent::Received(frame) => self.on_frame(from, frame),
                ProcessEvent::Lost => {
                    self.on_lost(from);
                    true
                }
            };
            if !is_sound {
                self.on_lost(from);
                self.processes.on_nonsense(now, from, FrameError::Value);
            }
        }
    }

    fn on_welcomed(&mut self, from: Endpoint, partitions: u16) -> bool {
        if *self.partitions.get_or_insert(partitions) != partitions {
            return false;
        }
        let group = self.group.unwrap_or(GroupId::NONE);
        self.processes.connections.send(from, &Frame::Observe { group });
        true
    }

    fn on_lost(&mut self, from: Endpoint) {
        self.parts.remove(&from);
        self.owners.retain(|_, owner| *owner != from);
        for group in self.groups.values_mut().filter(|group| group.owner == Some(from)) {
            group.owner = None;
        }
    }

    /// Processes a frame. Returns `false` if it is not allowed here.
    fn on_frame(&mut self, from: Endpoint, frame: Frame) -> bool {
        match frame {
            Frame::Snapshot(snapshot) => self.on_snapshot(from, snapshot),
            Frame::Update(update) => return self.on_update(from, &update),
            Frame::Observed { partition } => self.on_observed(from, partition),
            Frame::Elsewhere { group, .. } => self.on_elsewhere(from, group),
            _ => return false,
        }
        true
    }

    fn on_snapshot(&mut self, from: Endpoint, snapshot: Snapshot) {
        let Snapshot { group, version, more, settings, members } = snapshot;
        let parts = self.parts.entry(from).or_default();
        parts.extend(members);
        if more {
            return;
        }
        let members = self.parts.remove(&from).unwrap_or_default();
        let members: BTreeMap<NodeId, Member> =
            members.into_iter().map(|member| (member.node, member)).collect();
        let owner = Some(from);
        let now = Observed { settings, version, members: members.clone(), owner };
        let before = self.groups.insert(group, now).map(|it| it.members).unwrap_or_default();
        for member in before.values().filter(|member| !members.contains_key(&member.node)) {
            self.report(group, MemberChange { kind: ChangeKind::Left, member: *member });
        }
        for member in members.values().filter(|it| before.get(&it.node) != Some(it)) {
            self.report(group, MemberChange { kind: ChangeKind::Joined, member: *member });
        }
    }

    fn on_update(&mut self, from: Endpoint, update: &Update) -> bool {
        let Some(known) = self.groups.get_mut(&update.group) else { return true };
        if known.owner != Some(from) {
            return true;
        }
        if known.version != update.after {
            return false;
        }
        known.version = update.version;
        for MemberChange { kind, member } in &update.changes {
            match kind {
                ChangeKind::Joined => known.members.insert(member.node, *member),
                _ => known.members.remove(&member.node),
            };
        }
        if known.members.is_empty() {
            self.groups.remove(&update.group);
        }
        update.changes.iter().for_each(|change| self.report(update.group, *change));
        true
    }

    fn on_observed(&mut self, from: Endpoint, partition: u16) {
        let Some(partitions) = self.partitions else { return };
        self.owners.insert(partition, from);
        let is_gone = |group: GroupId, it: &Observed| {
            partition_of(group, partitions) == partition && it.owner != Some(from)
        };
        let gone: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(group, it)| is_gone(**group, it))
            .map(|(group, _)| *group)
            .collect();
        for group in gone {
            let Some(observed) = self.groups.remove(&group) else { continue };
            for member in observed.members.into_values() {
                self.report(group, MemberChange { kind: ChangeKind::Left, member });
            }
        }
    }

    /// Awaits the partition from its next owner, which sends it without a request.
    fn on_elsewhere(&mut self, from: Endpoint, group: GroupId) {
        let Some(partitions) = self.partitions else { return };
        let partition = partition_of(group, partitions);
        if self.owners.get(&partition) == Some(&from) {
            self.owners.remove(&partition);
        }
        if let Some(known) = self.groups.get_mut(&group).filter(|it| it.owner == Some(from)) {
            known.owner = None;
        }
    }

    fn report(&mut self, group: GroupId, change: MemberChange) {
        if self.changes.len() >= MAX_CHANGES {
            self.changes_dropped += 1;
        } else {
            self.changes.push_back((group, change));
        }
    }
}

impl Client for Observer {
    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.processes.handle_link(now, link, event);
        self.process_events(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.processes.handle_timeout(now);
        self.process_events(now);
    }

    fn shut_down(&mut self) {
        self.processes.shut_down();
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.processes.connections.poll_link()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let due = self.processes.connections.next_due();
        due.map(|at| Wakeup { at, reason: "observer" })
    }
}
