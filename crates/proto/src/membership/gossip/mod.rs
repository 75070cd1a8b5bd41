//! Membership without a server: SWIM (crate `foca`), with an exchange of group subscriptions.
//!
//! SWIM (Das, Gupta, Motivala, DSN 2002) detects which nodes are alive. Every node owns a versioned
//! table of its subscriptions (`exchange`) and sends changes to all members at once. Nodes repair
//! lost changes by comparing versions and pulling missing ones. `docs/membership.md` describes the
//! protocol.
//!
//! Additions to SWIM, each of which limits the effects of loss or forgery:
//! - A node repeats its hello until it is known (foca announces once).
//! - A node that suspects a member also requests a proof of life from it directly, several times.
//! - A node that declares a member dead notifies all other members directly.
//! - A node that stops sends a goodbye, so that it is seen to have left rather than failed.
//! - Every datagram from a member, of any protocol, counts as an answer to a probe.
//! - A few nodes that recently heard a member request a refutation from it if others suspect it.
//! - A slow node distrusts its own findings first (`swim/health.rs`).
//! - A report about a third node is not accepted until that node was queried (`verification.rs`).
//! - Nothing is accepted from an address until it is validated (`paths.rs`).

mod challenges;
mod codec;
mod config;
mod contact;
mod context;
mod counters;
mod departed;
mod exchange;
mod identity;
mod lifecycle;
mod packet;
mod paths;
mod peers;
mod reports;
mod swim;
mod verification;
mod views;

use alloc::collections::BTreeSet;
use core::time::Duration;

use self::challenges::Challenges;
pub use self::config::Config;
use self::contact::Contact;
use self::context::{Context, Timer};
use self::departed::Departed;
use self::exchange::Exchange;
use self::identity::Identity;
use self::packet::{Changes, Digest, Hello, Packet, Subscription};
use self::paths::Paths;
use self::peers::{Peers, RenewalLimit};
use self::reports::Reports;
use self::swim::{Swim, SwimEvent};
use self::views::Views;
use super::{Membership, MembershipEvent, Phase};
use crate::wire::Datagram;
use crate::{
    Class, Endpoint, GroupId, GroupSettings, JoinError, NodeId, Origin, Rng, Time, Transmit, Wakeup,
};

/// Gossip membership of one node.
pub struct Gossip {
    cx: Context,
    swim: Swim,
    peers: Peers,
    departed: Departed,
    exchange: Exchange,
    views: Views,
    contact: Contact,
    paths: Paths,
    challenges: Challenges,
    reports: Reports,
    renewals: RenewalLimit,
    phase: Phase,
    joined_last: Time,
}

const GOODBYES: usize = 2;

impl Gossip {
    /// Creates the membership of node `origin`, which other nodes reach at `endpoint`.
    ///
    /// If the address of `endpoint` is unspecified, other nodes use the source address of this
    /// node's datagrams. `seed` is the source of all randomness.
    ///
    /// # Panics
    /// Panics if a field of `config` is out of its documented bounds, or is a pause of zero.
    pub fn new(origin: impl Into<Origin>, endpoint: Endpoint, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        config.validate();
        let mut rng = Rng::new(seed);
        let identity = Identity { node: id, bump: 0, endpoint };
        let swim = Swim::new(identity, &config, rng.fork(1));
        let paths = Paths::new(&mut rng.fork(2), config.max_nodes.saturating_mul(2));
        Self {
            swim,
            peers: Peers::default(),
            departed: Departed::default(),
            exchange: Exchange::default(),
            views: Views::new(id),
            contact: Contact::new(&config),
            paths,
            challenges: Challenges::default(),
            reports: Reports::default(),
            renewals: RenewalLimit::new(Time::ZERO),
            phase: Phase::New,
            joined_last: Time::ZERO,
            cx: Context::new(origin, config, rng),
        }
    }

    fn begin(&mut self, now: Time) {
        self.cx.now = now;
        if self.phase == Phase::New {
            self.phase = Phase::Running;
            self.cx.timers.set(Timer::Hello, now);
            self.cx.timers.set(Timer::Settle, now + self.cx.config.settle_after);
            self.exchange.schedule_digest(&mut self.cx);
        }
    }

