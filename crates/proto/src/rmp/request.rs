//! Requests to a group and their answers: multi-RPC (3.3, 4.5).
//!
//! A request is a message with an envelope that contains its number. It takes its place among the
//! other messages, whether its caller is a member or not, and every member delivers it there. If it
//! names a [handler](Handler), the holder of the handler's lock replies. Otherwise the caller
//! receives an acknowledgment of the delivery.
//!
//! # Guarantees
//!
//! A caller that stays alive gets one answer to each request: a reply, an acknowledgment, or after
//! a bounded time [`Outcome::Unanswered`]. A request is delivered once, in one order, at all
//! members. It is *executed* at least once: if a handler fails between its work and its reply, the
//! next holder of its lock receives the open requests.
//!
//! There are two ways to avoid that a request is executed twice. The first is to execute it at
//! every member when it is delivered, so that the handler only replies with the result. The second
//! is to check [`Request::may_be_done`].

use core::time::Duration;

use bytes::Bytes;

use super::ids::Place;
use super::locks::Handler;
use super::qos::Qos;
use crate::NodeId;

/// Identifier of a request: its caller, and its number among the requests of that node to the
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The caller.
    pub caller: NodeId,
    /// The number.
    pub number: u32,
}

/// Options of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Handler whose lock holder replies. `None`: the request is only acknowledged.
    pub handler: Option<Handler>,
    /// Delivery guarantee of the request. Default: totally ordered.
    pub qos: Qos,
    /// Time to wait for the answer. `None`: [`Config::call_patience`](super::Config).
    pub patience: Option<Duration>,
    /// A member that forwards the request, for a caller that is not a member and cannot multicast.
    pub via: Option<NodeId>,
}

impl From<Handler> for RequestOptions {
    fn from(handler: Handler) -> Self {
        Self { handler: Some(handler), ..Self::default() }
    }
}

/// A request that was delivered to this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id, for [`Rmp::reply`](super::Rmp::reply).
    pub id: RequestId,
    /// Handler that has to reply; `None` if no reply is expected.
    pub handler: Option<Handler>,
    /// The payload of the request.
    pub payload: Bytes,
    /// Its place in the order. `None` if it is below total order or [delivered
    /// again](Self::is_again).
    pub place: Option<Place>,
    /// `true` if this member has to reply.
    pub is_ours: bool,
    /// `true` if this is not the place of the request among the messages. It was delivered earlier,
    /// to this member or before this member joined, and this member has to reply only now. Then
    /// [`Request::is_ours`] is also `true`.
    pub is_again: bool,
    /// `true` if a member that is gone may have executed the request.
    pub may_be_done: bool,
}

/// The answer to a request of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub id: RequestId,
    /// The outcome.
    pub outcome: Outcome,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler's reply.
    Reply {
        /// Node that replied.
        by: NodeId,
        /// The reply.
        payload: Bytes,
    },
    /// The request was delivered to the group with its guarantee. It named no handler.
    Acknowledged,
    /// There was no answer in time, or the caller has left the group. The request may have been
    /// executed.
    Unanswered,
}

/// Reason why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// This node is leaving the group.
    #[error("this node is leaving the group")]
    Leaving,
    /// The request is larger than the maximum message size.
    #[error("request of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size of the request in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The group does not provide this guarantee.
    #[error("this group does not support quality of service '{asked}' for requests")]
    Qos {
        /// The guarantee of the request.
        asked: Qos,
    },
    /// Too many requests wait for their answers.
    #[error("too many requests: {waiting} are already waiting for replies")]
    TooMany {
        /// Number of requests that wait.
        waiting: usize,
    },
    /// The send queue is full.
    #[error("the send queue is full: {waiting_bytes} bytes are waiting")]
    QueueFull {
        /// Bytes of messages that wait.
        waiting_bytes: usize,
    },
}

/// Reason why a reply was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// This member does not have to reply to the request: it was not assigned to this member, it
    /// has an answer, or the caller no longer waits for it.
    #[error("the request is not open")]
    NotOpen,
    /// The reply is larger than the maximum message size.
    #[error("reply of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size of the reply in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The send queue is full.
    #[error("the send queue is full: {waiting_bytes} bytes are waiting")]
    QueueFull {
        /// Bytes of messages that wait.
        waiting_bytes: usize,
    },
}

/// The requests of a caller that were delivered. A repeated request is not delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// All smaller numbers were delivered or never will be.
    pub base: u32,
    /// Delivered numbers from `base` on, one bit each.
    pub bits: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    New,
    Again,
    /// The caller no longer waits for it, and it is forgotten.
    Over,
    /// Further ahead of the oldest open request than a caller may be.
    Impossible,
}

/// Maximum distance between two request numbers of one incarnation of a caller that a member
/// receives.
const MOST_APART: u32 = 1 << 15;
pub(super) const MAX_WAITING: u32 = 64;

impl Seen {
    /// Creates an empty set for a caller whose oldest open request is `oldest`.
    pub(super) fn before(oldest: u32) -> Self {
        Self { base: oldest.wrapping_sub(MAX_WAITING), bits: 0 }
    }

    /// Forgets requests before `oldest`, the oldest one that the caller waits for. A margin of
    /// [`MAX_WAITING`] older numbers is kept, because messages below total order may arrive late.
    pub(super) fn forget_before(&mut self, oldest: u32) {
        let base = oldest.wrapping_sub(MAX_WAITING);
        let step = base.wrapping_sub(self.base) as i32;
        if step > 0 {
            self.bits = self.bits.checked_shr(step as u32).unwrap_or(0);
            self.base = base;
        }
    }

    pub(super) fn is_over(&self, number: u32) -> bool {
        let oldest = self.base.wrapping_add(MAX_WAITING);
        (number.wrapping_sub(oldest) as i32) < 0
    }

    /// Returns `true` if a request of this number is of the same incarnation of its caller. Each
    /// incarnation counts from a different number.
    pub(super) fn is_of_same_start(&self, number: u32) -> bool {
        (number.wrapping_sub(self.base) as i32).unsigned_abs() <= MOST_APART
    }

    pub(super) fn record(&mut self, number: u32) -> Sight {
        let place = number.wrapping_sub(self.base) as i32;
        if place < 0 {
            return Sight::Again;
        } else if place >= u128::BITS as i32 {
            return Sight::Impossible;
        }
        let bit = 1_u128 << place;
        let is_new = self.bits & bit == 0;
        self.bits |= bit;
        if is_new { Sight::New } else { Sight::Again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once_also_where_numbers_begin_again() {
        let mut seen = Seen::before(u32::MAX - 1);
        for number in [u32::MAX - 1, 0, u32::MAX, 61] {
            assert_eq!(seen.record(number), Sight::New, "{number}");
            assert_eq!(seen.record(number), Sight::Again, "{number}");
        }
        assert_eq!(seen.record(100), Sight::Impossible);
        seen.forget_before(62);
        assert_eq!(seen.record(0), Sight::Again);
        assert_eq!(seen.record(1), Sight::New);
        assert_eq!(seen.record(u32::MAX), Sight::Again);
        seen.forget_before(10_000);
        assert_eq!((seen.record(61), seen.record(10_000)), (Sight::Again, Sight::New));
    }
}
