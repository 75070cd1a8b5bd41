//! Messages between a sender and the multicast manager in the registry.
//!
//! A request or an answer is the body of one frame of the membership protocol
//! ([`crate::membership::service::frame`]), and shares its version. All numbers are big-endian. A
//! list is a count u16, followed by its entries.
//!
//! | kind | request | after kind u8, group u32, opening u32, number u32 |
//! |---|---|---|
//! | 1 | open | above u32, maximum children u16 |
//! | 2 | join | list of (node u64, port u16, family u8, address) |
//! | 3 | leave | node u64 |
//! | 4 | cut | ring u32, successor u64 |
//! | 5 | close | nothing |
//!
//! | kind | answer | after kind u8, group u32, opening u32, number u32 |
//! |---|---|---|
//! | 1 | placed | list of (receiver u64, is placed u8, its [place](Place)) |
//! | 2 | refused | reason u8 |

use alloc::vec::Vec;

use super::super::packet::Place;
use crate::codec::{Field, Variants};
use crate::wire::DecodeError;
use crate::{Endpoint, GroupId, NodeId};

/// A request of a sender to the multicast manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Group of the sender.
    pub group: GroupId,
    /// Number of this opening of the group. Answers to an earlier opening are ignored.
    pub opening: u32,
    /// Number of the request within its opening.
    pub number: u32,
    /// Content of the request.
    pub command: Command,
}

/// Content of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum Command {
    /// The node starts to send, or starts to use this manager.
    Open {
        /// Highest epoch that was assigned so far. New places have higher epochs.
        above: u32,
        /// Maximum number of overlay children in a place.
        most_children: u16,
    },
    /// The nodes become receivers. Each has its address, or 0.0.0.0:0 if that is unknown. There are
    /// at most [`MAX_JOINING`] nodes.
    Join(Vec<(NodeId, Endpoint)>),
    /// The node is no longer a receiver.
    Leave(NodeId),
    /// The tree does not reach a successor in a ring.
    Cut { ring: u32, successor: NodeId },
    /// The node no longer sends, or uses another manager from now on.
    Close,
}

/// An answer of the multicast manager to a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Group of the sender.
    pub group: GroupId,
    /// Opening to which the answer refers.
    pub opening: u32,
    /// Number of the last request that this answer completes.
    pub number: u32,
    /// At most [`MAX_PLACES`] changed places, or the reason why there are none.
    pub result: Result<Vec<PlaceChange>, Refusal>,
}

/// A changed place of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceChange {
    /// Group of the receiver.
    pub group: GroupId,
    /// Receiver whose place has changed.
    pub receiver: NodeId,
    /// New place, or `None` if the receiver no longer has one. The sender fills in the fields on
    /// packets, receivers and relays, and sets another epoch.
    pub place: Option<Place>,
}

/// Reason why the manager does not place the receivers of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The service has no topology, or another registry process runs the manager.
    #[error("this registry has no multicast manager")]
    NoManager,
    /// Another node sends in the group.
    #[error("another node sends in the group")]
    HasSender,
    /// The topology has no host for the sender.
    #[error("the topology has no host for the sender")]
    NoHost,
    /// The places in this topology do not fit in the sender's packets.
    #[error("places in this topology do not fit in packets")]
    Ports,
    /// The manager already serves the maximum number of groups.
    #[error("the multicast manager already serves the maximum number of groups")]
    Full,
    /// The request refers to an opening that the manager does not know.
    #[error("the multicast manager does not know this sender")]
    Unknown,
}

/// Maximum number of receivers in one request. The request must fit in a frame that nodes may send.
pub const MAX_JOINING: usize = 32;
/// Maximum number of places in one answer.
pub const MAX_PLACES: usize = 256;

crate::variants! {
    Command {
        1 => Open { above, most_children },
        2 => Join(nodes),
        3 => Leave(node),
        4 => Cut { ring, successor },
        5 => Close,
    } if |command| match command {
        // At least as many epochs remain above the value as are below it.
        Command::Open { above, .. } => *above <= u32::MAX / 2,
        Command::Join(nodes) => nodes.len() <= MAX_JOINING,
        _ => true,
    };

    Refusal {
        1 => NoManager,
        2 => HasSender,
        3 => NoHost,
        4 => Ports,
        5 => Full,
        6 => Unknown,
    };
}

impl Request {
    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        (self.command.tag(), self.group, self.opening, self.number).put(&mut out);
        self.command.put_fields(&mut out);
        out
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Returns an error if the bytes are malformed.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, group, opening, number) = take_head(&mut bytes)?;
        Ok(Self { group, opening, number, command: Command::take_body(kind, bytes)? })
    }
}

