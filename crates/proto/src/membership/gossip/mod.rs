//! Membership without a server: SWIM (crate `foca`), with a separate exchange of group
//! subscriptions.
//!
//! SWIM (Das, Gupta, Motivala, DSN 2002) detects which nodes are alive. Every node owns a versioned
//! table of its subscriptions (`table.rs`) and sends changes to all members at once. Nodes repair
//! lost changes by comparing versions and pulling what they lack. `docs/membership.md` describes
//! the protocol and its timing.
//!
//! Additions to SWIM, each against the effects of loss or forgery:
//! - A node repeats its hello until it is known (foca announces once).
//! - A node that suspects a member also requests a proof of life from it directly, several times.
//!   When it declares the member dead, it notifies all members directly. SWIM leaves both to
//!   gossip.
//! - A node that stops sends a goodbye, so that it is seen to have left rather than failed.
//! - Every datagram from a member, of any protocol, is a sign of life and equivalent to the answer
//!   to a probe. A node that has just heard a member that others suspect requests a refutation from
//!   it.
//! - A slow node distrusts its own findings first (`health.rs`).
//! - A report about a third node is not accepted before that node was queried (`hearsay.rs`).
//! - Nothing is accepted from an address that has not shown that it receives (`paths.rs`).

mod codec;
mod config;
mod contact;
mod counters;
mod doubts;
mod health;
mod hearsay;
mod identity;
mod life;
mod packet;
mod paths;
mod swim;
mod sync;
mod table;
mod views;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

pub use self::config::Config;
use self::contact::Contact;
use self::counters::Counters;
use self::hearsay::{Claim, Rejoins, Report};
use self::identity::Identity;
use self::life::Departed;
use self::packet::{Packet, Subscription};
use self::paths::Paths;
use self::swim::{Swim, SwimEvent};
use self::sync::Exchange;
use self::table::Table;
use self::views::Views;
use super::{Membership, MembershipEvent};
use crate::incarnations::Incarnations;
use crate::{
    Class, Destination, Endpoint, GroupId, GroupSettings, JoinError, NodeId, Origin, Rng, Time,
    Timers, Transmit, Wakeup,
};

/// Gossip membership of one node.
pub struct Gossip {
    id: NodeId,
    origin: Origin,
    config: Config,
    rng: Rng,
    swim: Swim,
    /// Other nodes. Failed ones are kept until SWIM forgets them.
    peers: BTreeMap<NodeId, Peer>,
    /// The peers that are alive, in order.
    live: Vec<NodeId>,
    departed: Departed,
    own: Table,
    exchange: Exchange,
    views: Views,
    contact: Contact,
    paths: Paths,
    challenges: BTreeMap<NodeId, Challenge>,
    reports: BTreeMap<NodeId, Report>,
    rejoins: Rejoins,
    /// Bytes that the current datagram allows to be sent to addresses that have not answered.
    bytes_to_ask: usize,
    timers: Timers<Timer>,
    outgoing: VecDeque<(Destination, Vec<u8>)>,
    counters: Counters,
    phase: Phase,
    /// Time at which this node last joined a group.
    joined_last: Time,
}

struct Peer {
    identity: Identity,
    incarnations: Incarnations,
    claim: Option<Claim>,
    /// Limit on the growth of its bump.
    bumps: Rejoins,
    table: Table,
    /// Version of this node's own table that the peer has confirmed.
    confirmed: Option<u32>,
    /// Time to wait for a confirmation before the peer is queried again.
    patience: Duration,
}

/// A suspicion that the suspected node must refute.
struct Challenge {
    identity: Identity,
    incarnation: u16,
    /// `true` if this node raised the suspicion.
    own: bool,
    asks_left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Hello,
    Settle,
    Roster,
    Digest,
    Push,
    Confirm(NodeId),
    Pull(NodeId),
    Challenge(NodeId),
    Report(NodeId),
    Rejoin,
}

