//! Validation of addresses (as in QUIC, RFC 9000, section 8): a node believes nobody, and sends
//! nobody more than twice what came, before the start of a node that datagrams claim to come from
//! has shown that it receives what is sent to their address.
//!
//! Any other datagram is dropped and answered by a challenge with a cookie. The response shows the
//! cookie and, if its sender has not validated the other address either, has a challenge in turn. A
//! response without a challenge, when both addresses are validated, counts as a hello.

use alloc::collections::{BTreeMap, BTreeSet};

use super::packet::{Hello, Packet, PathResponse};
use super::{ANSWERS, Gossip};
use crate::cookie::CookieKey;
use crate::{Destination, Endpoint, Origin, Rng, Time};

/// The addresses that were validated, and those that were queried because others named them.
pub(super) struct Paths {
    key: CookieKey,
    /// The start of a node that has shown that it is reached there.
    validated: BTreeMap<Endpoint, Origin>,
    /// When each address was queried last.
    asked: BTreeMap<Endpoint, Time>,
    max: usize,
}

impl Paths {
    /// Keeps up to `max` addresses of each sort, which are more than there are peers.
    pub(super) fn new(rng: &mut Rng, max: usize) -> Self {
        let key = CookieKey::new(rng);
        Self { key, validated: BTreeMap::new(), asked: BTreeMap::new(), max }
    }

    /// Returns `true` if some node is reached at `endpoint`.
    pub(super) fn is_validated(&self, endpoint: Endpoint) -> bool {
        self.validated.contains_key(&endpoint)
    }

    fn is_validated_for(&self, endpoint: Endpoint, origin: Origin) -> bool {
        self.validated.get(&endpoint) == Some(&origin)
    }

    /// How many addresses are validated.
    pub(super) fn len(&self) -> usize {
        self.validated.len()
    }

    /// Returns `true` if `hello` was sent from here to `endpoint`.
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
    /// A hello to `endpoint`, which is challenged if it is not validated.
    pub(super) fn hello_to(&self, endpoint: Endpoint) -> Hello {
        let is_validated = self.paths.is_validated(endpoint);
        let challenge = if is_validated { 0 } else { self.paths.key.cookie_of(endpoint) };
        Hello { alone: false, to_all: false, challenge, from: self.swim.identity() }
    }

    /// Returns the packet if its origin is validated at `source`, or the hello that it stands for
    /// if it validates that.
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

    /// Answers a datagram from an address that is not validated, unless it may be ignored.
    fn challenge_path(&mut self, source: Endpoint, packet: &Packet) {
        self.counters.datagrams_unvalidated += 1;
        let is_answered = match packet {
            // It ends what this node has not begun.
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

    /// Shows the cookie to the node that gave it, and challenges that node in turn.
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
            // That of another address of the node, which it does not send from.
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
