//! Names of things on the wire: nodes, groups, sequence numbers, packets.

use core::fmt;
use core::hash::Hasher;
use core::net::SocketAddr;

use siphasher::sip::SipHasher24;

/// A node: drawn at random when its process starts, or given by the user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// One start of a node: 64 random bits. A process that is started again under the same [`NodeId`]
/// has another incarnation, and its sequence numbers start afresh. Incarnations have no order: of
/// two of them, nothing tells which one is the later.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The node that a datagram comes from, and which start of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The node.
    pub node: NodeId,
    /// Which start of it.
    pub incarnation: Incarnation,
}

/// A group, by the hash of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// The position of a packet among those that one sender multicast in one group; wraps around.
///
/// It is not `Ord`: "later" makes sense only between numbers less than half the circle apart, see
/// [`SeqNo::is_after`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeqNo(pub u32);

/// What identifies a data packet everywhere: (sender, group, sequence number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketId {
    /// The node that multicast it.
    pub sender: NodeId,
    /// The group it was multicast in.
    pub group: GroupId,
    /// Its number among the sender's packets in that group.
    pub seqno: SeqNo,
}

/// Where a node can be reached by unicast. Opaque to the engines: only the membership carries it
/// about and only the driver opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(pub SocketAddr);

impl GroupId {
    /// No group: what a datagram says that concerns none, or several.
    pub const NONE: Self = Self(0);

    /// The id of the group called `name`: the low half of SipHash-2-4 of the name under a zero key,
    /// the same on every machine and in every version; 1 where that would be [`GroupId::NONE`].
    pub fn of_name(name: &str) -> Self {
        Self((name_hash(name) as u32).max(1))
    }

    /// The other half of the same hash: two names with the same id but another check collide.
    pub fn name_check(name: &str) -> u32 {
        (name_hash(name) >> 32) as u32
    }
}

/// SipHash-2-4 of a name under a zero key, the same on every machine and in every version.
pub(crate) fn name_hash(name: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl SeqNo {
    /// The number of the first packet of every stream.
    pub const FIRST: Self = Self(1);

    /// The number that follows this one.
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The number `count` places on.
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number `count` places back.
    pub fn minus(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// How many places this number lies after `other`; negative if before.
    ///
    /// This is the one place where wrap-around is dealt with (RFC 1982 serial arithmetic).
    pub fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Whether this number lies after `other`.
    pub fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// Returns `true` if both numbers can belong to one stream of one start of its sender. Those
    /// that still matter are not far apart, and each start counts from a random number.
    pub fn is_near(self, other: Self) -> bool {
        self.distance_from(other).unsigned_abs() <= 1 << 16
    }

    /// Returns `true` if a stream that continues with `next` has not sent all numbers before this
    /// one. A number that seems to be more than 2^30 behind is ahead, by half of all numbers.
    pub fn is_beyond(self, next: Self) -> bool {
        !(0..=1 << 30).contains(&next.distance_from(self))
    }

    /// The later of the two.
    pub fn later(self, other: Self) -> Self {
        if self.is_after(other) { self } else { other }
    }

    /// The earlier of the two.
    pub fn earlier(self, other: Self) -> Self {
        if self.is_after(other) { other } else { self }
    }
}

/// The only start of a node that is never started again, as in a test.
impl From<NodeId> for Origin {
    fn from(node: NodeId) -> Self {
        Self { node, incarnation: Incarnation::default() }
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start-{:x}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{:x}", self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group-{:x}", self.0)
    }
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
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
        // These values are on the wire: a change here splits a running cluster.
        assert_eq!(GroupId::of_name("numbers"), GroupId::of_name("numbers"));
        assert_ne!(GroupId::of_name("prices.eu"), GroupId::of_name("prices.us"));
        assert_eq!(GroupId::of_name(""), GroupId(0x1e92_4b9d_7377_00d7_u64 as u32));
        assert_eq!(GroupId::name_check(""), (0x1e92_4b9d_7377_00d7_u64 >> 32) as u32);
    }
}
