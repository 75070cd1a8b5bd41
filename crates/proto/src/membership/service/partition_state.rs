use alloc::collections::{BTreeMap, BTreeSet};

use super::protocol::fields::one_group;
use super::protocol::frame::{ChangeKind, Member};
use crate::{GroupId, GroupSettings, NodeId};

/// One change to a partition. It is encoded as a kind u8 (1 joined, 2 left, 3 failed), the group
/// u32, the member, and for a join the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum Change {
    /// The node becomes a member in this incarnation. The settings apply only if the group is new.
    Join { group: GroupId, settings: GroupSettings, member: Member },
    /// The node is no longer a member. The group ends with its last member.
    Part {
        group: GroupId,
        member: Member,
        /// `true` if the member failed or started again, `false` if it left on its own initiative.
        has_failed: bool,
    },
}

/// All groups of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionState {
    version: u64,
    groups: BTreeMap<GroupId, GroupState>,
}

/// State of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// Settings of the group, set by its first join.
    pub settings: GroupSettings,
    /// Version of the partition after the last change to this group.
    pub version: u64,
    /// Members of the group, at least one.
    pub members: BTreeMap<NodeId, Member>,
}

crate::variants! {
    Change {
        1 => Join { group with one_group, member, settings },
        2 => Part { group with one_group, member, has_failed = false },
        3 => Part { group with one_group, member, has_failed = true },
    };
}

impl Change {
    /// Returns the group that is changed.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Join { group, .. } | Self::Part { group, .. } => *group,
        }
    }

    /// Returns the member that joined, left or failed.
    pub fn member(&self) -> Member {
        match self {
            Self::Join { member, .. } | Self::Part { member, .. } => *member,
        }
    }

    /// Returns the kind of change that is reported to the group's members.
    pub fn kind(&self) -> ChangeKind {
        match self {
            Self::Join { .. } => ChangeKind::Joined,
            Self::Part { has_failed: false, .. } => ChangeKind::Left,
            Self::Part { has_failed: true, .. } => ChangeKind::Failed,
        }
    }
}

impl PartitionState {
    /// Creates a partition from a store's content: its version, and its groups with their members.
    pub fn restore(version: u64, groups: BTreeMap<GroupId, GroupState>) -> Self {
        Self { version, groups }
    }

    /// Returns the number of changes that have been applied to the partition.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the groups, in order of their ids.
    pub fn groups(&self) -> &BTreeMap<GroupId, GroupState> {
        &self.groups
    }

    /// Returns the state of one group, or `None` if it has no members.
    pub fn group(&self, group: GroupId) -> Option<&GroupState> {
        self.groups.get(&group)
    }

    /// Returns `node` as a member of `group`, if it is one.
    pub fn member(&self, group: GroupId, node: NodeId) -> Option<Member> {
        self.groups.get(&group)?.members.get(&node).copied()
    }

    /// Applies `change` unconditionally. The version grows by one.
    pub fn apply(&mut self, change: &Change) {
        self.version += 1;
        match *change {
            Change::Join { group, settings, member } => {
                let (version, members) = (self.version, BTreeMap::new());
                let fresh = GroupState { settings, version, members };
                let state = self.groups.entry(group).or_insert(fresh);
                state.version = self.version;
                state.members.insert(member.node, member);
            }
            Change::Part { group, member, .. } => {
                let Some(state) = self.groups.get_mut(&group) else { return };
                state.version = self.version;
                state.members.remove(&member.node);
                if state.members.is_empty() {
                    self.groups.remove(&group);
                }
            }
        }
    }

    /// Returns the ids of the nodes that are in any group, in ascending order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.groups.values().flat_map(|group| group.members.keys().copied()).collect()
    }

    /// Asserts that no group is empty or newer than the partition.
    pub fn check(&self) {
        for (group, state) in &self.groups {
            assert!(!state.members.is_empty(), "{group:?} has no members");
            assert!(state.version <= self.version, "{group:?} is newer than its partition");
        }
    }
}
