use core::fmt;

use crate::{GroupId, NodeId, SeqNo};

/// Messages that this node will not receive or could not send, as a range of sequence numbers of
/// their packets.
///
/// Each number is reported once, and messages delivered to this node are never reported. The losses
/// of a large message may be in several ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Group of the messages.
    pub group: GroupId,
    /// Node that multicast the messages.
    pub sender: NodeId,
    /// First sequence number of the range.
    pub first: SeqNo,
    /// Last sequence number of the range, not before `first`.
    pub last: SeqNo,
    /// Reason for the loss.
    pub cause: LossCause,
}

impl Lost {
    /// Returns the number of sequence numbers in the range. It equals the number of lost messages
    /// if each of them fits in one packet.
    pub fn count(&self) -> u32 {
        self.last.0.wrapping_sub(self.first.0).wrapping_add(1)
    }
}

/// Cause of the loss of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The deadline of the message or the engine's limit for repairs passed before its repair.
    DeadlinePassed,
    /// No queried node had the message, or none replied.
    AttemptsSpent,
    /// This node is so far behind the sender that it does not try to catch up.
    TooFarBehind,
    /// The message arrived while the application's event queue was full.
    QueueFull,
    /// The message consists of several packets, and there was no room to reassemble it.
    NoRoom,
    /// This node published the message, and another node is the sender of the group.
    AnotherSender,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadlinePassed => "deadline passed",
            Self::AttemptsSpent => "no queried node had it",
            Self::TooFarBehind => "too far behind the sender",
            Self::QueueFull => "the application's queue was full",
            Self::NoRoom => "no room to reassemble it",
            Self::AnotherSender => "another node sends in the group",
        })
    }
}
