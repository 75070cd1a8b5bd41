//! Event that reports a slow receiver to the sender's application.

use core::time::Duration;

use crate::{GroupId, NodeId};

/// A receiver of a bulk stream for which the sender and the other receivers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiting {
    /// Group of the receiver.
    pub group: GroupId,
    /// The slow receiver.
    pub node: NodeId,
    /// Time for which the others waited for it within `over`.
    pub held: Duration,
    /// Length of the measured interval, which ends now.
    pub over: Duration,
    /// Time since it began to slow the others down.
    pub since: Duration,
    /// `true` if the others continue without it, `false` if they wait for it.
    pub is_left_behind: bool,
}

impl Limiting {
    /// Returns the percentage of the others' possible rate that they get with this receiver.
    pub fn percent_of_others(&self) -> u8 {
        let over = self.over.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = 1.0 - (self.held.as_secs_f64() / over).min(1.0);
        (share * 100.0).round() as u8
    }
}
