use crate::NodeId;
use crate::ring::Qos;

/// Reason that the registry gives for refusing a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum Unserved {
    /// The store's disk or quota is full.
    #[error("its store is full")]
    StoreFull,
    /// The store failed for another reason.
    #[error("its store failed")]
    StoreFailed,
    /// The node has reached its maximum number of groups.
    #[error("the node has reached its maximum number of groups")]
    TooManyGroups,
    /// The group has reached its maximum number of members.
    #[error("the group has reached its maximum number of members")]
    TooManyMembers,
    /// Too many requests of this node are in flight.
    #[error("too many requests of this node are in flight")]
    Busy,
    /// The settings that were requested or those of the group are unknown to the service or to this
    /// program. One of the two is an older version.
    #[error("the group's settings are from another version of Carom")]
    Settings,
}

/// Error returned when a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// This node has not finished joining the group. A message sent now would reach no member.
    #[error("this node has not finished joining the group")]
    NotReady,
    /// The message exceeds the engine's limit.
    #[error("message of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size, in bytes, of the message.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The group does not support this delivery guarantee.
    #[error("this group does not support quality of service '{asked}'")]
    Qos {
        /// Requested delivery guarantee.
        asked: Qos,
    },
    /// The group allows one sender at a time, and another node is the sender.
    #[error("node {sender} is already the sender of this group")]
    HasSender {
        /// Current sender of the group.
        sender: NodeId,
    },
    /// The topology of the network has no host for this node.
    #[error("the topology has no host for this node")]
    NoPlace,
    /// The queue of messages that are waiting to be sent is full.
    #[error("the send queue is full: {waiting_bytes} bytes are waiting")]
    QueueFull {
        /// Size, in bytes, of the queued messages.
        waiting_bytes: usize,
    },
    /// The window is full: a member has not confirmed enough of the earlier messages.
    #[error("the window is full: member {by} is {behind} packets behind")]
    HeldBack {
        /// The member that is furthest behind.
        by: NodeId,
        /// Number of packets that this member has not confirmed.
        behind: u32,
    },
}
