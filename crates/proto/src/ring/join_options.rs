//! Options of a join that do not have to be the same at all members.

use crate::NodeId;

/// Options that a node chooses for itself when it joins a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// `true` if the node joins again as a new member after it was
    /// [removed](super::RingNews::Removed). If `false`, it stays out. Default: `true`.
    pub rejoin: bool,
    /// `true` if this host and its driver send and receive multicast. If `false`, the members send
    /// copies to this node and forward its packets (3.4). Default: `true`.
    pub is_multicast: bool,
    /// A node of the group, for a host without multicast that knows no other node. Default: `None`.
    pub via: Option<NodeId>,
    /// `true` if the node is a voter of the group's [electorate](super::Quorum::QuorumOf), if any.
    /// If `false`, it is a client, which counts toward no quorum and creates no ring. Default:
    /// `true`.
    pub is_voter: bool,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self { rejoin: true, is_multicast: true, via: None, is_voter: true }
    }
}
