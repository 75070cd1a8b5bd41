mod members;
mod partition;

use alloc::collections::{BTreeMap, BTreeSet};

use self::members::MemberIndex;
use self::partition::Partition;
use super::commit::{Answer, Commit, CommitFailure, CommitId, Request};
use super::context::{Context, Timer};
use crate::membership::link::LinkId;
use crate::membership::service::partition_state::{Change, GroupState, PartitionState};
use crate::membership::service::protocol::frame::{Member, Unserved, partition_of};
use crate::{GroupId, NodeId};

#[derive(Debug)]
pub(super) struct Partitions {
    all: Vec<Partition>,
    members: MemberIndex,
    ready: BTreeSet<u16>,
    next_commit: u64,
}

#[derive(Debug)]
pub(super) enum Failure {
    Deposed(u16),
    /// The commit failed or has no result. These joins are refused, and all else is tried again.
    Refused(Vec<Answer>),
}

impl Partitions {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            all: (0..partitions).map(|_| Partition::default()).collect(),
            members: MemberIndex::default(),
            ready: BTreeSet::new(),
            next_commit: 1,
        }
    }

    pub(super) fn partition_of(&self, group: GroupId) -> u16 {
        partition_of(group, self.all.len() as u16)
    }

    pub(super) fn is_owned(&self, partition: u16) -> bool {
        self.all.get(usize::from(partition)).is_some_and(Partition::is_owned)
    }

    pub(super) fn owns(&self, group: GroupId) -> bool {
        self.is_owned(self.partition_of(group))
    }

    pub(super) fn state(&self, partition: u16) -> Option<&PartitionState> {
        let partition = self.all.get(usize::from(partition))?;
        partition.is_loaded().then_some(partition.state())
    }

    pub(super) fn version(&self, group: GroupId) -> u64 {
        self.state_of(group).version()
    }

    pub(super) fn group(&self, group: GroupId) -> Option<&GroupState> {
        self.state_of(group).group(group)
    }

    pub(super) fn member(&self, group: GroupId, node: NodeId) -> Option<Member> {
        self.state_of(group).member(group, node)
    }

    pub(super) fn is_member(&self, group: GroupId, node: NodeId) -> bool {
        self.members.groups_of(node).is_some_and(|groups| groups.contains(&group))
    }

    pub(super) fn groups_of(&self, node: NodeId) -> usize {
        self.members.groups_of(node).map_or(0, BTreeSet::len)
    }

    pub(super) fn expired(&self, node: NodeId) -> Option<u32> {
        self.members.expired(node)
    }

    pub(super) fn open_requests(&self) -> usize {
        self.all.iter().map(Partition::open_requests).sum()
    }

    pub(super) fn load(&mut self, partition: u16, state: PartitionState) {
        let it = &mut self.all[usize::from(partition)];
        assert!(!it.is_owned(), "partition {partition} was loaded while it is owned");
        it.load(state);
    }

    pub(super) fn apply(&mut self, partition: u16, after: u64, changes: &[Change]) -> bool {
        self.all[usize::from(partition)].apply(after, changes)
    }

    pub(super) fn own(
        &mut self,
        cx: &mut Context,
        partition: u16,
    ) -> Option<Vec<(GroupId, Member)>> {
        let it = &mut self.all[usize::from(partition)];
        assert!(it.is_loaded(), "partition {partition} is owned before it is loaded");
        if !it.own() {
            return None;
        }
        tracing::info!(partition, version = it.state().version(), "owns the partition");
        cx.counters.partitions_owned += 1;
        let groups = it.state().groups().iter();
        let members = groups
            .flat_map(|(group, state)| state.members.values().map(|member| (*group, *member)));
        Some(members.collect())
    }

    pub(super) fn add_member(&mut self, group: GroupId, node: NodeId) {
        self.members.add(node, group);
    }

    pub(super) fn disown(
        &mut self,
        cx: &mut Context,
        partition: u16,
    ) -> Option<(Vec<Request>, BTreeMap<GroupId, GroupState>)> {
        let it = &mut self.all[usize::from(partition)];
        if !it.is_owned() {
            return None;
        }
        tracing::info!(partition, "no longer owns the partition");
        cx.counters.partitions_lost += 1;
        cx.timers.cancel(Timer::Retry(partition));
        let groups = it.state().groups().clone();
        Some((it.give_up(), groups))
    }

    /// Removes a membership, and returns `true` if it was the node's last one.
    pub(super) fn release(&mut self, node: NodeId, group: GroupId) -> bool {
        self.members.remove(node, group)
    }

    pub(super) fn request(&mut self, request: Request) {
        let partition = self.partition_of(request.group);
        self.all[usize::from(partition)].push(request);
        self.ready.insert(partition);
    }

    pub(super) fn remove_node(&mut self, node: NodeId, incarnation: u32, has_failed: bool) {
        let mut groups = self.members.groups_of(node).cloned().unwrap_or_default();
        if has_failed
            && !groups.is_empty()
            && let Some(requested) = self.members.expire(node, incarnation)
        {
            // A removal is requested only once, since the store may fail for a long time.
            groups.retain(|group| {
                self.member(*group, node).is_none_or(|it| it.incarnation > requested)
            });
        }
        for group in groups {
            self.request(Request::removal(group, node, incarnation, has_failed));
        }
    }

    /// Requests the removal of an ended incarnation: the process that ended it may have stopped
    /// before the store had the request.
    pub(super) fn remove_incarnation(&mut self, over: Member) {
        let groups = self.members.groups_of(over.node).cloned().unwrap_or_default();
        for group in groups {
            let stored = self.member(group, over.node);
            if stored.is_some_and(|stored| stored.is_same_life(&over)) {
                self.request(Request::removal_of_start(group, over));
            }
        }
    }

    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.all.iter_mut().for_each(|partition| partition.forget_link(link));
    }

    pub(super) fn next(&mut self, cx: &mut Context, answers: &mut Vec<Answer>) -> Option<Commit> {
        let partition = self.ready.pop_first()?;
        let it = &mut self.all[usize::from(partition)];
        if !it.has_work() {
            return None;
        }
        let id = CommitId(self.next_commit);
        let commit = it.next_commit(&cx.config, partition, id, answers)?;
        if commit.id == id {
            self.next_commit += 1;
            cx.counters.commits += 1;
        } else {
            cx.counters.commits_repeated += 1;
        }
        Some(commit)
    }

    pub(super) fn has_next(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn succeeded(
        &mut self,
        cx: &mut Context,
        id: CommitId,
    ) -> Option<(Vec<Change>, Vec<Request>)> {
        let partition = self.in_flight(cx, id)?;
        let (changes, requests) = self.all[usize::from(partition)].committed();
        cx.counters.changes_committed += changes.len() as u64;
        for change in &changes {
            let (group, node) = (change.group(), change.member().node);
            match change {
                Change::Join { .. } => self.members.add(node, group),
                Change::Part { .. } => _ = self.members.remove(node, group),
            }
        }
        cx.timers.cancel(Timer::Retry(partition));
        self.ready.insert(partition);
        Some((changes, requests))
    }

    pub(super) fn failed(
        &mut self,
        cx: &mut Context,
        id: CommitId,
        why: CommitFailure,
    ) -> Option<Failure> {
        let partition = self.in_flight(cx, id)?;
        tracing::warn!(partition, %why, "a commit failed");
        let it = &mut self.all[usize::from(partition)];
        let refused = match why {
            CommitFailure::Deposed => return Some(Failure::Deposed(partition)),
            CommitFailure::Unknown => {
                cx.counters.commits_unknown += 1;
                it.repeat();
                Vec::new()
            }
            CommitFailure::Full => it.failed(Unserved::StoreFull),
            CommitFailure::Failed => it.failed(Unserved::StoreFailed),
        };
        cx.counters.commits_failed += u64::from(why != CommitFailure::Unknown);
        let pause = it.pause(&cx.config);
        cx.timers.set(Timer::Retry(partition), cx.now + pause);
        Some(Failure::Refused(refused))
    }

    pub(super) fn retry(&mut self, partition: u16) {
        self.all[usize::from(partition)].end_pause();
        self.ready.insert(partition);
    }

    pub(super) fn check(&self, is_alive: impl Fn(NodeId) -> bool) {
        let mut members = MemberIndex::default();
        for (place, partition) in self.all.iter().enumerate() {
            partition.check();
            for (group, state) in partition.state().groups() {
                let own = usize::from(self.partition_of(*group));
                assert_eq!(own, place, "{group:?} is in the wrong partition");
                for node in state.members.keys().filter(|_| partition.is_owned()) {
                    members.add(*node, *group);
                    let is_going = partition.is_open(*group, *node);
                    assert!(is_alive(*node) || is_going, "{node:?} is a member without a session");
                }
            }
        }
        assert!(self.members.has_same_groups(&members), "the index and the stored members differ");
    }

    fn state_of(&self, group: GroupId) -> &PartitionState {
        self.all[usize::from(self.partition_of(group))].state()
    }

    fn in_flight(&mut self, cx: &mut Context, id: CommitId) -> Option<u16> {
        let place = self.all.iter().position(|partition| partition.is_in_flight(id));
        cx.counters.commits_late += u64::from(place.is_none());
        place.map(|place| place as u16)
    }
}