/// Mean number of members that answer a multicast hello, if there are more.
const ANSWERS: usize = 8;
/// Number of goodbyes that a stopping node sends to each member.
const GOODBYES: usize = 2;

impl Gossip {
    /// Creates the membership of node `origin`, which others reach at `endpoint`.
    ///
    /// If its address is unspecified, other nodes use the source address of its datagrams. `seed`
    /// is the source of all randomness.
    ///
    /// # Panics
    /// `config` is invalid: a detection time below 100 ms, a `local_health` above 8, datagrams of
    /// fewer than 256 bytes or too large for UDP, or a pause of zero.
    pub fn new(origin: impl Into<Origin>, endpoint: Endpoint, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        config.validate();
        let mut rng = Rng::new(seed);
        let identity = Identity { node: id, bump: 0, endpoint };
        Self {
            id,
            origin,
            swim: Swim::new(identity, &config, rng.fork(1)),
            peers: BTreeMap::new(),
            live: Vec::new(),
            departed: Departed::default(),
            own: Table::default(),
            exchange: Exchange::default(),
            views: Views::new(id),
            contact: Contact::new(&config),
            paths: Paths::new(&mut rng.fork(2), config.max_nodes.saturating_mul(2)),
            challenges: BTreeMap::new(),
            reports: BTreeMap::new(),
            rejoins: Rejoins::new(Time::ZERO),
            bytes_to_ask: 0,
            timers: Timers::new(),
            outgoing: VecDeque::new(),
            counters: Counters::default(),
            phase: Phase::New,
            joined_last: Time::ZERO,
            rng,
            config,
        }
    }

    fn begin(&mut self, now: Time) {
        if self.phase == Phase::New {
            self.phase = Phase::Running;
            self.timers.set(Timer::Hello, now);
            self.timers.set(Timer::Settle, now + self.config.settle_after);
            let pause = self.jittered(self.config.digest_period);
            self.timers.set(Timer::Digest, now + pause);
        }
    }

