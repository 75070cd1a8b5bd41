//! Validation of addresses (as in QUIC, RFC 9000, section 8).
//!
//! An incarnation of a node has validated an address once it has shown that it receives what is
//! sent there. Before that, a node accepts nothing from the address, and sends it at most twice the
//! bytes that came from it.
//!
//! Any other datagram is dropped and answered by a challenge with a cookie. The response returns
//! the cookie. It contains a challenge in return if its sender has not validated the other address
//! either. A response without a challenge counts as a hello if both addresses are validated.

use alloc::collections::{BTreeMap, BTreeSet};

use super::packet::{Hello, Packet, PathResponse};
use super::{ANSWERS, Gossip};
use crate::cookie::CookieKey;
use crate::{Destination, Endpoint, Origin, Rng, Time};

/// Validated addresses, and addresses that were queried because other nodes named them.
pub(super) struct Paths {
    key: CookieKey,
    /// The incarnation that has validated each address.
    validated: BTreeMap<Endpoint, Origin>,
    /// Time of the last query to each address.
    asked: BTreeMap<Endpoint, Time>,
    max: usize,
}

impl Paths {
    /// Creates an empty set. Up to `max` addresses of each kind are kept, which must exceed the
    /// number of peers.
    pub(super) fn new(rng: &mut Rng, max: usize) -> Self {
        let key = CookieKey::new(rng);
        Self { key, validated: BTreeMap::new(), asked: BTreeMap::new(), max }
    }

    /// Returns `true` if a node has validated `endpoint`.
    pub(super) fn is_validated(&self, endpoint: Endpoint) -> bool {
        self.validated.contains_key(&endpoint)
    }

    fn is_validated_for(&self, endpoint: Endpoint, origin: Origin) -> bool {
        self.validated.get(&endpoint) == Some(&origin)
    }

    /// Returns the number of validated addresses.
    pub(super) fn len(&self) -> usize {
        self.validated.len()
    }

    /// Returns `true` if this node sent `hello` to `endpoint`.
    pub(super) fn is_own(&self, endpoint: Endpoint, hello: &Hello) -> bool {
        hello.challenge == self.key.cookie_of(endpoint)
    }

    /// Returns `true` if `endpoint` was queried after `since`.
    pub(super) fn was_asked(&self, endpoint: Endpoint, since: Time) -> bool {
        self.asked.get(&endpoint).is_some_and(|asked| *asked > since)
    }

    pub(super) fn note_asked(&mut self, now: Time, endpoint: Endpoint) {
        if self.asked.len() >= self.max {
            self.asked.clear();
        }
        self.asked.insert(endpoint, now);
    }
}

impl Gossip {
    /// Returns a hello to `endpoint`, with a challenge if the address is not validated.
    pub(super) fn hello_to(&self, endpoint: Endpoint) -> Hello {
        let is_validated = self.paths.is_validated(endpoint);
        let challenge = if is_validated { 0 } else { self.paths.key.cookie_of(endpoint) };
        Hello { alone: false, to_all: false, challenge, from: self.swim.identity() }
    }

    /// Returns the packet if its origin has validated `source`.
    ///
    /// A path response that completes the validation is returned as the hello that it stands for.
    pub(super) fn on_path(
        &mut self,
        source: Endpoint,
        origin: Origin,
        packet: Packet,
    ) -> Option<Packet> {
        match packet {
            Packet::PathChallenge(cookie)
            | Packet::Hello(Hello { challenge: cookie @ 1.., .. }) => {
                self.on_path_challenge(source, origin, cookie);
                None
            }
            Packet::PathResponse(response) => self.on_path_response(source, origin, response),
            packet if self.paths.is_validated_for(source, origin) => Some(packet),
            packet => {
                self.challenge_path(source, &packet);
                None
            }
        }
    }

    /// Answers a datagram from an address that is not validated by a challenge, unless none is
    /// needed.
    fn challenge_path(&mut self, source: Endpoint, packet: &Packet) {
        self.counters.datagrams_unvalidated += 1;
        let is_answered = match packet {
            // A goodbye ends something that this node has not begun.
            Packet::Goodbye(_) => false,
            Packet::Hello(hello) => !hello.to_all || self.is_among_answers(),
            _ => true,
        };
        if is_answered {
            let cookie = self.paths.key.cookie_of(source);
            self.transmit(Destination::Endpoint(source), &Packet::PathChallenge(cookie));
        }
    }

    /// Returns `true` at about [`ANSWERS`] of the members.
    pub(super) fn is_among_answers(&mut self) -> bool {
        self.rng.below(self.live.len() + 1) < ANSWERS
    }

    /// Returns the cookie to the challenger, and challenges it in return.
    fn on_path_challenge(&mut self, source: Endpoint, origin: Origin, cookie: u64) {
        let is_validated = self.paths.is_validated_for(source, origin);
        let challenge = if is_validated { 0 } else { self.paths.key.cookie_of(source) };
        let response = PathResponse { cookie, challenge, from: self.swim.identity() };
        self.transmit(Destination::Endpoint(source), &Packet::PathResponse(response));
    }

    /// Returns the hello that the response stands for, if both addresses are validated now.
    fn on_path_response(
        &mut self,
        source: Endpoint,
        origin: Origin,
        response: PathResponse,
    ) -> Option<Packet> {
        let PathResponse { cookie, challenge, from } = response;
        if cookie == self.paths.key.cookie_of(source) {
            self.make_room_for_path();
            self.paths.validated.insert(source, origin);
        } else {
            // The cookie is that of another address of the node, from which it does not send.
            self.counters.datagrams_unvalidated += 1;
        }
        if challenge != 0 {
            self.on_path_challenge(source, origin, challenge);
            return None;
        }
        let hello = Hello { alone: false, to_all: false, challenge: 0, from };
        self.paths.is_validated_for(source, origin).then_some(Packet::Hello(hello))
    }

    fn make_room_for_path(&mut self) {
        if self.paths.validated.len() >= self.paths.max {
            let peers: BTreeSet<Endpoint> =
                self.peers.values().map(|peer| peer.identity.endpoint).collect();
            self.paths.validated.retain(|endpoint, _| peers.contains(endpoint));
        }
    }
}
