use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use crate::membership::link::LinkId;
use crate::membership::service::partition_state::{Change, PartitionState};
use crate::membership::service::protocol::frame::{JoinRefusal, Member, Unserved};
use crate::membership::service::server::commit::{
    Answer, Commit, CommitId, Outcome, Request, RequestedChange,
};
use crate::membership::service::server::config::ServerConfig;
use crate::{GroupId, GroupSettings, NodeId};

#[derive(Debug, Default)]
pub(super) struct Partition {
    state: PartitionState,
    is_loaded: bool,
    is_owned: bool,
    waiting: VecDeque<Request>,
    in_flight: Option<InFlight>,
    is_paused: bool,
    is_repeated: bool,
    failures: u32,
}

#[derive(Debug)]
struct InFlight {
    commit: Commit,
    requests: Vec<Request>,
}

/// A commit under construction. A request waits if it depends on entries that the commit changes.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    requests: Vec<Request>,
    touched: BTreeSet<(GroupId, NodeId)>,
    joined: BTreeMap<GroupId, usize>,
    groups: BTreeMap<GroupId, Option<GroupSettings>>,
}

enum Verdict {
    Change(Change),
    Answer(Outcome),
    Later,
}

impl Partition {
    pub(super) fn state(&self) -> &PartitionState {
        &self.state
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub(super) fn is_owned(&self) -> bool {
        self.is_owned
    }

    pub(super) fn load(&mut self, state: PartitionState) {
        (self.state, self.is_loaded) = (state, true);
    }

    /// Applies changes from the store's watch. Returns `false` if they do not match the state.
    pub(super) fn apply(&mut self, after: u64, changes: &[Change]) -> bool {
        let version = self.state.version();
        let is_known = self.is_loaded && after + changes.len() as u64 <= version;
        if is_known {
            return true;
        }
        if self.is_owned {
            // The watch can report a write of this process before or after its result.
            return after == version
                && self.in_flight.as_ref().is_some_and(|it| it.commit.changes == changes);
        }
        self.is_loaded &= after == version;
        if self.is_loaded {
            changes.iter().for_each(|change| self.state.apply(change));
        }
        self.is_loaded
    }

    pub(super) fn own(&mut self) -> bool {
        !core::mem::replace(&mut self.is_owned, true)
    }

    pub(super) fn push(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    pub(super) fn open_requests(&self) -> usize {
        self.waiting.len() + self.in_flight.as_ref().map_or(0, |it| it.requests.len())
    }

    pub(super) fn has_work(&self) -> bool {
        let is_free = self.in_flight.is_none() || self.is_repeated;
        self.is_owned
            && !self.is_paused
            && is_free
            && (self.is_repeated || !self.waiting.is_empty())
    }

    pub(super) fn next_commit(
        &mut self,
        config: &ServerConfig,
        partition: u16,
        id: CommitId,
        answers: &mut Vec<Answer>,
    ) -> Option<Commit> {
        if core::mem::take(&mut self.is_repeated) {
            return self.in_flight.as_ref().map(|it| it.commit.clone());
        }
        let mut batch = Batch::default();
        while let Some(request) = self.waiting.front().copied() {
            match self.judge(&batch, request, config) {
                Verdict::Change(_) if batch.changes.len() >= config.max_commit_changes => break,
                Verdict::Change(change) => batch.add(request, change),
                Verdict::Answer(outcome) => answers.push(Answer { request, outcome }),
                Verdict::Later => break,
            }
            self.waiting.pop_front();
        }
        if batch.changes.is_empty() {
            return None;
        }
        let commit = Commit { id, partition, after: self.state.version(), changes: batch.changes };
        let requests = batch.requests;
        self.in_flight = Some(InFlight { commit: commit.clone(), requests });
        Some(commit)
    }

    pub(super) fn is_in_flight(&self, id: CommitId) -> bool {
        self.in_flight.as_ref().is_some_and(|it| it.commit.id == id)
    }

    pub(super) fn is_open(&self, group: GroupId, node: NodeId) -> bool {
        let in_flight = self.in_flight.iter().flat_map(|it| &it.requests);
        in_flight
            .chain(&self.waiting)
            .any(|request| (request.group, request.node()) == (group, node))
    }

    pub(super) fn committed(&mut self) -> (Vec<Change>, Vec<Request>) {
        self.failures = 0;
        (self.is_repeated, self.is_paused) = (false, false);
        let Some(InFlight { commit, requests }) = self.in_flight.take() else {
            return (Vec::new(), Vec::new());
        };
        commit.changes.iter().for_each(|change| self.state.apply(change));
        (commit.changes, requests)
    }

    /// Ends the commit in flight, of which nothing is stored. Returns the refusals of its joins.
    /// Its other requests must eventually succeed, and are queued again in their old order.
    pub(super) fn failed(&mut self, why: Unserved) -> Vec<Answer> {
        let Some(InFlight { requests, .. }) = self.in_flight.take() else { return Vec::new() };
        let mut refused = Vec::new();
        for request in requests.into_iter().rev() {
            if let RequestedChange::Join { .. } = request.change {
                let outcome = Outcome::Refused(JoinRefusal::Unserved(why));
                refused.push(Answer { request, outcome });
            } else {
                self.waiting.push_front(request);
            }
        }
        refused.reverse();
        refused
    }

    pub(super) fn end_pause(&mut self) {
        self.is_paused = false;
    }

    pub(super) fn repeat(&mut self) {
        self.is_repeated = self.in_flight.is_some();
    }

    pub(super) fn pause(&mut self, config: &ServerConfig) -> Duration {
        self.is_paused = true;
        self.failures = self.failures.saturating_add(1);
        let factor = 1_u32.checked_shl(self.failures - 1).unwrap_or(u32::MAX).min(20);
        config.retry_after * factor
    }

    /// Drops the waiting joins of a lost connection. The node repeats them on its next connection.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        let is_of_link = |request: &Request| request.origin.is_some_and(|it| it.link == link);
        self.waiting.retain(|request| {
            !(is_of_link(request) && matches!(request.change, RequestedChange::Join { .. }))
        });
        let in_flight = self.in_flight.iter_mut().flat_map(|it| &mut it.requests);
        for request in self.waiting.iter_mut().chain(in_flight) {
            if is_of_link(request) {
                request.origin = None;
            }
        }
    }

    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let old = core::mem::take(self);
        let in_flight = old.in_flight.into_iter().flat_map(|it| it.requests);
        in_flight.chain(old.waiting).filter(|request| request.origin.is_some()).collect()
    }