    fn fire(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Hello => self.say_hello(now),
            Timer::Settle => self.on_settle_timeout(now),
            Timer::Roster => self.ask_for_roster(now),
            Timer::Digest => self.send_digest(now),
            Timer::Push => self.push(now),
            Timer::Confirm(node) => self.ask_to_confirm(now, node),
            Timer::Pull(node) => self.on_pull_timeout(now, node),
            Timer::Challenge(node) => self.challenge(now, node),
            Timer::Report(node) => self.on_report_timeout(now, node),
            Timer::Rejoin => self.announce_again(now),
        }
    }

    fn dispatch(&mut self, now: Time, source: Endpoint, origin: Origin, packet: Packet) {
        let sender = origin.node;
        match packet {
            Packet::Swim(payload) => self.on_swim(now, source, sender, payload),
            Packet::Hello(hello) => self.on_hello(now, source, sender, hello),
            Packet::Digest(digest) => self.on_digest(now, source, sender, digest),
            Packet::Changes(changes) => self.on_changes(now, sender, &changes),
            Packet::Pull(wanted) => self.on_pull(sender, &wanted),
            Packet::Goodbye(node) => self.on_goodbye(now, source, origin, node),
            Packet::Suspicion { by, suspect, incarnation } => {
                let by = by.filled_in(source);
                if by.node == sender && by.endpoint == source {
                    self.on_suspicion(now, by, suspect, incarnation);
                } else {
                    self.counters.datagrams_elsewhere += 1;
                }
            }
            // These were processed by `on_path`.
            Packet::PathChallenge(_) | Packet::PathResponse(_) => {}
        }
    }

    fn take_swim_events(&mut self, now: Time) {
        while let Some(event) = self.swim.poll_event() {
            match event {
                SwimEvent::Up(identity) => self.on_up(now, identity),
                SwimEvent::Down { identity, found_here } => {
                    self.on_down(now, identity, found_here);
                }
                SwimEvent::Renamed(identity) => {
                    if let Some(peer) = self.peers.get_mut(&identity.node) {
                        let has_moved = peer.identity.endpoint != identity.endpoint;
                        peer.identity = identity;
                        if has_moved {
                            self.on_moved(now, identity);
                        }
                    }
                }
                SwimEvent::Suspected { identity, incarnation } => {
                    self.counters.suspicions += 1;
                    self.begin_challenge(now, identity, incarnation, true);
                }
                SwimEvent::Rejoined => {
                    self.counters.rejoins += 1;
                    self.timers.set(Timer::Rejoin, now + self.config.probe_period());
                    self.greet_everybody(now);
                }
                SwimEvent::Forgotten(identity) => {
                    let known = self.peers.get(&identity.node);
                    let same = known.is_some_and(|peer| peer.identity == identity);
                    if same && !self.is_live(identity.node) {
                        self.peers.remove(&identity.node);
                    }
                }
            }
        }
        while let Some((to, payload)) = self.swim.poll_datagram() {
            let live = self.is_live(to.node).then(|| self.peers[&to.node].identity);
            let to = live.unwrap_or(to);
            if to.is_reachable() {
                self.transmit(Destination::Endpoint(to.endpoint), &Packet::Swim(payload));
            }
        }
    }

    fn is_live(&self, node: NodeId) -> bool {
        self.live.binary_search(&node).is_ok()
    }

    fn send_to(&mut self, node: NodeId, packet: &Packet) {
        if let Some(peer) = self.peers.get(&node) {
            let destination = Destination::Endpoint(peer.identity.endpoint);
            self.transmit(destination, packet);
        }
    }

    fn transmit(&mut self, destination: Destination, packet: &Packet) {
        let datagram = packet.encode(self.config.network, self.origin);
        self.transmit_encoded(destination, packet, datagram);
    }

    fn transmit_encoded(&mut self, destination: Destination, packet: &Packet, bytes: Vec<u8>) {
        if self.outgoing.len() >= self.config.max_queued {
            self.counters.queue_dropped += 1;
            return;
        }
        debug_assert!(bytes.len() <= self.config.max_datagram_bytes);
        self.counters.count_sent(packet, bytes.len());
        self.outgoing.push_back((destination, bytes));
    }

    /// Returns between three and five quarters of `pause`, so that nodes do not act in step.
    fn jittered(&mut self, pause: Duration) -> Duration {
        let quarter = u64::try_from(pause.as_nanos() / 4).unwrap_or(u64::MAX / 8);
        let random = self.rng.below(2 * quarter as usize + 1) as u64;
        Duration::from_nanos(3 * quarter + random)
    }
}

