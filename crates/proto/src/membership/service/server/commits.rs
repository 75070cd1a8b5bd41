//! Commits to the store, and their effects.

use alloc::collections::BTreeMap;

use super::super::frame::{ChangeKind, Frame, JoinRefusal, MemberChange, Unserved, partition_of};
use super::super::registry::Change;
use super::ledger::{Answer, Commit, CommitFailure, CommitId, Outcome, Request, Wish};
use super::{Server, Timer};
use crate::{GroupId, Time};

impl Server {
    /// Returns the next changes to be stored.
    ///
    /// One commit of each partition is in flight at a time. Changes that are requested meanwhile
    /// become the next one. Drain this method before [`Server::poll_link`], because some requests
    /// are answered without a commit.
    pub fn poll_commit(&mut self) -> Option<Commit> {
        while let Some(partition) = self.ready.pop_first() {
            let ledger = &mut self.ledgers[usize::from(partition)];
            if !ledger.has_work() {
                continue;
            }
            let mut answers = Vec::new();
            let id = CommitId(self.next_commit);
            let commit = ledger.next_commit(&self.config, partition, id, &mut answers);
            answers.into_iter().for_each(|answer| self.answer(answer));
            if let Some(commit) = commit {
                if commit.id == id {
                    self.next_commit += 1;
                    self.counters.commits += 1;
                } else {
                    self.counters.commits_repeated += 1;
                }
                return Some(commit);
            }
        }
        None
    }

    /// Processes the success of a commit, which is stored durably.
    pub fn handle_committed(&mut self, now: Time, id: CommitId) {
        let Some(partition) = self.partition_in_flight(id) else { return };
        let (changes, requests) = self.ledgers[usize::from(partition)].committed();
        self.counters.changes_committed += changes.len() as u64;
        self.tell(now, &changes);
        for request in requests {
            self.answer(Answer { request, outcome: Outcome::Done });
        }
        self.timers.cancel(Timer::Retry(partition));
        self.ledgers[usize::from(partition)].is_paused = false;
        self.ready.insert(partition);
    }

    /// Processes the failure of a commit, or a missing result.
    ///
    /// Joins of a failed commit are refused. Leaves and removals are tried again after a growing
    /// interval. A commit without a result is repeated unchanged.
    pub fn handle_commit_failed(&mut self, now: Time, id: CommitId, why: CommitFailure) {
        let Some(partition) = self.partition_in_flight(id) else { return };
        tracing::warn!(partition, %why, "a commit failed");
        let ledger = &mut self.ledgers[usize::from(partition)];
        let refused = match why {
            CommitFailure::Deposed => return self.disown(now, partition),
            CommitFailure::Unknown => {
                self.counters.commits_unknown += 1;
                ledger.repeat();
                Vec::new()
            }
            CommitFailure::Full => ledger.failed(Unserved::StoreFull),
            CommitFailure::Failed => ledger.failed(Unserved::StoreFailed),
        };
        self.counters.commits_failed += u64::from(why != CommitFailure::Unknown);
        ledger.is_paused = true;
        let pause = ledger.next_pause(&self.config);
        self.timers.set(Timer::Retry(partition), now + pause);
        refused.into_iter().for_each(|answer| self.answer(answer));
    }

    /// Adds a request to the ledger of its partition, which must be owned.
    pub(super) fn wish(&mut self, request: Request) {
        let partition = partition_of(request.group, self.config.partitions);
        if let Some(origin) = request.origin
            && let Some(peer) = self.sessions.links.get_mut(&origin.link)
        {
            peer.open_requests += 1;
        }
        self.ledgers[usize::from(partition)].push(request);
        self.ready.insert(partition);
    }

    fn partition_in_flight(&mut self, id: CommitId) -> Option<u16> {
        let place = self.ledgers.iter().position(|ledger| ledger.is_in_flight(id));
        self.counters.commits_late += u64::from(place.is_none());
        place.map(|place| place as u16)
    }

    /// Updates indexes and subscribers after changes were applied to the state.
    fn tell(&mut self, now: Time, changes: &[Change]) {
        let mut by_group: BTreeMap<GroupId, Vec<MemberChange>> = BTreeMap::new();
        for change in changes {
            self.index(change);
            let told = MemberChange { kind: change.kind(), member: change.member() };
            by_group.entry(change.group()).or_default().push(told);
        }
        for (group, changes) in by_group {
            self.stop_telling_those_who_left(group, &changes);
            let state = &self.ledgers[usize::from(self.partition(group))].state;
            if let Some(state) = state.group(group) {
                let (version, members) = (state.version, &state.members);
                self.audience.update(&mut self.outbox, group, version, members, &changes);
                self.show_to_observers(group);
            } else {
                // Only observers can still be subscribed.
                let (version, members) = (state.version(), BTreeMap::new());
                self.audience.update(&mut self.outbox, group, version, &members, &changes);
                self.forget_group(group);
            }
        }
        for change in changes {
            if let Change::Join { group, member, .. } = *change {
                self.hold_lease(now, group, member);
            }
        }
    }

    fn index(&mut self, change: &Change) {
        let (group, node) = (change.group(), change.member().node);
        let groups = self.memberships.entry(node).or_default();
        match change {
            Change::Join { .. } => groups.insert(group),
            Change::Part { .. } => groups.remove(&group),
        };
        if groups.is_empty() {
            self.memberships.remove(&node);
            self.expired.remove(&node);
        }
    }

    fn stop_telling_those_who_left(&mut self, group: GroupId, changes: &[MemberChange]) {
        for change in changes.iter().filter(|change| change.kind != ChangeKind::Joined) {
            let session = self.sessions.nodes.get(&change.member.node);
            if let Some(link) = session.and_then(|session| session.link) {
                self.audience.remove(link, group);
                if let Some(peer) = self.sessions.links.get_mut(&link) {
                    peer.groups.remove(&group);
                }
            }
        }
    }

    /// Sends the answer of a request, if its connection still exists.
    pub(super) fn answer(&mut self, Answer { request, outcome }: Answer) {
        let Request { group, wish, origin } = request;
        let Some(origin) = origin else { return };
        let Some(peer) = self.sessions.links.get_mut(&origin.link) else { return };
        peer.open_requests -= 1;
        let (link, request) = (origin.link, origin.request);
        match (wish, outcome) {
            (Wish::Join { member, .. }, Outcome::Done) => {
                let partition = partition_of(group, self.config.partitions);
                let state = self.ledgers[usize::from(partition)].state.group(group);
                let Some(state) = state.filter(|it| it.members.contains_key(&member.node)) else {
                    // A later change removed it, of which its connection is notified.
                    return;
                };
                let version = state.version;
                peer.groups.insert(group);
                self.outbox.send(link, &Frame::Joined { request, group, version });
                self.audience.show(&mut self.outbox, link, member.node, group, state);
            }
            (Wish::Part { .. }, Outcome::Done) => {
                self.audience.remove(link, group);
                peer.groups.remove(&group);
                self.outbox.send(link, &Frame::Left { request, group });
            }
            (_, Outcome::Refused(why)) => self.refuse_join(link, request, group, why),
            (_, Outcome::Outdated) => self.expire_link(link),
        }
    }

    pub(super) fn refuse_join(
        &mut self,
        link: crate::membership::link::LinkId,
        request: u32,
        group: GroupId,
        why: JoinRefusal,
    ) {
        tracing::debug!(%link, %group, ?why, "a join is refused");
        self.counters.joins_refused += 1;
        self.outbox.send(link, &Frame::JoinRefused { request, group, why });
    }
}