    fn fire(&mut self, timer: Timer) {
        let me = self.swim.identity();
        let Self { cx, peers, exchange, contact, paths, .. } = self;
        match timer {
            Timer::Hello => contact.send_hellos(cx, peers, paths, me),
            Timer::Settle => contact.on_settle_timeout(cx, peers, paths),
            Timer::Roster => contact.request_roster(cx, peers, exchange, me),
            Timer::Digest => exchange.send_digest(cx, peers, me),
            Timer::Push => exchange.push(cx, peers),
            Timer::Confirm(node) => {
                if let Some(to) = peers.identity(node) {
                    exchange.on_confirm_timeout(cx, me, to);
                }
            }
            Timer::Pull(node) => exchange.on_pull_timeout(cx, peers, node),
            Timer::Challenge(node) => self.challenges.on_timeout(cx, &mut self.swim, node),
            Timer::Report(node) => self.on_report_timeout(node),
            Timer::Rejoin => self.announce_again(),
        }
    }

    fn dispatch(&mut self, source: Endpoint, origin: Origin, packet: Packet) {
        let sender = origin.node;
        match packet {
            Packet::Swim(payload) => self.on_swim(source, sender, payload),
            Packet::Hello(hello) => self.on_hello(source, sender, hello),
            Packet::Digest(digest) => self.on_digest(source, sender, &digest),
            Packet::Changes(changes) => self.on_changes(sender, &changes),
            Packet::Pull(wanted) => {
                if let Some(to) = self.peers.identity(sender) {
                    self.exchange.on_pull(&mut self.cx, to, &wanted);
                }
            }
            Packet::Goodbye(node) => self.on_goodbye(source, origin, node),
            Packet::Suspicion { by, suspect, incarnation } => {
                let by = by.filled_in(source);
                if by.node == sender && by.endpoint == source {
                    self.on_suspicion(by, suspect, incarnation);
                } else {
                    self.cx.counters.datagrams_elsewhere += 1;
                }
            }
            Packet::PathChallenge(_) | Packet::PathResponse(_) => {}
        }
    }

    fn process_swim_events(&mut self) {
        while let Some(event) = self.swim.poll_event() {
            match event {
                SwimEvent::Up(identity) => self.on_up(identity),
                SwimEvent::Down { identity, found_here } => self.on_down(identity, found_here),
                SwimEvent::Renamed(identity) => {
                    let former = self.peers.rename(identity);
                    if former.is_some_and(|former| former.endpoint != identity.endpoint) {
                        self.on_moved(identity);
                    }
                }
                SwimEvent::Suspected { identity, incarnation } => {
                    self.cx.counters.suspicions += 1;
                    self.challenges.begin_own(&mut self.cx, &self.swim, identity, incarnation);
                }
                SwimEvent::Rejoined => {
                    self.cx.counters.rejoins += 1;
                    let at = self.cx.now + self.cx.config.probe_period();
                    self.cx.timers.set(Timer::Rejoin, at);
                    self.greet_all();
                }
                SwimEvent::Forgotten(identity) => {
                    let node = identity.node;
                    if self.peers.identity(node) == Some(identity) && !self.peers.is_live(node) {
                        self.remove_peer(node);
                    }
                }
            }
        }
        while let Some((to, payload)) = self.swim.poll_datagram() {
            let to = self.peers.live_identity(to.node).unwrap_or(to);
            if to.is_reachable() {
                self.cx.send(to.endpoint, &Packet::Swim(payload));
            }
        }
    }

    /// Announces this node to the sender, which returns its members, if the hello needs an answer.
    fn on_hello(&mut self, source: Endpoint, sender: NodeId, hello: Hello) {
        let from = hello.from.filled_in(source);
        if from.node != sender || from.endpoint != source {
            self.cx.counters.datagrams_elsewhere += 1;
            return;
        }
        let known = self.peers.identity(from.node);
        if known.is_none() && self.is_full() {
            self.cx.counters.nodes_refused += 1;
            return;
        }
        if self.peers.is_live(from.node) && known == Some(from) && !hello.alone {
            return;
        }
        if !hello.to_all || self.cx.is_among_answers(self.peers.live().len()) {
            self.swim.announce(self.cx.now, from);
        }
    }

