//! First contact: hellos until a node answers, and the conditions for being settled.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::config::Config;
use super::context::{Context, Timer};
use super::exchange::Exchange;
use super::identity::Identity;
use super::packet::{Digest, DigestEntry, Hello, Packet};
use super::paths::Paths;
use super::peers::Peers;
use crate::membership::{MembershipEvent, jittered};
use crate::{Destination, Endpoint, NodeId};

pub(super) struct Contact {
    /// Each seed, with the node that last answered from its address, if any.
    seeds: Vec<(Endpoint, Option<NodeId>)>,
    hello_pause: Duration,
    settling: Settling,
    /// `true` if this node waits longer because it has validated the address of another node.
    awaits_first: bool,
    waited: bool,
}

enum Settling {
    Alone,
    Roster {
        contact: NodeId,
        tries: u32,
        parts: BTreeSet<u16>,
        promised: BTreeMap<NodeId, u32>,
    },
    /// The ids of all members are known. Their subscriptions up to these versions are awaited.
    Promised {
        contact: NodeId,
        tries: u32,
        versions: BTreeMap<NodeId, u32>,
    },
    Settled,
}

const ROSTER_TRIES: u32 = 5;
const RECALLED: usize = 3;

impl Contact {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            seeds: config.seeds.iter().map(|seed| (*seed, None)).collect(),
            hello_pause: config.hello_first_pause,
            settling: Settling::Alone,
            awaits_first: false,
            waited: false,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self.settling, Settling::Settled)
    }

    pub(super) fn seeds_unanswered(&self) -> u64 {
        self.seeds.iter().filter(|(_, node)| node.is_none()).count() as u64
    }

    pub(super) fn heard_from(&mut self, source: Endpoint, sender: NodeId) {
        if let Some(seed) = self.seeds.iter_mut().find(|(seed, _)| *seed == source) {
            seed.1 = Some(sender);
        }
    }

    /// Sends hellos to all seeds at which no live member is known.
    ///
    /// A lone node also sends hellos to the LAN and to a few failed nodes. The members of a larger
    /// cluster together send about one hello per pause to the LAN, so that two clusters can meet.
    pub(super) fn send_hellos(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        paths: &Paths,
        me: Identity,
    ) {
        let alone = peers.live().is_empty();
        let is_member = |(seed, node): (Endpoint, Option<NodeId>)| {
            node.is_some_and(|node| node == me.node || peers.is_live(node))
                || peers.live_identities().any(|peer| peer.endpoint == seed)
        };
        for (seed, _) in self.seeds.iter().copied().filter(|seed| !is_member(*seed)) {
            let hello = Hello { alone, ..paths.hello_to(seed, me) };
            cx.send(seed, &Packet::Hello(hello));
        }
        if cx.config.lan_hello && (alone || cx.rng.below(peers.live().len() + 1) == 0) {
            let hello = Hello { alone, to_all: true, challenge: 0, from: me };
            cx.transmit(Destination::Lan, &Packet::Hello(hello));
        }
        if alone {
            let mut failed: Vec<Identity> = peers.identities().collect();
            cx.rng.choose_to_front(&mut failed, RECALLED);
            for Identity { endpoint, .. } in failed.into_iter().take(RECALLED) {
                let hello = Hello { alone, ..paths.hello_to(endpoint, me) };
                cx.send(endpoint, &Packet::Hello(hello));
            }
        }
        let pause = self.hello_pause.min(cx.config.hello_last_pause);
        self.hello_pause = pause * 3 / 2;
        let pause = jittered(&mut cx.rng, pause);
        cx.timers.set(Timer::Hello, cx.now + pause);
    }

    pub(super) fn on_up(&mut self, cx: &mut Context, own: DigestEntry, new: Identity) {
        if matches!(self.settling, Settling::Alone) {
            self.choose(cx, own, new);
        }
    }

    pub(super) fn on_down(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        exchange: &Exchange,
        (me, node): (Identity, NodeId),
    ) {
        if peers.live().is_empty() && peers.len() > 0 {
            self.hello_pause = cx.config.hello_first_pause;
            cx.timers.set(Timer::Hello, cx.now);
        }
        match &mut self.settling {
            Settling::Roster { contact, .. } if *contact == node => {
                self.replace_contact(cx, peers, exchange.own_entry(me));
            }
            Settling::Promised { versions, .. } => {
                versions.remove(&node);
                self.settle_if_complete(cx, peers, exchange);
            }
            _ => {}
        }
    }

    pub(super) fn request_roster(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        exchange: &Exchange,
        me: Identity,
    ) {
        match &self.settling {
            Settling::Roster { tries, .. } if *tries >= ROSTER_TRIES => {
                self.replace_contact(cx, peers, exchange.own_entry(me));
            }
            Settling::Promised { tries, .. } if *tries >= ROSTER_TRIES => {
                self.give_up_silent(cx, peers, exchange);
            }
            Settling::Roster { contact, .. } | Settling::Promised { contact, .. } => {
                let contact = peers.identity(*contact);
                self.send_request(cx, exchange.own_entry(me), contact);
            }
            Settling::Alone | Settling::Settled => {}
        }
    }

    pub(super) fn on_roster(&mut self, cx: &mut Context, sender: NodeId, digest: &Digest) {
        let Settling::Roster { contact, parts, promised, .. } = &mut self.settling else { return };
        if digest.chunks == 0 || *contact != sender {
            return;
        }
        parts.insert(digest.chunk);
        let others = digest.entries.iter().filter(|entry| entry.identity.node != cx.origin.node);
        promised.extend(others.map(|entry| (entry.identity.node, entry.version)));
        if (0..digest.chunks).all(|chunk| parts.contains(&chunk)) {
            let (contact, versions) = (*contact, core::mem::take(promised));
            self.settling = Settling::Promised { contact, tries: 0, versions };
            cx.timers.set(Timer::Roster, cx.now + cx.config.retry_after);
        }
    }

    pub(super) fn settle_if_complete(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        exchange: &Exchange,
    ) {
        let Settling::Promised { versions, .. } = &mut self.settling else { return };
        versions
            .retain(|node, version| !peers.is_live(*node) || exchange.version_of(*node) < *version);
        if versions.is_empty() {
            self.settle(cx);
        }
    }

    pub(super) fn on_settle_timeout(&mut self, cx: &mut Context, peers: &Peers, paths: &Paths) {
        if self.is_settled() {
            return;
        }
        let is_alone = peers.live().is_empty();
        let is_expecting = is_alone && paths.len() > 0;
        if is_expecting && !core::mem::replace(&mut self.awaits_first, true) {
            cx.timers.set(Timer::Settle, cx.now + cx.config.settle_after);
        } else if is_alone || self.waited {
            cx.counters.settled_incomplete += u64::from(!is_alone);
            self.settle(cx);
        } else {
            self.waited = true;
            cx.timers.set(Timer::Settle, cx.now + cx.config.settle_limit);
        }
    }

    fn give_up_silent(&mut self, cx: &mut Context, peers: &Peers, exchange: &Exchange) {
        if let Settling::Promised { versions, .. } = &mut self.settling {
            versions.retain(|node, _| peers.is_live(*node));
        }
        self.settle_if_complete(cx, peers, exchange);
    }

    fn settle(&mut self, cx: &mut Context) {
        self.settling = Settling::Settled;
        cx.timers.cancel(Timer::Settle);
        cx.timers.cancel(Timer::Roster);
        cx.events.push_back(MembershipEvent::Settled);
    }

    fn replace_contact(&mut self, cx: &mut Context, peers: &Peers, own: DigestEntry) {
        let live = peers.live();
        if live.is_empty() {
            self.settling = Settling::Alone;
            cx.timers.cancel(Timer::Roster);
        } else if let Some(contact) = peers.identity(live[cx.rng.below(live.len())]) {
            self.choose(cx, own, contact);
        }
    }

    fn choose(&mut self, cx: &mut Context, own: DigestEntry, new: Identity) {
        let (contact, parts, promised) = (new.node, BTreeSet::new(), BTreeMap::new());
        self.settling = Settling::Roster { contact, tries: 0, parts, promised };
        self.send_request(cx, own, Some(new));
    }

    fn send_request(&mut self, cx: &mut Context, own: DigestEntry, to: Option<Identity>) {
        let (Settling::Roster { tries, .. } | Settling::Promised { tries, .. }) =
            &mut self.settling
        else {
            return;
        };
        let pause = cx.config.retry_after * 2_u32.pow(*tries);
        *tries += 1;
        if let Some(to) = to {
            let digest = Digest { roster_wanted: true, entries: vec![own], ..Digest::default() };
            cx.send(to.endpoint, &Packet::Digest(digest));
        }
        cx.timers.set(Timer::Roster, cx.now + pause);
    }
}
