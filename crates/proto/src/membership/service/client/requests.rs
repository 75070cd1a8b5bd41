//! Requests of this node to the service: joins, leaves and resyncs.

use alloc::collections::BTreeSet;

use super::super::frame::{
    ChangeKind, Frame, JoinRefusal, MANAGER_PARTITION, Member, Owners, Snapshot, Unserved, Update,
    partition_of,
};
use super::paths::{Path, Ready, State};
use super::{Service, Timer};
use crate::membership::MembershipEvent;
use crate::{Endpoint, GroupId, GroupSettings, JoinError, Profile, Time};

/// A group that this node wants to be in.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) settings: GroupSettings,
    pub(super) standing: Standing,
    /// The process to which it was requested, or that reports its changes.
    at: Option<Endpoint>,
    /// Version of the view.
    version: u64,
    /// `true` if the service may have received the join.
    pub(super) was_asked: bool,
    /// `true` if the view was ever up to date.
    pub(super) was_current: bool,
    /// Parts of a snapshot received so far.
    incoming: Vec<Member>,
}

/// Progress of a group at the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// To be joined.
    Wanted,
    /// The join with this number is in flight. Answers to earlier joins, of a group that was left
    /// since, are ignored.
    Asked(u32),
    /// This node is a member, but its view may be outdated.
    Stale,
    /// The snapshot is in flight.
    Resyncing,
    /// The view is up to date, and updates arrive.
    Current,
}

impl Own {
    pub(super) fn new(settings: GroupSettings) -> Self {
        let (standing, incoming) = (Standing::Wanted, Vec::new());
        let (was_asked, was_current) = (false, false);
        Self { settings, standing, at: None, version: 0, was_asked, was_current, incoming }
    }

    /// Resets the progress after the loss of the connection. The request must be sent again.
    fn lose(&mut self) {
        self.at = None;
        self.incoming.clear();
        self.standing = match self.standing {
            Standing::Wanted | Standing::Asked(_) => Standing::Wanted,
            Standing::Stale | Standing::Resyncing | Standing::Current => Standing::Stale,
        };
    }
}

impl Service {
    pub(super) fn needed_partitions(&self) -> BTreeSet<u16> {
        let Some(Owners { partitions, .. }) = self.owners else { return BTreeSet::new() };
        let groups = self.groups.keys().chain(self.leaving.keys());
        let partitions = groups.map(|group| partition_of(*group, partitions));
        let has_bulk = self.groups.values().any(|own| own.settings.profile == Profile::Bulk);
        partitions.chain(has_bulk.then_some(MANAGER_PARTITION)).collect()
    }

    fn owner_of(&self, group: GroupId) -> Option<Endpoint> {
        self.owners.as_ref()?.owner_of(group)
    }

    /// Sends a request about the group, now or once its owner is connected.
    pub(super) fn request(&mut self, now: Time, group: GroupId) {
        let Some(owner) = self.owner_of(group) else { return };
        if let Some(ready) = self.ready(owner) {
            ready.queue.push_back(group);
            self.ask(owner);
        } else {
            self.tend(now);
        }
    }

    /// Queues all requests to this owner.
    pub(super) fn queue_all(&mut self, address: Endpoint) {
        let wanted = self
            .groups
            .iter()
            .filter(|(_, own)| matches!(own.standing, Standing::Wanted | Standing::Stale));
        let leaving = self.leaving.iter().filter(|(_, at)| at.is_none());
        let groups = wanted.map(|(group, _)| *group).chain(leaving.map(|(group, _)| *group));
        let groups: BTreeSet<GroupId> =
            groups.filter(|group| self.owner_of(*group) == Some(address)).collect();
        if let Some(ready) = self.ready(address) {
            ready.queue = groups.into_iter().collect();
            self.ask(address);
        }
    }

