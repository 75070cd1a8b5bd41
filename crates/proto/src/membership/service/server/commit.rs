use crate::membership::link::LinkId;
use crate::membership::service::partition_state::Change;
use crate::membership::service::protocol::frame::{JoinRefusal, Member};
use crate::{GroupId, GroupSettings, Incarnation, NodeId};

/// Changes that the store must apply together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Number of the commit at this process.
    pub id: CommitId,
    /// Partition to which the changes apply.
    pub partition: u16,
    /// Version that the partition must have before the first change. Each change adds one. If this
    /// owner has already written the last version, the store already has the commit.
    pub after: u64,
    /// The changes, in the order in which they apply. At least one.
    pub changes: Vec<Change>,
}

/// Number of a commit, never reused by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// Reason for the failure of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitFailure {
    /// The disk or quota is full, and nothing was stored.
    #[error("the store is full")]
    Full,
    /// The store failed for another reason. Nothing was stored, not even by an earlier attempt with
    /// an [unknown](Self::Unknown) result.
    #[error("the store failed")]
    Failed,
    /// The store may have the commit. It is repeated unchanged until its result is known.
    #[error("the store did not answer")]
    Unknown,
    /// This process does not own the partition. An earlier attempt may have been stored.
    #[error("this process does not own the partition")]
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
    /// The node is removed if it is a member in this or an earlier incarnation and, if `start` is
    /// given, with this start.
    Part {
        node: NodeId,
        incarnation: u32,
        start: Option<Incarnation>,
        has_failed: bool,
    },
}

/// Connection and number of a request. A resync has the number 0.
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
    pub(super) fn removal(
        group: GroupId,
        node: NodeId,
        incarnation: u32,
        has_failed: bool,
    ) -> Self {
        let change = RequestedChange::Part { node, incarnation, start: None, has_failed };
        Self { group, change, origin: None }
    }

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
