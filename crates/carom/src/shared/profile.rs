use std::fmt;

use carom_proto::ring::Quorum;
use carom_proto::{self as proto, RateOfFire};

/// The engine and the settings of a group. All members must agree on them, except on
/// [`Profile::rejoin`] and [`Profile::voter`].
///
/// Choose [`Profile::time_critical`] for the lowest latency, without order between messages;
/// [`Profile::ordered`] if all members must deliver all messages in the same order; and
/// [`Profile::bulk`] for large amounts of data from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    settings: proto::Profile,
    rejoins: bool,
    is_voter: bool,
}

impl Profile {
    /// Returns the profile of a time-critical group: receivers repair losses in milliseconds.
    ///
    /// Messages are delivered as soon as they arrive, possibly out of order. The rate-of-fire is
    /// (8,5).
    pub fn time_critical() -> Self {
        Self::of(proto::Profile::TimeCritical(RateOfFire::default()))
    }

    /// Makes the group time-critical with the given rate-of-fire: for every `r` data packets, a
    /// member sends repairs to `c` other members on average.
    ///
    /// `r` is 1 to 32 and must be the same in all groups of a node.
    #[must_use]
    pub fn rate_of_fire(self, r: u8, c: u8) -> Self {
        Self { settings: proto::Profile::TimeCritical(RateOfFire::new(r, c)), ..self }
    }

    /// Returns the profile of an ordered group, in which all members, including the sender, deliver
    /// the messages in the same order.
    ///
    /// Each message has its own [`Qos`](crate::Qos). After a partition, the part with a majority of
    /// the members continues, unless [`Profile::quorum`] is set.
    pub fn ordered() -> Self {
        Self::of(proto::Profile::Ordered(Quorum::Majority))
    }

    /// Makes the group ordered, and sets which part of the ring continues after a fault. The
    /// setting must be the same at all members.
    ///
    /// With [`Quorum::AtLeast`], two parts can continue side by side until they merge.
    #[must_use]
    pub fn quorum(self, quorum: Quorum) -> Self {
        Self { settings: proto::Profile::Ordered(quorum), ..self }
    }

    /// Makes the group ordered with this number of voters, 1 to [`Quorum::MAX_ELECTORATE`]. The
    /// number must be the same at all members.
    ///
    /// While fewer than a majority of the voters are in the ring, nothing is ordered, acknowledged
    /// or locked; see [`RingNews::Minority`](crate::RingNews). This also applies when the group
    /// first starts. The operator must not start more voters than this number, because two rings
    /// of different voters would not know of each other. Clients ([`Profile::voter`]) may join and
    /// leave in any number.
    #[must_use]
    pub fn quorum_of(self, voters: u16) -> Self {
        self.quorum(Quorum::QuorumOf(voters))
    }

    /// Makes this node a voter of [`Profile::quorum_of`] or a client. Default: `true`, a voter.
    ///
    /// A client does not count toward the quorum. Without [`Profile::quorum_of`], every member
    /// counts.
    #[must_use]
    pub fn voter(self, is_voter: bool) -> Self {
        Self { is_voter, ..self }
    }

    /// Returns the number of voters that the ring needs to work, or `None` without
    /// [`Profile::quorum_of`].
    pub fn required_voters(self) -> Option<usize> {
        match self.settings {
            proto::Profile::Ordered(quorum) => quorum.required_voters(),
            _ => None,
        }
    }

    /// Returns the profile of a bulk group, for large amounts of data from one member to all
    /// others.
    ///
    /// The first member that publishes is the sender, until it leaves; see
    /// [`LossCause::AnotherSender`](crate::LossCause). The sender waits for the slowest receiver
    /// until that receiver is [evicted](crate::Slow). Messages are delivered in order, and
    /// receivers repair each other's losses.
    pub fn bulk() -> Self {
        Self::of(proto::Profile::Bulk)
    }

    /// Sets whether this node rejoins an ordered group after it was removed. Default: `true`.
    ///
    /// The node rejoins as a new member and misses the messages that were delivered in the
    /// meantime. With `false`, the group is closed instead. See
    /// [`RingNews::Removed`](crate::RingNews::Removed).
    #[must_use]
    pub fn rejoin(self, rejoins: bool) -> Self {
        Self { rejoins, ..self }
    }

    /// Returns the profile of a group that the custom engine of
    /// [`Builder::guest`](crate::Builder::guest) carries.
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

    /// Returns `true` if messages are kept for an application that is slow to receive them.
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
