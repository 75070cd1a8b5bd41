//! Commits to the store, and the requests that they decide.

use crate::membership::link::LinkId;
use crate::membership::service::partition_state::Change;
use crate::membership::service::protocol::frame::{JoinRefusal, Member};
use crate::{GroupId, GroupSettings, Incarnation, NodeId};

/// Changes that the store must make together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Number of the commit at this process.
    pub id: CommitId,
    /// The partition.
    pub partition: u16,
    /// Version that the partition must have before the first change. Each change adds one. If this
    /// owner has already written the last version, the store has the commit.
    pub after: u64,
    /// The changes, in order. At least one.
    pub changes: Vec<Change>,
}

/// Number of a commit, never reused by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// Result of a commit that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitFailure {
    /// Nothing was stored, because the disk or quota is full.
    #[error("the store is full")]
    Full,
    /// Nothing was stored for another reason, nor by an earlier [unknown](Self::Unknown) attempt.
    #[error("the store failed")]
    Failed,
    /// The store may have the commit. It is repeated unchanged until its result is known.
    #[error("the store did not answer")]
    Unknown,
    /// Nothing was stored, because another process owns the partition.
    #[error("another process owns the partition")]
    Deposed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) group: GroupId,
    pub(super) change: RequestedChange,
    pub(super) origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedChange {
    Join {
        settings: GroupSettings,
        member: Member,
    },
    /// The node must leave the group, in this incarnation or an earlier one.
    Part {
        node: NodeId,
        incarnation: u32,
        /// Only this start of the node, or `None` for any.
        start: Option<Incarnation>,
        has_failed: bool,
    },
}

/// The number of a resync is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) link: LinkId,
    pub(super) request: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) request: Request,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The store has the requested state.
    Done,
    Refused(JoinRefusal),
    /// A later incarnation of the node is a member.
    Outdated,
}

impl Request {
    /// Creates a request that removes `node`, in this or an earlier incarnation.
    pub(super) fn removal(
        group: GroupId,
        node: NodeId,
        incarnation: u32,
        has_failed: bool,
    ) -> Self {
        let change = RequestedChange::Part { node, incarnation, start: None, has_failed };
        Self { group, change, origin: None }
    }

    /// Creates a request that removes exactly this failed start of a node.
    pub(super) fn removal_of_start(group: GroupId, member: Member) -> Self {
        let Member { node, incarnation, start, .. } = member;
        let start = Some(start);
        let change = RequestedChange::Part { node, incarnation, start, has_failed: true };
        Self { group, change, origin: None }
    }

    pub(super) fn node(&self) -> NodeId {
        match self.change {
            RequestedChange::Join { member, .. } => member.node,
            RequestedChange::Part { node, .. } => node,
        }
    }
}
