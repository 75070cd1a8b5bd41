//! What is to be changed in one partition, in order, one commit at a time.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use super::super::frame::{JoinRefusal, Member, Unserved};
use super::super::registry::{Change, PartitionState};
use super::config::ServerConfig;
use crate::membership::link::LinkId;
use crate::{GroupId, GroupSettings, Incarnation, NodeId};

/// Changes that the store has to make together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The commit's number at this process.
    pub id: CommitId,
    /// The partition.
    pub partition: u16,
    /// The version that the partition must have before the first change; each change adds one. A
    /// store that has the version after the last one already, from this owner, has the commit: it
    /// was tried before.
    pub after: u64,
    /// What to change, in order; at least one.
    pub changes: Vec<Change>,
}

/// The number of a commit, never used again by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// What went wrong with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitFailure {
    /// Nothing of it is stored, for want of room: disk or quota.
    #[error("the store is full")]
    Full,
    /// Nothing of it is stored, for another reason; not by an earlier attempt either, whose answer
    /// was [`CommitFailure::Unknown`].
    #[error("the store failed")]
    Failed,
    /// The store did not answer: it may have the commit, or get it yet. It is tried again as it is,
    /// until it is known.
    #[error("the store did not answer")]
    Unknown,
    /// Nothing of it is stored: another process owns the partition.
    #[error("another process owns the partition")]
    Deposed,
}

/// One wish for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) group: GroupId,
    pub(super) wish: Wish,
    /// Who wants to be told.
    pub(super) origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Join {
        settings: GroupSettings,
        member: Member,
    },
    /// The node in this incarnation or an earlier one is to be out of the group.
    Part {
        node: NodeId,
        incarnation: u32,
        /// Only this start of it; `None`: whichever.
        start: Option<Incarnation>,
        has_failed: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) link: LinkId,
    pub(super) request: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) request: Request,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is as wished, in the store.
    Done,
    Refused(JoinRefusal),
    /// A later incarnation of the node is a member.
    Outdated,
}

/// One partition: what the store has, and what it is to have.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) state: PartitionState,
    pub(super) is_loaded: bool,
    pub(super) is_owned: bool,
    waiting: VecDeque<Request>,
    in_flight: Option<InFlight>,
    /// A commit failed, and the pause is not over.
    pub(super) is_paused: bool,
    /// Whether the commit in flight has to be given to the store again.
    is_repeated: bool,
    failures: u32,
}

#[derive(Debug)]
struct InFlight {
    commit: Commit,
    /// The requests of its changes, one each.
    requests: Vec<Request>,
}

/// What a commit under construction touches: a request that depends on it waits for it.
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
    /// It depends on a change that is not stored yet.
    Later,
}

impl Ledger {
    pub(super) fn push(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Requests of this partition that are not decided.
    pub(super) fn open_requests(&self) -> usize {
        self.waiting.len() + self.in_flight.as_ref().map_or(0, |it| it.requests.len())
    }

    /// Whether a commit could be made now.
    pub(super) fn has_work(&self) -> bool {
        let is_free = self.in_flight.is_none() || self.is_repeated;
        self.is_owned
            && !self.is_paused
            && is_free
            && (self.is_repeated || !self.waiting.is_empty())
    }

    /// The next commit, made of as many waiting requests as can be decided together, with the
    /// answers to those that need none.
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

    /// The commit in flight, if this is its number.
    pub(super) fn is_in_flight(&self, id: CommitId) -> bool {
        self.in_flight.as_ref().is_some_and(|it| it.commit.id == id)
    }

    /// Whether these are the changes of the commit in flight.
    pub(super) fn has_in_flight(&self, changes: &[Change]) -> bool {
        self.in_flight.as_ref().is_some_and(|it| it.commit.changes == changes)
    }

    /// Whether anything about this node in this group is not decided.
    pub(super) fn is_open(&self, group: GroupId, node: NodeId) -> bool {
        let in_flight = self.in_flight.iter().flat_map(|it| &it.requests);
        in_flight.chain(&self.waiting).any(|request| {
            let about = match request.wish {
                Wish::Join { member, .. } => member.node,
                Wish::Part { node, .. } => node,
            };
            (request.group, about) == (group, node)
        })
    }

    /// The store has the commit in flight: its changes and their requests. The state has them too.
    pub(super) fn committed(&mut self) -> (Vec<Change>, Vec<Request>) {
        self.failures = 0;
        self.is_repeated = false;
        let Some(InFlight { commit, requests }) = self.in_flight.take() else {
            return (Vec::new(), Vec::new());
        };
        commit.changes.iter().for_each(|change| self.state.apply(change));
        (commit.changes, requests)
    }

    /// Nothing of the commit in flight is stored: joins are refused, and what must happen in any
    /// case waits again, in its old place.
    pub(super) fn failed(&mut self, why: Unserved) -> Vec<Answer> {
        let Some(InFlight { requests, .. }) = self.in_flight.take() else { return Vec::new() };
        let mut refused = Vec::new();
        for request in requests.into_iter().rev() {
            if let Wish::Join { .. } = request.wish {
                let outcome = Outcome::Refused(JoinRefusal::Unserved(why));
                refused.push(Answer { request, outcome });
            } else {
                self.waiting.push_front(request);
            }
        }
        refused.reverse();
        refused
    }

    /// Gives the commit in flight to the store once more after the pause.
    pub(super) fn repeat(&mut self) {
        self.is_repeated = self.in_flight.is_some();
    }

    /// The pause before the next attempt.
    pub(super) fn next_pause(&mut self, config: &ServerConfig) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let factor = 1_u32.checked_shl(self.failures - 1).unwrap_or(u32::MAX).min(20);
        config.retry_after * factor
    }

    /// The link is gone: nobody waits for its joins any more, and they are asked again on the next.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        let is_of_link = |request: &Request| request.origin.is_some_and(|it| it.link == link);
        self.waiting
            .retain(|request| !(is_of_link(request) && matches!(request.wish, Wish::Join { .. })));
        let in_flight = self.in_flight.iter_mut().flat_map(|it| &mut it.requests);
        for request in self.waiting.iter_mut().chain(in_flight) {
            if is_of_link(request) {
                request.origin = None;
            }
        }
    }

    /// The partition is another's: all requests that somebody waits for.
    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let old = core::mem::take(self);
        let in_flight = old.in_flight.into_iter().flat_map(|it| it.requests);
        in_flight.chain(old.waiting).filter(|request| request.origin.is_some()).collect()
    }

    fn judge(&self, batch: &Batch, request: Request, config: &ServerConfig) -> Verdict {
        let Request { group, wish, .. } = request;
        match wish {
            Wish::Join { settings, member } => {
                self.judge_join(batch, group, settings, member, config)
            }
            Wish::Part { node, .. } if batch.touched.contains(&(group, node)) => Verdict::Later,
            Wish::Part { node, incarnation, start, has_failed } => {
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

    /// Asserts what must hold of the partition.
    pub(super) fn check(&self) {
        self.state.check();
        if let Some(InFlight { commit, requests }) = &self.in_flight {
            assert!(self.is_owned, "a commit in a partition of another process");
            assert_eq!(commit.after, self.state.version(), "a commit for another version");
            assert_eq!(commit.changes.len(), requests.len(), "a change that nobody asked for");
        }
        assert!(self.is_owned || self.waiting.is_empty(), "requests for another's partition");
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
            // The group may be gone afterwards, and with it its settings.
            Change::Part { .. } => {
                self.groups.insert(group, None);
            }
        }
        self.changes.push(change);
        self.requests.push(request);
    }
}
