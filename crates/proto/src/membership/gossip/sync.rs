//! Exchange of subscriptions between all nodes: pushes, digests and pulls.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::identity::Identity;
use super::packet::{
    self, Changes, Digest, DigestEntry, Packet, Wanted, changes_capacity, digest_capacity,
};
use super::{Gossip, Timer};
use crate::{Destination, Endpoint, NodeId, Time};

/// Changes that this node has sent, and those that it waits for.
#[derive(Default)]
pub(super) struct Exchange {
    /// Last version of the own table that was sent to all members.
    pushed: u32,
    next_push: Time,
    /// The last member in the previous digest. The next digest continues after it.
    cursor: Option<NodeId>,
    pulls: BTreeMap<NodeId, Pull>,
    rows_in_flight: usize,
}

/// Subscriptions of a node that are known to be lacking here.
struct Pull {
    version: u32,
    rows: usize,
    tries: u32,
    in_flight: bool,
}

/// Maximum datagrams of one push to each member. The rest follows after a pause.
const PUSH_CHUNKS: usize = 4;
/// Maximum datagrams in answer to one pull. The rest must be requested again.
const PULL_CHUNKS: usize = 32;
/// Maximum rows requested at the same time, so that the answers fit a receive buffer.
const ROWS_IN_FLIGHT: usize = 2_000;
/// Maximum gaps of one table requested at the same time.
const GAPS: usize = 8;
/// Number of tries after which a pull waits for the next digest that shows the gap.
const PULL_TRIES: u32 = 10;
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

impl Gossip {
    /// Sends changed subscriptions to all members at once, or when the pause after the last push
    /// ends.
    pub(super) fn push_soon(&mut self, now: Time) {
        if now >= self.exchange.next_push {
            self.push(now);
        } else {
            self.timers.set_no_later(Timer::Push, self.exchange.next_push);
        }
    }

    pub(super) fn push(&mut self, now: Time) {
        self.timers.cancel(Timer::Push);
        self.exchange.next_push = now + self.config.push_pause;
        let capacity = changes_capacity(self.config.max_datagram_bytes);
        let version = self.own.version();
        for chunk in 1..=PUSH_CHUNKS {
            // A member that has the earlier pushes also has the ends of subscriptions that are
            // forgotten here.
            let after = self.exchange.pushed;
            let wanted = Wanted { node: self.id, after, up_to: version, floor: u32::MAX };
            let Some(mut changes) = self.own.changes(wanted, capacity) else { break };
            self.exchange.pushed = changes.up_to;
            changes.answer_wanted = chunk == PUSH_CHUNKS || changes.up_to == version;
            let packet = Packet::Changes(changes);
            let datagram = packet.encode(self.config.network, self.origin);
            for node in self.live.clone() {
                let destination = Destination::Endpoint(self.peers[&node].identity.endpoint);
                self.transmit_encoded(destination, &packet, datagram.clone());
            }
        }
        for node in self.live.clone() {
            self.expect_confirmation(now, node);
        }
        if self.exchange.pushed < version {
            self.timers.set(Timer::Push, self.exchange.next_push);
        }
    }

