mod lost;
mod message;
mod progress;

pub use self::lost::{LossCause, Lost};
pub use self::message::{How, Message};
pub use self::progress::{Confirmed, Limiting, Slow};
use crate::ring::RingEvent;
use crate::{GroupId, ViewChange};

/// An event that an engine reports to the application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A message of the group, delivered at most once unless it was sent with
    /// [`Qos::Unreliable`](crate::ring::Qos::Unreliable).
    Message(Message),
    /// Messages that this node will not receive, or that it could not send.
    Lost(Lost),
    /// A change to the group's view: another member joined, left or failed.
    View(ViewChange),
    /// This node no longer waits for a member, usually because the member is too far behind.
    Slow(Slow),
    /// A receiver of this node's bulk stream slows down the other receivers.
    Limiting(Limiting),
    /// Confirmation of this node's messages; see [`Engine::confirm`](crate::Engine::confirm).
    Confirmed(Confirmed),
    /// A report about an ordered group, such as a change to its ring or its locks.
    Ring(RingEvent),
}

impl Event {
    /// Returns the group that the event concerns.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Message(message) => message.group,
            Self::Lost(lost) => lost.group,
            Self::View(change) => change.group,
            Self::Slow(slow) => slow.group,
            Self::Limiting(limiting) => limiting.group,
            Self::Confirmed(confirmed) => confirmed.group,
            Self::Ring(event) => event.group,
        }
    }
}
