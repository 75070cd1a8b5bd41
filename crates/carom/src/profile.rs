//! How a group is carried.

use std::fmt;

use carom_proto::{self as proto, RateOfFire};

/// The engine of a group with the settings that all its members must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile(proto::Profile);

impl Profile {
    /// Losses are repaired in milliseconds by the receivers themselves; messages are delivered at
    /// once and possibly out of order. The rate-of-fire is (8,5) unless set.
    pub fn time_critical() -> Self {
        Self(proto::Profile::TimeCritical(RateOfFire::default()))
    }

    /// For every `r` packets (1 to 32, the same in all groups of a node) that a member receives it
    /// sends repairs of them to `c` other members on average. The group is time-critical then.
    #[must_use]
    pub fn rate_of_fire(self, r: u8, c: u8) -> Self {
        Self(proto::Profile::TimeCritical(RateOfFire::new(r, c)))
    }

    /// The group is carried by the engine that the node was given by
    /// [`Builder::guest`](crate::Builder::guest); without one the join is refused.
    pub fn guest() -> Self {
        Self(proto::Profile::Guest)
    }

    pub(crate) fn settings(self) -> proto::Profile {
        self.0
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