    /// Starts the exchange with a member that is new to this node, or to which this node is new.
    pub(super) fn greet(&mut self, now: Time, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.confirmed = None;
        }
        self.send_versions(node, true);
        self.expect_confirmation(now, node);
    }

    pub(super) fn greet_everybody(&mut self, now: Time) {
        for node in self.live.clone() {
            self.greet(now, node);
        }
    }

    pub(super) fn ask_to_confirm(&mut self, now: Time, node: NodeId) {
        let version = self.own.version();
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if peer.confirmed == Some(version) {
            return;
        }
        peer.patience = (peer.patience * 2).min(LONGEST_PATIENCE);
        let patience = peer.patience;
        self.send_versions(node, true);
        self.timers.set(Timer::Confirm(node), now + patience);
    }

    /// Sends the versions of as many nodes as fit, in turn, to a random member (anti-entropy).
    pub(super) fn send_digest(&mut self, now: Time) {
        let pause = self.jittered(self.config.digest_period);
        self.timers.set(Timer::Digest, now + pause);
        if self.live.is_empty() {
            return;
        }
        let to = self.live[self.rng.below(self.live.len())];
        let first = self
            .exchange
            .cursor
            .map_or(0, |cursor| self.live.partition_point(|live| *live <= cursor));
        let room = digest_capacity(self.config.max_datagram_bytes) - 1;
        let (before, after) = self.live.split_at(first);
        let window: Vec<NodeId> = after.iter().chain(before).copied().take(room).collect();
        self.exchange.cursor = window.last().copied();
        let mut entries = vec![self.own_entry()];
        entries.extend(window.into_iter().map(|node| self.entry_of(node)));
        let digest = Digest { answer_wanted: true, entries, ..Digest::default() };
        self.send_to(to, &Packet::Digest(digest));
    }

    pub(super) fn on_digest(
        &mut self,
        now: Time,
        source: Endpoint,
        sender: NodeId,
        digest: Digest,
    ) {
        self.on_roster(now, sender, &digest);
        for entry in &digest.entries {
            let identity = if entry.identity.node == sender {
                entry.identity.filled_in(source)
            } else {
                entry.identity
            };
            if identity.node == sender {
                self.hear_of(now, source, identity);
            } else {
                self.hear_report_of(now, sender, identity);
            }
        }
        self.take_swim_events(now);
        if !self.is_live(sender) {
            // It does not know that it was declared dead. SWIM's announcement corrects that.
            if let Some(peer) = self.peers.get(&sender) {
                self.swim.announce(now, peer.identity);
            }
            return;
        }
        for entry in &digest.entries {
            self.compare(sender, entry);
            if entry.identity.node == sender {
                self.settle_table(now, sender, entry.version);
            }
        }
        self.start_pulls(now);
        if digest.answer_wanted {
            self.send_versions(sender, false);
        }
        if digest.roster_wanted {
            self.send_roster(sender);
        }
        self.settle_if_complete();
    }

    pub(super) fn on_changes(&mut self, now: Time, sender: NodeId, changes: &Changes) {
        if changes.owner != sender || !self.is_live(sender) {
            self.counters.changes_of_strangers += 1;
            return;
        }
        let owner = changes.owner;
        let Some(peer) = self.peers.get_mut(&owner) else { return };
        let (differences, overflow) = peer.table.absorb(changes, self.config.max_groups_per_node);
        let version = peer.table.version();
        self.counters.subscriptions_refused += overflow;
        self.counters.subscriptions_unknown += u64::from(changes.unknown);
        for difference in differences {
            self.learn(now, owner, difference);
        }
        if let Some(pull) = self.exchange.pulls.get_mut(&owner) {
            if pull.version <= version {
                self.stop_pull(owner);
                self.start_pulls(now);
                if self.peers[&owner].table.is_in_doubt() {
                    // Only the owner knows whether that was all. It is queried until it answers.
                    self.greet(now, owner);
                }
            } else if changes.more {
                pull.tries = 0;
                self.pause_pull(owner);
                self.start_pulls(now);
            }
        }
        if changes.answer_wanted && version >= changes.up_to && self.is_live(sender) {
            self.send_versions(sender, false);
        }
        self.settle_if_complete();
    }

    /// Processes the node's own report that it has made `version` changes. If all of them are
    /// known, the rows that are still doubtful are not its own.
    fn settle_table(&mut self, now: Time, node: NodeId, version: u32) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if peer.table.version() < version {
            return;
        }
        for difference in peer.table.settle() {
            self.learn(now, node, difference);
        }
    }

    pub(super) fn on_pull(&mut self, sender: NodeId, wanted: &[Wanted]) {
        let capacity = changes_capacity(self.config.max_datagram_bytes);
        let mut chunks_left = PULL_CHUNKS;
        let id = self.id;
        for wanted in wanted.iter().filter(|wanted| wanted.node == id) {
            let mut rest = *wanted;
            while chunks_left > 0 {
                let Some(mut changes) = self.own.changes(rest, capacity) else { break };
                rest.after = changes.up_to;
                rest.floor = rest.floor.max(changes.floor);
                chunks_left -= 1;
                let available = rest.up_to.min(self.own.version());
                changes.more = chunks_left == 0 && rest.after < available;
                self.send_to(sender, &Packet::Changes(changes));
            }
        }
    }

    pub(super) fn on_pull_timeout(&mut self, now: Time, node: NodeId) {
        self.pause_pull(node);
        if let Some(pull) = self.exchange.pulls.get_mut(&node) {
            pull.tries += 1;
            if pull.tries >= PULL_TRIES {
                self.counters.pulls_given_up += 1;
                self.stop_pull(node);
            }
        }
        self.start_pulls(now);
    }

    pub(super) fn stop_pull(&mut self, node: NodeId) {
        self.pause_pull(node);
        self.exchange.pulls.remove(&node);
    }

    pub(super) fn own_entry(&self) -> DigestEntry {
        let (identity, version) = (self.swim.identity(), self.own.version());
        DigestEntry { identity, version, subscriptions: self.own.len() as u32 }
    }

    /// Stops all pulls, because this node stops.
    pub(super) fn end_pulls(&mut self) {
        self.exchange.pulls.clear();
        self.exchange.rows_in_flight = 0;
    }

    pub(super) fn check_sync(&self) {
        let in_flight = self.exchange.pulls.values().filter(|pull| pull.in_flight);
        let rows: usize = in_flight.map(|pull| pull.rows).sum();
        assert_eq!(rows, self.exchange.rows_in_flight, "rows in flight are miscounted");
        for (node, pull) in &self.exchange.pulls {
            assert!(self.is_live(*node), "subscriptions of a dead node are waited for");
            let timed = self.timers.is_set(Timer::Pull(*node));
            assert_eq!(timed, pull.in_flight, "a pull is not watched");
        }
        let waiting = self.exchange.pulls.values().any(|pull| !pull.in_flight);
        assert!(!waiting || rows > 0, "pulls wait for nothing");
        assert!(self.exchange.pushed <= self.own.version(), "more was pushed than there is");
    }

    fn entry_of(&self, node: NodeId) -> DigestEntry {
        let peer = &self.peers[&node];
        let (identity, version) = (peer.identity, peer.table.version());
        DigestEntry { identity, version, subscriptions: peer.table.len() as u32 }
    }

    /// Processes an identity that its node reported itself, from `source`.
    fn hear_of(&mut self, now: Time, source: Endpoint, identity: Identity) {
        let node = identity.node;
        let known = self.peers.get(&node).map(|peer| peer.identity);
        let is_news = !self.is_live(node) || known.is_none_or(|known| known.bump < identity.bump);
        if !is_news {
            return;
        }
        if identity.endpoint != source {
            self.counters.datagrams_elsewhere += 1;
        } else if known.is_none() && self.swim.known() >= self.config.max_nodes {
            self.counters.nodes_refused += 1;
        } else {
            self.swim.hear_of(now, identity);
        }
    }

    /// Processes a report of `sender` that `identity` is alive.
    fn hear_report_of(&mut self, now: Time, sender: NodeId, identity: Identity) {
        if identity.node == self.id {
            return;
        }
        if self.departed.contains(identity.node) {
            self.send_to(sender, &Packet::Goodbye(identity.node));
        } else {
            self.on_news(now, identity);
        }
    }

    fn compare(&mut self, sender: NodeId, entry: &DigestEntry) {
        let node = entry.identity.node;
        if node == self.id {
            if let Some(peer) = self.peers.get_mut(&sender)
                && entry.version <= self.own.version()
            {
                peer.confirmed = peer.confirmed.max(Some(entry.version));
                if entry.version == self.own.version() {
                    self.timers.cancel(Timer::Confirm(sender));
                }
            }
            return;
        }
        let Some(peer) = self.peers.get(&node) else { return };
        if !self.is_live(node) || peer.table.version() >= entry.version {
            return;
        }
        let rows = (entry.subscriptions as usize).saturating_sub(peer.table.len());
        let rows = rows.clamp(1, ROWS_IN_FLIGHT);
        let pull = self.exchange.pulls.entry(node).or_insert(Pull {
            version: entry.version,
            rows,
            tries: 0,
            in_flight: false,
        });
        pull.version = pull.version.max(entry.version);
    }

    /// Requests what is lacking, up to the amount of answers that is likely to fit.
    pub(super) fn start_pulls(&mut self, now: Time) {
        let mut by_addressee: BTreeMap<NodeId, Vec<Wanted>> = BTreeMap::new();
        for (node, pull) in &mut self.exchange.pulls {
            let rows = self.exchange.rows_in_flight;
            if pull.in_flight || (rows > 0 && rows + pull.rows > ROWS_IN_FLIGHT) {
                continue;
            }
            pull.in_flight = true;
            self.exchange.rows_in_flight += pull.rows;
            let patience = self.config.retry_after * 2_u32.pow(pull.tries);
            self.timers.set(Timer::Pull(*node), now + patience.min(LONGEST_PATIENCE));
            let gaps = self.peers[node].table.gaps(*node, pull.version, GAPS);
            by_addressee.entry(*node).or_default().extend(gaps);
        }
        let capacity = packet::pull_capacity(self.config.max_datagram_bytes);
        for (addressee, wanted) in by_addressee {
            for part in wanted.chunks(capacity) {
                self.send_to(addressee, &Packet::Pull(part.to_vec()));
            }
        }
    }

    fn pause_pull(&mut self, node: NodeId) {
        self.timers.cancel(Timer::Pull(node));
        if let Some(pull) = self.exchange.pulls.get_mut(&node)
            && pull.in_flight
        {
            pull.in_flight = false;
            self.exchange.rows_in_flight -= pull.rows;
        }
    }

    fn expect_confirmation(&mut self, now: Time, node: NodeId) {
        let patience = self.config.retry_after;
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.patience = patience;
            self.timers.set(Timer::Confirm(node), now + patience);
        }
    }

    /// Sends this node's version to `node`, with the version that this node has of `node`.
    fn send_versions(&mut self, node: NodeId, answer_wanted: bool) {
        let entries = vec![self.own_entry(), self.entry_of(node)];
        self.send_to(node, &Packet::Digest(Digest { answer_wanted, entries, ..Digest::default() }));
    }

    fn send_roster(&mut self, to: NodeId) {
        let mut entries = vec![self.own_entry()];
        entries.extend(self.live.iter().map(|node| self.entry_of(*node)));
        let parts = entries.chunks(digest_capacity(self.config.max_datagram_bytes));
        let chunks = parts.len() as u16;
        for (part, chunk) in parts.zip(0..) {
            let entries = part.to_vec();
            let digest = Digest { chunk, chunks, entries, ..Digest::default() };
            self.send_to(to, &Packet::Digest(digest));
        }
    }
}