impl Membership for Gossip {
    fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        self.begin(now);
        if self.phase != Phase::Running || !self.swim.set_endpoint(now, endpoint) {
            return false;
        }
        self.greet_everybody(now);
        self.take_swim_events(now);
        true
    }

    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.begin(now);
        let limit = self.config.max_groups_per_node;
        if self.own.len() >= limit && !self.views.is_in(group) {
            return Err(JoinError::TooManyGroups { limit });
        }
        // Times never repeat, so that other nodes notice a leave followed by a join.
        self.joined_last = now.max(self.joined_last + Duration::from_nanos(1));
        let subscription = Subscription { settings, joined_at: self.joined_last };
        self.views.join(group, subscription)?;
        if self.phase == Phase::Running {
            self.own.change(group, Some(subscription));
            self.push_soon(now);
        }
        Ok(())
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.begin(now);
        if self.views.leave(group) && self.phase == Phase::Running {
            self.own.change(group, None);
            self.push_soon(now);
        }
    }

    fn shut_down(&mut self, _now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.phase = Phase::Stopped;
        self.timers = Timers::new();
        self.end_pulls();
        self.outgoing.clear();
        for _ in 0..GOODBYES {
            for node in self.live.clone() {
                self.send_to(node, &Packet::Goodbye(self.id));
            }
        }
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        let Ok((network, origin, packet)) = Packet::decode(datagram) else {
            self.counters.datagrams_malformed += 1;
            return;
        };
        if network != self.config.network {
            self.counters.datagrams_of_other_networks += 1;
            return;
        }
        let sender = origin.node;
        if sender == self.id {
            self.counters.datagrams_own += 1;
            if matches!(&packet, Packet::Hello(hello) if self.paths.is_own(source, hello)) {
                // One of the seeds is this node itself.
                self.contact.heard_from(source, sender);
            }
            return;
        }
        self.counters.count_received(&packet);
        let Some(packet) = self.on_path(source, origin, packet) else { return };
        self.contact.heard_from(source, sender);
        self.bytes_to_ask = 2 * datagram.len();
        if self.departed.is_late(now.before(self.config.suspicion_time()), origin) {
            self.counters.datagrams_late += 1;
        } else if !self.is_own_word(now, source, sender) {
            self.counters.datagrams_elsewhere += 1;
        } else if !self.is_current(now, origin, &packet) {
            self.counters.datagrams_late += 1;
        } else {
            self.swim.mind_stall(now);
            self.swim.hear(now, sender);
            self.drop_report(sender);
            self.dispatch(now, source, origin, packet);
            self.take_swim_events(now);
            self.note_incarnation(now, origin);
        }
    }

    /// Any node can use another node's id, so only datagrams from the node's own address count.
    fn heard(&mut self, now: Time, source: Endpoint, node: NodeId) {
        if self.peers.get(&node).is_some_and(|peer| peer.identity.endpoint == source) {
            self.swim.hear(now, node);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        self.swim.mind_stall(now);
        self.swim.handle_timeout(now);
        self.take_swim_events(now);
        while let Some(timer) = self.timers.pop_due(now) {
            self.fire(now, timer);
        }
        self.take_swim_events(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (destination, datagram) = self.outgoing.pop_front()?;
        out.extend_from_slice(&datagram);
        Some(Transmit { destination, class: Class::Control })
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.views.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "membership" });
        let probe = self.swim.next_due().map(|at| Wakeup { at, reason: "failure detector" });
        match self.phase {
            Phase::New => Some(Wakeup { at: Time::ZERO, reason: "first hello" }),
            Phase::Running => Wakeup::earlier(own, probe),
            Phase::Stopped => None,
        }
    }

    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        self.live.iter().map(|node| (*node, self.peers[node].identity.endpoint)).collect()
    }

    fn is_settled(&self) -> bool {
        self.contact.is_settled()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let others = [
            ("contradictions_ignored", self.views.contradictions_ignored),
            ("joins_refused", self.views.joins_refused),
            ("seeds_unanswered", self.contact.seeds_unanswered()),
        ];
        self.counters.by_name().chain(self.swim.stats()).chain(others).collect()
    }

    fn check(&self) {
        assert!(self.live.is_sorted(), "the live nodes are out of order");
        assert!(!self.peers.contains_key(&self.id), "a node is its own peer");
        assert!(self.peers.len() <= self.config.max_nodes, "more peers than allowed");
        let most = self.config.max_nodes.saturating_mul(2);
        assert!(self.paths.len() <= most, "more addresses than allowed");
        let alive: BTreeSet<NodeId> = self.swim.alive().collect();
        assert_eq!(self.swim.listened_to(), alive.len(), "signs of life of whom?");
        for node in &self.live {
            assert!(self.peers.contains_key(node), "a live node is not a peer");
            assert!(alive.contains(node), "{node:?} is live, but not for the failure detector");
            assert!(!self.departed.contains(*node), "a node that left is live");
            let endpoint = self.peers[node].identity.endpoint;
            assert!(self.paths.is_validated(endpoint), "{node:?} is live where nobody answered");
        }
        self.own.check();
        self.peers.values().for_each(|peer| peer.table.check());
        let tables = self.live.iter().flat_map(|node| {
            let subscriptions = self.peers[node].table.subscriptions();
            subscriptions.map(|(group, subscription)| (*node, group, subscription))
        });
        self.views.check(tables);
        self.check_sync();
    }
}
