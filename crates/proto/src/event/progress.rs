use core::time::Duration;

use crate::{GroupId, NodeId, SeqNo};

/// A member that does not keep up with this node's messages.
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
    /// Number of members that confirmed, excluding members that joined after the last of these
    /// messages. If there was no other member, this is 0; see [`Confirmed::is_unconfirmed`].
    pub members: usize,
    /// Current and former members that lost messages, each with the number of packets that it lost.
    pub incomplete: Vec<(NodeId, u32)>,
}

impl Confirmed {
    /// Returns `true` if there was no other member that could have confirmed the messages.
    pub fn is_unconfirmed(&self) -> bool {
        self.members == 0
    }
}

/// A slow receiver of a bulk stream for which the sender and the other receivers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiting {
    /// Group of the receiver.
    pub group: GroupId,
    /// The slow receiver.
    pub node: NodeId,
    /// Time for which the other receivers waited for this one within `over`.
    pub held: Duration,
    /// Length of the measured interval, which ends now.
    pub over: Duration,
    /// Time since this receiver began to slow down the other receivers.
    pub since: Duration,
    /// `true` if the other receivers continue without this one, `false` if they wait for it.
    pub is_left_behind: bool,
}

impl Limiting {
    /// Returns the rate of the stream as a percentage of the rate without this receiver.
    pub fn percent_of_others(&self) -> u8 {
        let over = self.over.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = 1.0 - (self.held.as_secs_f64() / over).min(1.0);
        (share * 100.0).round() as u8
    }
}
