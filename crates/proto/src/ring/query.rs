//! Queries of a group's rings from outside.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Process, RingView};
use crate::{GroupId, NodeId};

/// Options of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryOptions {
    /// The [check](GroupId::name_check) of the group's name, since ids may be equal.
    pub name_check: u32,
    /// Maximum time to wait for answers.
    pub patience: Duration,
    /// A member that forwards the query, for a host without multicast.
    pub via: Option<NodeId>,
}

/// Identifier of a query of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u32);

/// A ring, as reported by one of its members, or by this node if it is in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingStatus {
    /// The members in ring order, and the locks.
    pub view: RingView,
    /// The token holder.
    pub token: Process,
    /// `true` if the ring works: it is not being reformed, may continue, and has its quorum.
    pub is_working: bool,
}

/// Result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryResult {
    /// The query.
    pub id: QueryId,
    /// The group.
    pub group: GroupId,
    /// Its rings, by epoch. Empty if no member answered. Several if the group is partitioned.
    pub rings: Vec<RingStatus>,
}

/// Reason why a query was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Too many queries are in progress or were not [fetched](super::OrderedGroups::poll_query).
    #[error("too many ring queries: {open} are in progress or not fetched")]
    TooMany {
        /// Number of these queries.
        open: usize,
    },
}
