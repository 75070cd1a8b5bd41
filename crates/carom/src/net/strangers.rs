//! Strangers: nodes that send to a group of this node but are missing from its view, because the
//! view is partial. This node can answer them and request their packets.
//!
//! The source address of a datagram can be forged. Until an address has answered a probe, this node
//! therefore sends it at most twice the number of bytes received from it (as in QUIC, RFC 9000,
//! section 8.1).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use carom_proto::{NodeId, Rng, Time};

use super::paths::LEAST_PROBE_BYTES;

#[derive(Debug)]
pub(crate) struct Strangers {
    nodes: HashMap<NodeId, Stranger>,
    rng: Rng,
    pub(crate) withheld: u64,
}

/// A stranger. It is reached at its last proven address, if any, or else at its last source
/// address.
#[derive(Debug, Default)]
struct Stranger {
    proven: Option<SocketAddr>,
    probed: Option<Probed>,
}

#[derive(Debug)]
struct Probed {
    address: SocketAddr,
    nonce: u32,
    probed_at: Option<Time>,
    credit: usize,
}

impl Strangers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { nodes: HashMap::new(), rng: Rng::new(seed), withheld: 0 }
    }

    pub(crate) fn on_datagram(
        &mut self,
        now: Time,
        node: NodeId,
        source: SocketAddr,
        bytes: usize,
    ) -> Option<u32> {
        if self.nodes.len() >= MAX_STRANGERS && !self.nodes.contains_key(&node) {
            self.nodes.retain(|_, stranger| stranger.proven.is_some());
        }
        if self.nodes.len() >= MAX_STRANGERS && !self.nodes.contains_key(&node) {
            self.nodes.clear();
        }
        let stranger = self.nodes.entry(node).or_default();
        if stranger.proven == Some(source) {
            return None;
        }
        let known = stranger.probed.take().filter(|probed| probed.address == source);
        let probed = stranger.probed.insert(known.unwrap_or_else(|| {
            let nonce = self.rng.next_u64() as u32;
            Probed { address: source, nonce, probed_at: None, credit: 0 }
        }));
        probed.credit = (probed.credit + BYTES_PER_BYTE * bytes).min(MAX_CREDIT);
        let is_due = probed.probed_at.is_none_or(|at| now >= at + PROBE_INTERVAL);
        let left = probed.credit.checked_sub(usize::from(LEAST_PROBE_BYTES)).filter(|_| is_due)?;
        (probed.probed_at, probed.credit) = (Some(now), left);
        Some(probed.nonce)
    }

    pub(crate) fn on_answer(&mut self, node: NodeId, source: SocketAddr, nonce: u32) {
        let Some(stranger) = self.nodes.get_mut(&node) else { return };
        let is_answer = |probed: &Probed| (probed.address, probed.nonce) == (source, nonce);
        if stranger.probed.as_ref().is_some_and(is_answer) {
            (stranger.proven, stranger.probed) = (Some(source), None);
        }
    }

    pub(crate) fn may_send(&mut self, node: NodeId, datagrams: usize, bytes: usize) -> bool {
        let Some(stranger) = self.nodes.get_mut(&node) else { return true };
        if stranger.proven.is_some() {
            return true;
        }
        let Some(probed) = &mut stranger.probed else { return true };
        let left = probed.credit.checked_sub(bytes);
        self.withheld += if left.is_none() { datagrams as u64 } else { 0 };
        probed.credit = left.unwrap_or(probed.credit);
        left.is_some()
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        let stranger = self.nodes.get(&node)?;
        stranger.proven.or_else(|| stranger.probed.as_ref().map(|probed| probed.address))
    }

    pub(crate) fn is_proven(&self, node: NodeId, source: SocketAddr) -> bool {
        self.nodes.get(&node).is_some_and(|stranger| stranger.proven == Some(source))
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }
}

/// Maximum number of strangers. Beyond it, those that have not answered are forgotten, or else all.
const MAX_STRANGERS: usize = 4096;
/// Maximum number of bytes sent to an address that has not answered, per byte received from it.
const BYTES_PER_BYTE: usize = 2;
/// Maximum number of bytes sent at once to an address that has not answered.
const MAX_CREDIT: usize = 1 << 16;
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn silent_address_is_sent_at_most_twice_the_received_bytes() {
        let mut strangers = Strangers::new(1);
        let at = address("10.0.0.1:7400");
        let (mut sent, mut came, mut now) = (0, 0, Time::ZERO);
        for _ in 0..100 {
            came += 54;
            let probe = strangers.on_datagram(now, NODE, at, 54);
            sent += probe.map_or(0, |_| usize::from(LEAST_PROBE_BYTES));
            sent += if strangers.may_send(NODE, 1, 1200) { 1200 } else { 0 };
            now = now + Duration::from_millis(30);
        }
        assert!(sent > came && sent <= 2 * came, "{sent} bytes sent for {came} received");
        assert!(strangers.withheld > 90);
    }

    #[test]
    fn answer_from_the_address_with_the_nonce_lifts_the_limit() {
        let mut strangers = Strangers::new(1);
        let (at, elsewhere) = (address("10.0.0.1:7400"), address("10.0.0.2:7400"));
        let nonce = strangers.on_datagram(Time::ZERO, NODE, at, 54).expect("a probe");
        assert_eq!(strangers.on_datagram(Time::ZERO, NODE, at, 54), None, "a probe is in flight");
        strangers.on_answer(NODE, at, nonce.wrapping_add(1));
        strangers.on_answer(NODE, elsewhere, nonce);
        assert!(!strangers.may_send(NODE, 7, 10_000));
        strangers.on_answer(NODE, at, nonce);
        assert!(strangers.may_send(NODE, 7, 10_000) && strangers.is_proven(NODE, at));
        assert_eq!(strangers.on_datagram(Time::ZERO, NODE, at, 54), None);
        // A new address must answer before anything but a probe is sent to it.
        let nonce = strangers.on_datagram(Time::ZERO, NODE, elsewhere, 54).expect("a probe");
        assert!(strangers.may_send(NODE, 7, 10_000) && strangers.is_proven(NODE, at));
        assert_eq!(strangers.address(NODE), Some(at));
        strangers.on_answer(NODE, elsewhere, nonce);
        assert_eq!(strangers.address(NODE), Some(elsewhere));
        strangers.remove(NODE);
        assert!(strangers.may_send(NODE, 7, 10_000), "the membership vouches for its address");
    }

    #[test]
    fn strangers_are_bounded() {
        let mut strangers = Strangers::new(1);
        let at = address("10.0.0.1:7400");
        let nonce = strangers.on_datagram(Time::ZERO, NodeId(u64::MAX), at, 54).expect("a probe");
        strangers.on_answer(NodeId(u64::MAX), at, nonce);
        for node in 0..2 * MAX_STRANGERS as u64 {
            strangers.on_datagram(Time::ZERO, NodeId(node), at, 54);
        }
        assert!(strangers.nodes.len() <= MAX_STRANGERS);
        assert!(strangers.is_proven(NodeId(u64::MAX), at), "others are forgotten first");
    }
}
