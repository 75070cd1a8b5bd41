use std::time::Duration;

use carom_proto::NodeId;
use carom_proto::ring::Removal;

/// The error returned when messages are not known to be settled at all members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// Not all members confirmed in time.
    #[error("{}", not_confirmed(waiting_for))]
    Timeout {
        /// Known members that have not confirmed.
        waiting_for: Vec<NodeId>,
    },
    /// The messages were given up, because another node sends in the bulk group, the topology has
    /// no host for this node, or this node was removed from the ring. Members may or may not have
    /// the messages.
    #[error("messages were given up before they were confirmed")]
    GivenUp,
    /// No other member was in the group to receive the messages, or all others have left since.
    #[error("the group has no other member to receive the messages")]
    Nobody,
    /// The group or its node was closed.
    #[error("the group was closed before its messages were confirmed")]
    Closed,
}

/// The error returned when a message's guarantee is not known to be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// This node was removed from the ring before it delivered the message. Other members may have
    /// it.
    #[error("this node was removed from the ring before the outcome was known")]
    Removed {
        /// Reason for the removal.
        why: Removal,
    },
    /// Members have lost this message or earlier ones.
    #[error("messages were lost by {}", counts(lost_by))]
    Incomplete {
        /// The members that lost messages, each with the number of this node's packets that it
        /// lost.
        lost_by: Vec<(NodeId, u32)>,
    },
    /// The message was given up, because another node sends in the bulk group or the topology has
    /// no host for this node. Members may or may not have the message.
    #[error("the message was given up before it was confirmed: another node sends in the group")]
    GivenUp,
    /// No other member was in the group, or all others have left. No other node is known to have
    /// the message.
    #[error("the group has no other member to receive the message")]
    Nobody,
    /// No confirmation arrived within this time. The guarantee may still be fulfilled.
    #[error("the message was not confirmed within {0:?}")]
    Timeout(Duration),
    /// The group or its node was closed.
    #[error("the group was closed before the outcome was known")]
    Closed,
}

impl ConfirmError {
    /// Returns a one-line suggestion for how to fix the error.
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
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Removed { .. } => {
                "check whether the other members have it, and publish it again if not".into()
            }
            Self::Incomplete { .. } => {
                "publish it again for those members, or use an ordered group".into()
            }
            Self::GivenUp => "publish it again once no other node sends in the group".into(),
            Self::Nobody => "publish when Group::members is not empty".into(),
            Self::Timeout(_) => {
                "wait longer, or call Group::confirm, whose timeout lists the slow members".into()
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
            format!("the messages were not confirmed in time by {}", names.join(", "))
        }
    }
}
