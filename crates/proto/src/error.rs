//! The caller's mistakes: what an engine refuses, and why.

use crate::membership::service::Unserved;
use crate::rmp::{Partition, Qos};
use crate::{GroupSettings, NodeId, Profile, RateOfFire};

/// Why a group could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The name has no bytes, or this many, which is too many.
    #[error(
        "a group name of {0} bytes: it must have 1 to {most}",
        most = GroupSettings::MAX_NAME_BYTES
    )]
    NameLength(usize),
    /// The name holds a line feed or another control character, this one first.
    #[error("a group name with the control character {0:?}")]
    NameCharacter(char),
    /// r is out of bounds.
    #[error("rate-of-fire {given}: r must be 1 to {}", RateOfFire::MAX_R)]
    RateOfFire {
        /// What was asked for.
        given: RateOfFire,
    },
    /// The partition, or the electorate, is out of bounds.
    #[error(
        "partition {given:?} is invalid: expected 1 to {} members, or 1 to {} voters",
        Partition::MAX_AT_LEAST,
        Partition::MAX_ELECTORATE
    )]
    Partition {
        /// What was asked for.
        given: Partition,
    },
    /// The node is in as many groups as its membership provider takes.
    #[error("this node is in {limit} groups already, as many as its membership takes")]
    TooManyGroups {
        /// How many it takes.
        limit: usize,
    },
    /// Another group of this node has another r.
    #[error("rate-of-fire with r = {given} in a node whose groups have r = {existing}")]
    DifferentR {
        /// What was asked for.
        given: u8,
        /// What the node's groups have.
        existing: u8,
    },
    /// The node has no engine for groups of this profile.
    #[error("this node has no engine for a group that is {profile}")]
    NoEngine {
        /// What was asked for.
        profile: Profile,
    },
    /// The node is in the group already.
    #[error("this node is in the group already")]
    AlreadyJoined,
    /// Another group with another name has the same id.
    #[error("another group's name has the same id")]
    NameCollision,
    /// The group's members agreed on other settings.
    #[error("asked for {ours}, but the group is {theirs}")]
    Contradiction {
        /// What was asked for.
        ours: GroupSettings,
        /// What the group has.
        theirs: GroupSettings,
        /// A member that has it so.
        by: NodeId,
    },
    /// The membership service could not take the join.
    #[error("the membership service did not take the join: {why}")]
    Unserved {
        /// Why.
        why: Unserved,
    },
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// The group is still being joined: what was sent now would reach nobody.
    #[error("the group is still being joined")]
    NotReady,
    /// The message is larger than the engine takes.
    #[error("message of {bytes} bytes, where at most {limit} fit")]
    TooLarge {
        /// The message's size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The group does not give this guarantee.
    #[error("this group cannot promise that a message is {asked}")]
    Qos {
        /// What was asked for.
        asked: Qos,
    },
    /// The group has one sender at a time, and another node is it.
    #[error("node {sender} sends in this group already")]
    HasSender {
        /// The sender.
        sender: NodeId,
    },
    /// The topology of the network has no host for this node.
    #[error("this node has no place in the topology of the network")]
    NoPlace,
    /// More waits to be sent than the engine keeps.
    #[error("{waiting_bytes} bytes wait to be sent already")]
    QueueFull {
        /// Bytes of messages that wait.
        waiting_bytes: usize,
    },
    /// The window is full: this member has not confirmed enough of what was sent before.
    #[error("held back by member {by}, who is {behind} messages behind")]
    HeldBack {
        /// The member that is furthest behind.
        by: NodeId,
        /// How many messages it has not confirmed.
        behind: u32,
    },
}
