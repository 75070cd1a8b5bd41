mod pulls;
mod table;

use alloc::collections::BTreeMap;
use core::time::Duration;

use self::pulls::{LONGEST_PATIENCE, Progress, Pulls};
pub(super) use self::table::Difference;
use self::table::Table;
use super::context::{Context, Timer};
use super::identity::Identity;
use super::packet::{
    Changes, Digest, DigestEntry, Packet, Subscription, Wanted, changes_capacity, digest_capacity,
};
use super::peers::Peers;
use crate::membership::jittered;
use crate::{Destination, GroupId, NodeId, Time};

#[derive(Default)]
pub(super) struct Exchange {
    own: Table,
    replicas: BTreeMap<NodeId, Replica>,
    pushed: u32,
    next_push: Time,
    cursor: Option<NodeId>,
    pulls: Pulls,
}

#[derive(Default)]
struct Replica {
    table: Table,
    /// Version of this node's table that the peer has confirmed.
    confirmed: Option<u32>,
    patience: Duration,
}

/// Maximum number of datagrams to each member in one push. Further changes follow after a pause.
const PUSH_CHUNKS: usize = 4;
/// Maximum number of datagrams in answer to one pull. Further changes must be requested again.
const PULL_CHUNKS: usize = 32;
const GAPS: usize = 8;

impl Exchange {
    pub(super) fn own_len(&self) -> usize {
        self.own.len()
    }

    pub(super) fn own_entry(&self, me: Identity) -> DigestEntry {
        entry_of(me, &self.own)
    }

    pub(super) fn version_of(&self, node: NodeId) -> u32 {
        self.replicas.get(&node).map_or(0, |replica| replica.table.version())
    }

