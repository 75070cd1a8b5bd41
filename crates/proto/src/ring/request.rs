//! Requests to a group and their answers: multi-RPC (3.3, 4.5).
//!
//! A request is a message with an envelope that contains its number. It has a place among the other
//! messages. If the request names a [handler](Handler), the holder of the handler's lock replies.
//! Otherwise, the caller receives an acknowledgment of the delivery.
//!
//! # Guarantees
//!
//! A caller that stays alive receives exactly one answer to each request. After a bounded time
//! without a reply or an acknowledgment, the answer is [`Outcome::Unanswered`]. A totally ordered
//! request is delivered once, at the same place at all members. It may be *executed* more than
//! once: if a handler fails between its work and its reply, the next holder of its lock receives
//! the open requests. To prevent a second execution, every member can execute the request when it
//! is delivered, or the handler can check [`Request::may_be_done`].

use core::time::Duration;

use bytes::Bytes;

use super::locks::Handler;
use super::place::Place;
use super::qos::Qos;
use crate::NodeId;

/// Identifier of a request: its caller, and its number among the caller's requests to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Node that sent the request.
    pub caller: NodeId,
    /// Number of the request among those of the caller to the group.
    pub number: u32,
}

/// Options of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Handler whose lock holder replies. Default: `None`, in which case the request is only
    /// acknowledged.
    pub handler: Option<Handler>,
    /// Delivery guarantee of the request. Default: totally ordered.
    pub qos: Qos,
    /// Maximum time to wait for the answer. Default: `None`, which selects
    /// [`Config::call_patience`](crate::rmp::Config::call_patience).
    pub patience: Option<Duration>,
    /// Member that forwards this and later requests of a caller without multicast. Default: `None`.
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
    /// Identifier of the request, for [`Rmp::reply`](crate::rmp::Rmp::reply).
    pub id: RequestId,
    /// Handler that has to reply, or `None` if no reply is expected.
    pub handler: Option<Handler>,
    /// The payload of the request.
    pub payload: Bytes,
    /// Place of the request in the total order. `None` if its guarantee is weaker than total order,
    /// or if it is [delivered again](Self::is_again).
    pub place: Option<Place>,
    /// `true` if this member has to reply.
    pub is_ours: bool,
    /// `true` if the request was delivered to the group before, and this member now has to reply.
    pub is_again: bool,
    /// `true` if the request may already have been executed.
    pub may_be_done: bool,
}

/// The answer to a request that this node sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Identifier of the answered request.
    pub id: RequestId,
    /// Reply, acknowledgment, or absence of an answer.
    pub outcome: Outcome,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler's reply.
    Reply {
        /// Node that replied.
        by: NodeId,
        /// Payload of the reply.
        payload: Bytes,
    },
    /// The request, which named no handler, was delivered to the group with its guarantee.
    Acknowledged,
    /// No answer came in time, or before this node left. The request may have been executed.
    Unanswered,
}

/// Error returned when a request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// This node is leaving the group.
    #[error("this node is leaving the group")]
    Leaving,
    /// The request does not fit in a message, or in one packet if it is unreliable.
    #[error("request of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size of the request in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The group does not support this guarantee, or it is `Resilient(0)`.
    #[error("this group does not support quality of service '{asked}' for requests")]
    Qos {
        /// The guarantee of the request.
        asked: Qos,
    },
    /// Too many requests have been sent since the oldest one that still waits for its answer.
    #[error("too many requests: {waiting} are already waiting for answers")]
    TooMany {
        /// Number of waiting requests.
        waiting: usize,
    },
    /// The send queue is full.
    #[error("the send queue is full: {waiting_bytes} bytes are waiting")]
    QueueFull {
        /// Total size of the waiting messages with their overhead, in bytes.
        waiting_bytes: usize,
    },
}

/// Error returned when a reply is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// This node is not in the group, or is leaving it.
    #[error("this node is not in the group")]
    NotJoined,
    /// The request is unknown or another member's, was answered, or its caller no longer waits.
    #[error("the request is not open")]
    NotOpen,
    /// The reply does not fit in a message.
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
        /// Total size of the waiting messages with their overhead, in bytes.
        waiting_bytes: usize,
    },
}