    fn on_digest(&mut self, source: Endpoint, sender: NodeId, digest: &Digest) {
        self.contact.on_roster(&mut self.cx, sender, digest);
        for entry in &digest.entries {
            if entry.identity.node == sender {
                self.hear_of_itself(source, entry.identity.filled_in(source));
            } else {
                self.hear_of_other(sender, entry.identity);
            }
        }
        self.process_swim_events();
        let Some(to) = self.peers.live_identity(sender) else {
            // The sender was declared dead without its knowledge. The announcement corrects that.
            if let Some(identity) = self.peers.identity(sender) {
                self.swim.announce(self.cx.now, identity);
            }
            return;
        };
        for entry in &digest.entries {
            self.exchange.compare(&mut self.cx, &self.peers, sender, entry);
            if entry.identity.node == sender {
                for difference in self.exchange.settle(sender, entry.version) {
                    self.learn(sender, difference);
                }
            }
        }
        let me = self.swim.identity();
        let Self { cx, peers, exchange, contact, .. } = self;
        exchange.start_pulls(cx, peers);
        if digest.answer_wanted {
            exchange.send_versions(cx, me, to, false);
        }
        if digest.roster_wanted {
            exchange.send_roster(cx, peers, me, to);
        }
        contact.settle_if_complete(cx, peers, exchange);
    }

    fn on_changes(&mut self, sender: NodeId, changes: &Changes) {
        let owner = self.peers.live_identity(sender).filter(|_| changes.owner == sender);
        let Some(owner) = owner else {
            self.cx.counters.changes_of_strangers += 1;
            return;
        };
        for difference in self.exchange.absorb(&mut self.cx, changes) {
            self.learn(sender, difference);
        }
        let me = self.swim.identity();
        let Self { cx, peers, exchange, contact, .. } = self;
        exchange.answer_changes(cx, peers, me, (owner, changes));
        contact.settle_if_complete(cx, peers, exchange);
    }

    fn greet(&mut self, node: NodeId) {
        if let Some(to) = self.peers.identity(node) {
            self.exchange.greet(&mut self.cx, self.swim.identity(), to);
        }
    }

    fn greet_all(&mut self) {
        let me = self.swim.identity();
        for to in self.peers.live_identities() {
            self.exchange.greet(&mut self.cx, me, to);
        }
    }

    fn is_full(&self) -> bool {
        self.swim.known() >= self.cx.config.max_nodes
    }
}

