//! Who is in which group, for somebody who is in none.
//!
//! An observer has a link to every control process, and is told of one group or of all by whichever
//! process owns them. When a process is not reached, what it told last stays, and the observer is
//! *away* until another one, or the same, has told all of its partitions again.
//!
//! It is driven as a [`Membership`](crate::membership::Membership) provider is, has no datagrams,
//! and is known to nobody but the processes.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use super::fields::Member;
use super::frame::{
    ChangeKind, Frame, Hello, MemberChange, Refusal, Role, Snapshot, Update, partition_of,
};
use super::ways::{News, WaySettings, Ways};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::{Endpoint, GroupId, GroupSettings, Incarnation, NodeId, Time, Wakeup};

/// Settings of an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverConfig {
    /// TCP addresses of control processes; each names the others. At least one.
    pub addresses: Vec<Endpoint>,
    /// The cluster's name, as the service has it. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// The group that is to be observed. Default: `None`, all of them.
    pub group: Option<GroupId>,
    /// How long a link may take to be opened and welcomed. Default: 3 s.
    pub greeting_time: Duration,
    /// The pause between two attempts to reach a process, give or take a quarter. Default: 1 s.
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

/// One observer.
#[derive(Debug)]
pub struct Observer {
    group: Option<GroupId>,
    ways: Ways,
    /// How many partitions there are; `None` until a process has said so.
    partitions: Option<u16>,
    /// Who has told all of each partition, and tells what changes.
    tellers: BTreeMap<u16, Endpoint>,
    groups: BTreeMap<GroupId, Observed>,
    /// Snapshots of which more is to come.
    parts: BTreeMap<Endpoint, Vec<Member>>,
    changes: VecDeque<(GroupId, MemberChange)>,
    changes_dropped: u64,
}

/// A group as it was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What the group is.
    pub settings: GroupSettings,
    /// Its version.
    pub version: u64,
    /// Its members.
    pub members: BTreeMap<NodeId, Member>,
    /// Who tells what changes; `None` if that process is not reached or not the owner any more.
    teller: Option<Endpoint>,
}

/// Changes that wait to be polled; more are dropped and counted.
const MAX_CHANGES: usize = 65_536;

impl Observer {
    /// An observer. `seed` is the source of all randomness.
    ///
    /// # Panics
    /// If there is no address, or a pause of zero.
    pub fn new(config: ObserverConfig, seed: u64) -> Self {
        let ObserverConfig { addresses, cluster, group, greeting_time, retry_after } = config;
        let endpoint = Endpoint(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let member = Member { node: NodeId(seed), incarnation: 0, start: Incarnation(0), endpoint };
        let hello = Hello { role: Role::Observer, cluster, member, rack: String::new() };
        let settings = WaySettings { addresses, greeting_time, retry_after };
        Self {
            group,
            ways: Ways::new(settings, hello, seed),
            partitions: None,
            tellers: BTreeMap::new(),
            groups: BTreeMap::new(),
            parts: BTreeMap::new(),
            changes: VecDeque::new(),
            changes_dropped: 0,
        }
    }

    /// Something happened to a link.
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.ways.handle_link(now, link, event);
        self.take_news(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.ways.handle_timeout(now);
        self.take_news(now);
    }

    /// Says goodbye to all control processes.
    pub fn shut_down(&mut self) {
        self.ways.shut_down();
    }

    /// The next thing to be done with a link.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        self.ways.poll_link()
    }

