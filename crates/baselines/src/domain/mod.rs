//! The common part of RMTP, LBRM and TMTP: a group is divided into domains, each with a head that
//! keeps packets and repairs them for the members of its domain.
//!
//! The head is a *designated receiver* in RMTP, a *logging server* in LBRM, and a *domain manager*
//! in TMTP. The heads, and the multicast group that only a domain receives, are
//! [declared](Hierarchy), not discovered. The papers derive both from the time to live of multicast
//! packets, which carries no information in a data center.

mod asking;
mod config;
mod depot;
mod followers;
mod hierarchy;
mod of_tree;
mod serving;

use carom_proto::{GroupId, NodeId, PacketId, SeqNo};

pub(crate) use self::asking::{Asked, Asking};
pub use self::config::{DomainConfig, DomainError, RepairBy};
pub(crate) use self::depot::{Depot, Repair};
pub(crate) use self::followers::Followers;
pub use self::hierarchy::{Domain, Hierarchy, HierarchyError, Place, Scope};
pub use self::of_tree::Plan;

/// A packet's id, ordered by group and then by source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PacketKey {
    group: GroupId,
    source: NodeId,
    seqno: u32,
}

impl PacketKey {
    fn of(id: PacketId) -> Self {
        Self { group: id.group, source: id.sender, seqno: id.seqno.0 }
    }

    fn id(self) -> PacketId {
        PacketId { sender: self.source, group: self.group, seqno: SeqNo(self.seqno) }
    }

    /// Returns the range of all packets of a source in a group.
    fn of_source(group: GroupId, source: NodeId) -> core::ops::RangeInclusive<Self> {
        Self { group, source, seqno: 0 }..=Self { group, source, seqno: u32::MAX }
    }

    /// Returns the range of all packets of a group.
    fn of_group(group: GroupId) -> core::ops::RangeInclusive<Self> {
        let (first, last) = (NodeId(0), NodeId(u64::MAX));
        Self { group, source: first, seqno: 0 }..=Self { group, source: last, seqno: u32::MAX }
    }
}
