//! Requests to a group and what is said about them: multi-RPC (3.3, 4.5).
//!
//! A request is a message with an envelope that numbers it. It takes its place among the others,
//! whoever asks, and every member delivers it there. Where it names a [handler](Handler) the holder
//! of the handler's lock replies; where it does not the caller is told that it was delivered.
//!
//! # What is promised
//!
//! A caller that is alive gets one answer to each request: a reply, an acknowledgement, or after a
//! bounded time that there was none. A request is delivered once, in one order, at all members, and
//! *executed* at least once: a handler that dies between its work and its reply is followed by the
//! next holder of its lock, who is given the requests that are open. An application that may not
//! do a thing twice orders it for all (every member executes what every member delivers, and the
//! handler only tells the result), or looks at [`Request::may_be_done`].

use alloc::vec::Vec;
use core::time::Duration;

use bytes::{Buf, BufMut, Bytes};

use super::locks::Handler;
use super::names::Place;
use super::qos::Qos;
use crate::NodeId;

/// A request: who asked, and its number among the requests of that node to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Who asked.
    pub caller: NodeId,
    /// The number.
    pub number: u32,
}

/// How a request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Who replies: the holder of this handler's lock. `None`: nobody, the request is acknowledged.
    pub handler: Option<Handler>,
    /// What the request is promised. Default: totally ordered.
    pub qos: Qos,
    /// How long to wait for the answer. `None`: [`Config::call_patience`](super::Config).
    pub patience: Option<Duration>,
    /// A member that passes the request on, for a caller that is not one and cannot multicast.
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
    /// Its name, for [`Rmp::reply`](super::Rmp::reply).
    pub id: RequestId,
    /// The handler that is to reply; `None` if nobody is.
    pub handler: Option<Handler>,
    /// What is asked.
    pub payload: Bytes,
    /// Its place in the order, if this is its place and it is totally ordered at least.
    pub place: Option<Place>,
    /// Whether this member is the one to reply.
    pub is_ours: bool,
    /// Whether this is not its place among the messages: it was delivered before, to this member
    /// or before it joined, and only now is this member the one to reply. Always with
    /// [`Request::is_ours`].
    pub is_again: bool,
    /// Whether another member may have done the work, and is not there any more to tell.
    pub may_be_done: bool,
}

/// What became of a request of this node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub id: RequestId,
    /// What became of it.
    pub outcome: Outcome,
}

/// What can become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler's reply.
    Reply {
        /// Who has replied.
        by: NodeId,
        /// The reply.
        payload: Bytes,
    },
    /// It was delivered to the group, as promised; no reply was asked for.
    Acknowledged,
    /// There was no answer within the patience of the caller, or the caller has left the group.
    /// The request may have been executed.
    Unanswered,
}

/// Why a request was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// This node is just leaving the group.
    #[error("this node is leaving the group")]
    Leaving,
    /// The request is larger than a message can be.
    #[error("request of {bytes} bytes, where at most {limit} fit")]
    TooLarge {
        /// The request's size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The group does not give this guarantee.
    #[error("this group cannot promise that a request is {asked}")]
    Qos {
        /// What was asked for.
        asked: Qos,
    },
    /// So many requests wait for their answers.
    #[error("{waiting} requests to the group wait for their answers already")]
    TooMany {
        /// How many.
        waiting: usize,
    },
    /// More waits to be sent than the engine keeps.
    #[error("{waiting_bytes} bytes wait to be sent already")]
    QueueFull {
        /// Bytes of messages that wait.
        waiting_bytes: usize,
    },
}

/// Why a reply was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// The request is not one that this member is to reply to: it was never told so, somebody has
    /// replied, or the caller waits for it no more.
    #[error("the request is not open")]
    NotOpen,
    /// The reply is larger than a message can be.
    #[error("reply of {bytes} bytes, where at most {limit} fit")]
    TooLarge {
        /// The reply's size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// More waits to be sent than the engine keeps.
    #[error("{waiting_bytes} bytes wait to be sent already")]
    QueueFull {
        /// Bytes of messages that wait.
        waiting_bytes: usize,
    },
}

/// What stands before the payload of a message that is not the application's own.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 1 | 1 request, 2 reply, 3 reply that went to a caller who is not a member |
/// | 1 | 4 | number of the request |
/// | 5 | 4 | request: the least number that the caller still waits for |
/// | 5 | 8 | reply: the caller |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    Request { number: u32, oldest: u32 },
    Reply(RequestId),
    Answered(RequestId),
}

/// Bytes of the largest envelope.
pub(super) const ENVELOPE_BYTES: usize = 13;

