//! First contact: hellos until a node answers, and the conditions for being settled.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::packet::{Digest, Hello, Packet};
use super::{Config, Gossip, Timer};
use crate::membership::MembershipEvent;
use crate::{Destination, Endpoint, NodeId, Time};

/// Progress of this node in finding the others.
pub(super) struct Contact {
    /// The configured seeds, with the node that answered there.
    seeds: Vec<(Endpoint, Option<NodeId>)>,
    hello_pause: Duration,
    settling: Settling,
    /// `true` if a node that has validated its address was given more time.
    awaits_first: bool,
    waited: bool,
}

enum Settling {
    /// No member has been met yet.
    Alone,
    /// A member was met and is queried for all others.
    Roster {
        contact: NodeId,
        tries: u32,
        parts: BTreeSet<u16>,
        promised: BTreeMap<NodeId, u32>,
    },
    /// All members are known by id. They are queried, and their subscriptions up to these versions
    /// are awaited.
    Promised {
        contact: NodeId,
        tries: u32,
        versions: BTreeMap<NodeId, u32>,
    },
    Settled,
}

/// Number of unanswered queries after which a contact is replaced.
const ROSTER_TRIES: u32 = 5;
/// Number of failed members to which a node without members sends each hello.
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

    /// Returns the number of configured seeds that have never been heard.
    pub(super) fn seeds_unanswered(&self) -> u64 {
        self.seeds.iter().filter(|(_, node)| node.is_none()).count() as u64
    }

    pub(super) fn heard_from(&mut self, source: Endpoint, sender: NodeId) {
        if let Some(seed) = self.seeds.iter_mut().find(|(seed, _)| *seed == source) {
            seed.1 = Some(sender);
        }
    }
}

impl Gossip {
    /// Sends hellos: to the LAN and the seeds while this node is alone, later to seeds that are not
    /// members.
    ///
    /// One member in turn continues to send hellos to the LAN, so that two clusters that started
    /// separately find each other.
    pub(super) fn say_hello(&mut self, now: Time) {
        let alone = self.live.is_empty();
        let missing: Vec<Endpoint> = self
            .contact
            .seeds
            .iter()
            .copied()
            .filter(|(seed, node)| !self.is_member(*seed, *node))
            .map(|(seed, _)| seed)
            .collect();
        for seed in missing {
            let hello = Hello { alone, ..self.hello_to(seed) };
            self.transmit(Destination::Endpoint(seed), &Packet::Hello(hello));
        }
        if self.config.lan_hello && (alone || self.rng.below(self.live.len() + 1) == 0) {
            let from = self.swim.identity();
            let hello = Hello { alone, to_all: true, challenge: 0, from };
            self.transmit(Destination::Lan, &Packet::Hello(hello));
        }
        if alone {
            let mut failed: Vec<NodeId> = self.peers.keys().copied().collect();
            self.rng.choose_to_front(&mut failed, RECALLED);
            for node in failed.into_iter().take(RECALLED) {
                let hello = Hello { alone, ..self.hello_to(self.peers[&node].identity.endpoint) };
                self.send_to(node, &Packet::Hello(hello));
            }
        }
        let pause = self.contact.hello_pause.min(self.config.hello_last_pause);
        self.contact.hello_pause = pause * 3 / 2;
        let pause = self.jittered(pause);
        self.timers.set(Timer::Hello, now + pause);
    }

    fn is_member(&self, seed: Endpoint, node: Option<NodeId>) -> bool {
        node.is_some_and(|node| node == self.id || self.is_live(node))
            || self.live.iter().any(|node| self.peers[node].identity.endpoint == seed)
    }

    /// Answers a hello by a SWIM announcement. Its receiver learns of this node, and replies with
    /// the members that it knows.
    pub(super) fn on_hello(&mut self, now: Time, source: Endpoint, sender: NodeId, hello: Hello) {
        let from = hello.from.filled_in(source);
        if from.node != sender || from.endpoint != source {
            self.counters.datagrams_elsewhere += 1;
            return;
        }
        let known = self.peers.get(&from.node).map(|peer| peer.identity);
        if known.is_none() && self.swim.known() >= self.config.max_nodes {
            self.counters.nodes_refused += 1;
            return;
        }
        if self.is_live(from.node) && known == Some(from) && !hello.alone {
            return;
        }
        if !hello.to_all || self.is_among_answers() {
            self.swim.announce(now, from);
        }
    }

    pub(super) fn contact_up(&mut self, now: Time, node: NodeId) {
        if matches!(self.contact.settling, Settling::Alone) {
            self.ask_contact(now, node);
        }
    }

