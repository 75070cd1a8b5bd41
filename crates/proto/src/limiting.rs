//! Receivers that slow the others down.

use core::time::Duration;

use crate::{GroupId, NodeId};

/// A receiver of a bulk stream for which the sender and the other receivers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiting {
    /// The group in which it receives.
    pub group: GroupId,
    /// The receiver.
    pub node: NodeId,
    /// How long the others waited for it within `over`.
    pub held: Duration,
    /// The time that was looked at, up to now.
    pub over: Duration,
    /// How long ago it began to slow the others down.
    pub since: Duration,
    /// Whether the others continue without it; if not, they wait for it.
    pub is_left_behind: bool,
}

impl Limiting {
    /// Returns the share of the others' possible rate that they get beside this receiver, in
    /// percent.
    pub fn percent_of_others(&self) -> u8 {
        let over = self.over.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = 1.0 - (self.held.as_secs_f64() / over).min(1.0);
        (share * 100.0).round() as u8
    }
}

/// A member that does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The group in which it lags.
    pub group: GroupId,
    /// The member.
    pub node: NodeId,
    /// How many packets of this node it has not confirmed.
    pub behind: u32,
}
