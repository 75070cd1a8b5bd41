use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::context::Context;
use super::counters::Counters;
use super::owners::KnownOwners;
use crate::membership::service::protocol::frame::{
    Frame, JoinRefusal, MANAGER_PARTITION, Member, Owners, Snapshot, Unserved, Update, partition_of,
};
use crate::{Endpoint, GroupId, GroupSettings, JoinError, Profile};

#[derive(Debug, Default)]
pub(super) struct Requests {
    groups: BTreeMap<GroupId, OwnGroup>,
    /// Unconfirmed leaves, with the address and number of the last request for each.
    leaving: BTreeMap<GroupId, Option<(Endpoint, u32)>>,
    joined: BTreeSet<GroupId>,
    windows: BTreeMap<Endpoint, Window>,
    last_request: u32,
}

#[derive(Debug)]
struct OwnGroup {
    settings: GroupSettings,
    progress: Progress,
    /// The process to which the join was sent, or that reports the group's changes.
    at: Option<Endpoint>,
    version: u64,
    was_requested: bool,
    was_current: bool,
    incoming: Vec<Member>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Wanted,
    /// Number of the join. Answers to earlier joins are ignored.
    Requested(u32),
    Stale,
    Resyncing,
    Current,
}

#[derive(Debug, Default)]
struct Window {
    queue: VecDeque<GroupId>,
    open: BTreeMap<u32, GroupId>,
    resyncing: BTreeSet<GroupId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) from: Endpoint,
    pub(super) request: u32,
    pub(super) group: GroupId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Updated {
    Ignored,
    Gap,
    Next,
}

impl OwnGroup {
    fn lose(&mut self) {
        self.at = None;
        self.incoming.clear();
        self.progress = match self.progress {
            Progress::Wanted | Progress::Requested(_) => Progress::Wanted,
            Progress::Stale | Progress::Resyncing | Progress::Current => Progress::Stale,
        };
    }

    fn is_pending(&self) -> bool {
        matches!(self.progress, Progress::Wanted | Progress::Stale)
    }
}

impl Window {
    fn in_flight(&self) -> usize {
        self.open.len() + self.resyncing.len()
    }
}

impl Requests {
    pub(super) fn settings(&self, group: GroupId) -> Option<GroupSettings> {
        self.groups.get(&group).map(|own| own.settings)
    }

    pub(super) fn add(&mut self, group: GroupId, settings: GroupSettings) {
        let (progress, was_requested, was_current) = (Progress::Wanted, false, false);
        let (at, version, incoming) = (None, 0, Vec::new());
        let own =
            OwnGroup { settings, progress, at, version, was_requested, was_current, incoming };
        self.groups.insert(group, own);
    }

    /// Removes a group. Returns `Some(true)` if the registry may have received the join, so that a
    /// leave must be sent, and `None` if this node did not want to be in the group.
    pub(super) fn leave(&mut self, group: GroupId) -> Option<bool> {
        let own = self.groups.remove(&group)?;
        self.joined.remove(&group);
        let must_leave = own.progress != Progress::Wanted || own.was_requested;
        if must_leave {
            self.leaving.insert(group, None);
        }
        Some(must_leave)
    }

    pub(super) fn forget_leaves(&mut self) {
        self.leaving.clear();
    }

    pub(super) fn are_current(&self) -> bool {
        self.groups.values().all(|own| own.progress == Progress::Current)
    }

    pub(super) fn are_pending(&self) -> bool {
        self.groups.values().any(OwnGroup::is_pending)
    }

    pub(super) fn are_busy(&self) -> bool {
        self.windows.values().any(|window| window.in_flight() + window.queue.len() > 0)
    }

    pub(super) fn have_joined(&self) -> bool {
        self.groups.values().all(|own| own.was_current)
    }

