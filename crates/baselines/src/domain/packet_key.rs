//! Packet ids, ordered so that the packets of a group, or of a source in a group, form a range.

use core::ops::RangeInclusive;

use carom_proto::{GroupId, NodeId, PacketId, SeqNo};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketKey {
    pub(super) group: GroupId,
    pub(super) source: NodeId,
    pub(super) seqno: u32,
}

impl PacketKey {
    pub(super) fn of(id: PacketId) -> Self {
        Self { group: id.group, source: id.sender, seqno: id.seqno.0 }
    }

    pub(super) fn id(self) -> PacketId {
        PacketId { sender: self.source, group: self.group, seqno: SeqNo(self.seqno) }
    }

    pub(super) fn of_source(group: GroupId, source: NodeId) -> RangeInclusive<Self> {
        Self { group, source, seqno: 0 }..=Self { group, source, seqno: u32::MAX }
    }

    pub(super) fn of_group(group: GroupId) -> RangeInclusive<Self> {
        let (first, last) = (NodeId(0), NodeId(u64::MAX));
        Self { group, source: first, seqno: 0 }..=Self { group, source: last, seqno: u32::MAX }
    }
}