impl Membership for Gossip {
    fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        self.begin(now);
        if self.phase != Phase::Running || !self.swim.set_endpoint(now, endpoint) {
            return false;
        }
        self.greet_all();
        self.process_swim_events();
        true
    }

    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.begin(now);
        let limit = self.cx.config.max_groups_per_node;
        if self.exchange.own_len() >= limit && !self.views.is_in(group) {
            return Err(JoinError::TooManyGroups { limit });
        }
        // Join times never repeat, so that other nodes detect a leave followed by a join.
        self.joined_last = now.max(self.joined_last + Duration::from_nanos(1));
        let subscription = Subscription { settings, joined_at: self.joined_last };
        self.views.join(&mut self.cx, group, subscription)?;
        if self.phase == Phase::Running {
            self.exchange.change_own(&mut self.cx, &self.peers, group, Some(subscription));
        }
        Ok(())
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.begin(now);
        if self.views.leave(group) && self.phase == Phase::Running {
            self.exchange.change_own(&mut self.cx, &self.peers, group, None);
        }
    }

    fn shut_down(&mut self, _now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.phase = Phase::Stopped;
        self.cx.stop();
        self.exchange.stop();
        let goodbye = Packet::Goodbye(self.cx.origin.node);
        for _ in 0..GOODBYES {
            for to in self.peers.live_identities() {
                self.cx.send(to.endpoint, &goodbye);
            }
        }
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &Datagram<'_>) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        let Ok((network, origin, packet)) = Packet::decode(datagram) else {
            self.cx.counters.datagrams_malformed += 1;
            return;
        };
        if network != self.cx.config.network {
            self.cx.counters.datagrams_of_other_networks += 1;
            return;
        }
        let sender = origin.node;
        if sender == self.cx.origin.node {
            self.cx.counters.datagrams_own += 1;
            if matches!(&packet, Packet::Hello(hello) if self.paths.is_own(source, hello)) {
                self.contact.heard_from(source, sender);
            }
            return;
        }
        self.cx.counters.count_received(&packet);
        let me = self.swim.identity();
        let admitted = self.paths.admit(&mut self.cx, &self.peers, me, (source, origin), packet);
        let Some(packet) = admitted else { return };
        self.contact.heard_from(source, sender);
        self.paths.allow_queries(datagram.bytes().len());
        if self.departed.is_late(now.before(self.cx.config.suspicion_time()), origin) {
            self.cx.counters.datagrams_late += 1;
        } else if !self.is_from_sender(source, sender) {
            self.cx.counters.datagrams_elsewhere += 1;
        } else if !self.is_current(origin, &packet) {
            self.cx.counters.datagrams_late += 1;
        } else {
            self.swim.compensate_stall(now);
            self.swim.hear(now, sender);
            self.reports.refute(&mut self.cx, sender);
            self.dispatch(source, origin, packet);
            self.process_swim_events();
            // The datagram may have made its sender known.
            self.peers.classify_start(now, origin, true);
        }
    }

    /// Ignores datagrams from other addresses, because any node can use another's id.
    fn heard(&mut self, now: Time, source: Endpoint, node: NodeId) {
        if self.peers.identity(node).is_some_and(|peer| peer.endpoint == source) {
            self.swim.hear(now, node);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        self.swim.compensate_stall(now);
        self.swim.handle_timeout(now);
        self.process_swim_events();
        while let Some(timer) = self.cx.timers.pop_due(now) {
            self.fire(timer);
        }
        self.process_swim_events();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (destination, datagram) = self.cx.poll_datagram()?;
        out.extend_from_slice(&datagram);
        Some(Transmit { destination, class: Class::Control })
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.cx.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.cx.timers.next_due().map(|at| Wakeup { at, reason: "membership" });
        let probe = self.swim.next_due().map(|at| Wakeup { at, reason: "failure detector" });
        match self.phase {
            Phase::New => Some(Wakeup { at: Time::ZERO, reason: "first hello" }),
            Phase::Running => Wakeup::earlier(own, probe),
            Phase::Stopped => None,
        }
    }

    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        self.peers.live_identities().map(|peer| (peer.node, peer.endpoint)).collect()
    }

    fn is_settled(&self) -> bool {
        self.contact.is_settled()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let counters = self.cx.counters.by_name().chain(self.swim.stats());
        let seeds = [("seeds_unanswered", self.contact.seeds_unanswered())];
        counters.chain(self.views.stats()).chain(seeds).collect()
    }

    fn check(&self) {
        let Self { cx, peers, .. } = self;
        peers.check();
        assert!(!peers.contains(cx.origin.node), "a node is its own peer");
        assert!(peers.len() <= cx.config.max_nodes, "more peers than allowed");
        let most = cx.config.max_nodes.saturating_mul(2);
        assert!(self.paths.len() <= most, "more addresses than allowed");
        let alive: BTreeSet<NodeId> = self.swim.alive().collect();
        assert_eq!(self.swim.listened_to(), alive.len(), "signs of life differ");
        for Identity { node, endpoint, .. } in peers.live_identities() {
            assert!(alive.contains(&node), "{node:?} is live, but not for the failure detector");
            assert!(!self.departed.contains(node), "a node that left is live");
            assert!(self.paths.is_validated(endpoint), "{node:?} has no validated address");
        }
        let tables = peers.live().iter().flat_map(|node| {
            let subscriptions = self.exchange.subscriptions(*node);
            subscriptions.map(|(group, subscription)| (*node, group, subscription))
        });
        self.views.check(tables);
        self.exchange.check(cx, peers);
    }
}
