//! How a group is carried.

use std::fmt;

use carom_proto::rmp::Partition;
use carom_proto::{self as proto, RateOfFire};

/// The engine of a group with the settings that all its members must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    settings: proto::Profile,
    rejoins: bool,
    is_voter: bool,
}

impl Profile {
    /// Losses are repaired in milliseconds by the receivers themselves; messages are delivered at
    /// once and possibly out of order. The rate-of-fire is (8,5) unless set.
    pub fn time_critical() -> Self {
        Self::of(proto::Profile::TimeCritical(RateOfFire::default()))
    }

    /// For every `r` packets (1 to 32, the same in all groups of a node) that a member receives it
    /// sends repairs of them to `c` other members on average. The group is time-critical then.
    #[must_use]
    pub fn rate_of_fire(self, r: u8, c: u8) -> Self {
        Self { settings: proto::Profile::TimeCritical(RateOfFire::new(r, c)), ..self }
    }

    /// All members, the sender among them, are given the messages in the same order, and each
    /// message has a [`Qos`](crate::Qos) of its own. The members form a ring, of which
    /// [`RingEvent`](crate::RingEvent) tells. After a fault the part with a majority of the members
    /// goes on, unless [`Profile::partition`] says otherwise.
    pub fn ordered() -> Self {
        Self::of(proto::Profile::Ordered(Partition::Majority))
    }

    /// Which part of the ring goes on after a fault; the same for all members. The group is ordered
    /// then. With [`Partition::AtLeast`] two parts may go on side by side, each with an order of
    /// its own, until they meet again.
    #[must_use]
    pub fn partition(self, partition: Partition) -> Self {
        Self { settings: proto::Profile::Ordered(partition), ..self }
    }

    /// The group has so many voters, 1 to [`Partition::MAX_ELECTORATE`]; the same for all members.
    /// While fewer than a majority of them are in the ring nothing is ordered, acknowledged or
    /// locked, not even before the first two have met. [`RingNews::Minority`](crate::RingNews)
    /// tells how many are waited for. The group is ordered then.
    ///
    /// A ring admits no more voters than that, and it is up to whoever starts them that there are
    /// no more: two rings of different voters do not know of each other. Clients
    /// ([`Profile::voter`]) may come and go in any number.
    #[must_use]
    pub fn quorum_of(self, voters: u16) -> Self {
        self.partition(Partition::QuorumOf(voters))
    }

    /// Whether this node is one of the voters of [`Profile::quorum_of`], or a client: one that
    /// publishes, calls and locks, and whose coming and going moves no quorum. Without an
    /// electorate every member counts. Default: a voter.
    #[must_use]
    pub fn voter(self, is_voter: bool) -> Self {
        Self { is_voter, ..self }
    }

    /// How many voters must be in the ring for it to work; `None` without an electorate.
    pub fn quorum(self) -> Option<usize> {
        match self.settings {
            proto::Profile::Ordered(partition) => partition.quorum(),
            _ => None,
        }
    }

    /// Much data from one member to all others: the first who publishes is the sender, and the
    /// others' messages are refused ([`LossCause::AnotherSender`](crate::LossCause)) until it has
    /// left. Messages are delivered in order; receivers repair for each other; who publishes waits
    /// for the slowest receiver, until that is [left behind](crate::Slow).
    pub fn bulk() -> Self {
        Self::of(proto::Profile::Bulk)
    }

    /// Whether this node joins an ordered group again, as a new member that does not know what was
    /// delivered meanwhile, when the ring has gone on without it. If not the group is closed then.
    /// In both cases [`RingNews::Removed`](crate::RingNews::Removed) says so first. Default: yes.
    #[must_use]
    pub fn rejoin(self, rejoins: bool) -> Self {
        Self { rejoins, ..self }
    }

    /// The group is carried by the engine that the node was given by
    /// [`Builder::guest`](crate::Builder::guest); without one the join is refused.
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

    /// Whether messages wait for an application that does not take them.
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
