//! The profile of a group: the engine that carries it, and its settings.

use std::fmt;

use carom_proto::ring::Quorum;
use carom_proto::{self as proto, RateOfFire};

/// Engine of a group, with the settings on which all its members must agree.
///
/// Choose [`Profile::time_critical`] for the lowest latency, without order between messages;
/// [`Profile::ordered`] if all members must deliver all messages in the same order; and
/// [`Profile::bulk`] for much data from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    settings: proto::Profile,
    rejoins: bool,
    is_voter: bool,
}

impl Profile {
    /// Returns the profile of a time-critical group: receivers repair losses in milliseconds.
    ///
    /// Messages are delivered at once and possibly out of order. The rate-of-fire is (8,5).
    pub fn time_critical() -> Self {
        Self::of(proto::Profile::TimeCritical(RateOfFire::default()))
    }

    /// Makes the group time-critical with this rate-of-fire: for every `r` data packets, a member
    /// sends repairs to `c` others on average.
    ///
    /// `r` is 1 to 32 and must be the same in all groups of a node.
    #[must_use]
    pub fn rate_of_fire(self, r: u8, c: u8) -> Self {
        Self { settings: proto::Profile::TimeCritical(RateOfFire::new(r, c)), ..self }
    }

    /// Returns the profile of an ordered group: all members, including the sender, deliver the
    /// messages in the same order.
    ///
    /// Each message has its own [`Qos`](crate::Qos). After a fault the part with a majority of the
    /// members continues, unless [`Profile::quorum`] is set.
    pub fn ordered() -> Self {
        Self::of(proto::Profile::Ordered(Quorum::Majority))
    }

    /// Makes the group ordered, and sets which part of the ring continues after a fault: the same
    /// on all members.
    ///
    /// With [`Quorum::AtLeast`] two parts can continue side by side until they merge.
    #[must_use]
    pub fn quorum(self, quorum: Quorum) -> Self {
        Self { settings: proto::Profile::Ordered(quorum), ..self }
    }

    /// Makes the group ordered with this number of voters, 1 to [`Quorum::MAX_ELECTORATE`]: the
    /// same on all members.
    ///
    /// Without a majority of the voters in the ring, nothing is ordered, acknowledged or locked,
    /// even at first; see [`RingNews::Minority`](crate::RingNews). The operator must not start more
    /// voters: two rings of different voters do not know of each other. Clients
    /// ([`Profile::voter`]) may join and leave in any number.
    #[must_use]
    pub fn quorum_of(self, voters: u16) -> Self {
        self.quorum(Quorum::QuorumOf(voters))
    }

    /// Sets whether this node is a voter of [`Profile::quorum_of`], the default, or a client.
    ///
    /// A client does not count toward the quorum. Without an electorate every member counts.
    #[must_use]
    pub fn voter(self, is_voter: bool) -> Self {
        Self { is_voter, ..self }
    }

    /// Returns the number of voters that the ring needs to work; `None` without an electorate.
    pub fn required_voters(self) -> Option<usize> {
        match self.settings {
            proto::Profile::Ordered(quorum) => quorum.required_voters(),
            _ => None,
        }
    }

    /// Returns the profile of a bulk group: much data from one member to all others.
    ///
    /// The first member that publishes is the sender, until it leaves; see
    /// [`LossCause::AnotherSender`](crate::LossCause). It waits for the slowest receiver until that
    /// is [evicted](crate::Slow). Messages are delivered in order, and receivers repair for each
    /// other.
    pub fn bulk() -> Self {
        Self::of(proto::Profile::Bulk)
    }

    /// Sets whether this node rejoins an ordered group after its removal. Default: `true`.
    ///
    /// It rejoins as a new member that does not know what was delivered meanwhile. With `false` the
    /// group is closed instead. See [`RingNews::Removed`](crate::RingNews::Removed).
    #[must_use]
    pub fn rejoin(self, rejoins: bool) -> Self {
        Self { rejoins, ..self }
    }

    /// Returns the profile of a group of [`Builder::guest`](crate::Builder::guest)'s custom engine.
    pub fn guest() -> Self {
        Self::of(proto::Profile::Guest)
    }

    fn of(settings: proto::Profile) -> Self {
        Self { settings, rejoins: true, is_voter: true }
    }

    pub(crate) fn settings(self) -> proto::Profile {
        self.settings
    }

    pub(crate) fn is_voter(self) -> bool {
        self.is_voter
    }

    pub(crate) fn rejoins(self) -> bool {
        self.rejoins
    }

    /// Returns `true` if messages are kept for an application that is slow to take them.
    pub(crate) fn promises_all(self) -> bool {
        self.is_ordered() || self.is_bulk()
    }

    pub(crate) fn is_bulk(self) -> bool {
        matches!(self.settings, proto::Profile::Bulk)
    }

    pub(crate) fn is_ordered(self) -> bool {
        matches!(self.settings, proto::Profile::Ordered(_))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
