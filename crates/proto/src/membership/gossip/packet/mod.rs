//! Packets of gossip membership: bodies after the [common header](crate::wire).
//!
//! The header's group is the network of the sender, and its view is 0. All numbers are big-endian.

use super::identity::{IDENTITY_BYTES, Identity};
use crate::codec::{Field, Variants, rest, rest_bytes};
use crate::settings::SETTINGS_BYTES;
use crate::settings_codec::take_settings;
use crate::wire::{self, Datagram, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, GroupSettings, NodeId, Origin, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) enum Packet {
    /// Kind 1: a message of the SWIM implementation, see [`super::codec::SwimCodec`].
    Swim(Vec<u8>),
    Hello(Hello),
    Digest(Digest),
    /// Kind 4: subscriptions of one node.
    Changes(Changes),
    /// Kind 5: requests for [`Packet::Changes`], up to the end of the datagram.
    ///
    /// | offset | bytes | field | meaning |
    /// |---|---|---|---|
    /// | 0 | 8 | node | owner of the subscriptions |
    /// | 8 | 4 | after | the version before the first one requested |
    /// | 12 | 4 | up to | the last version requested, more than `after` |
    /// | 16 | 4 | floor | ends of subscriptions up to this version need not be reported |
    Pull(Vec<Wanted>),
    /// Kind 6: a node has stopped, as reported by itself or forwarded.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 8 | the node that stopped |
    Goodbye(NodeId),
    /// Kind 7, to a suspected node: a request for a proof of life.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 19 or 31 | identity of the sender |
    /// | then | 19 or 31 | identity of the suspected node |
    /// | then | 2 | incarnation that is suspected |
    Suspicion {
        by: Identity,
        suspect: Identity,
        incarnation: u16,
    },
    /// Kind 8, to an address that is not validated: a request to return a cookie.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 8 | cookie, never 0 |
    PathChallenge(#[cfg_attr(test, proptest(strategy = "1_u64.."))] u64),
    PathResponse(PathResponse),
}

/// Kind 9: the answer to a challenge.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | 0 | 8 | cookie | the cookie of the challenge |
/// | 8 | 8 | challenge | a cookie to be returned; 0 if the sender has validated the address |
/// | 16 | 19 or 31 | from | identity of the sender |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct PathResponse {
    pub(super) cookie: u64,
    pub(super) challenge: u64,
    pub(super) from: Identity,
}

/// Kind 2: a search for other nodes by multicast or at seeds, or a query to a node.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | alone | the sender has no members or queries this node: always answer |
/// | flags | bit 1 | to all | by multicast: not all receivers have to answer |
/// | 0 | 8 | challenge | a cookie to be returned; 0 if to all, or if the address is validated |
/// | 8 | 19 or 31 | from | identity of the sender |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Hello {
    pub(super) alone: bool,
    pub(super) to_all: bool,
    pub(super) challenge: u64,
    pub(super) from: Identity,
}

/// Kind 3: for each node, the version of its subscriptions that the sender has.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | answer | requests the receiver's versions of itself and of the sender |
/// | flags | bit 1 | roster | requests all members that the receiver knows |
/// | 0 | 2 | chunk | number of this part of a roster |
/// | 2 | 2 | chunks | number of parts of the roster; 0 if this is not a roster |
/// | 4 | 27 or 39 each | entries | up to the end of the datagram |
///
/// An entry is an identity, 4 bytes version, 4 bytes number of subscriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Digest {
    pub(super) answer_wanted: bool,
    pub(super) roster_wanted: bool,
    pub(super) chunk: u16,
    pub(super) chunks: u16,
    pub(super) entries: Vec<DigestEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct DigestEntry {
    pub(super) identity: Identity,
    pub(super) version: u32,
    pub(super) subscriptions: u32,
}

/// Kind 4: all subscriptions of `owner` that last changed in `after + 1 ..= up_to`.
///
/// A change that is not listed was followed by a later change to the same group, or ended a
/// subscription so long ago that it has been forgotten.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | answer | requests the receiver's version afterwards |
/// | flags | bit 1 | more | not all requested changes were sent: request again |
/// | 0 | 8 | owner | owner of the subscriptions |
/// | 8 | 4 | after | the version before the first one covered |
/// | 12 | 4 | up to | the last version covered, not less than `after` |
/// | 16 | 4 | floor | ends of subscriptions up to this version are forgotten |
/// | 20 | 9 or 25 each | rows | in ascending order of version, up to the end of the datagram |
///
/// A row has 4 bytes version, 4 bytes group, and 1 byte: 0 if the group was left, or 1 followed by
/// 8 bytes [`GroupSettings`] and 8 bytes join time (nanoseconds since 1970).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Changes {
    pub(super) answer_wanted: bool,
    pub(super) more: bool,
    pub(super) owner: NodeId,
    pub(super) after: u32,
    pub(super) up_to: u32,
    pub(super) floor: u32,
    pub(super) rows: Vec<Row>,
    /// Number of rows that were omitted because this program does not know their settings.
    pub(super) unknown: u32,
}