    fn judge(&self, batch: &Batch, request: Request, config: &ServerConfig) -> Verdict {
        let Request { group, change, .. } = request;
        match change {
            RequestedChange::Join { settings, member } => {
                self.judge_join(batch, group, settings, member, config)
            }
            RequestedChange::Part { node, .. } if batch.touched.contains(&(group, node)) => {
                Verdict::Later
            }
            RequestedChange::Part { node, incarnation, start, has_failed } => {
                let is_meant = |member: &Member| {
                    let is_of_start = start.is_none_or(|start| start == member.start);
                    member.incarnation <= incarnation && is_of_start
                };
                match self.state.member(group, node).filter(is_meant) {
                    Some(member) => Verdict::Change(Change::Part { group, member, has_failed }),
                    None => Verdict::Answer(Outcome::Done),
                }
            }
        }
    }

    fn judge_join(
        &self,
        batch: &Batch,
        group: GroupId,
        settings: GroupSettings,
        member: Member,
        config: &ServerConfig,
    ) -> Verdict {
        if batch.touched.contains(&(group, member.node)) {
            return Verdict::Later;
        }
        let existing = self.state.group(group);
        let touched = batch.groups.get(&group);
        if touched.is_some_and(|it| it.is_none_or(|created| created != settings)) {
            return Verdict::Later;
        }
        if let Some(state) = existing {
            if state.settings != settings {
                let by = state.members.keys().find(|node| **node != member.node);
                let by = *by.unwrap_or(&member.node);
                let (existing, given) = (state.settings, settings);
                let why = JoinRefusal::Contradiction { existing, given, by };
                return Verdict::Answer(Outcome::Refused(why));
            }
            match state.members.get(&member.node) {
                Some(known) if *known == member => return Verdict::Answer(Outcome::Done),
                Some(known) if known.incarnation > member.incarnation => {
                    return Verdict::Answer(Outcome::Outdated);
                }
                _ => {}
            }
        }
        let joined = batch.joined.get(&group).copied().unwrap_or(0);
        if existing.map_or(0, |it| it.members.len()) + joined >= config.max_members_per_group {
            let why = JoinRefusal::Unserved(Unserved::TooManyMembers);
            return Verdict::Answer(Outcome::Refused(why));
        }
        Verdict::Change(Change::Join { group, settings, member })
    }

    pub(super) fn check(&self) {
        self.state.check();
        if let Some(InFlight { commit, requests }) = &self.in_flight {
            assert!(self.is_owned, "a commit in a partition of another process");
            assert_eq!(commit.after, self.state.version(), "a commit for another version");
            assert_eq!(commit.changes.len(), requests.len(), "a change has no request");
        }
        assert!(self.is_owned || self.waiting.is_empty(), "requests for a foreign partition");
    }
}

impl Batch {
    fn add(&mut self, request: Request, change: Change) {
        let group = change.group();
        self.touched.insert((group, change.member().node));
        match change {
            Change::Join { settings, .. } => {
                *self.joined.entry(group).or_default() += 1;
                self.groups.entry(group).or_insert(Some(settings));
            }
            // The group may end with this change, and its settings with it.
            Change::Part { .. } => {
                self.groups.insert(group, None);
            }
        }
        self.changes.push(change);
        self.requests.push(request);
    }
}