    pub(super) fn subscriptions(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (GroupId, Subscription)> {
        let replica = self.replicas.get(&node);
        replica.into_iter().flat_map(|replica| replica.table.subscriptions())
    }

    pub(super) fn add(&mut self, node: NodeId, has_moved: bool) {
        let replica = self.replicas.entry(node).or_default();
        if has_moved {
            replica.table.doubt();
        }
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.replicas.remove(&node);
    }

    pub(super) fn on_down(&mut self, cx: &mut Context, peers: &Peers, node: NodeId) {
        cx.timers.cancel(Timer::Confirm(node));
        self.stop_pull(cx, peers, node);
    }

    pub(super) fn stop_pull(&mut self, cx: &mut Context, peers: &Peers, node: NodeId) {
        self.pulls.stop(cx, node);
        self.start_pulls(cx, peers);
    }

    pub(super) fn restart(&mut self, node: NodeId) -> Vec<GroupId> {
        let replica = self.replicas.get_mut(&node);
        let table = replica.map(|replica| core::mem::take(&mut replica.table)).unwrap_or_default();
        table.subscriptions().map(|(group, _)| group).collect()
    }

    pub(super) fn change_own(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        group: GroupId,
        subscription: Option<Subscription>,
    ) {
        self.own.change(group, subscription);
        if cx.now >= self.next_push {
            self.push(cx, peers);
        } else {
            cx.timers.set_no_later(Timer::Push, self.next_push);
        }
    }

    pub(super) fn push(&mut self, cx: &mut Context, peers: &Peers) {
        cx.timers.cancel(Timer::Push);
        self.next_push = cx.now + cx.config.push_pause;
        let capacity = changes_capacity(cx.config.max_datagram_bytes);
        let version = self.own.version();
        for chunk in 1..=PUSH_CHUNKS {
            // Members that received the earlier pushes know which subscriptions have ended.
            let after = self.pushed;
            let node = cx.origin.node;
            let wanted = Wanted { node, after, up_to: version, floor: u32::MAX };
            let Some(mut changes) = self.own.changes(wanted, capacity) else { break };
            self.pushed = changes.up_to;
            changes.answer_wanted = chunk == PUSH_CHUNKS || changes.up_to == version;
            let packet = Packet::Changes(changes);
            let datagram = cx.encode(&packet);
            for to in peers.live_identities() {
                let destination = Destination::Endpoint(to.endpoint);
                cx.transmit_encoded(destination, &packet, datagram.clone());
            }
        }
        for node in peers.live() {
            self.expect_confirmation(cx, *node);
        }
        if self.pushed < version {
            cx.timers.set(Timer::Push, self.next_push);
        }
    }

    pub(super) fn greet(&mut self, cx: &mut Context, me: Identity, to: Identity) {
        if let Some(replica) = self.replicas.get_mut(&to.node) {
            replica.confirmed = None;
        }
        self.send_versions(cx, me, to, true);
        self.expect_confirmation(cx, to.node);
    }

    pub(super) fn on_confirm_timeout(&mut self, cx: &mut Context, me: Identity, to: Identity) {
        let version = self.own.version();
        let Some(replica) = self.replicas.get_mut(&to.node) else { return };
        if replica.confirmed == Some(version) {
            return;
        }
        replica.patience = (replica.patience * 2).min(LONGEST_PATIENCE);
        let patience = replica.patience;
        self.send_versions(cx, me, to, true);
        cx.timers.set(Timer::Confirm(to.node), cx.now + patience);
    }

    pub(super) fn schedule_digest(&self, cx: &mut Context) {
        let pause = jittered(&mut cx.rng, cx.config.digest_period);
        cx.timers.set(Timer::Digest, cx.now + pause);
    }

    /// Sends the versions of as many nodes as fit, in rotation, to a random member (anti-entropy).
    pub(super) fn send_digest(&mut self, cx: &mut Context, peers: &Peers, me: Identity) {
        self.schedule_digest(cx);
        let live = peers.live();
        if live.is_empty() {
            return;
        }
        let to = live[cx.rng.below(live.len())];
        let first = self.cursor.map_or(0, |cursor| live.partition_point(|node| *node <= cursor));
        let room = digest_capacity(cx.config.max_datagram_bytes) - 1;
        let (before, after) = live.split_at(first);
        let window: Vec<NodeId> = after.iter().chain(before).copied().take(room).collect();
        self.cursor = window.last().copied();
        let mut entries = vec![self.own_entry(me)];
        let known = window.into_iter().filter_map(|node| peers.identity(node));
        entries.extend(known.map(|peer| self.entry_of(peer)));
        if let Some(to) = peers.identity(to) {
            let digest = Digest { answer_wanted: true, entries, ..Digest::default() };
            cx.send(to.endpoint, &Packet::Digest(digest));
        }
    }

    pub(super) fn compare(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        sender: NodeId,
        entry: &DigestEntry,
    ) {
        let node = entry.identity.node;
        if node == cx.origin.node {
            if let Some(replica) = self.replicas.get_mut(&sender)
                && entry.version <= self.own.version()
            {
                replica.confirmed = replica.confirmed.max(Some(entry.version));
                if entry.version == self.own.version() {
                    cx.timers.cancel(Timer::Confirm(sender));
                }
            }
            return;
        }
        let Some(Replica { table, .. }) = self.replicas.get(&node) else { return };
        if peers.is_live(node) && table.version() < entry.version {
            let rows = (entry.subscriptions as usize).saturating_sub(table.len());
            self.pulls.want(node, entry.version, rows);
        }
    }

    /// Removes and returns the doubtful subscriptions if all changes up to `version` are known.
    pub(super) fn settle(&mut self, node: NodeId, version: u32) -> Vec<Difference> {
        let replica = self.replicas.get_mut(&node);
        match replica.filter(|replica| replica.table.version() >= version) {
            Some(replica) => replica.table.settle(),
            None => Vec::new(),
        }
    }

    pub(super) fn absorb(&mut self, cx: &mut Context, changes: &Changes) -> Vec<Difference> {
        let Some(replica) = self.replicas.get_mut(&changes.owner) else { return Vec::new() };
        let (differences, overflow) = replica.table.absorb(changes, cx.config.max_groups_per_node);
        cx.counters.subscriptions_refused += overflow;
        cx.counters.subscriptions_unknown += u64::from(changes.unknown);
        differences
    }

    pub(super) fn answer_changes(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        me: Identity,
        (owner, changes): (Identity, &Changes),
    ) {
        let version = self.version_of(owner.node);
        let progress = self.pulls.on_answer(cx, owner.node, version, changes.more);
        if progress != Progress::Waits {
            self.start_pulls(cx, peers);
        }
        let is_in_doubt = |replica: &Replica| replica.table.is_in_doubt();
        if progress == Progress::Complete && self.replicas.get(&owner.node).is_some_and(is_in_doubt)
        {
            // Only the owner knows its latest version. It is queried until it answers.
            self.greet(cx, me, owner);
        }
        if changes.answer_wanted && version >= changes.up_to {
            self.send_versions(cx, me, owner, false);
        }
    }

    pub(super) fn on_pull(&self, cx: &mut Context, to: Identity, wanted: &[Wanted]) {
        let capacity = changes_capacity(cx.config.max_datagram_bytes);
        let mut chunks_left = PULL_CHUNKS;
        let id = cx.origin.node;
        for wanted in wanted.iter().filter(|wanted| wanted.node == id) {
            let mut rest = *wanted;
            while chunks_left > 0 {
                let Some(mut changes) = self.own.changes(rest, capacity) else { break };
                rest.after = changes.up_to;
                rest.floor = rest.floor.max(changes.floor);
                chunks_left -= 1;
                let available = rest.up_to.min(self.own.version());
                changes.more = chunks_left == 0 && rest.after < available;
                cx.send(to.endpoint, &Packet::Changes(changes));
            }
        }
    }

    pub(super) fn on_pull_timeout(&mut self, cx: &mut Context, peers: &Peers, node: NodeId) {
        self.pulls.on_timeout(cx, node);
        self.start_pulls(cx, peers);
    }

    pub(super) fn start_pulls(&mut self, cx: &mut Context, peers: &Peers) {
        let replicas = &self.replicas;
        self.pulls.start(cx, peers, |node, version| {
            let replica = replicas.get(&node);
            replica.map_or_else(Vec::new, |replica| replica.table.gaps(node, version, GAPS))
        });
    }

    pub(super) fn send_versions(
        &self,
        cx: &mut Context,
        me: Identity,
        to: Identity,
        answer_wanted: bool,
    ) {
        let entries = vec![self.own_entry(me), self.entry_of(to)];
        let digest = Digest { answer_wanted, entries, ..Digest::default() };
        cx.send(to.endpoint, &Packet::Digest(digest));
    }

    pub(super) fn send_roster(&self, cx: &mut Context, peers: &Peers, me: Identity, to: Identity) {
        let mut entries = vec![self.own_entry(me)];
        entries.extend(peers.live_identities().map(|peer| self.entry_of(peer)));
        let parts = entries.chunks(digest_capacity(cx.config.max_datagram_bytes));
        let chunks = parts.len() as u16;
        for (part, chunk) in parts.zip(0..) {
            let entries = part.to_vec();
            let digest = Digest { chunk, chunks, entries, ..Digest::default() };
            cx.send(to.endpoint, &Packet::Digest(digest));
        }
    }

    pub(super) fn stop(&mut self) {
        self.pulls = Pulls::default();
    }

    pub(super) fn check(&self, cx: &Context, peers: &Peers) {
        self.own.check();
        self.replicas.values().for_each(|replica| replica.table.check());
        let nodes = peers.identities().map(|peer| peer.node);
        assert!(nodes.eq(self.replicas.keys().copied()), "a peer without subscriptions");
        self.pulls.check(cx, peers);
        assert!(self.pushed <= self.own.version(), "too many changes were pushed");
    }

    fn entry_of(&self, peer: Identity) -> DigestEntry {
        entry_of(peer, &self.replicas[&peer.node].table)
    }

    fn expect_confirmation(&mut self, cx: &mut Context, node: NodeId) {
        if let Some(replica) = self.replicas.get_mut(&node) {
            replica.patience = cx.config.retry_after;
            cx.timers.set(Timer::Confirm(node), cx.now + replica.patience);
        }
    }
}

fn entry_of(identity: Identity, table: &Table) -> DigestEntry {
    DigestEntry { identity, version: table.version(), subscriptions: table.len() as u32 }
}
