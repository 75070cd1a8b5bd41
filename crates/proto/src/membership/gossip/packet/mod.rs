//! Packets of gossip membership: bodies after the [common header](crate::wire).
//!
//! The header's group is the network of the sender, and its view is 0. All numbers are big-endian.

use bytes::{Buf, BufMut};

use super::identity::{IDENTITY_BYTES, Identity};
use crate::settings::SETTINGS_BYTES;
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, GroupSettings, NodeId, Origin, Time};

/// Body of one datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Kind 7, to a node that did not answer a probe: a request for a proof of life.
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
    /// Kind 8, to an address that is not validated: a request to return this cookie.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 8 | cookie, never 0 |
    PathChallenge(u64),
    PathResponse(PathResponse),
}

/// Kind 9: the answer to a challenge.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | 0 | 8 | cookie | that of the challenge |
/// | 8 | 8 | challenge | a cookie to be returned; 0: the sender has validated the address |
/// | 16 | 19 or 31 | from | identity of the sender |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathResponse {
    pub(super) cookie: u64,
    pub(super) challenge: u64,
    pub(super) from: Identity,
}

/// Kind 2, by multicast or to a seed: a search for other nodes.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | alone | the sender has no members or queries this node: always answer |
/// | flags | bit 1 | to all | by multicast: not all receivers have to answer |
/// | 0 | 8 | challenge | a cookie to be returned; 0 if to all, or if the address is validated |
/// | 8 | 19 or 31 | from | identity of the sender |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) alone: bool,
    pub(super) to_all: bool,
    pub(super) challenge: u64,
    pub(super) from: Identity,
}

/// Kind 3: versions of nodes' subscriptions, as far as the sender has them itself.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | answer | requests the receiver's version and the one it has of the sender |
/// | flags | bit 1 | roster | requests all members that the receiver knows |
/// | 0 | 2 | chunk | number of this part of a roster |
/// | 2 | 2 | chunks | parts of the roster; 0: this is not a roster |
/// | 4 | 27 or 39 each | entries | up to the end of the datagram |
///
/// An entry is an identity, 4 bytes version, 4 bytes number of subscriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) answer_wanted: bool,
    pub(super) roster_wanted: bool,
    pub(super) chunk: u16,
    pub(super) chunks: u16,
    pub(super) entries: Vec<DigestEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DigestEntry {
    pub(super) identity: Identity,
    pub(super) version: u32,
    pub(super) subscriptions: u32,
}

/// Kind 4: all subscriptions of `owner` that last changed in `after + 1 ..= up_to`.
///
/// One that is not listed either changed again later, or was left so long ago that it is forgotten.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | answer | requests the receiver's version afterwards |
/// | flags | bit 1 | more | not everything that was requested was sent: request again |
/// | 0 | 8 | owner | owner of the subscriptions |
/// | 8 | 4 | after | |
/// | 12 | 4 | up to | not less than `after` |
/// | 16 | 4 | floor | ends of subscriptions up to this version are forgotten |
/// | 20 | 9 or 25 each | rows | with growing version, up to the end of the datagram |
///
/// A row is 4 bytes version, 4 bytes group and 1 byte that is 0 if the group was left, or 1 and
/// followed by 8 bytes [`GroupSettings`] and 8 bytes time of joining (nanoseconds since 1970).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) answer_wanted: bool,
    pub(super) more: bool,
    pub(super) owner: NodeId,
    pub(super) after: u32,
    pub(super) up_to: u32,
    pub(super) floor: u32,
    pub(super) rows: Vec<Row>,
    /// Number of rows omitted because this program does not understand their settings.
    pub(super) unknown: u32,
}

/// State of one group since its latest change. The subscription is `None` if the group was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) version: u32,
    pub(super) group: GroupId,
    pub(super) subscription: Option<Subscription>,
}

/// A gap in the known subscriptions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) node: NodeId,
    pub(super) after: u32,
    pub(super) up_to: u32,
    pub(super) floor: u32,
}

/// A node's subscription of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) settings: GroupSettings,
    pub(super) joined_at: Time,
}

const SWIM: u8 = 1;
const HELLO: u8 = 2;
const DIGEST: u8 = 3;
const CHANGES: u8 = 4;
const PULL: u8 = 5;
const GOODBYE: u8 = 6;
const SUSPICION: u8 = 7;
const PATH_CHALLENGE: u8 = 8;
const PATH_RESPONSE: u8 = 9;

