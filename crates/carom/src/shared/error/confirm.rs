//! Errors of published messages whose guarantee is not known to hold.

use std::time::Duration;

use carom_proto::NodeId;
use carom_proto::ring::Removal;

/// Error of a confirmation: the messages are not known to be settled at all members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// Not all members have confirmed in time.
    #[error("{}", not_confirmed(waiting_for))]
    Timeout {
        /// Members that have not confirmed, as far as known.
        waiting_for: Vec<NodeId>,
    },
    /// Messages were given up: another node sends in the bulk group, or this node was removed from
    /// the ring. Members may or may not have them.
    #[error("messages were given up before they were confirmed")]
    GivenUp,
    /// No other member was in the group to receive the messages, or all have left since.
    #[error("the group has no other member to receive the messages")]
    Nobody,
    /// The group or its node was closed.
    #[error("the group was closed before its messages were confirmed")]
    Closed,
}

/// Error of a message whose guarantee is not known to hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// This node was removed from the ring before it delivered the message. Others may have it.
    #[error("this node was removed from the ring before the outcome was known")]
    Removed {
        /// Cause of the removal.
        why: Removal,
    },
    /// Members have lost messages up to and including this one.
    #[error("lost by {}", counts(lost_by))]
    Incomplete {
        /// Each of these members, with the number of this node's messages that it lost.
        lost_by: Vec<(NodeId, u32)>,
    },
    /// Another node sends in the bulk group. Members may or may not have the message.
    #[error("the message was given up before it was confirmed: another node sends in the group")]
    GivenUp,
    /// No other member was in the group, or all have left. No node is known to have the message.
    #[error("the group has no other member to receive the message")]
    Nobody,
    /// No confirmation arrived within this time. The guarantee may still be fulfilled.
    #[error("no confirmation within {0:?}")]
    Timeout(Duration),
    /// The group or its node was closed.
    #[error("the group was closed before the outcome was known")]
    Closed,
}

impl ConfirmError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Timeout { waiting_for } if waiting_for.is_empty() => "wait longer".into(),
            Self::Timeout { .. } => "wait longer, or check those members".into(),
            Self::GivenUp => {
                "check which messages the other members have, and publish the rest again".into()
            }
            Self::Nobody => "publish when Group::members is not empty".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl DeliveryError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Removed { .. } => {
                "check whether the other members have it, and publish it again if not".into()
            }
            Self::Incomplete { .. } => {
                "publish it again for those members, or use an ordered group".into()
            }
            Self::GivenUp => "publish it again once the other node has left the group".into(),
            Self::Nobody => "publish when Group::members is not empty".into(),
            Self::Timeout(_) => {
                "wait longer, or run `carom members` to find the slow member".into()
            }
            Self::Closed => "join the group again".into(),
        }
    }
}

impl From<ConfirmError> for DeliveryError {
    fn from(error: ConfirmError) -> Self {
        match error {
            ConfirmError::Timeout { .. } => Self::Timeout(Duration::MAX),
            ConfirmError::GivenUp => Self::GivenUp,
            ConfirmError::Nobody => Self::Nobody,
            ConfirmError::Closed => Self::Closed,
        }
    }
}

fn counts(lost_by: &[(NodeId, u32)]) -> String {
    let each = lost_by.iter().map(|(node, count)| format!("{node} ({count})"));
    each.collect::<Vec<String>>().join(", ")
}

fn not_confirmed(waiting_for: &[NodeId]) -> String {
    match waiting_for {
        [] => "the messages were not confirmed in time".into(),
        nodes => {
            let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
            format!("not confirmed in time by {}", names.join(", "))
        }
    }
}
