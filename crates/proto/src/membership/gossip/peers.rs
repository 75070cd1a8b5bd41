use alloc::collections::BTreeMap;
use core::time::Duration;

use super::config::Config;
use super::identity::Identity;
use crate::incarnations::{Incarnations, Start};
use crate::{Endpoint, NodeId, Origin, Time};

#[derive(Default)]
pub(super) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    /// In ascending order.
    live: Vec<NodeId>,
}

struct Peer {
    identity: Identity,
    incarnations: Incarnations,
    claim: Option<AddressClaim>,
    bumps: RenewalLimit,
}

#[derive(Clone, Copy, Debug)]
struct AddressClaim {
    source: Endpoint,
    since: Time,
    queried: Time,
    queries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Own,
    /// The node's new address. The node no longer answers at the old one.
    Moved(Identity),
    Foreign,
    /// The node must be queried at this known address.
    Contested(Endpoint),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RenewalLimit {
    left: u32,
    refilled: Time,
}

const QUERIES: u32 = 4;
/// Maximum number of new identities in a burst. Each period allows one more.
const RENEWALS: u32 = 8;

impl Peers {
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    pub(super) fn identity(&self, node: NodeId) -> Option<Identity> {
        self.peers.get(&node).map(|peer| peer.identity)
    }

    pub(super) fn identities(&self) -> impl Iterator<Item = Identity> {
        self.peers.values().map(|peer| peer.identity)
    }

    pub(super) fn is_live(&self, node: NodeId) -> bool {
        self.live.binary_search(&node).is_ok()
    }

    pub(super) fn live(&self) -> &[NodeId] {
        &self.live
    }

    pub(super) fn live_identity(&self, node: NodeId) -> Option<Identity> {
        self.identity(node).filter(|_| self.is_live(node))
    }

    pub(super) fn live_identities(&self) -> impl Iterator<Item = Identity> {
        self.live.iter().filter_map(|node| self.identity(*node))
    }

    pub(super) fn mark_up(&mut self, now: Time, identity: Identity) -> Option<Identity> {
        let node = identity.node;
        let place = self.live.partition_point(|live| *live < node);
        self.live.insert(place, node);
        let former = self.rename(identity);
        if former.is_none() {
            let (incarnations, bumps) = (Incarnations::default(), RenewalLimit::new(now));
            self.peers.insert(node, Peer { identity, incarnations, claim: None, bumps });
        }
        former
    }

    pub(super) fn mark_down(&mut self, node: NodeId) {
        self.live.retain(|live| *live != node);
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.peers.remove(&node);
    }

    pub(super) fn rename(&mut self, identity: Identity) -> Option<Identity> {
        let peer = self.peers.get_mut(&identity.node)?;
        Some(core::mem::replace(&mut peer.identity, identity))
    }

    pub(super) fn classify_source(
        &mut self,
        config: &Config,
        now: Time,
        source: Endpoint,
        sender: NodeId,
    ) -> Source {
        let is_live = self.is_live(sender);
        let patience = config.suspicion_time() / 2;
        let Some(peer) = self.peers.get_mut(&sender) else { return Source::Own };
        let known = peer.identity.endpoint;
        if known == source || !is_live {
            peer.claim = None;
            return Source::Own;
        }
        let other = peer.claim.filter(|claim| now < claim.queried + patience);
        let new = AddressClaim { source, since: now, queried: now, queries: 0 };
        let claim = peer.claim.insert(other.unwrap_or(new));
        if claim.source != source {
            return Source::Foreign;
        }
        if claim.queries >= QUERIES && now >= claim.since + patience {
            peer.claim = None;
            peer.identity.endpoint = source;
            return Source::Moved(peer.identity);
        }
        let is_due = claim.queries == 0 || now >= claim.queried + config.retry_after;
        if is_due { Source::Contested(known) } else { Source::Foreign }
    }

    pub(super) fn note_query(&mut self, now: Time, node: NodeId) {
        if let Some(claim) = self.peers.get_mut(&node).and_then(|peer| peer.claim.as_mut()) {
            (claim.queries, claim.queried) = (claim.queries + 1, now);
        }
    }

    /// Returns `false` if a known node claims more deaths than are possible. Without this check,
    /// another node could give a silent node an identity that the silent node never reaches.
    pub(super) fn may_bump(&mut self, config: &Config, now: Time, identity: Identity) -> bool {
        let Some(peer) = self.peers.get_mut(&identity.node) else { return true };
        let growth = identity.bump.saturating_sub(peer.identity.bump);
        growth == 0 || peer.bumps.take(now, growth, config.detection_time, u32::MAX)
    }

    pub(super) fn classify_start(&mut self, now: Time, origin: Origin, is_credible: bool) -> Start {
        let Some(peer) = self.peers.get_mut(&origin.node) else { return Start::Known };
        peer.incarnations.look(now, origin.incarnation, || is_credible)
    }

    pub(super) fn check(&self) {
        assert!(self.live.is_sorted(), "the live nodes are out of order");
        for node in &self.live {
            assert!(self.peers.contains_key(node), "a live node is not a peer");
        }
    }
}

impl RenewalLimit {
    pub(super) fn new(now: Time) -> Self {
        Self { left: RENEWALS, refilled: now }
    }

    pub(super) fn take_own(&mut self, now: Time, period: Duration) -> bool {
        self.take(now, 1, period, RENEWALS)
    }

    /// Takes `count`, or returns `false` if fewer remain. Each `period` adds one, up to `most`.
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
