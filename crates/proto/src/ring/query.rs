//! Queries for the rings of a group.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Process, RingView};
use crate::{GroupId, NodeId};

/// Options of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryOptions {
    /// The [check](GroupId::name_check) of the group's name, since two names can have the same id.
    pub name_check: u32,
    /// Maximum time to wait for answers.
    pub patience: Duration,
    /// A member that forwards the query, for a host without multicast. Default: `None`.
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
    /// Process that holds the token.
    pub token: Process,
    /// `true` if the ring works: it is not being reformed, may continue, and has its quorum.
    pub is_working: bool,
}

/// Result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryResult {
    /// Identifier of the query.
    pub id: QueryId,
    /// The group that was queried.
    pub group: GroupId,
    /// The rings of the group, in order of their epochs. The list is empty if no member answered,
    /// and has several rings if the group is partitioned.
    pub rings: Vec<RingStatus>,
}

/// Error returned when a query is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Too many queries are in progress or their results were not
    /// [fetched](crate::rmp::Rmp::poll_query).
    #[error("too many ring queries: {open} are in progress or not fetched")]
    TooMany {
        /// Number of queries that are in progress or not fetched.
        open: usize,
    },
}
