//! Places in the total order, and the processes and rings that assign them.

use core::fmt;

use crate::{Incarnation, NodeId};

/// One membership of a node in a group: the process of the paper (3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Process {
    /// Node whose membership this is.
    pub node: NodeId,
    /// Number of the membership. It consists of 39 bits of the node's incarnation, followed by 24
    /// bits that count the lives of this incarnation. Only lives of one incarnation have an order.
    pub life: u64,
}

const JOINS_BITS: u32 = 24;

impl Process {
    // The uppermost bit is 0, so that the count cannot overflow.
    pub(crate) fn lives_before(incarnation: Incarnation) -> u64 {
        incarnation.0 >> (JOINS_BITS + 1) << JOINS_BITS
    }

    pub(crate) fn follows(self, other: Self) -> bool {
        let is_same_start = self.life >> JOINS_BITS == other.life >> JOINS_BITS;
        self.node == other.node && is_same_start && self.life > other.life
    }
}

/// A ring between two reformations, and the ballot that formed it. The ballot with the larger
/// version wins (4.4), then that of the larger process. A newly created ring has version 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Epoch {
    /// Version of the ballot, larger than that of the preceding ring.
    pub version: u32,
    /// Process that formed the ring.
    pub creator: Process,
}

/// A place in the total order of one ring lineage (4.2).
///
/// An ACK takes one place, and the packets that it orders take the following ones. The 64-bit
/// number never wraps around.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Timestamp(pub u64);

/// A place in the total order, with the ring that assigned it.
///
/// Within one lineage of rings, places compare in the total order. A member without which the
/// others have continued may have delivered a message at another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Ring that assigned the place.
    pub ring: Epoch,
    /// Position in the order of the ring.
    pub at: Timestamp,
}

impl Timestamp {
    /// The largest timestamp, for a range without an end.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the timestamp `count` places later.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl Place {
    pub(crate) fn plus(self, count: u64) -> Self {
        Self { at: self.at.plus(count), ..self }
    }
}

impl Epoch {
    /// Returns the epoch of the ring that `creator` creates alone.
    pub fn created_by(creator: Process) -> Self {
        Self { version: 1, creator }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}", self.node.0, self.life)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:?}", self.version, self.creator)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn process(node: u64) -> Process {
        Process { node: NodeId(node), life: 1 }
    }

    fn first_life(incarnation: u64) -> Process {
        Process { node: NodeId(7), life: Process::lives_before(Incarnation(incarnation)) + 1 }
    }

    #[test]
    fn starts_that_share_their_first_32_bits_do_not_share_a_name() {
        let starts = [first_life(0x1234_5678_0000_0000), first_life(0x1234_5678_8000_0000)];
        assert_ne!(starts[0], starts[1]);
        assert!(!starts[1].follows(starts[0]) && !starts[0].follows(starts[1]));
    }

    #[test]
    fn later_lives_of_one_start_follow_the_earlier_ones() {
        for incarnation in [0, 1, u64::MAX] {
            let first = first_life(incarnation);
            let later = Process { life: first.life + (1 << JOINS_BITS) - 2, ..first };
            assert!(later.follows(first) && !first.follows(later), "{first:?}");
        }
    }
}
