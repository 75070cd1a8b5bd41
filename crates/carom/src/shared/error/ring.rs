use std::time::Duration;

use carom_proto::NodeId;
use carom_proto::ring::{self, Qos};

/// The error returned when a lock could not be acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another node holds the lock, or the group has the maximum number of locks.
    #[error("{}", refused(*holder))]
    Refused {
        /// Holder of the lock, or `None` if the group has too many locks.
        holder: Option<NodeId>,
    },
    /// Another task of this node holds the lock or waits for it.
    #[error("this node already holds the lock or waits for it")]
    HeldHere,
    /// This node was removed from the ring before the lock was granted.
    #[error("this node was removed from the ring before the lock was granted")]
    Lost,
    /// This node holds or has requested too many locks.
    #[error("too many locks: this node already holds or has requested {asked}")]
    TooMany {
        /// Number of locks that the node holds or has requested.
        asked: usize,
    },
    /// The lock was not granted within this time.
    #[error("the lock was not granted within {0:?}")]
    Timeout(Duration),
    /// The group is not ordered, so it has no locks.
    #[error("this group is not ordered: it has no locks")]
    NoLocks,
    /// The group or its node was closed.
    #[error("the group is closed")]
    Closed,
}

/// The error returned when a request received no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The patience of the request has ended, or this node has left. The request may have been
    /// executed.
    #[error("the request was not answered, and may have been executed")]
    Unanswered,
    /// The request was not sent.
    #[error(transparent)]
    Refused(#[from] ring::RequestError),
    /// The group is not ordered, so it does not accept requests.
    #[error("this group is not ordered: it does not accept requests")]
    NoRequests,
    /// The group or its node was closed.
    #[error("the group or its node is closed")]
    Closed,
}

/// The error returned when a ring query failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// Too many queries of this node are in progress.
    #[error("too many ring queries: {open} are in progress")]
    TooMany {
        /// Number of queries in progress.
        open: usize,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

impl LockError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Refused { holder: Some(_) } | Self::HeldHere | Self::Timeout(_) => {
                "wait until it is released".into()
            }
            Self::Refused { holder: None } | Self::TooMany { .. } => {
                "release other locks first, or use other groups".into()
            }
            Self::Lost => "request it again when this node is back in the ring".into(),
            Self::NoLocks => "join the group with an ordered profile".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl RequestError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Unanswered => {
                "check that a member serves the handler (`carom members`), or wait longer".into()
            }
            Self::Refused(ring::RequestError::TooLarge { limit, .. }) => {
                format!("split the request into parts of at most {limit} bytes")
            }
            Self::Refused(ring::RequestError::Qos { asked: Qos::Resilient(0) }) => {
                "request Resilient(1) to Resilient(255), or TotallyOrdered".into()
            }
            Self::Refused(ring::RequestError::Qos { .. }) => {
                "join with Quorum::Majority or Quorum::All".into()
            }
            Self::Refused(_) => "wait for the replies to earlier requests".into(),
            Self::NoRequests => "join the group with an ordered profile".into(),
            Self::Closed => "join the group again, or start a new node".into(),
        }
    }
}

impl QueryError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::TooMany { .. } => "wait until earlier queries have finished".into(),
            Self::Closed => "start a new node".into(),
        }
    }
}

impl From<ring::LockError> for LockError {
    fn from(error: ring::LockError) -> Self {
        match error {
            ring::LockError::NotJoined => Self::Closed,
            ring::LockError::AlreadyAsked => Self::HeldHere,
            ring::LockError::NotAsked => Self::Lost,
            ring::LockError::TooMany { asked } => Self::TooMany { asked },
        }
    }
}

impl From<ring::QueryError> for QueryError {
    fn from(error: ring::QueryError) -> Self {
        match error {
            ring::QueryError::TooMany { open } => Self::TooMany { open },
        }
    }
}

fn refused(holder: Option<NodeId>) -> String {
    match holder {
        Some(node) => format!("{node} holds the lock"),
        None => "the group has reached its maximum number of locks".into(),
    }
}
