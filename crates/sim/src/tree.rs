use core::ops::Range;

use carom_proto::GroupId;

use crate::ids::{HostIx, LinkIx, NodeIx};
use crate::topology::Edge;

/// The receivers of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// One host.
    Host(HostIx),
    /// The subscribers of a group.
    Group(GroupId),
    /// All hosts.
    Everyone,
}

/// The links that carry a datagram from one host to its receivers. Each link occurs once. The
/// children of a branch are contiguous.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) branches: Vec<Branch>,
    pub(crate) roots: Range<u32>,
    pub(crate) version: Version,
    pub(crate) unreachable: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) link: LinkIx,
    pub(crate) receiver: Option<HostIx>,
    pub(crate) children: Range<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) listeners: u32,
    pub(crate) ways: u32,
}

impl Tree {
    /// Returns a tree without links.
    pub(crate) fn empty() -> Self {
        let version = Version::default();
        Self { branches: Vec::new(), roots: 0..0, version, unreachable: 0 }
    }

    pub(crate) fn of_links(
        source: NodeIx,
        mut used: Vec<LinkIx>,
        receivers: &[HostIx],
        edges: &[Edge],
        version: Version,
    ) -> Self {
        // Sorts by tail, so that the children of a node are contiguous.
        used.sort_unstable_by_key(|link| (edges[*link as usize].tail, *link));
        used.dedup();
        let leaving = |node: NodeIx| {
            let start = used.partition_point(|link| edges[*link as usize].tail < node) as u32;
            let end = used.partition_point(|link| edges[*link as usize].tail <= node) as u32;
            start..end
        };
        let branch = |link: &LinkIx| {
            let head = HostIx(edges[*link as usize].head);
            let receiver = receivers.binary_search(&head).is_ok().then_some(head);
            Branch { link: *link, receiver, children: leaving(head.0) }
        };
        let branches: Vec<Branch> = used.iter().map(branch).collect();
        let reached = branches.iter().filter(|branch| branch.receiver.is_some()).count();
        let unreachable = (receivers.len() - reached) as u64;
        Self { branches, roots: leaving(source), version, unreachable }
    }
}
