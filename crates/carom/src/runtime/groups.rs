use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use carom_proto::GroupId;

use super::group_runtime::GroupRuntime;
use crate::shared::group::GroupShared;

#[derive(Debug, Default)]
pub(crate) struct Groups {
    joined: BTreeMap<GroupId, GroupRuntime>,
    /// Groups that the application has left, but the engine has not. Their multicast is still
    /// received.
    leaving: BTreeMap<GroupId, Option<Ipv4Addr>>,
    fresh: BTreeSet<GroupId>,
    left_unsent: u64,
    left_dropped_events: u64,
}

impl Groups {
    pub(crate) fn get(&self, group: GroupId) -> Option<&GroupRuntime> {
        self.joined.get(&group)
    }

    pub(crate) fn get_mut(&mut self, group: GroupId) -> Option<&mut GroupRuntime> {
        self.joined.get_mut(&group)
    }

    /// Returns the handle's group, or `None` if it was left, even if it was joined again.
    pub(crate) fn of_handle(&mut self, handle: &Arc<GroupShared>) -> Option<&mut GroupRuntime> {
        let group = self.joined.get_mut(&handle.id);
        group.filter(|group| Arc::ptr_eq(&group.shared, handle))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &GroupRuntime> {
        self.joined.values()
    }

    pub(crate) fn insert(&mut self, group: GroupRuntime) {
        self.joined.insert(group.id(), group);
    }

    pub(crate) fn remove(&mut self, group: GroupId) -> Option<GroupRuntime> {
        let removed = self.joined.remove(&group)?;
        self.left_unsent += removed.own.dropped() + removed.own.waiting() as u64;
        self.left_dropped_events += removed.dropped_events();
        self.leaving.insert(group, removed.address);
        Some(removed)
    }

    pub(crate) fn is_leaving(&self, group: GroupId) -> bool {
        self.leaving.contains_key(&group)
    }

    pub(crate) fn take_leaving(&mut self, group: GroupId) -> Option<Option<Ipv4Addr>> {
        self.leaving.remove(&group)
    }

    pub(crate) fn mark_fresh(&mut self, group: GroupId) {
        self.fresh.insert(group);
    }

    pub(crate) fn hand_over(&mut self) {
        while let Some(group) = self.fresh.pop_first() {
            if let Some(group) = self.joined.get_mut(&group) {
                group.hand_over();
            }
        }
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.left_unsent + self.iter().map(|group| group.own.dropped()).sum::<u64>()
    }

    pub(crate) fn dropped_events(&self) -> u64 {
        self.left_dropped_events + self.iter().map(GroupRuntime::dropped_events).sum::<u64>()
    }
}