    pub(super) fn contact_down(&mut self, now: Time, node: NodeId) {
        if self.live.is_empty() && !self.peers.is_empty() {
            self.contact.hello_pause = self.config.hello_first_pause;
            self.timers.set(Timer::Hello, now);
        }
        if matches!(self.contact.settling, Settling::Roster { contact, .. } if contact == node) {
            self.change_contact(now);
        }
        if let Settling::Promised { versions, .. } = &mut self.contact.settling {
            versions.remove(&node);
            self.settle_if_complete();
        }
    }

    pub(super) fn ask_for_roster(&mut self, now: Time) {
        let (contact, tries) = match &mut self.contact.settling {
            Settling::Roster { tries, .. } if *tries >= ROSTER_TRIES => {
                return self.change_contact(now);
            }
            Settling::Promised { tries, .. } if *tries >= ROSTER_TRIES => {
                return self.give_up_silent();
            }
            // Its answer makes this node query again those that have not answered.
            Settling::Roster { contact, tries, .. } | Settling::Promised { contact, tries, .. } => {
                (contact, tries)
            }
            _ => return,
        };
        let pause = self.config.retry_after * 2_u32.pow(*tries);
        *tries += 1;
        let contact = *contact;
        let entries = vec![self.own_entry()];
        let digest = Digest { roster_wanted: true, entries, ..Digest::default() };
        self.send_to(contact, &Packet::Digest(digest));
        self.timers.set(Timer::Roster, now + pause);
    }

    /// Processes a part of the roster, if `digest` is one and comes from the contact.
    pub(super) fn on_roster(&mut self, now: Time, sender: NodeId, digest: &Digest) {
        let Settling::Roster { contact, parts, promised, .. } = &mut self.contact.settling else {
            return;
        };
        if digest.chunks == 0 || *contact != sender {
            return;
        }
        parts.insert(digest.chunk);
        let others = digest.entries.iter().filter(|entry| entry.identity.node != self.id);
        promised.extend(others.map(|entry| (entry.identity.node, entry.version)));
        if (0..digest.chunks).all(|chunk| parts.contains(&chunk)) {
            let (contact, versions) = (*contact, core::mem::take(promised));
            self.contact.settling = Settling::Promised { contact, tries: 0, versions };
            self.timers.set(Timer::Roster, now + self.config.retry_after);
        }
    }

    pub(super) fn settle_if_complete(&mut self) {
        let Settling::Promised { versions, .. } = &mut self.contact.settling else { return };
        versions.retain(|node, version| {
            let is_live = self.live.binary_search(node).is_ok();
            !is_live || self.peers[node].table.version() < *version
        });
        if versions.is_empty() {
            self.settle();
        }
    }

    /// Stops waiting for members of the roster that have not answered.
    fn give_up_silent(&mut self) {
        if let Settling::Promised { versions, .. } = &mut self.contact.settling {
            versions.retain(|node, _| self.live.binary_search(node).is_ok());
        }
        self.settle_if_complete();
    }

    pub(super) fn on_settle_timeout(&mut self, now: Time) {
        if self.contact.is_settled() {
            return;
        }
        let is_expecting = self.live.is_empty() && self.paths.len() > 0;
        if is_expecting && !core::mem::replace(&mut self.contact.awaits_first, true) {
            self.timers.set(Timer::Settle, now + self.config.settle_after);
        } else if self.live.is_empty() || self.contact.waited {
            self.counters.settled_incomplete += u64::from(!self.live.is_empty());
            self.settle();
        } else {
            self.contact.waited = true;
            self.timers.set(Timer::Settle, now + self.config.settle_limit);
        }
    }

    fn settle(&mut self) {
        self.contact.settling = Settling::Settled;
        self.timers.cancel(Timer::Settle);
        self.timers.cancel(Timer::Roster);
        self.views.events.push_back(MembershipEvent::Settled);
    }

    fn change_contact(&mut self, now: Time) {
        if self.live.is_empty() {
            self.contact.settling = Settling::Alone;
            self.timers.cancel(Timer::Roster);
        } else {
            let contact = self.live[self.rng.below(self.live.len())];
            self.ask_contact(now, contact);
        }
    }

    fn ask_contact(&mut self, now: Time, contact: NodeId) {
        let (parts, promised) = (BTreeSet::new(), BTreeMap::new());
        self.contact.settling = Settling::Roster { contact, tries: 0, parts, promised };
        self.ask_for_roster(now);
    }
}
