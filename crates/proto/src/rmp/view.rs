//! The members of a ring, in the order in which the token goes round (3.1).

use alloc::vec::Vec;
use core::fmt;

use super::locks::Locks;
use super::names::{Epoch, Process};

/// A membership view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingView {
    /// The reformation, or the creation, since which it changed by New Lists only.
    pub epoch: Epoch,
    /// How many New Lists have changed it since.
    pub version: u32,
    /// Which ring it descends from: that of its first creation.
    pub origin: Epoch,
    /// The [check](crate::GroupId::name_check) of the group's name: a group of another name may
    /// have the same id.
    pub name_check: u32,
    /// The members, in ring order; at least one.
    pub members: Vec<Member>,
    /// The locks, who holds them, and who waits.
    pub locks: Locks,
}

/// A member of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub process: Process,
    /// The smallest partition with which it would go on.
    pub partition: Partition,
    /// Whether it hears multicast.
    pub is_multicast: bool,
}

/// How many members of the view before must remain for a partition to go on (4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// So many; 1 lets every partition go on.
    AtLeast(u16),
    /// More than half.
    Majority,
    /// All: any failure stops the ring.
    All,
}

impl Partition {
    /// The wire form: a number of members, or one of two that no ring has.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::AtLeast(least) => least,
            Self::Majority => MAJORITY,
            Self::All => ALL,
        }
    }

    /// Reads the wire form; a partition of no members is none.
    pub fn from_wire(value: u16) -> Option<Self> {
        match value {
            0 => None,
            MAJORITY => Some(Self::Majority),
            ALL => Some(Self::All),
            least => Some(Self::AtLeast(least)),
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(1) => f.write_str("every partition goes on"),
            Self::AtLeast(least) => write!(f, "{least} go on"),
            Self::Majority => f.write_str("a majority goes on"),
            Self::All => f.write_str("all or none go on"),
        }
    }
}

const MAJORITY: u16 = u16::MAX - 1;
const ALL: u16 = u16::MAX;

impl RingView {
    /// The view of a ring that `founder` begins alone.
    pub fn founded_by(founder: Member, name_check: u32) -> Self {
        let epoch = Epoch::created_by(founder.process);
        let members = vec![founder];
        let locks = Locks::default();
        Self { epoch, version: 0, origin: epoch, name_check, members, locks }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none, which no view of a ring is.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether `process` is a member.
    pub fn contains(&self, process: Process) -> bool {
        self.place(process).is_some()
    }

    /// The processes, in ring order.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        self.members.iter().map(|member| member.process)
    }

    /// The member of this node, if there is one.
    pub fn process_of(&self, node: crate::NodeId) -> Option<Process> {
        self.processes().find(|process| process.node == node)
    }

    /// Who follows `process` in the ring; the first member if it is not in it.
    pub fn after(&self, process: Process) -> Process {
        let next = self.place(process).map_or(0, |place| (place + 1) % self.members.len());
        self.members[next].process
    }

    /// How many members of this view a part of it needs to go on: the largest of what its members
    /// ask for.
    pub fn least(&self) -> usize {
        let count = self.members.len();
        let needs = self.members.iter().map(|member| match member.partition {
            Partition::AtLeast(least) => usize::from(least).min(count),
            Partition::Majority => count / 2 + 1,
            Partition::All => count,
        });
        needs.max().unwrap_or(1).max(1)
    }

    /// Adds a member behind `site`, whose turn is next (4.3).
    pub(super) fn insert_after(&mut self, site: Process, member: Member) {
        let place = self.place(site).map_or(self.members.len(), |place| place + 1);
        self.members.insert(place, member);
    }

    /// Removes a member; its locks go to who waits for them.
    pub(super) fn remove(&mut self, process: Process) {
        self.members.retain(|member| member.process != process);
        self.locks.remove(process);
    }

    fn place(&self, process: Process) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn member(node: u64, partition: Partition) -> Member {
        let process = Process { node: NodeId(node), life: 1 };
        Member { process, partition, is_multicast: true }
    }

    #[test]
    fn a_joiner_stands_behind_the_token_site() {
        let [a, b, c] = [1, 2, 3].map(|node| member(node, Partition::Majority));
        let mut view = RingView::founded_by(a, 0);
        view.insert_after(a.process, b);
        view.insert_after(a.process, c);
        let order: Vec<u64> = view.processes().map(|process| process.node.0).collect();
        assert_eq!(order, [1, 3, 2]);
        assert_eq!(view.after(b.process), a.process);
    }

    #[test]
    fn the_most_demanding_member_decides_how_many_must_remain() {
        let mut view = RingView::founded_by(member(1, Partition::AtLeast(1)), 0);
        view.members.extend([2, 3, 4].map(|node| member(node, Partition::AtLeast(2))));
        assert_eq!(view.least(), 2);
        view.members.push(member(5, Partition::Majority));
        assert_eq!(view.least(), 3);
        view.members.push(member(6, Partition::All));
        assert_eq!(view.least(), 6);
    }
}