    pub(super) fn has_joined(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|own| own.was_current)
    }

    pub(super) fn pop_joined(&mut self) -> Option<GroupId> {
        self.joined.pop_first()
    }

    pub(super) fn partitions(&self, owners: Option<&Owners>) -> BTreeSet<u16> {
        let Some(Owners { partitions, .. }) = owners else { return BTreeSet::new() };
        let groups = self.groups.keys().chain(self.leaving.keys());
        let needed = groups.map(|group| partition_of(*group, *partitions));
        let has_bulk = self.groups.values().any(|own| own.settings.profile == Profile::Bulk);
        needed.chain(has_bulk.then_some(MANAGER_PARTITION)).collect()
    }

    pub(super) fn request(&mut self, cx: &mut Context, owner: Endpoint, group: GroupId) -> bool {
        let Some(window) = self.windows.get_mut(&owner) else { return false };
        window.queue.push_back(group);
        self.send(cx, owner);
        true
    }

    pub(super) fn open_window(&mut self, address: Endpoint) {
        self.windows.insert(address, Window::default());
    }

    pub(super) fn queue_all(&mut self, cx: &mut Context, owners: &KnownOwners, address: Endpoint) {
        let pending = self.groups.iter().filter(|(_, own)| own.is_pending());
        let leaving = self.leaving.iter().filter(|(_, at)| at.is_none());
        let groups = pending.map(|(group, _)| *group).chain(leaving.map(|(group, _)| *group));
        let groups: BTreeSet<GroupId> =
            groups.filter(|group| owners.owner_of(*group) == Some(address)).collect();
        if let Some(window) = self.windows.get_mut(&address) {
            window.queue = groups.into_iter().collect();
            self.send(cx, address);
        }
    }

    pub(super) fn send(&mut self, cx: &mut Context, address: Endpoint) {
        let Some(window) = self.windows.get_mut(&address) else { return };
        while window.in_flight() < cx.config.max_open_requests {
            let Some(group) = window.queue.pop_front() else { return };
            if let Some(at) = self.leaving.get_mut(&group).filter(|at| at.is_none()) {
                let request = next_request(&mut self.last_request);
                *at = Some((address, request));
                window.open.insert(request, group);
                cx.connections.send(address, &Frame::Leave { request, group });
                cx.counters.leaves_sent += 1;
            }
            let Some(own) = self.groups.get_mut(&group) else { continue };
            match own.progress {
                Progress::Wanted => {
                    let request = next_request(&mut self.last_request);
                    let settings = own.settings;
                    window.open.insert(request, group);
                    cx.connections.send(address, &Frame::Join { request, group, settings });
                    cx.counters.joins_sent += 1;
                    (own.progress, own.was_requested) = (Progress::Requested(request), true);
                }
                Progress::Stale => {
                    window.resyncing.insert(group);
                    let have = own.version;
                    cx.connections.send(address, &Frame::Resync { group, have });
                    cx.counters.resyncs_sent += 1;
                    own.progress = Progress::Resyncing;
                }
                Progress::Requested(_) | Progress::Resyncing | Progress::Current => continue,
            }
            own.at = Some(address);
        }
    }

    pub(super) fn lose(&mut self, address: Endpoint) {
        self.windows.remove(&address);
        self.groups.values_mut().filter(|own| own.at == Some(address)).for_each(OwnGroup::lose);
        let leaving = self.leaving.values_mut();
        leaving.filter(|at| is_at(at, address)).for_each(|at| *at = None);
    }

    pub(super) fn lose_all(&mut self) {
        self.windows.clear();
        self.leaving.values_mut().for_each(|at| *at = None);
        for own in self.groups.values_mut() {
            own.lose();
            own.progress = Progress::Wanted;
        }
    }

    pub(super) fn follow(&mut self, owners: &Owners) -> BTreeSet<Endpoint> {
        let groups: Vec<GroupId> = self.groups.keys().chain(self.leaving.keys()).copied().collect();
        let mut needed = BTreeSet::new();
        for group in groups {
            let owner = owners.owner_of(group);
            needed.extend(owner);
            if let Some(own) = self.groups.get_mut(&group).filter(|it| it.at != owner) {
                if let Some(old) = own.at.and_then(|at| self.windows.get_mut(&at)) {
                    old.open.retain(|_, open| *open != group);
                    old.resyncing.remove(&group);
                }
                own.lose();
            }
            if let Some(at) = self.leaving.get_mut(&group).filter(|at| at.map(|it| it.0) != owner) {
                *at = None;
            }
        }
        needed
    }

    pub(super) fn on_joined(&mut self, cx: &mut Context, answer: Answer) {
        if !self.close_request(cx, answer) {
            return;
        }
        if let Some(own) = self.requested(answer) {
            own.progress = Progress::Resyncing;
            if let Some(window) = self.windows.get_mut(&answer.from) {
                window.resyncing.insert(answer.group);
            }
        }
        self.send(cx, answer.from);
    }

    pub(super) fn on_join_refused(
        &mut self,
        cx: &mut Context,
        answer: Answer,
        why: JoinRefusal,
    ) -> Option<JoinError> {
        if !self.close_request(cx, answer) {
            return None;
        }
        let own = self.requested(answer)?;
        let error = match why {
            // A former member that comes back tries again after a failure of the store.
            JoinRefusal::Unserved(why) if why == Unserved::Busy || own.was_current => {
                own.lose();
                cx.request_again_later(answer.from);
                return None;
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
        cx.counters.joins_refused += 1;
        self.groups.remove(&answer.group);
        self.send(cx, answer.from);
        Some(error)
    }

    pub(super) fn on_left(&mut self, cx: &mut Context, answer: Answer) {
        let Answer { from, request, group } = answer;
        let is_last = self.leaving.get(&group) == Some(&Some((from, request)));
        if self.close_request(cx, answer) && is_last {
            // Otherwise, the group was joined and left again, and the later leave is still unsent.
            self.leaving.remove(&group);
        }
        self.send(cx, from);
    }

    /// Schedules the request again. Returns `false` if the process is not connected.
    pub(super) fn on_elsewhere(&mut self, cx: &mut Context, answer: Answer) -> bool {
        let Answer { from, request, group } = answer;
        let Some(window) = self.windows.get_mut(&from) else { return false };
        window.open.remove(&request);
        window.resyncing.remove(&group);
        if let Some(own) = self.groups.get_mut(&group).filter(|own| own.at == Some(from)) {
            own.lose();
        }
        if let Some(at) = self.leaving.get_mut(&group).filter(|at| is_at(at, from)) {
            *at = None;
        }
        cx.request_again_later(from);
        true
    }

    pub(super) fn on_snapshot(
        &mut self,
        cx: &mut Context,
        address: Endpoint,
        snapshot: Snapshot,
    ) -> Option<Vec<Member>> {
        let Snapshot { group, version, more, members, .. } = snapshot;
        let Some(own) = self.followed(address, group, Progress::Resyncing) else {
            if !more {
                cx.counters.answers_late += 1;
                self.forget_resync(address, group);
            }
            return None;
        };
        own.incoming.extend(members);
        if more {
            return None;
        }
        cx.counters.snapshots_received += 1;
        own.version = version;
        let members = core::mem::take(&mut own.incoming);
        self.become_current(cx, address, group);
        Some(members)
    }

    pub(super) fn on_unchanged(
        &mut self,
        cx: &mut Context,
        address: Endpoint,
        group: GroupId,
        version: u64,
    ) {
        match self.followed(address, group, Progress::Resyncing) {
            Some(own) if own.version == version => {
                return self.become_current(cx, address, group);
            }
            Some(own) => {
                own.version = 0;
                own.lose();
                cx.request_again_later(address);
            }
            None => {}
        }
        self.forget_resync(address, group);
    }

    pub(super) fn on_update(
        &mut self,
        counters: &mut Counters,
        address: Endpoint,
        update: &Update,
    ) -> Updated {
        counters.updates_received += 1;
        // Updates that arrive before a snapshot are already contained in it.
        let Some(own) = self.followed(address, update.group, Progress::Current) else {
            return Updated::Ignored;
        };
        if update.after != own.version {
            counters.gaps += 1;
            own.lose();
            return Updated::Gap;
        }
        own.version = update.version;
        Updated::Next
    }

    pub(super) fn check(&self, cx: &Context) {
        let ready = cx.connections.addresses().filter(|(_, is_ready)| *is_ready);
        assert!(ready.map(|(address, _)| address).eq(self.windows.keys().copied()), "no window");
        for (group, own) in &self.groups {
            if own.is_pending() {
                assert_eq!(own.at, None, "{group:?} is pending, but has a connection");
            } else {
                let is_ready = own.at.is_some_and(|at| self.windows.contains_key(&at));
                assert!(is_ready, "{group:?} is requested on no connection");
            }
        }
        for window in self.windows.values() {
            let open = window.in_flight();
            assert!(open <= 2 * cx.config.max_open_requests, "{open} open requests");
        }
    }

    fn close_request(&mut self, cx: &mut Context, answer: Answer) -> bool {
        let Some(window) = self.windows.get_mut(&answer.from) else { return false };
        let was_open = window.open.remove(&answer.request) == Some(answer.group);
        cx.counters.answers_late += u64::from(!was_open);
        was_open
    }

    fn requested(&mut self, answer: Answer) -> Option<&mut OwnGroup> {
        let own = self.groups.get_mut(&answer.group)?;
        (own.progress == Progress::Requested(answer.request)).then_some(own)
    }

    fn followed(
        &mut self,
        address: Endpoint,
        group: GroupId,
        progress: Progress,
    ) -> Option<&mut OwnGroup> {
        let own = self.groups.get_mut(&group)?;
        (own.progress == progress && own.at == Some(address)).then_some(own)
    }

    fn become_current(&mut self, cx: &mut Context, address: Endpoint, group: GroupId) {
        self.forget_resync(address, group);
        if let Some(own) = self.groups.get_mut(&group) {
            own.progress = Progress::Current;
            if !core::mem::replace(&mut own.was_current, true) {
                self.joined.insert(group);
            }
        }
        self.send(cx, address);
    }

    fn forget_resync(&mut self, address: Endpoint, group: GroupId) {
        if let Some(window) = self.windows.get_mut(&address) {
            window.resyncing.remove(&group);
        }
    }
}

fn is_at(leave: &Option<(Endpoint, u32)>, address: Endpoint) -> bool {
    leave.is_some_and(|(at, _)| at == address)
}

fn next_request(last: &mut u32) -> u32 {
    // 0 is the number of a resync.
    *last = last.checked_add(1).unwrap_or(1);
    *last
}
