//! Validates addresses, as in QUIC (RFC 9000, section 8).
//!
//! An incarnation of a node has validated an address once it has shown that it receives datagrams
//! that are sent there. Before that, a node processes only challenges and responses from the
//! address, and answers with at most twice as many bytes as it received.
//!
//! A datagram from an address that is not validated is dropped. Except for goodbyes and some
//! multicast hellos, it is answered with a challenge that contains a cookie. The response returns
//! the cookie. It contains a challenge in return if its sender has not validated the challenger's
//! address either. Between validated addresses, a response without a challenge counts as a hello.

use alloc::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::identity::Identity;
use super::packet::{self, Hello, Packet, PathResponse};
use super::peers::Peers;
use crate::cookie::CookieKey;
use crate::{Endpoint, Origin, Rng, Time};

pub(super) struct Paths {
    key: CookieKey,
    validated: BTreeMap<Endpoint, Origin>,
    queried: BTreeMap<Endpoint, Time>,
    /// Number of bytes that may still be sent in queries because of the current datagram.
    query_bytes: usize,
    max: usize,
}

impl Paths {
    /// Creates a table of at most `max` addresses, which must be more than the number of peers.
    pub(super) fn new(rng: &mut Rng, max: usize) -> Self {
        let (validated, queried) = (BTreeMap::new(), BTreeMap::new());
        Self { key: CookieKey::new(rng), validated, queried, query_bytes: 0, max }
    }

    pub(super) fn is_validated(&self, endpoint: Endpoint) -> bool {
        self.validated.contains_key(&endpoint)
    }

    pub(super) fn len(&self) -> usize {
        self.validated.len()
    }

    pub(super) fn is_own(&self, endpoint: Endpoint, hello: &Hello) -> bool {
        hello.challenge == self.key.cookie_of(endpoint)
    }

    pub(super) fn hello_to(&self, endpoint: Endpoint, me: Identity) -> Hello {
        let is_validated = self.is_validated(endpoint);
        let challenge = if is_validated { 0 } else { self.key.cookie_of(endpoint) };
        Hello { alone: false, to_all: false, challenge, from: me }
    }

    pub(super) fn send_query(&self, cx: &mut Context, me: Identity, endpoint: Endpoint) {
        let hello = Hello { alone: true, ..self.hello_to(endpoint, me) };
        cx.send(endpoint, &Packet::Hello(hello));
    }

    pub(super) fn allow_queries(&mut self, datagram_bytes: usize) {
        self.query_bytes = 2 * datagram_bytes;
    }

    /// Ensures a recent query to an address. Returns `false` if the causing datagram is too small.
    pub(super) fn query(&mut self, cx: &mut Context, me: Identity, endpoint: Endpoint) -> bool {
        let since = cx.now.before(cx.config.retry_after);
        if self.queried.get(&endpoint).is_some_and(|queried| *queried > since) {
            return true;
        }
        let bytes = packet::hello_bytes(me);
        if self.query_bytes < bytes {
            cx.counters.asks_refused += 1;
            return false;
        }
        self.query_bytes -= bytes;
        if self.queried.len() >= self.max {
            self.queried.clear();
        }
        self.queried.insert(endpoint, cx.now);
        self.send_query(cx, me, endpoint);
        true
    }

    /// Handles challenges. Returns the packet (a response as a hello) if `source` is validated.
    pub(super) fn admit(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        me: Identity,
        (source, origin): (Endpoint, Origin),
        packet: Packet,
    ) -> Option<Packet> {
        match packet {
            Packet::PathChallenge(cookie)
            | Packet::Hello(Hello { challenge: cookie @ 1.., .. }) => {
                self.respond(cx, me, (source, origin), cookie);
                None
            }
            Packet::PathResponse(PathResponse { cookie, challenge, from }) => {
                self.on_cookie(cx, peers, (source, origin), cookie);
                if challenge != 0 {
                    self.respond(cx, me, (source, origin), challenge);
                    return None;
                }
                let hello = Hello { alone: false, to_all: false, challenge: 0, from };
                self.is_validated_for(source, origin).then_some(Packet::Hello(hello))
            }
            packet if self.is_validated_for(source, origin) => Some(packet),
            packet => {
                self.challenge(cx, peers, source, &packet);
                None
            }
        }
    }

    fn is_validated_for(&self, endpoint: Endpoint, origin: Origin) -> bool {
        self.validated.get(&endpoint) == Some(&origin)
    }

    fn challenge(&self, cx: &mut Context, peers: &Peers, source: Endpoint, packet: &Packet) {
        cx.counters.datagrams_unvalidated += 1;
        let is_answered = match packet {
            // A goodbye from an unvalidated address has no effect, so it needs no challenge.
            Packet::Goodbye(_) => false,
            Packet::Hello(hello) => !hello.to_all || cx.is_among_answers(peers.live().len()),
            _ => true,
        };
        if is_answered {
            cx.send(source, &Packet::PathChallenge(self.key.cookie_of(source)));
        }
    }

    fn respond(
        &self,
        cx: &mut Context,
        me: Identity,
        (source, origin): (Endpoint, Origin),
        cookie: u64,
    ) {
        let is_validated = self.is_validated_for(source, origin);
        let challenge = if is_validated { 0 } else { self.key.cookie_of(source) };
        let response = PathResponse { cookie, challenge, from: me };
        cx.send(source, &Packet::PathResponse(response));
    }

    fn on_cookie(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        (source, origin): (Endpoint, Origin),
        cookie: u64,
    ) {
        if cookie != self.key.cookie_of(source) {
            // The cookie belongs to another address of the node, from which it does not send.
            cx.counters.datagrams_unvalidated += 1;
            return;
        }
        if self.validated.len() >= self.max {
            let kept: BTreeSet<Endpoint> = peers.identities().map(|peer| peer.endpoint).collect();
            self.validated.retain(|endpoint, _| kept.contains(endpoint));
        }
        self.validated.insert(source, origin);
    }
}
