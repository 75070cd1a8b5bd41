//! On which terms a node is in a group.

use super::Partition;
use crate::NodeId;

/// What a node decides for itself when it joins a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// Whether it asks to be let in again, as a new member, when the ring has gone on without it.
    /// Default true. If not, it is out of the group when it is told
    /// [so](super::RingNews::Removed).
    pub rejoin: bool,
    /// Whether this host sends and hears multicast, or a driver stands in for it with copies to
    /// all. If not, the members send it copies, and pass its own packets on (3.4). Default true.
    pub is_multicast: bool,
    /// A node of the group, for a host without multicast that nobody tells of one.
    pub via: Option<NodeId>,
    /// Whether it is a voter of the [electorate](Partition::QuorumOf), if the group has one, or a
    /// client: that sends, calls and holds locks like others, is counted in no quorum, and begins
    /// no ring. Default true.
    pub is_voter: bool,
}

/// What a member of a group asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) partition: Partition,
    pub(super) rejoin: bool,
    pub(super) is_multicast: bool,
    pub(super) via: Option<NodeId>,
    pub(super) is_voter: bool,
    pub(super) name_check: u32,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self { rejoin: true, is_multicast: true, via: None, is_voter: true }
    }
}