const WANTED_BYTES: usize = 20;
const ROW_BYTES: usize = 9 + SETTINGS_BYTES + 8;

/// Returns the number of digest entries that fit a datagram of `bytes`, if all are IPv6.
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
        let (kind, flags) = self.kind_and_flags();
        let protocol = Protocol::Membership;
        let mut out = Vec::new();
        let group = GroupId(network);
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view: 0 };
        let start = header.begin(&mut out);
        self.encode_body(&mut out);
        wire::seal(&mut out, start);
        out
    }

    /// Decodes a datagram. Returns its network, its origin and the packet.
    pub(super) fn decode(datagram: &[u8]) -> Result<(u32, Origin, Self), DecodeError> {
        let (header, mut body) = Header::decode(datagram)?;
        if header.protocol != Protocol::Membership {
            return Err(DecodeError::Kind);
        }
        let packet = Self::decode_body(&header, &mut body)?;
        if !body.is_empty() {
            return Err(DecodeError::Length);
        }
        // A packet that this program would encode with other flags was not sent by it.
        if packet.kind_and_flags().1 != header.flags || header.view != 0 {
            return Err(DecodeError::Value);
        }
        Ok((header.group.0, header.origin(), packet))
    }

    fn kind_and_flags(&self) -> (u8, u8) {
        let flags = |low, high| u8::from(low) | u8::from(high) << 1;
        match self {
            Self::Swim(_) => (SWIM, 0),
            Self::Hello(hello) => (HELLO, flags(hello.alone, hello.to_all)),
            Self::Digest(digest) => (DIGEST, flags(digest.answer_wanted, digest.roster_wanted)),
            Self::Changes(changes) => (CHANGES, flags(changes.answer_wanted, changes.more)),
            Self::Pull(_) => (PULL, 0),
            Self::Goodbye(_) => (GOODBYE, 0),
            Self::Suspicion { .. } => (SUSPICION, 0),
            Self::PathChallenge(_) => (PATH_CHALLENGE, 0),
            Self::PathResponse(_) => (PATH_RESPONSE, 0),
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Swim(payload) => out.extend_from_slice(payload),
            Self::Hello(hello) => {
                out.put_u64(hello.challenge);
                hello.from.encode(out);
            }
            Self::Digest(digest) => digest.encode(out),
            Self::Changes(changes) => changes.encode(out),
            Self::Pull(wanted) => wanted.iter().for_each(|wanted| {
                out.put_u64(wanted.node.0);
                out.put_u32(wanted.after);
                out.put_u32(wanted.up_to);
                out.put_u32(wanted.floor);
            }),
            Self::Goodbye(node) => out.put_u64(node.0),
            Self::Suspicion { by, suspect, incarnation } => {
                by.encode(out);
                suspect.encode(out);
                out.put_u16(*incarnation);
            }
            Self::PathChallenge(cookie) => out.put_u64(*cookie),
            Self::PathResponse(PathResponse { cookie, challenge, from }) => {
                out.put_u64(*cookie);
                out.put_u64(*challenge);
                from.encode(out);
            }
        }
    }

    fn decode_body(header: &Header, body: &mut &[u8]) -> Result<Self, DecodeError> {
        let (low, high) = (header.flags & 1 != 0, header.flags & 2 != 0);
        match header.kind {
            SWIM => {
                let payload = body.to_vec();
                body.advance(payload.len());
                Ok(Self::Swim(payload))
            }
            HELLO => {
                let (challenge, from) = (take_u64(body)?, Identity::decode(body)?);
                if high && challenge != 0 {
                    // All nodes that receive it would have to answer.
                    return Err(DecodeError::Value);
                }
                Ok(Self::Hello(Hello { alone: low, to_all: high, challenge, from }))
            }
            DIGEST => Ok(Self::Digest(Digest::decode(low, high, body)?)),
            CHANGES => Ok(Self::Changes(Changes::decode(low, high, body)?)),
            PULL => {
                let mut wanted = Vec::with_capacity(body.len() / WANTED_BYTES);
                while !body.is_empty() {
                    wanted.push(Wanted::decode(body)?);
                }
                Ok(Self::Pull(wanted))
            }
            GOODBYE => Ok(Self::Goodbye(NodeId(take_u64(body)?))),
            SUSPICION => {
                let (by, suspect) = (Identity::decode(body)?, Identity::decode(body)?);
                let incarnation = body.try_get_u16().map_err(|_| DecodeError::Length)?;
                Ok(Self::Suspicion { by, suspect, incarnation })
            }
            PATH_CHALLENGE => match take_u64(body)? {
                0 => Err(DecodeError::Value),
                cookie => Ok(Self::PathChallenge(cookie)),
            },
            PATH_RESPONSE => {
                let (cookie, challenge) = (take_u64(body)?, take_u64(body)?);
                let from = Identity::decode(body)?;
                Ok(Self::PathResponse(PathResponse { cookie, challenge, from }))
            }
            _ => Err(DecodeError::Kind),
        }
    }
}

