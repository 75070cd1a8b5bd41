//! Errors caused by the caller: refused joins and messages.

use crate::rmp::{Qos, Quorum};
use crate::{GroupSettings, NodeId, Profile, RateOfFire};

/// Reason why a join failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The name is empty or too long. The field is its length in bytes.
    #[error(
        "group name of {0} bytes is invalid: expected 1 to {most} bytes",
        most = GroupSettings::MAX_NAME_BYTES
    )]
    NameLength(usize),
    /// The name contains a control character. The field is the first one.
    #[error("group name contains the control character {0:?}")]
    NameCharacter(char),
    /// r is out of bounds.
    #[error("rate-of-fire {given} is invalid: expected r from 1 to {}", RateOfFire::MAX_R)]
    RateOfFire {
        /// Requested rate-of-fire.
        given: RateOfFire,
    },
    /// The quorum, or the electorate, is out of bounds.
    #[error(
        "quorum {given:?} is invalid: expected 1 to {} members, or 1 to {} voters",
        Quorum::MAX_AT_LEAST,
        Quorum::MAX_ELECTORATE
    )]
    Quorum {
        /// Requested quorum.
        given: Quorum,
    },
    /// The node is in the maximum number of groups of its membership provider.
    #[error("this node is already in {limit} groups, the maximum of its membership")]
    TooManyGroups {
        /// Maximum number of groups.
        limit: usize,
    },
    /// Another group of this node has another r.
    #[error(
        "rate-of-fire with r = {given} is invalid: other groups of this node have r = {existing}"
    )]
    DifferentR {
        /// Requested r.
        given: u8,
        /// The r of the node's groups.
        existing: u8,
    },
    /// The node has no engine for groups of this profile.
    #[error("this node has no engine for the profile {profile}")]
    NoEngine {
        /// Requested profile.
        profile: Profile,
    },
    /// The node is already in the group.
    #[error("this node is already in the group")]
    AlreadyJoined,
    /// A group with another name has the same id.
    #[error("the group's id is in use by a group with another name")]
    NameCollision,
    /// The group's members have other settings.
    #[error("requested {ours}, but the group is {theirs}")]
    Contradiction {
        /// Requested settings.
        ours: GroupSettings,
        /// Settings of the group.
        theirs: GroupSettings,
        /// A member with these settings.
        by: NodeId,
    },
    /// The membership service did not accept the join.
    #[error("the membership service refused the join: {why}")]
    Unserved {
        /// Reason for it.
        why: Unserved,
    },
}

/// Reason why the membership service did not accept a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// The store's disk or quota is full.
    #[error("its store is full")]
    StoreFull,
    /// The store failed for another reason.
    #[error("its store failed")]
    StoreFailed,
    /// The node is in the maximum number of groups.
    #[error("the node is in the maximum number of groups")]
    TooManyGroups,
    /// The group has the maximum number of members.
    #[error("the group has the maximum number of members")]
    TooManyMembers,
    /// Too many requests are in flight.
    #[error("the service is overloaded")]
    Busy,
    /// The settings of the join, or those of the group, are unknown to the service or to this
    /// program. One of the two is an older version.
    #[error("the group's settings are from another version of Carom")]
    Settings,
}

/// Reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// The join of the group is not complete: a message sent now would reach no member.
    #[error("the join of the group is not complete")]
    NotReady,
    /// The message exceeds the engine's limit.
    #[error("message of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size of the message in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The group does not support this guarantee.
    #[error("this group does not support quality of service '{asked}'")]
    Qos {
        /// Requested guarantee.
        asked: Qos,
    },
    /// The group allows one sender at a time, and another node is the sender.
    #[error("node {sender} is already the sender of this group")]
    HasSender {
        /// The current sender.
        sender: NodeId,
    },
    /// The topology of the network has no host for this node.
    #[error("the topology has no host for this node")]
    NoPlace,
    /// The queue of messages to be sent is full.
    #[error("the send queue is full: {waiting_bytes} bytes are waiting")]
    QueueFull {
        /// Size of the queued messages in bytes.
        waiting_bytes: usize,
    },
    /// The window is full: this member has not confirmed enough of the earlier messages.
    #[error("the window is full: member {by} is {behind} messages behind")]
    HeldBack {
        /// The member that lags most.
        by: NodeId,
        /// Number of messages that it has not confirmed.
        behind: u32,
    },
}