impl Answer {
    /// Encodes the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let kind = if self.result.is_ok() { PLACED } else { REFUSED };
        (kind, self.group, self.opening, self.number).put(&mut out);
        match &self.result {
            Ok(changes) => {
                (changes.len() as u16).put(&mut out);
                for change in changes {
                    change.receiver.put(&mut out);
                    change.place.put(&mut out);
                }
            }
            Err(refusal) => refusal.put(&mut out),
        }
        out
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Returns an error if the bytes are malformed.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, group, opening, number) = take_head(&mut bytes)?;
        let result = match kind {
            PLACED => {
                let places = Vec::<(NodeId, Option<Place>)>::take(&mut bytes)?;
                if places.len() > MAX_PLACES {
                    return Err(DecodeError::Value);
                }
                let changes = places.into_iter();
                Ok(changes
                    .map(|(receiver, place)| PlaceChange { group, receiver, place })
                    .collect())
            }
            REFUSED => Err(Refusal::take(&mut bytes)?),
            _ => return Err(DecodeError::Kind),
        };
        let answer = Self { group, opening, number, result };
        if bytes.is_empty() { Ok(answer) } else { Err(DecodeError::Length) }
    }
}

fn take_head(bytes: &mut &[u8]) -> Result<(u8, GroupId, u32, u32), DecodeError> {
    let head = <(u8, GroupId, u32, u32)>::take(bytes)?;
    if head.1 == GroupId::NONE { Err(DecodeError::Value) } else { Ok(head) }
}

const PLACED: u8 = 1;
const REFUSED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::super::super::limits::MAX_PORTS;
    use super::super::super::packet::Seat;
    use super::*;

    fn place(children: usize) -> Place {
        let [predecessor, successor, parent] = [1, 2, u64::MAX].map(NodeId);
        let seat = |ring| Seat { ring, predecessor, successor, parent };
        Place {
            epoch: 9,
            first: 0,
            owed_from: 0,
            receivers: 0,
            leaf: seat(7),
            proxy: (children > 0).then_some(seat(8)),
            children_ring: 3,
            children: (0..children as u64).map(NodeId).collect(),
            relays: Vec::new(),
        }
    }

    fn requests() -> Vec<Request> {
        let v4 = Endpoint(([10, 0, 0, 1], 7400).into());
        let v6 = Endpoint((core::net::Ipv6Addr::LOCALHOST, 1).into());
        let commands = [
            Command::Open { above: 4, most_children: 128 },
            Command::Join(vec![(NodeId(5), v4), (NodeId(6), v6)]),
            Command::Leave(NodeId(7)),
            Command::Cut { ring: 70_000, successor: NodeId(8) },
            Command::Close,
        ];
        let request = |command| Request { group: GroupId(1), opening: 2, number: 3, command };
        commands.into_iter().map(request).collect()
    }

    fn answers() -> Vec<Answer> {
        let group = GroupId(1);
        let change = |receiver, place| PlaceChange { group, receiver: NodeId(receiver), place };
        let results = [
            Ok(Vec::new()),
            Ok(vec![change(1, None), change(2, Some(place(0))), change(3, Some(place(9)))]),
            Err(Refusal::Unknown),
        ];
        let answer = |result| Answer { group, opening: 2, number: 3, result };
        results.into_iter().map(answer).collect()
    }

    #[test]
    fn what_is_said_is_read_again_and_nothing_shorter_or_longer_is() {
        for request in requests() {
            assert_read_again(&request, &request.encode(), Request::decode);
        }
        for answer in answers() {
            assert_read_again(&answer, &answer.encode(), Answer::decode);
        }
    }

    fn assert_read_again<T: core::fmt::Debug + PartialEq>(
        message: &T,
        bytes: &[u8],
        decode: fn(&[u8]) -> Result<T, DecodeError>,
    ) {
        assert_eq!(decode(bytes).as_ref(), Ok(message));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err());
        }
        assert_eq!(decode(&[bytes, &[0]].concat()), Err(DecodeError::Length));
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let cut = &requests()[3];
        let expected = [4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1, 0x11, 0x70];
        assert_eq!(cut.encode(), [&expected[..], &8_u64.to_be_bytes()].concat());
        let refused = answers()[2].encode();
        assert_eq!(refused, [2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 6]);
        assert_eq!(Answer::decode(&[&refused[..13], &[7]].concat()), Err(DecodeError::Value));
        assert_eq!(Request::decode(&[5; 13]).map(|it| it.command), Ok(Command::Close));
        assert_eq!(Request::decode(&[6; 13]), Err(DecodeError::Kind));
    }

    #[test]
    fn the_largest_of_them_fit_their_frames() {
        use crate::membership::service::frame::{MAX_FRAME_BYTES, MAX_REQUEST_BYTES};
        let v6 = Endpoint((core::net::Ipv6Addr::LOCALHOST, 1).into());
        let command = Command::Join(vec![(NodeId(1), v6); MAX_JOINING]);
        let join = Request { group: GroupId(1), opening: 1, number: 1, command };
        assert!(join.encode().len() < MAX_REQUEST_BYTES);
        let place = Some(place(MAX_PORTS));
        let change = PlaceChange { group: GroupId(1), receiver: NodeId(1), place };
        let result = Ok(vec![change; MAX_PLACES]);
        let placed = Answer { group: GroupId(1), opening: 1, number: 1, result };
        assert!(placed.encode().len() < MAX_FRAME_BYTES);
    }
}
