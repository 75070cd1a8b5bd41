//! Reports of nodes about other nodes, and the rules for accepting them.
//!
//! A node's state changes only if the node itself reports the change from its own address, or if it
//! was queried there and did not answer. A report that another node is alive, has a new identity or
//! has stopped therefore only causes a query (a hello) to that node. The queries that one datagram
//! causes to addresses that have not answered have at most twice its bytes.

use core::time::Duration;

use bytes::BufMut;
use foca::{Codec as _, Header, Member, Message, State};

use super::codec::SwimCodec;
use super::identity::Identity;
use super::packet::{Hello, Packet};
use super::{Gossip, Timer, codec};
use crate::{Destination, Endpoint, NodeId, Time, ViewChangeKind};

/// An address that sends datagrams in the name of a live peer with another known address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    source: Endpoint,
    since: Time,
    asked: Time,
    asks: u32,
}

/// A report by another node that a live peer has stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    identity: Identity,
    kind: ViewChangeKind,
    asks_left: u32,
}

/// Limit on the rate at which a node takes new identities because others declare it dead, and on
/// the growth of a peer's bump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejoins {
    left: u32,
    refilled: Time,
}

/// Number of unanswered queries after which a report or a claim about a node is accepted.
const ASKS: u32 = 4;
/// Number of new identities that a node may take in a row. Each probe period allows one more.
const REJOINS: u32 = 8;

impl Rejoins {
    pub(super) fn new(now: Time) -> Self {
        Self { left: REJOINS, refilled: now }
    }

