//! Errors caused by the caller: refused joins and messages.

use crate::membership::service::Unserved;
use crate::rmp::{Partition, Qos};
use crate::{GroupSettings, NodeId, Profile, RateOfFire};

/// Reason why a join failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The name is empty or too long. The field is its length in bytes.
    #[error(
        "a group name of {0} bytes: it must have 1 to {most}",
        most = GroupSettings::MAX_NAME_BYTES
    )]
    NameLength(usize),
    /// The name contains a control character. The field is the first one.
    #[error("a group name with the control character {0:?}")]
    NameCharacter(char),
    /// r is out of bounds.
    #[error("rate-of-fire {given}: r must be 1 to {}", RateOfFire::MAX_R)]
    RateOfFire {
        /// Requested rate-of-fire.
        given: RateOfFire,
    },
    /// The partition, or the electorate, is out of bounds.
    #[error(
        "partition {given:?} is invalid: expected 1 to {} members, or 1 to {} voters",
        Partition::MAX_AT_LEAST,
        Partition::MAX_ELECTORATE
    )]
    Partition {
        /// Requested partition.
        given: Partition,
    },
    /// The node is in the maximum number of groups of its membership provider.
    #[error("this node is in {limit} groups already, as many as its membership takes")]
    TooManyGroups {
        /// Maximum number of groups.
        limit: usize,
    },
    /// Another group of this node has another r.
    #[error("rate-of-fire with r = {given} in a node whose groups have r = {existing}")]
    DifferentR {
        /// Requested r.
        given: u8,
        /// The r of the node's groups.
        existing: u8,
    },
    /// The node has no engine for groups of this profile.
    #[error("this node has no engine for a group that is {profile}")]
    NoEngine {
        /// Requested profile.
        profile: Profile,
    },
    /// The node is already in the group.
    #[error("this node is in the group already")]
    AlreadyJoined,
    /// A group with another name has the same id.
    #[error("another group's name has the same id")]
    NameCollision,
    /// The group's members have other settings.
    #[error("asked for {ours}, but the group is {theirs}")]
    Contradiction {
        /// Requested settings.
        ours: GroupSettings,
        /// Settings of the group.
        theirs: GroupSettings,
        /// A member with these settings.
        by: NodeId,
    },
    /// The membership service did not accept the join.
    #[error("the membership service did not take the join: {why}")]
    Unserved {
        /// Reason for it.
        why: Unserved,
    },
}

/// Reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// The join of the group is not complete: a message sent now would reach no member.
    #[error("the group is still being joined")]
    NotReady,
    /// The message exceeds the engine's limit.
    #[error("message of {bytes} bytes, where at most {limit} fit")]
    TooLarge {
        /// Size of the message in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The group does not support this guarantee.
    #[error("this group cannot promise that a message is {asked}")]
    Qos {
        /// Requested guarantee.
        asked: Qos,
    },
    /// The group allows one sender at a time, and another node is the sender.
    #[error("node {sender} sends in this group already")]
    HasSender {
        /// The current sender.
        sender: NodeId,
    },
    /// The topology of the network has no host for this node.
    #[error("this node has no place in the topology of the network")]
    NoPlace,
    /// The queue of messages to be sent is full.
    #[error("{waiting_bytes} bytes wait to be sent already")]
    QueueFull {
        /// Size of the queued messages in bytes.
        waiting_bytes: usize,
    },
    /// The window is full: this member has not confirmed enough of the earlier messages.
    #[error("held back by member {by}, who is {behind} messages behind")]
    HeldBack {
        /// The member that lags most.
        by: NodeId,
        /// Number of messages that it has not confirmed.
        behind: u32,
    },
}