    /// When [`Observer::handle_timeout`] should be called next, and why.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        self.ways.next_due().map(|at| Wakeup { at, reason: "observer" })
    }

    /// The next change, in the order in which they were told. What happened while the service was
    /// not reached is told as what differs: who is not there any more has *left*.
    pub fn poll_change(&mut self) -> Option<(GroupId, MemberChange)> {
        self.changes.pop_front()
    }

    /// The groups that have members, as they were told last.
    pub fn groups(&self) -> &BTreeMap<GroupId, Observed> {
        &self.groups
    }

    /// Whether all that it wants to know is as the service says at this time.
    pub fn is_current(&self) -> bool {
        let Some(partitions) = self.partitions else { return false };
        match self.group {
            Some(group) => self.tellers.contains_key(&partition_of(group, partitions)),
            None => self.tellers.len() == usize::from(partitions),
        }
    }

    /// The addresses of control processes that are known, and whether it is linked to each.
    pub fn processes(&self) -> impl Iterator<Item = (Endpoint, bool)> {
        self.ways.addresses()
    }

    /// Why a control process refused the last link, if none was welcomed since.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.ways.last_refusal()
    }

    /// All counters, by name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut stats = self.ways.stats();
        stats.push(("changes_dropped", self.changes_dropped));
        stats
    }

    fn take_news(&mut self, now: Time) {
        while let Some((from, news)) = self.ways.poll_news() {
            let is_sound = match news {
                News::Welcomed { partitions, .. } => self.on_welcomed(from, partitions),
                News::Heard(frame) => self.on_frame(from, frame),
                News::Lost => {
                    self.on_lost(from);
                    true
                }
            };
            if !is_sound {
                self.on_lost(from);
                self.ways.on_nonsense(now, from);
            }
        }
    }

    fn on_welcomed(&mut self, from: Endpoint, partitions: u16) -> bool {
        if *self.partitions.get_or_insert(partitions) != partitions {
            return false;
        }
        let group = self.group.unwrap_or(GroupId::NONE);
        self.ways.send(from, &Frame::Observe { group });
        true
    }

    /// What this process told stays, but may not be so any more.
    fn on_lost(&mut self, from: Endpoint) {
        self.parts.remove(&from);
        self.tellers.retain(|_, teller| *teller != from);
        for group in self.groups.values_mut().filter(|group| group.teller == Some(from)) {
            group.teller = None;
        }
    }

    /// Says whether the frame made sense.
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
        let teller = Some(from);
        let now = Observed { settings, version, members: members.clone(), teller };
        let before = self.groups.insert(group, now).map(|it| it.members).unwrap_or_default();
        for member in before.values().filter(|member| !members.contains_key(&member.node)) {
            self.tell(group, MemberChange { kind: ChangeKind::Left, member: *member });
        }
        for member in members.values().filter(|it| before.get(&it.node) != Some(it)) {
            self.tell(group, MemberChange { kind: ChangeKind::Joined, member: *member });
        }
    }

    fn on_update(&mut self, from: Endpoint, update: &Update) -> bool {
        let Some(known) = self.groups.get_mut(&update.group) else { return true };
        if known.teller != Some(from) {
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
        update.changes.iter().for_each(|change| self.tell(update.group, *change));
        true
    }

    /// The process has told all of the partition: what it has not told is not there any more.
    fn on_observed(&mut self, from: Endpoint, partition: u16) {
        let Some(partitions) = self.partitions else { return };
        self.tellers.insert(partition, from);
        let is_gone = |group: GroupId, it: &Observed| {
            partition_of(group, partitions) == partition && it.teller != Some(from)
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
                self.tell(group, MemberChange { kind: ChangeKind::Left, member });
            }
        }
    }

    /// The process does not own the group's partition any more; who does tells by itself.
    fn on_elsewhere(&mut self, from: Endpoint, group: GroupId) {
        let Some(partitions) = self.partitions else { return };
        let partition = partition_of(group, partitions);
        if self.tellers.get(&partition) == Some(&from) {
            self.tellers.remove(&partition);
        }
        if let Some(known) = self.groups.get_mut(&group).filter(|it| it.teller == Some(from)) {
            known.teller = None;
        }
    }

    fn tell(&mut self, group: GroupId, change: MemberChange) {
        if self.changes.len() >= MAX_CHANGES {
            self.changes_dropped += 1;
        } else {
            self.changes.push_back((group, change));
        }
    }
}