impl Envelope {
    pub(super) fn wrap(self, payload: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(ENVELOPE_BYTES + payload.len());
        match self {
            Self::Request { number, oldest } => {
                out.put_u8(1);
                out.put_u32(number);
                out.put_u32(oldest);
            }
            Self::Reply(RequestId { caller, number })
            | Self::Answered(RequestId { caller, number }) => {
                out.put_u8(if matches!(self, Self::Reply(_)) { 2 } else { 3 });
                out.put_u32(number);
                out.put_u64(caller.0);
            }
        }
        out.put_slice(payload);
        out.into()
    }

    /// Reads the envelope; gives what is in it.
    pub(super) fn open(mut payload: Bytes) -> Option<(Self, Bytes)> {
        let (kind, number) = (payload.try_get_u8().ok()?, payload.try_get_u32().ok()?);
        let envelope = match kind {
            1 => {
                let oldest = payload.try_get_u32().ok()?;
                if number.wrapping_sub(oldest) >= MAX_WAITING {
                    return None;
                }
                Self::Request { number, oldest }
            }
            2 | 3 => {
                let caller = NodeId(payload.try_get_u64().ok()?);
                let id = RequestId { caller, number };
                if kind == 2 { Self::Reply(id) } else { Self::Answered(id) }
            }
            _ => return None,
        };
        Some((envelope, payload))
    }
}

/// Which requests of a caller were delivered: a request that is made again is not another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// All numbers before this were, or never will be.
    pub base: u32,
    /// Bit by bit those from `base` on.
    pub bits: u128,
}

/// What a request is to who has seen others of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    New,
    Again,
    /// The caller no longer waits for it, and it is forgotten.
    Over,
    /// No caller may be so far ahead of what it waits for.
    Impossible,
}

/// Requests of one start of a caller are not so many numbers apart that a member hears late.
const MOST_APART: u32 = 1 << 15;
/// Requests to one group that wait for their answers, at most.
pub(super) const MAX_WAITING: u32 = 64;

impl Seen {
    /// Nothing was seen of a caller that waits for `oldest`.
    pub(super) fn before(oldest: u32) -> Self {
        Self { base: oldest.wrapping_sub(MAX_WAITING), bits: 0 }
    }

    /// The caller waits for nothing before `oldest`. Messages below the total order may still
    /// arrive late, so what is a little older is remembered as well.
    pub(super) fn forget_before(&mut self, oldest: u32) {
        let base = oldest.wrapping_sub(MAX_WAITING);
        let step = base.wrapping_sub(self.base) as i32;
        if step > 0 {
            self.bits = self.bits.checked_shr(step as u32).unwrap_or(0);
            self.base = base;
        }
    }

    /// Returns `true` if the caller no longer waits for a request of this number.
    pub(super) fn is_over(&self, number: u32) -> bool {
        let oldest = self.base.wrapping_add(MAX_WAITING);
        (number.wrapping_sub(oldest) as i32) < 0
    }

    /// Whether a request of this number is of the same start of its caller: each start counts from
    /// elsewhere.
    pub(super) fn is_of_same_start(&self, number: u32) -> bool {
        (number.wrapping_sub(self.base) as i32).unsigned_abs() <= MOST_APART
    }

    /// Notes a number, and says whether it is new.
    pub(super) fn note(&mut self, number: u32) -> Sight {
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
    fn what_is_in_an_envelope_comes_out_again() {
        let id = RequestId { caller: NodeId(7), number: 3 };
        let request = Envelope::Request { number: 3, oldest: u32::MAX - 40 };
        for envelope in [request, Envelope::Reply(id), Envelope::Answered(id)] {
            let whole = envelope.wrap(b"what");
            assert_eq!(Envelope::open(whole.clone()), Some((envelope, Bytes::from("what"))));
            assert_eq!(Envelope::open(whole.slice(..5)), None);
        }
        assert_eq!(Envelope::open(Bytes::from_static(&[9; 20])), None);
        // No caller waits for a later request than the one that it makes, or for one long ago.
        for oldest in [4, 1 << 31, 3_u32.wrapping_sub(MAX_WAITING)] {
            let request = Envelope::Request { number: 3, oldest };
            assert_eq!(Envelope::open(request.wrap(b"what")), None, "{oldest}");
        }
    }

    #[test]
    fn a_request_is_new_once_also_where_numbers_begin_again() {
        let mut seen = Seen::before(u32::MAX - 1);
        for number in [u32::MAX - 1, 0, u32::MAX, 61] {
            assert_eq!(seen.note(number), Sight::New, "{number}");
            assert_eq!(seen.note(number), Sight::Again, "{number}");
        }
        assert_eq!(seen.note(100), Sight::Impossible);
        seen.forget_before(62);
        assert_eq!(seen.note(0), Sight::Again);
        assert_eq!(seen.note(1), Sight::New);
        assert_eq!(seen.note(u32::MAX), Sight::Again);
        seen.forget_before(10_000);
        assert_eq!((seen.note(61), seen.note(10_000)), (Sight::Again, Sight::New));
    }
}