    /// Sends requests while there is room in the window.
    pub(super) fn ask(&mut self, address: Endpoint) {
        let window = self.config.max_open_requests;
        let Some(path) = self.paths.get_mut(&address) else { return };
        let State::Ready(ready) = &mut path.state else { return };
        while ready.open.len() + ready.resyncing.len() < window {
            let Some(group) = ready.queue.pop_front() else { return };
            if let Some(at) = self.leaving.get_mut(&group).filter(|at| at.is_none()) {
                let request = next_request(&mut self.next_request);
                *at = Some((address, request));
                ready.open.insert(request, group);
                self.outbox.send(ready.link, &Frame::Leave { request, group });
                self.counters.leaves_sent += 1;
            }
            let Some(own) = self.groups.get_mut(&group) else { continue };
            match own.standing {
                Standing::Wanted => {
                    let (request, settings) = (next_request(&mut self.next_request), own.settings);
                    ready.open.insert(request, group);
                    self.outbox.send(ready.link, &Frame::Join { request, group, settings });
                    self.counters.joins_sent += 1;
                    (own.standing, own.was_asked) = (Standing::Asked(request), true);
                }
                Standing::Stale => {
                    ready.resyncing.insert(group);
                    let have = own.version;
                    self.outbox.send(ready.link, &Frame::Resync { group, have });
                    self.counters.resyncs_sent += 1;
                    own.standing = Standing::Resyncing;
                }
                Standing::Asked(_) | Standing::Resyncing | Standing::Current => continue,
            }
            own.at = Some(address);
        }
    }

    /// Resets the requests that were in flight on a lost connection.
    pub(super) fn lose_groups_at(&mut self, address: Endpoint) {
        self.groups.values_mut().filter(|own| own.at == Some(address)).for_each(Own::lose);
        let is_there = |at: &&mut Option<(Endpoint, u32)>| at.is_some_and(|it| it.0 == address);
        for at in self.leaving.values_mut().filter(is_there) {
            *at = None;
        }
    }

    pub(super) fn on_owners(&mut self, now: Time, from: Endpoint, mut owners: Owners) {
        for (_, owner) in owners.owned.iter_mut().filter(|(_, at)| at.0.ip().is_unspecified()) {
            owner.0.set_ip(from.0.ip());
        }
        self.owners_told += 1;
        if !owners.owned.is_empty() {
            self.owners_from = Some(from);
        }
        let told = Some((self.owners_told, owners));
        if let Some(ready) = self.ready(from) {
            ready.owners = told;
        }
        self.follow_owners(now);
    }

    /// Follows the last owner list of an open connection.
    ///
    /// A process that names no owner has just started or cannot know, so its list is ignored if
    /// another one is known.
    pub(super) fn follow_owners(&mut self, now: Time) {
        let told = self.paths.values().filter_map(Path::owners);
        let latest = told.max_by_key(|(number, owners)| (!owners.owned.is_empty(), *number));
        let Some((_, owners)) = latest else { return };
        if self.owners.as_ref().is_some_and(|known| known == owners || owners.owned.is_empty()) {
            return;
        }
        self.owners = Some(owners.clone());
        let groups: Vec<GroupId> = self.groups.keys().chain(self.leaving.keys()).copied().collect();
        let mut changed = BTreeSet::new();
        for group in groups {
            let owner = self.owner_of(group);
            changed.extend(owner);
            if let Some(own) = self.groups.get_mut(&group).filter(|it| it.at != owner) {
                if let Some(State::Ready(old)) =
                    own.at.and_then(|at| self.paths.get_mut(&at)).map(|path| &mut path.state)
                {
                    old.open.retain(|_, open| *open != group);
                    old.resyncing.remove(&group);
                }
                own.lose();
            }
            if let Some(at) = self.leaving.get_mut(&group).filter(|at| at.map(|it| it.0) != owner) {
                *at = None;
            }
        }
        self.tend(now);
        changed.into_iter().for_each(|owner| self.queue_all(owner));
        self.look_whether_away(now);
    }

