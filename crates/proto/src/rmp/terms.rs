//! On which terms a node is in a group.

use super::{Partition, Qos};
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

impl Terms {
    /// Returns `true` if messages of this level can be sent. None are resilient to 0 failures, and
    /// none resilient by majority where a partition as small as this member accepts would be a
    /// minority.
    pub(super) fn allows(&self, qos: Qos) -> bool {
        if qos == Qos::Resilient(0) {
            return false;
        }
        let has_parts = matches!(self.partition, Partition::AtLeast(_));
        !has_parts || qos != Qos::MajorityResilient
    }
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self { rejoin: true, is_multicast: true, via: None, is_voter: true }
    }
}