/// State of one group since its latest change. The subscription is `None` if the group was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Row {
    pub(super) version: u32,
    pub(super) group: GroupId,
    pub(super) subscription: Option<Subscription>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Wanted {
    pub(super) node: NodeId,
    pub(super) after: u32,
    pub(super) up_to: u32,
    pub(super) floor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Subscription {
    pub(super) settings: GroupSettings,
    pub(super) joined_at: Time,
}

crate::variants! {
    Packet {
        1 => Swim(payload with rest_bytes),
        2 => Hello(hello),
        3 => Digest(digest),
        4 => Changes(changes),
        5 => Pull(wanted with rest),
        6 => Goodbye(node),
        7 => Suspicion { by, suspect, incarnation },
        8 => PathChallenge(cookie),
        9 => PathResponse(response),
    } if |packet| !matches!(packet, Packet::PathChallenge(0));
}

crate::fields! {
    Hello { challenge, from, alone = false, to_all = false };
    Digest { chunk, chunks, entries with rest, answer_wanted = false, roster_wanted = false }
        if |digest| digest.chunk < digest.chunks || (digest.chunk, digest.chunks) == (0, 0);
    DigestEntry { identity, version, subscriptions };
    Wanted { node, after, up_to, floor } if |wanted| wanted.after < wanted.up_to;
    Subscription { settings, joined_at };
    PathResponse { cookie, challenge, from };
}

const WANTED_BYTES: usize = 20;
const ROW_BYTES: usize = 9 + SETTINGS_BYTES + 8;

/// Returns the number of digest entries that fit in a datagram, if all are IPv6.
pub(super) fn digest_capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES - 4) / (IDENTITY_BYTES + 8)
}

pub(super) fn changes_capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES - 20) / ROW_BYTES
}

pub(super) fn hello_bytes(from: Identity) -> usize {
    HEADER_BYTES + 8 + from.encoded_bytes()
}

pub(super) fn pull_capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES) / WANTED_BYTES
}

impl Packet {
    pub(super) fn encode(&self, network: u32, origin: impl Into<Origin>) -> Vec<u8> {
        let [low, high] = self.flags();
        let flags = u8::from(low) | u8::from(high) << 1;
        let mut out = Vec::new();
        let header = Header::new(Protocol::Membership, self.tag(), GroupId(network), origin);
        let start = Header { flags, ..header }.begin(&mut out);
        self.put_fields(&mut out);
        wire::seal(&mut out, start);
        out
    }

    pub(super) fn decode(datagram: &Datagram<'_>) -> Result<(u32, Origin, Self), DecodeError> {
        let (header, body) = (datagram.header(), datagram.body()?);
        if header.protocol != Protocol::Membership {
            return Err(DecodeError::Kind);
        }
        let mut packet = Self::take_body(header.kind, body)?;
        let flags = <[bool; 2]>::take(&mut &[header.flags][..])?;
        packet.set_flags(flags);
        // All nodes that receive a challenge by multicast would have to answer it.
        let is_allowed =
            !matches!(&packet, Self::Hello(hello) if hello.to_all && hello.challenge != 0);
        // Flags that this program would not set belong to an unknown version of the protocol.
        if !is_allowed || packet.flags() != flags || header.view != 0 {
            return Err(DecodeError::Value);
        }
        Ok((header.group.0, header.origin(), packet))
    }

    fn flags(&self) -> [bool; 2] {
        match self {
            Self::Hello(hello) => [hello.alone, hello.to_all],
            Self::Digest(digest) => [digest.answer_wanted, digest.roster_wanted],
            Self::Changes(changes) => [changes.answer_wanted, changes.more],
            _ => [false; 2],
        }
    }

    fn set_flags(&mut self, flags: [bool; 2]) {
        match self {
            Self::Hello(hello) => [hello.alone, hello.to_all] = flags,
            Self::Digest(digest) => [digest.answer_wanted, digest.roster_wanted] = flags,
            Self::Changes(changes) => [changes.answer_wanted, changes.more] = flags,
            _ => {}
        }
    }
}

impl<'a> Field<'a> for Changes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.owner, self.after, self.up_to, self.floor).put(out);
        for Row { version, group, subscription } in &self.rows {
            (*version, *group, *subscription).put(out);
        }
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (owner, after, up_to, floor) = Field::take(bytes)?;
        let (mut rows, mut unknown) = (Vec::new(), 0);
        let mut last = after;
        while !bytes.is_empty() {
            let (version, group, is_joined) = Field::take(bytes)?;
            if version <= last || version > up_to {
                return Err(DecodeError::Value);
            }
            last = version;
            let subscription = match is_joined {
                false => None,
                true => match (take_settings(bytes)?, Field::take(bytes)?) {
                    (Some(settings), joined_at) => Some(Subscription { settings, joined_at }),
                    // The length of the row is known, so the following rows can be decoded.
                    (None, Time(_)) => {
                        unknown += 1;
                        continue;
                    }
                },
            };
            rows.push(Row { version, group, subscription });
        }
        if after > up_to {
            return Err(DecodeError::Value);
        }
        let (answer_wanted, more) = (false, false);
        Ok(Self { answer_wanted, more, owner, after, up_to, floor, rows, unknown })
    }
}

#[cfg(test)]
mod tests;