impl Digest {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.chunk);
        out.put_u16(self.chunks);
        for entry in &self.entries {
            entry.identity.encode(out);
            out.put_u32(entry.version);
            out.put_u32(entry.subscriptions);
        }
    }

    fn decode(
        answer_wanted: bool,
        roster_wanted: bool,
        body: &mut &[u8],
    ) -> Result<Self, DecodeError> {
        let chunk = body.try_get_u16().map_err(|_| DecodeError::Length)?;
        let chunks = body.try_get_u16().map_err(|_| DecodeError::Length)?;
        if chunk > chunks || (chunk == chunks && chunks > 0) {
            return Err(DecodeError::Value);
        }
        let mut entries = Vec::new();
        while !body.is_empty() {
            let identity = Identity::decode(body)?;
            let (version, subscriptions) = (take_u32(body)?, take_u32(body)?);
            entries.push(DigestEntry { identity, version, subscriptions });
        }
        Ok(Self { answer_wanted, roster_wanted, chunk, chunks, entries })
    }
}

impl Changes {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.owner.0);
        out.put_u32(self.after);
        out.put_u32(self.up_to);
        out.put_u32(self.floor);
        for row in &self.rows {
            out.put_u32(row.version);
            out.put_u32(row.group.0);
            out.put_u8(u8::from(row.subscription.is_some()));
            if let Some(subscription) = row.subscription {
                subscription.settings.encode(out);
                out.put_u64(subscription.joined_at.0);
            }
        }
    }

    fn decode(answer_wanted: bool, more: bool, body: &mut &[u8]) -> Result<Self, DecodeError> {
        let owner = NodeId(take_u64(body)?);
        let (after, up_to, floor) = (take_u32(body)?, take_u32(body)?, take_u32(body)?);
        if after > up_to {
            return Err(DecodeError::Value);
        }
        let (mut rows, mut unknown) = (Vec::new(), 0);
        let mut last = after;
        while !body.is_empty() {
            let (version, group) = (take_u32(body)?, GroupId(take_u32(body)?));
            if version <= last || version > up_to {
                return Err(DecodeError::Value);
            }
            last = version;
            match decode_subscription(body)? {
                Ok(subscription) => rows.push(Row { version, group, subscription }),
                Err(_) => unknown += 1,
            }
        }
        Ok(Self { answer_wanted, more, owner, after, up_to, floor, rows, unknown })
    }
}

impl Wanted {
    fn decode(body: &mut &[u8]) -> Result<Self, DecodeError> {
        let node = NodeId(take_u64(body)?);
        let (after, up_to, floor) = (take_u32(body)?, take_u32(body)?, take_u32(body)?);
        if after >= up_to {
            return Err(DecodeError::Value);
        }
        Ok(Self { node, after, up_to, floor })
    }
}

/// Decodes a subscription, or its absence.
///
/// Settings that this program does not understand are the inner error. The row's length is known
/// nevertheless, so the rows after it can be decoded.
fn decode_subscription(
    body: &mut &[u8],
) -> Result<Result<Option<Subscription>, DecodeError>, DecodeError> {
    match body.try_get_u8().map_err(|_| DecodeError::Length)? {
        0 => Ok(Ok(None)),
        1 => {
            let bytes = body.get(..SETTINGS_BYTES).ok_or(DecodeError::Length)?;
            body.advance(SETTINGS_BYTES);
            let joined_at = Time(take_u64(body)?);
            let settings = GroupSettings::decode(bytes).map(|(settings, _)| settings);
            Ok(settings.map(|settings| Some(Subscription { settings, joined_at })))
        }
        _ => Err(DecodeError::Value),
    }
}

fn take_u32(body: &mut &[u8]) -> Result<u32, DecodeError> {
    body.try_get_u32().map_err(|_| DecodeError::Length)
}

fn take_u64(body: &mut &[u8]) -> Result<u64, DecodeError> {
    body.try_get_u64().map_err(|_| DecodeError::Length)
}

#[cfg(test)]
mod tests;
