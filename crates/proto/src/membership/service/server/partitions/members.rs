use alloc::collections::{BTreeMap, BTreeSet};

use crate::{GroupId, NodeId};

#[derive(Debug, Default)]
pub(super) struct MemberIndex {
    groups: BTreeMap<NodeId, BTreeSet<GroupId>>,
    /// The last incarnation that was declared dead, until the node is removed from all groups.
    expired: BTreeMap<NodeId, u32>,
}

impl MemberIndex {
    pub(super) fn groups_of(&self, node: NodeId) -> Option<&BTreeSet<GroupId>> {
        self.groups.get(&node)
    }

    pub(super) fn expired(&self, node: NodeId) -> Option<u32> {
        self.expired.get(&node).copied()
    }

    pub(super) fn add(&mut self, node: NodeId, group: GroupId) {
        self.groups.entry(node).or_default().insert(group);
    }

    pub(super) fn remove(&mut self, node: NodeId, group: GroupId) -> bool {
        let Some(groups) = self.groups.get_mut(&node) else { return false };
        groups.remove(&group);
        let is_last = groups.is_empty();
        if is_last {
            self.groups.remove(&node);
            self.expired.remove(&node);
        }
        is_last
    }

    pub(super) fn expire(&mut self, node: NodeId, incarnation: u32) -> Option<u32> {
        let before = self.expired(node);
        self.expired.insert(node, before.unwrap_or(0).max(incarnation));
        before
    }

    pub(super) fn has_same_groups(&self, other: &Self) -> bool {
        self.groups == other.groups
    }
}