    /// Takes `count` of the remaining ones. Each `period` adds one, up to `most`.
    ///
    /// Returns `false`, and takes none, if fewer remain.
    fn take(&mut self, now: Time, count: u32, period: Duration, most: u32) -> bool {
        let periods = now.since(self.refilled).as_nanos() / period.as_nanos();
        if periods > 0 {
            let more = u32::try_from(periods).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(most);
            self.refilled = now;
        }
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

impl Gossip {
    /// Returns `true` if a datagram from `source` in the name of `sender` is accepted as that
    /// node's.
    ///
    /// A live peer has one address. Another address replaces it only if the peer does not answer
    /// queries at the old one, as after its interface got a new address.
    pub(super) fn is_own_word(&mut self, now: Time, source: Endpoint, sender: NodeId) -> bool {
        let is_live = self.is_live(sender);
        let (patience, retry) = (self.config.suspicion_time() / 2, self.config.retry_after);
        let Some(peer) = self.peers.get_mut(&sender) else { return true };
        let known = peer.identity.endpoint;
        if known == source || !is_live {
            peer.claim = None;
            return true;
        }
        let other = peer.claim.filter(|claim| now < claim.asked + patience);
        let new = Claim { source, since: now, asked: now, asks: 0 };
        let claim = peer.claim.insert(other.unwrap_or(new));
        if claim.source != source {
            return false;
        }
        if claim.asks >= ASKS && now >= claim.since + patience {
            peer.claim = None;
            peer.identity.endpoint = source;
            let identity = peer.identity;
            self.on_moved(now, identity);
            return true;
        }
        let is_due = claim.asks == 0 || now >= claim.asked + retry;
        if is_due && self.ask(now, known) {
            let claim = self.peers.get_mut(&sender).and_then(|peer| peer.claim.as_mut());
            if let Some(claim) = claim {
                (claim.asks, claim.asked) = (claim.asks + 1, now);
            }
        }
        false
    }

    /// Drops a report that `sender` has stopped, because it was heard from its own address.
    pub(super) fn drop_report(&mut self, sender: NodeId) {
        if self.reports.remove(&sender).is_some() {
            self.timers.cancel(Timer::Report(sender));
            self.counters.reports_refuted += 1;
        }
    }

    /// Processes a report by another node that the live peer `node` has stopped.
    pub(super) fn on_report(&mut self, now: Time, node: NodeId, kind: ViewChangeKind) {
        let identity = self.peers[&node].identity;
        let report = self.reports.entry(node).or_insert_with(|| {
            self.timers.set(Timer::Report(node), now);
            Report { identity, kind, asks_left: ASKS }
        });
        if kind == ViewChangeKind::Left {
            report.kind = kind;
        }
    }

    pub(super) fn on_report_timeout(&mut self, now: Time, node: NodeId) {
        let Some(report) = self.reports.get_mut(&node) else { return };
        let Report { identity, kind, asks_left } = *report;
        if asks_left > 0 {
            report.asks_left -= 1;
            self.say_hello_to(self.peers[&node].identity.endpoint);
            self.timers.set(Timer::Report(node), now + self.config.challenge_period());
            return;
        }
        self.reports.remove(&node);
        if kind == ViewChangeKind::Left {
            self.leave_unheard(now, node);
        }
        self.swim.bury(now, identity);
    }

    /// Queries the node at `endpoint`.
    ///
    /// It does not if the datagram that causes the query allows too few bytes. Returns `true` if
    /// the node is queried now or was queried within `retry_after`.
    pub(super) fn ask(&mut self, now: Time, endpoint: Endpoint) -> bool {
        if self.paths.was_asked(endpoint, now.before(self.config.retry_after)) {
            return true;
        }
        let bytes = super::packet::hello_bytes(self.swim.identity());
        if self.bytes_to_ask < bytes {
            self.counters.asks_refused += 1;
            return false;
        }
        self.bytes_to_ask -= bytes;
        self.paths.note_asked(now, endpoint);
        self.say_hello_to(endpoint);
        true
    }

    fn say_hello_to(&mut self, endpoint: Endpoint) {
        let hello = Hello { alone: true, ..self.hello_to(endpoint) };
        self.transmit(Destination::Endpoint(endpoint), &Packet::Hello(hello));
    }

    pub(super) fn on_swim(
        &mut self,
        now: Time,
        source: Endpoint,
        sender: NodeId,
        mut payload: Vec<u8>,
    ) {
        let from = Identity::decode(&mut &payload[..]).map(|from| from.filled_in(source));
        let Ok(from) = from.and_then(|from| {
            Identity::fill_in_front(&mut payload, source)?;
            Ok(from)
        }) else {
            self.counters.datagrams_malformed += 1;
            return;
        };
        if from.node != sender || from.endpoint != source {
            self.counters.datagrams_elsewhere += 1;
            return;
        }
        if self.swim.known() >= self.config.max_nodes && !self.peers.contains_key(&sender) {
            self.counters.nodes_refused += 1;
            return;
        }
        if !self.may_bump(now, from) {
            self.counters.hearsay_dropped += 1;
            return;
        }
        let Ok(payload) = self.without_hearsay(now, &payload) else {
            self.counters.datagrams_malformed += 1;
            return;
        };
        let Some(payload) = payload else { return };
        let mut suspected = codec::suspected(&payload);
        suspected.retain(|(suspect, incarnation)| !self.swim.is_suspected(*suspect, *incarnation));
        self.swim.handle_payload(now, &payload);
        for (suspect, incarnation) in suspected {
            self.on_hearsay(now, suspect, incarnation);
        }
    }

    /// Returns `payload` without the updates that only the nodes concerned can confirm, or `None`
    /// if the whole payload must be ignored.
    fn without_hearsay(
        &mut self,
        now: Time,
        payload: &[u8],
    ) -> Result<Option<Vec<u8>>, crate::wire::DecodeError> {
        let mut rest = payload;
        let header: Header<Identity> = SwimCodec.decode_header(&mut rest)?;
        let is_known = third_of(&header.message)
            .is_none_or(|third| third.node == self.id || self.is_live(third.node));
        // A declaration to a former identity of this node no longer applies.
        let is_obeyed = header.message != Message::TurnUndead
            || header.dst == self.swim.identity() && self.may_rejoin(now);
        if !is_obeyed {
            self.timers.set_no_later(Timer::Rejoin, now + self.config.probe_period());
        }
        if !is_known || !is_obeyed {
            self.counters.hearsay_dropped += 1;
            return Ok(None);
        }
        let mut kept = payload[..payload.len() - rest.len()].to_vec();
        let updates = codec::updates(&mut rest)?;
        let Some(updates) = updates else { return Ok(Some(kept)) };
        let count = updates.len();
        let believed: Vec<_> =
            updates.into_iter().filter_map(|member| self.believed(now, &member)).collect();
        self.counters.hearsay_dropped += (count - believed.len()) as u64;
        kept.put_u16(believed.len() as u16);
        for member in &believed {
            SwimCodec.encode_member(member, &mut kept)?;
        }
        Ok(Some(kept))
    }

    /// Returns the part of an update that is accepted without a query.
    fn believed(&mut self, now: Time, update: &Member<Identity>) -> Option<Member<Identity>> {
        let identity = *update.id();
        let node = identity.node;
        if node == self.id {
            let is_own = identity.bump <= self.swim.identity().bump;
            let is_dead = update.state() == State::Down && identity == self.swim.identity();
            return (is_own && (!is_dead || self.may_rejoin(now))).then(|| update.clone());
        }
        if update.state() != State::Down {
            self.on_news(now, identity);
        }
        if !self.is_live(node) {
            return None;
        }
        let known = self.peers[&node].identity;
        if known.bump != identity.bump {
            return None;
        }
        let lately = now.before(self.config.challenge_period());
        let was_asked = self.swim.suspects(node) && !self.swim.has_heard(node, lately);
        if update.state() == State::Down && !was_asked {
            self.on_report(now, node, ViewChangeKind::Failed);
            return None;
        }
        Some(Member::new(known, update.incarnation(), update.state()))
    }

    /// Processes a report by another node that `identity` is alive. If that is new, queries the
    /// node.
    ///
    /// The current identity of a node that is dead here also counts as new. The two nodes may only
    /// have been disconnected, and a node keeps its identity until it learns of its death.
    pub(super) fn on_news(&mut self, now: Time, identity: Identity) {
        let known = self.peers.get(&identity.node).map(|peer| peer.identity);
        let is_live = self.is_live(identity.node);
        let is_old = known.is_some_and(|known| {
            known.bump > identity.bump || is_live && known.bump == identity.bump
        });
        if is_old || self.departed.contains(identity.node) {
            return;
        }
        let at = match known {
            Some(known) if is_live => known,
            None if self.swim.known() >= self.config.max_nodes => {
                self.counters.nodes_refused += 1;
                return;
            }
            _ => identity,
        };
        if at.is_reachable() {
            self.ask(now, at.endpoint);
        } else {
            self.counters.datagrams_malformed += 1;
        }
    }

    /// Contacts a random member. If it still considers this node dead, it repeats that, and this
    /// node can take another identity.
    pub(super) fn announce_again(&mut self, now: Time) {
        if let Some(node) = self.live.get(self.rng.below(self.live.len().max(1))) {
            self.swim.announce(now, self.peers[node].identity);
        }
    }

    fn may_rejoin(&mut self, now: Time) -> bool {
        self.rejoins.take(now, 1, self.config.probe_period(), REJOINS)
    }

    /// Returns `true` unless a known node claims to have been declared dead more often than is
    /// possible.
    ///
    /// Other nodes could otherwise give a silent node an identity that the node itself never
    /// reaches.
    fn may_bump(&mut self, now: Time, identity: Identity) -> bool {
        let Some(peer) = self.peers.get_mut(&identity.node) else { return true };
        let growth = identity.bump.saturating_sub(peer.identity.bump);
        growth == 0 || peer.bumps.take(now, growth, self.config.detection_time, u32::MAX)
    }
}

/// Returns the third node named in a message, to which the receiver may have to send something.
fn third_of(message: &Message<Identity>) -> Option<Identity> {
    match message {
        Message::PingReq { target, .. } | Message::IndirectAck { target, .. } => Some(*target),
        Message::IndirectPing { origin, .. } | Message::ForwardedAck { origin, .. } => {
            Some(*origin)
        }
        _ => None,
    }
}
