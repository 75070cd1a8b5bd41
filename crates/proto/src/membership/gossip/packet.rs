//! The packets of gossip membership: bodies behind the [common header](crate::wire), whose group
//! is the network of the sender, and whose view is 0. All numbers are big-endian.

use bytes::{Buf, BufMut};

use super::identity::{IDENTITY_BYTES, Identity};
use super::table::Row;
use crate::settings::SETTINGS_BYTES;
use crate::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use crate::{GroupId, GroupSettings, NodeId, Origin, Time};

/// One datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Kind 1: what the SWIM implementation sends; [`super::codec::SwimCodec`] has its form.
    Swim(Vec<u8>),
    /// Kind 2, by multicast or to a seed: somebody looks for others.
    Hello(Hello),
    /// Kind 3: who has which version of its subscriptions, as far as the sender has them itself.
    Digest(Digest),
    /// Kind 4: subscriptions of one node.
    Changes(Changes),
    /// Kind 5: asks for [`Packet::Changes`], up to the end of the datagram.
    ///
    /// | offset | bytes | field | meaning |
    /// |---|---|---|---|
    /// | 0 | 8 | node | whose subscriptions |
    /// | 8 | 4 | after | the version before the first one wanted |
    /// | 12 | 4 | up to | the last version wanted, more than `after` |
    /// | 16 | 4 | floor | ends of subscriptions up to this version need not be told |
    Pull(Vec<Wanted>),
    /// Kind 6: a node has stopped, as it says itself or has said to the sender.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 8 | the node that stopped |
    Goodbye(NodeId),
    /// Kind 7, to a node that did not answer a probe: prove that you live.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 19 or 31 | identity of the sender |
    /// | then | 19 or 31 | identity of the suspected node |
    /// | then | 2 | incarnation that is suspected |
    Suspicion { by: Identity, suspect: Identity, incarnation: u16 },
    /// Kind 8, to an address that is not validated: show this cookie.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 8 | cookie, never 0 |
    PathChallenge(u64),
    /// Kind 9.
    PathResponse(PathResponse),
}

/// Kind 9.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | 0 | 8 | cookie | that of the challenge |
/// | 8 | 8 | challenge | a cookie to be shown in turn; 0: the sender has validated the address |
/// | 16 | 19 or 31 | from | identity of the sender |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathResponse {
    pub(super) cookie: u64,
    pub(super) challenge: u64,
    pub(super) from: Identity,
}

/// Kind 2.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | alone | the sender knows nobody |
/// | flags | bit 1 | to all | by multicast: not everybody need answer |
/// | 0 | 8 | challenge | a cookie to be shown; 0 if it is to all, or the address is validated |
/// | 8 | 19 or 31 | from | identity of the sender |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) alone: bool,
    pub(super) to_all: bool,
    pub(super) challenge: u64,
    pub(super) from: Identity,
}

/// Kind 3.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | answer | send me your version and the one that you have of me |
/// | flags | bit 1 | roster | send me all members that you know |
/// | 0 | 2 | chunk | number of this part of a roster |
/// | 2 | 2 | chunks | parts of the roster; 0: this is no roster |
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

/// Kind 4: every subscription of `owner` that last changed in `after + 1 ..= up_to`. One that is
/// not listed has either changed again later, or is gone for so long that it is forgotten.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | flags | bit 0 | answer | tell me your version afterwards |
/// | flags | bit 1 | more | there is more of what was asked for: ask again |
/// | 0 | 8 | owner | whose subscriptions |
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
    /// Rows that were left out because this program does not understand their settings.
    pub(super) unknown: u32,
}

/// A gap in what is known of a node's subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) node: NodeId,
    pub(super) after: u32,
    pub(super) up_to: u32,
    pub(super) floor: u32,
}

/// What a group's subscription says.
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

/// How many entries of a digest fit into a datagram of `bytes`, all of them IPv6.
pub(super) fn digest_capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES - 4) / (IDENTITY_BYTES + 8)
}

/// How many rows of changes fit into a datagram of `bytes`.
pub(super) fn changes_capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES - 20) / ROW_BYTES
}

/// Bytes of a hello of `from`.
pub(super) fn hello_bytes(from: Identity) -> usize {
    HEADER_BYTES + 8 + from.encoded_bytes()
}

/// How many gaps fit into a pull of `bytes`.
pub(super) fn pull_capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES) / WANTED_BYTES
}

impl Packet {
    /// The datagram, as sent by `origin` in `network`.
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

    /// Reads a datagram; returns its network and its origin with it.
    pub(super) fn decode(datagram: &[u8]) -> Result<(u32, Origin, Self), DecodeError> {
        let (header, mut body) = Header::decode(datagram)?;
        if header.protocol != Protocol::Membership {
            return Err(DecodeError::Kind);
        }
        let packet = Self::decode_body(&header, &mut body)?;
        if !body.is_empty() {
            return Err(DecodeError::Length);
        }
        // What would be encoded with other flags was not sent by this program.
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
                    // All who hear it would have to answer.
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

/// Reads a subscription, or that there is none. Settings that this program does not understand
/// are the inner error: the row's length is known all the same, and those after it can be read.
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
