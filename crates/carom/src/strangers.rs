//! Nodes that send to a group of ours and that the membership has not told of: a partial view does
//! not show them. They can be answered, and asked for what they sent.
//!
//! Anybody can forge the address that a datagram comes from. An address that has not answered a
//! probe is therefore sent at most twice the bytes that came from there (as in QUIC, RFC 9000,
//! section 8.1).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use carom_proto::{NodeId, Rng, Time};

use crate::paths::LEAST_PROBE_BYTES;

/// The strangers of one node.
#[derive(Debug)]
pub(crate) struct Strangers {
    nodes: HashMap<NodeId, Stranger>,
    rng: Rng,
    /// Datagrams that were not sent to addresses that have not answered.
    pub(crate) withheld: u64,
}

#[derive(Debug)]
struct Stranger {
    address: SocketAddr,
    proof: Proof,
}

/// Whether a node has shown that it receives what is sent to its address.
#[derive(Debug)]
enum Proof {
    Given,
    Awaited {
        /// What the answer to the probe must name.
        nonce: u32,
        probed_at: Option<Time>,
        /// Bytes that may still be sent.
        credit: usize,
    },
}

impl Strangers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { nodes: HashMap::new(), rng: Rng::new(seed), withheld: 0 }
    }

    /// A datagram of a stranger came from this address. Returns what it must be probed with, if it
    /// is to be probed now.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        node: NodeId,
        source: SocketAddr,
        bytes: usize,
    ) -> Option<u32> {
        if self.nodes.len() >= MAX_STRANGERS && !self.nodes.contains_key(&node) {
            self.nodes.clear();
        }
        let known = self.nodes.get(&node).is_some_and(|known| known.address == source);
        if !known {
            let nonce = self.rng.next_u64() as u32;
            let proof = Proof::Awaited { nonce, probed_at: None, credit: 0 };
            self.nodes.insert(node, Stranger { address: source, proof });
        }
        let stranger = self.nodes.get_mut(&node)?;
        let Proof::Awaited { nonce, probed_at, credit } = &mut stranger.proof else { return None };
        *credit = (*credit + BYTES_PER_BYTE * bytes).min(MAX_CREDIT);
        let is_due = probed_at.is_none_or(|at| now >= at + PROBE_INTERVAL);
        if !is_due || *credit < usize::from(LEAST_PROBE_BYTES) {
            return None;
        }
        *probed_at = Some(now);
        *credit -= usize::from(LEAST_PROBE_BYTES);
        Some(*nonce)
    }

    /// A node has answered a probe from this address.
    pub(crate) fn on_answer(&mut self, node: NodeId, source: SocketAddr, answered: u32) {
        if let Some(stranger) = self.nodes.get_mut(&node)
            && let Proof::Awaited { nonce, .. } = stranger.proof
            && (stranger.address, nonce) == (source, answered)
        {
            stranger.proof = Proof::Given;
        }
    }

    /// Returns `true` if so many bytes may be sent to the node now, which are taken for sent.
    pub(crate) fn may_send(&mut self, node: NodeId, bytes: usize) -> bool {
        let Some(stranger) = self.nodes.get_mut(&node) else { return true };
        let Proof::Awaited { credit, .. } = &mut stranger.proof else { return true };
        let left = credit.checked_sub(bytes);
        self.withheld += u64::from(left.is_none());
        *credit = left.unwrap_or(*credit);
        left.is_some()
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.nodes.get(&node).map(|stranger| stranger.address)
    }

    /// Returns `true` if the node need not be heard again: it has answered from this address.
    pub(crate) fn is_proven(&self, node: NodeId, source: SocketAddr) -> bool {
        self.nodes.get(&node).is_some_and(|stranger| {
            stranger.address == source && matches!(stranger.proof, Proof::Given)
        })
    }

    /// The membership tells of the node now.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }
}

/// Strangers that are remembered; with more of them all are learnt anew.
const MAX_STRANGERS: usize = 4096;
/// Bytes that an address is sent, for each one that came from there, before it has answered.
const BYTES_PER_BYTE: usize = 2;
/// More bytes than this are not sent at once to an address that has not answered.
const MAX_CREDIT: usize = 1 << 16;
/// The time from one probe to the next.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn address_that_does_not_answer_is_sent_twice_the_bytes_that_came() {
        let mut strangers = Strangers::new(1);
        let at = address("10.0.0.1:7400");
        let (mut sent, mut came, mut now) = (0, 0, Time::ZERO);
        for _ in 0..100 {
            came += 54;
            let probe = strangers.hear(now, NODE, at, 54);
            sent += probe.map_or(0, |_| usize::from(LEAST_PROBE_BYTES));
            sent += if strangers.may_send(NODE, 1200) { 1200 } else { 0 };
            now = now + Duration::from_millis(30);
        }
        assert!(sent > came && sent <= 2 * came, "{sent} bytes for {came}");
        assert!(strangers.withheld > 90);
    }

    #[test]
    fn answer_from_the_address_with_the_nonce_lifts_the_limit() {
        let mut strangers = Strangers::new(1);
        let (at, elsewhere) = (address("10.0.0.1:7400"), address("10.0.0.2:7400"));
        let nonce = strangers.hear(Time::ZERO, NODE, at, 54).expect("a probe");
        assert_eq!(strangers.hear(Time::ZERO, NODE, at, 54), None, "a probe is under way");
        strangers.on_answer(NODE, at, nonce.wrapping_add(1));
        strangers.on_answer(NODE, elsewhere, nonce);
        assert!(!strangers.may_send(NODE, 10_000));
        strangers.on_answer(NODE, at, nonce);
        assert!(strangers.may_send(NODE, 10_000) && strangers.is_proven(NODE, at));
        assert_eq!(strangers.hear(Time::ZERO, NODE, at, 54), None);
        // At another address it has to answer again.
        assert!(strangers.hear(Time::ZERO, NODE, elsewhere, 54).is_some());
        assert!(!strangers.may_send(NODE, 10_000) && !strangers.is_proven(NODE, elsewhere));
        strangers.remove(NODE);
        assert!(strangers.may_send(NODE, 10_000), "the membership vouches for its address");
    }

    #[test]
    fn strangers_are_bounded() {
        let mut strangers = Strangers::new(1);
        for node in 0..2 * MAX_STRANGERS as u64 {
            strangers.hear(Time::ZERO, NodeId(node), address("10.0.0.1:7400"), 54);
        }
        assert!(strangers.nodes.len() <= MAX_STRANGERS);
    }
}