    pub(super) fn on_joined(&mut self, address: Endpoint, request: u32, group: GroupId) {
        let Some(ready) = self.ready(address) else { return };
        if ready.open.remove(&request) != Some(group) {
            self.counters.answers_late += 1;
            return;
        }
        let is_asked = |own: &&mut Own| own.standing == Standing::Asked(request);
        if let Some(own) = self.groups.get_mut(&group).filter(is_asked) {
            // Its snapshot follows.
            own.standing = Standing::Resyncing;
            if let Some(ready) = self.ready(address) {
                ready.resyncing.insert(group);
            }
        }
        self.ask(address);
    }

    pub(super) fn on_join_refused(
        &mut self,
        now: Time,
        address: Endpoint,
        (request, group): (u32, GroupId),
        why: JoinRefusal,
    ) {
        let Some(ready) = self.ready(address) else { return };
        if ready.open.remove(&request) != Some(group) {
            self.counters.answers_late += 1;
            return;
        }
        let is_asked = |own: &&mut Own| own.standing == Standing::Asked(request);
        let Some(own) = self.groups.get_mut(&group).filter(is_asked) else { return };
        let error = match why {
            // A former member that comes back tries again after a failure of the store.
            JoinRefusal::Unserved(why) if why == Unserved::Busy || own.was_current => {
                own.lose();
                return self.ask_again_later(now, address);
            }
            JoinRefusal::Contradiction { existing, given, .. }
                if existing.name_check != given.name_check =>
            {
                JoinError::NameCollision
            }
            JoinRefusal::Contradiction { existing, given, by } => {
                JoinError::Contradiction { ours: given, theirs: existing, by }
            }
            JoinRefusal::Unserved(why) => JoinError::Unserved { why },
        };
        self.counters.joins_refused += 1;
        self.groups.remove(&group);
        // Nodes that only this group contained are reported as parted after it.
        self.views.events.push_back(MembershipEvent::Refused(group, error));
        self.views.leave(group);
        self.ask(address);
    }

    pub(super) fn on_left(&mut self, address: Endpoint, request: u32, group: GroupId) {
        let Some(ready) = self.ready(address) else { return };
        if ready.open.remove(&request) != Some(group) {
            self.counters.answers_late += 1;
        } else if self.leaving.get(&group) == Some(&Some((address, request))) {
            // Otherwise the group was joined and left again, and the later leave is still to be
            // sent.
            self.leaving.remove(&group);
        }
        self.ask(address);
    }

    /// Schedules the request again: the process does not own the group, and the owner will be known
    /// soon.
    pub(super) fn on_elsewhere(
        &mut self,
        now: Time,
        address: Endpoint,
        request: u32,
        group: GroupId,
    ) {
        self.counters.sent_elsewhere += 1;
        let Some(ready) = self.ready(address) else { return };
        ready.open.remove(&request);
        ready.resyncing.remove(&group);
        if let Some(own) = self.groups.get_mut(&group).filter(|own| own.at == Some(address)) {
            own.lose();
        }
        let is_there = |at: &&mut Option<(Endpoint, u32)>| at.is_some_and(|it| it.0 == address);
        if let Some(at) = self.leaving.get_mut(&group).filter(is_there) {
            *at = None;
        }
        self.ask_again_later(now, address);
        self.look_whether_away(now);
    }

    pub(super) fn on_snapshot(&mut self, address: Endpoint, snapshot: Snapshot) {
        let Snapshot { group, version, more, members, .. } = snapshot;
        let is_awaited =
            |own: &&mut Own| own.standing == Standing::Resyncing && own.at == Some(address);
        let Some(own) = self.groups.get_mut(&group).filter(is_awaited) else {
            self.counters.answers_late += u64::from(!more);
            self.forget_resync(address, group, more);
            return;
        };
        own.incoming.extend(members);
        if more {
            return;
        }
        self.counters.snapshots_received += 1;
        own.version = version;
        let members = core::mem::take(&mut own.incoming);
        self.views.replace(group, &members);
        self.become_current(address, group);
    }

