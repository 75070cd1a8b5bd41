//! Terms on which a node is in a group.

use super::ids::Process;
use super::qos::Qos;
use super::ring::{ListChange, ListChangeKind, Member, Quorum};
use crate::NodeId;

/// Options that a node chooses for itself when it joins a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// `true` if the node requests to join again, as a new member, after the ring has continued
    /// without it. If `false`, it is out of the group with the event
    /// [`Removed`](super::RingNews::Removed). Default `true`.
    pub rejoin: bool,
    /// `true` if this host sends and receives multicast, or a driver replaces multicast by copies
    /// to all members. If `false`, the members send it copies and forward its packets (3.4).
    /// Default `true`.
    pub is_multicast: bool,
    /// A node of the group, for a host without multicast that learns of no other node.
    pub via: Option<NodeId>,
    /// `true` if the node is a voter of the group's [electorate](Quorum::QuorumOf), `false` if
    /// it is a client. A client sends, makes requests and holds locks like other members, counts in
    /// no quorum, and creates no ring. Without an electorate every member counts. Default `true`.
    pub is_voter: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) quorum: Quorum,
    pub(super) name_check: u32,
    pub(super) options: JoinOptions,
}

impl Terms {
    // No message is majority resilient if parts below a majority may continue.
    pub(super) fn allows(&self, qos: Qos) -> bool {
        if qos == Qos::Resilient(0) {
            return false;
        }
        let has_parts = matches!(self.quorum, Quorum::AtLeast(_));
        !has_parts || qos != Qos::MajorityResilient
    }

    // A client of an electorate waits for a ring of voters.
    pub(super) fn may_create_ring(&self) -> bool {
        self.options.is_voter || self.quorum.required_voters().is_none()
    }

    pub(super) fn member(&self, me: Process) -> Member {
        let JoinOptions { is_multicast, is_voter, .. } = self.options;
        Member { process: me, quorum: self.quorum, is_multicast, is_voter }
    }

    pub(super) fn join_request(&self, me: Process) -> ListChange {
        let kind = ListChangeKind::Join { member: self.member(me), name_check: self.name_check };
        ListChange { process: me, request: 0, kind }
    }
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self { rejoin: true, is_multicast: true, via: None, is_voter: true }
    }
}
