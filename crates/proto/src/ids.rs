use core::fmt;
use core::hash::Hasher;
use core::net::SocketAddr;

use siphasher::sip::SipHasher24;

/// Id of a node, drawn at random when its process starts or given by the user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct NodeId(pub u64);

/// One run of a node, identified by 64 random bits.
///
/// A process that restarts under the same [`NodeId`] has another incarnation. Incarnations have no
/// order: it is not possible to determine which of two is the later one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Incarnation(pub u64);

/// A node and its incarnation, which together identify the origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Id of the node.
    pub node: NodeId,
    /// Incarnation of the node.
    pub incarnation: Incarnation,
}

/// Id of a group, a hash of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct GroupId(#[cfg_attr(test, proptest(strategy = "1_u32.."))] pub u32);

/// Position of a packet among the packets that one sender has multicast in one group. It wraps
/// around.
///
/// This type does not implement `Ord`, because the order of two numbers is defined only if they are
/// less than 2^31 apart. See [`SeqNo::is_after`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct SeqNo(pub u32);

/// Id of a data packet: its sender, group and sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketId {
    /// Node that multicast the packet.
    pub sender: NodeId,
    /// Group of the packet.
    pub group: GroupId,
    /// Position of the packet among the sender's packets in the group.
    pub seqno: SeqNo,
}

/// Unicast address of a node.
///
/// The membership maps nodes to endpoints, and only the driver sends to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Endpoint(
    #[cfg_attr(test, proptest(strategy = "crate::strategies::addresses()"))] pub SocketAddr,
);

impl GroupId {
    /// The id in a datagram that concerns no group or several groups.
    pub const NONE: Self = Self(0);

    /// Returns the id of the group called `name`.
    ///
    /// The id is the low half of the SipHash-2-4 of the name with a zero key, or 1 if that half is
    /// [`GroupId::NONE`]. It is the same on every machine and in every version.
    pub fn of_name(name: &str) -> Self {
        Self((name_hash(name) as u32).max(1))
    }

    /// Returns the high half of the hash that [`GroupId::of_name`] computes. If two names have the
    /// same id but different checks, their ids collide.
    pub fn name_check(name: &str) -> u32 {
        (name_hash(name) >> 32) as u32
    }
}

pub(crate) fn name_hash(name: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl SeqNo {
    /// Default sequence number of the first packet of a stream. The lateral engine adds an offset
    /// that depends on the incarnation.
    pub const FIRST: Self = Self(1);

    /// Returns the number after this one.
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the number `count` positions after this one.
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Returns the number `count` positions before this one.
    pub fn minus(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// Returns the number of positions from `other` to this number, which is negative if this
    /// number is before `other`.
    ///
    /// The difference wraps around (RFC 1982 serial arithmetic).
    pub fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Returns `true` if this number is after `other`.
    pub fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// Returns `true` if the numbers are at most 2^16 apart.
    ///
    /// Both then probably belong to the same stream of one incarnation, because each incarnation
    /// starts at a random number.
    pub fn is_near(self, other: Self) -> bool {
        self.distance_from(other).unsigned_abs() <= 1 << 16
    }

    /// Returns `true` if this number is after `next`, the next number of a stream.
    ///
    /// A number that appears to be more than 2^30 behind is counted as ahead.
    pub fn is_beyond(self, next: Self) -> bool {
        !(0..=1 << 30).contains(&next.distance_from(self))
    }

    /// Returns the later of the two numbers.
    pub fn later(self, other: Self) -> Self {
        if self.is_after(other) { self } else { other }
    }

    /// Returns the earlier of the two numbers.
    pub fn earlier(self, other: Self) -> Self {
        if self.is_after(other) { other } else { self }
    }
}

/// Uses incarnation 0, the only one of a node that never restarts, as in tests.
impl From<NodeId> for Origin {
    fn from(node: NodeId) -> Self {
        Self { node, incarnation: Incarnation::default() }
    }
}

macro_rules! formats {
    ($($Id:ident: $display:literal, $debug:literal;)+) => {$(
        impl fmt::Display for $Id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $display, self.0)
            }
        }

        impl fmt::Debug for $Id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $debug, self.0)
            }
        }
    )+};
}

formats! {
    NodeId: "{:016x}", "node-{:x}";
    GroupId: "{:08x}", "group-{:x}";
    Incarnation: "{:016x}", "start-{:x}";
    SeqNo: "{}", "#{}";
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.sender, self.group, self.seqno)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_compare_across_the_wrap() {
        let last = SeqNo(u32::MAX);
        assert!(last.next().is_after(last));
        assert_eq!(SeqNo(3).distance_from(SeqNo(u32::MAX - 1)), 5);
        assert_eq!(SeqNo(2).minus(4), SeqNo(u32::MAX - 1));
        assert_eq!(last.later(SeqNo(0)), SeqNo(0));
        assert_eq!(last.earlier(SeqNo(0)), last);
    }

    #[test]
    fn numbers_half_the_circle_away_are_beyond_a_stream() {
        let next = SeqNo(10);
        assert!(!next.is_beyond(next) && !SeqNo(u32::MAX).is_beyond(next));
        assert!(SeqNo(11).is_beyond(next));
        let half = next.plus(1 << 31);
        assert!([half.minus(1), half, half.plus(1)].into_iter().all(|it| it.is_beyond(next)));
    }

    #[test]
    fn the_id_of_a_name_is_the_same_for_ever() {
        // These values are on the wire: a change splits a running cluster.
        assert_eq!(GroupId::of_name("numbers"), GroupId::of_name("numbers"));
        assert_ne!(GroupId::of_name("prices.eu"), GroupId::of_name("prices.us"));
        assert_eq!(GroupId::of_name(""), GroupId(0x1e92_4b9d_7377_00d7_u64 as u32));
        assert_eq!(GroupId::name_check(""), (0x1e92_4b9d_7377_00d7_u64 >> 32) as u32);
    }
}