    pub(super) fn on_unchanged(
        &mut self,
        now: Time,
        address: Endpoint,
        group: GroupId,
        version: u64,
    ) {
        let is_awaited =
            |own: &&mut Own| own.standing == Standing::Resyncing && own.at == Some(address);
        match self.groups.get_mut(&group).filter(is_awaited) {
            Some(own) if own.version == version => self.become_current(address, group),
            Some(own) => {
                // The answer does not match the request, so everything is requested.
                own.version = 0;
                own.lose();
                self.forget_resync(address, group, false);
                self.ask_again_later(now, address);
            }
            None => self.forget_resync(address, group, false),
        }
    }

    pub(super) fn on_update(&mut self, now: Time, address: Endpoint, update: &Update) {
        self.counters.updates_received += 1;
        let is_followed =
            |own: &&mut Own| own.standing == Standing::Current && own.at == Some(address);
        let group = update.group;
        // Before a snapshot, updates can arrive that it already contains.
        let Some(own) = self.groups.get_mut(&group).filter(is_followed) else { return };
        if update.after != own.version {
            self.counters.gaps += 1;
            own.lose();
            self.request(now, group);
            return self.look_whether_away(now);
        }
        own.version = update.version;
        for change in &update.changes {
            match change.kind {
                ChangeKind::Joined => self.views.admit(group, change.member),
                kind => self.views.dismiss(group, change.member.node, kind.view_change()),
            }
        }
    }

    /// Comes back as a later incarnation, because the service declared this one dead.
    pub(super) fn on_expired(&mut self, now: Time, incarnation: u32) {
        if incarnation < self.member.incarnation {
            self.counters.answers_late += 1;
            return;
        }
        self.counters.expiries += 1;
        tracing::info!(node = %self.member.node, incarnation, "rejoins after being declared dead");
        // The service has already removed the node from the groups that it was leaving.
        self.leaving.clear();
        self.come_back(now, incarnation);
    }

    /// Joins all groups again as the incarnation after `after`.
    pub(super) fn come_back(&mut self, now: Time, after: u32) {
        self.member.incarnation = after.saturating_add(1);
        for own in self.groups.values_mut() {
            own.lose();
            own.standing = Standing::Wanted;
        }
        self.restart_links(now);
        self.look_whether_away(now);
    }

    pub(super) fn on_again_timer(&mut self, address: Endpoint) {
        self.queue_all(address);
    }

    /// Asserts that each group in flight is requested on an open connection.
    pub(super) fn check_requests(&self) {
        for (group, own) in &self.groups {
            match own.standing {
                Standing::Wanted | Standing::Stale => assert_eq!(own.at, None, "{group:?} is at"),
                Standing::Asked(_) | Standing::Resyncing | Standing::Current => {
                    let path = own.at.and_then(|at| self.paths.get(&at));
                    let is_ready = path.is_some_and(|path| matches!(path.state, State::Ready(_)));
                    assert!(is_ready, "{group:?} is asked for on no link");
                }
            }
        }
    }

    fn become_current(&mut self, address: Endpoint, group: GroupId) {
        self.forget_resync(address, group, false);
        if let Some(own) = self.groups.get_mut(&group) {
            own.standing = Standing::Current;
            if !core::mem::replace(&mut own.was_current, true) {
                self.joined.insert(group);
            }
        }
        self.ask(address);
    }

    fn forget_resync(&mut self, address: Endpoint, group: GroupId, more: bool) {
        if let Some(Ready { resyncing, .. }) = self.ready(address).filter(|_| !more) {
            resyncing.remove(&group);
        }
    }

    fn ask_again_later(&mut self, now: Time, address: Endpoint) {
        let at = now + self.config.first_pause;
        self.timers.set_no_later(Timer::Again(address), at);
    }
}

fn next_request(last: &mut u32) -> u32 {
    // 0 stands for a resync.
    *last = last.checked_add(1).unwrap_or(1);
    *last
}
