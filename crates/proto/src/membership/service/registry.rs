//! Who is in which group of a partition, as the store has it.

use alloc::collections::{BTreeMap, BTreeSet};

use bytes::BufMut;

use super::fields::{take_group, take_settings, take_u8, take_u64};
use super::frame::{ChangeKind, FrameError, Member};
use crate::{GroupId, GroupSettings, NodeId};

/// One change of a partition, as stores keep it and watchers hear of it.
///
/// The wire form is a kind u8 (1 joined, 2 left, 3 failed), the group u32, the member, and for a
/// join the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The node is a member from now on, in this incarnation and with this endpoint. A group that
    /// was not there has these settings from now on; one that was has them already.
    Join {
        /// The group.
        group: GroupId,
        /// What the group is.
        settings: GroupSettings,
        /// The member.
        member: Member,
    },
    /// The node is not a member any more. The group is gone with its last member.
    Part {
        /// The group.
        group: GroupId,
        /// The member as it was.
        member: Member,
        /// Whether it was taken for dead, or left of its own will.
        has_failed: bool,
    },
}

/// All groups of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionState {
    version: u64,
    groups: BTreeMap<GroupId, GroupState>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// What the group is, as its first join said.
    pub settings: GroupSettings,
    /// The partition's version after the last change of this group.
    pub version: u64,
    /// The members, at least one.
    pub members: BTreeMap<NodeId, Member>,
}

impl Change {
    /// The group that is changed.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Join { group, .. } | Self::Part { group, .. } => *group,
        }
    }

    /// The member that came or went.
    pub fn member(&self) -> Member {
        match self {
            Self::Join { member, .. } | Self::Part { member, .. } => *member,
        }
    }

    /// What the group's members are told.
    pub fn kind(&self) -> ChangeKind {
        match self {
            Self::Join { .. } => ChangeKind::Joined,
            Self::Part { has_failed: false, .. } => ChangeKind::Left,
            Self::Part { has_failed: true, .. } => ChangeKind::Failed,
        }
    }

    /// Appends the wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind() as u8);
        out.put_u32(self.group().0);
        self.member().encode(out);
        if let Self::Join { settings, .. } = self {
            settings.encode(out);
        }
    }

    /// Reads the wire form at the beginning of `bytes`, which move on to what follows.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        let kind = ChangeKind::from_wire(take_u8(bytes)?)?;
        let (group, member) = (take_group(bytes)?, Member::decode(bytes)?);
        Ok(match kind {
            ChangeKind::Joined => {
                let settings = take_settings(bytes)?.ok_or(FrameError::Value)?;
                Self::Join { group, settings, member }
            }
            ChangeKind::Left => Self::Part { group, member, has_failed: false },
            ChangeKind::Failed => Self::Part { group, member, has_failed: true },
            ChangeKind::Hidden => return Err(FrameError::Value),
        })
    }
}

impl GroupState {
    /// Appends what a store keeps of a group beside its members: settings, then version u64.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        self.settings.encode(out);
        out.put_u64(self.version);
    }

    /// A group without members yet, from its head at the beginning of `bytes`.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode_head(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        let settings = take_settings(bytes)?.ok_or(FrameError::Value)?;
        let version = take_u64(bytes)?;
        Ok(Self { settings, version, members: BTreeMap::new() })
    }
}

impl PartitionState {
    /// The partition as a store has it: its version, and its groups with their members.
    pub fn restore(version: u64, groups: BTreeMap<GroupId, GroupState>) -> Self {
        Self { version, groups }
    }

    /// How many changes the partition has seen.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The groups, in order.
    pub fn groups(&self) -> &BTreeMap<GroupId, GroupState> {
        &self.groups
    }

    /// One group, if it has members.
    pub fn group(&self, group: GroupId) -> Option<&GroupState> {
        self.groups.get(&group)
    }

    /// The node as it is a member of `group`.
    pub fn member(&self, group: GroupId, node: NodeId) -> Option<Member> {
        self.groups.get(&group)?.members.get(&node).copied()
    }

    /// Makes `change`, whatever was there before; the version grows by one.
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

    /// The nodes that are in any group, in order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.groups.values().flat_map(|group| group.members.keys().copied()).collect()
    }

    /// Asserts that no group is empty or newer than the partition.
    ///
    /// # Panics
    /// If one is.
    pub fn check(&self) {
        for (group, state) in &self.groups {
            assert!(!state.members.is_empty(), "{group:?} is kept without members");
            assert!(state.version <= self.version, "{group:?} is newer than its partition");
        }
    }
}
