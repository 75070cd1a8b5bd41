//! Progress of the members: confirmations, and members that lag behind.

use core::time::Duration;

use crate::{GroupId, NodeId, SeqNo};

/// A member that does not keep up with this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Group in which the member lags.
    pub group: GroupId,
    /// The lagging member.
    pub node: NodeId,
    /// Number of this node's packets that the member has not confirmed.
    pub behind: u32,
}

/// Result of [`Engine::confirm`](crate::Engine::confirm).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Group of the messages.
    pub group: GroupId,
    /// Last confirmed sequence number. All messages of this node up to it are settled everywhere.
    pub up_to: SeqNo,
    /// Number of members that confirmed, without those that joined after the last of these
    /// messages. 0 if there was no member: see [`Confirmed::is_unconfirmed`].
    pub members: usize,
    /// Members, even former ones, that lost messages, with the number of packets that each lost.
    pub incomplete: Vec<(NodeId, u32)>,
}

impl Confirmed {
    /// Returns `true` if there was no member, so that no member is known to have the messages.
    pub fn is_unconfirmed(&self) -> bool {
        self.members == 0
    }
}

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
