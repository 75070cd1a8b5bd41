//! What can be set about gossip membership, and what follows from it for SWIM.

use core::num::{NonZeroU8, NonZeroUsize};
use core::time::Duration;

use crate::Endpoint;
use crate::wire::HEADER_BYTES;

/// Settings of gossip membership. The default is made for one LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Addresses of nodes that may be there already; the first contact of a node that is not on
    /// the others' LAN. They are asked until they answer, and now and then again for as long as
    /// one of them is not a member. The node's own address among them does no harm. Default: none.
    pub seeds: Vec<Endpoint>,
    /// The network of the node. Nodes ignore those of other networks, which may be sent what was
    /// meant for a member that had their address before. Choose another number for each cluster
    /// that shares a host with others. Default: 0.
    pub network: u32,
    /// Whether to say hello on the LAN by multicast. Default: true.
    pub lan_hello: bool,
    /// A crashed node is out of every view within this time, however many nodes there are. Less
    /// means more probes, and more wrong suspicions of nodes that are merely busy: a node that
    /// stands still for half of this time may be taken for dead. From 100 ms on. Default: 3 s.
    pub detection_time: Duration,
    /// Whether whatever arrives from a member, messages and repairs included, counts as a sign that
    /// it is alive. Without it only answers to probes do. Default: true.
    pub heartbeats: bool,
    /// How far a node that is slow itself may go in taking its time: up to 1 + this times as long
    /// for a probe, and 1 + this / 12 times until a suspected member is declared dead. Up to 3 it
    /// finds out of crashes within the detection time even if nobody helps it. 0: nodes never
    /// doubt themselves, and time in which they stood still counts. At most 8. Default: 3.
    pub local_health: u32,
    /// How many other members are asked to try before a silent member is suspected. Default: 3.
    pub indirect_probes: NonZeroUsize,
    /// A node that got no answer for so long takes itself for the first. Default: 500 ms.
    pub settle_after: Duration,
    /// A node that did get an answer, but not everything it was promised, stops waiting for it
    /// after this time. Default: 5 s.
    pub settle_limit: Duration,
    /// The pause after the first hello; each later one is half as long again. Default: 50 ms.
    pub hello_first_pause: Duration,
    /// The longest pause between two hellos. Members on a LAN share this pace among them once they
    /// have found each other. Default: 5 s.
    pub hello_last_pause: Duration,
    /// How often a random member is told who has which version of the subscriptions.
    /// Default: 500 ms.
    pub digest_period: Duration,
    /// How long a silent member may take to confirm or to answer before it is asked again; a
    /// few round trips. Each further try waits twice as long, up to a second. Default: 50 ms.
    pub retry_after: Duration,
    /// New subscriptions are sent at once, and those that follow are collected for so long.
    /// Default: 10 ms.
    pub push_pause: Duration,
    /// How long a failed member is remembered, so that old news does not bring it back.
    /// Default: 10 minutes.
    pub forget_after: Duration,
    /// Bytes of the largest datagram, headers of UDP and IP not counted; the same at all nodes.
    /// At least 256. Default: 1400.
    pub max_datagram_bytes: usize,
    /// How many other nodes are known at most, failed ones included. Default: 4096.
    pub max_nodes: usize,
    /// How many groups of one other node are known at most. Default: 16384.
    pub max_groups_per_node: usize,
    /// How many datagrams wait to be sent at most. Default: 65536.
    pub max_queued: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            network: 0,
            lan_hello: true,
            detection_time: Duration::from_secs(3),
            heartbeats: true,
            local_health: 3,
            indirect_probes: NonZeroUsize::MIN.saturating_add(2),
            settle_after: Duration::from_millis(500),
            settle_limit: Duration::from_secs(5),
            hello_first_pause: Duration::from_millis(50),
            hello_last_pause: Duration::from_secs(5),
            digest_period: Duration::from_millis(500),
            retry_after: Duration::from_millis(50),
            push_pause: Duration::from_millis(10),
            forget_after: Duration::from_secs(600),
            max_datagram_bytes: 1400,
            max_nodes: 4096,
            max_groups_per_node: 16_384,
            max_queued: 65_536,
        }
    }
}

impl Config {
    /// How often one random member is probed.
    ///
    /// Each of n nodes probes another one per period, so that a crashed one is probed by somebody
    /// in a period with probability 1 - 1/e. With 24 periods in the detection time, 12 of them
    /// spent on suspicion and one on the probe itself, nobody tries in time once in 60000 crashes.
    pub fn probe_period(&self) -> Duration {
        self.detection_time / 24
    }

    /// How long a direct probe may take before other members are asked to try.
    pub fn probe_round_trip(&self) -> Duration {
        self.probe_period() * 2 / 5
    }

    /// How long a suspected member has to say that it is alive.
    pub fn suspicion_time(&self) -> Duration {
        self.detection_time / 2
    }

    /// How often a suspected member is asked to prove that it is alive: even at 20 % loss one
    /// round trip succeeds but for once in 27000 suspicions.
    pub(super) const CHALLENGES: u32 = 10;

    pub(super) fn challenge_period(&self) -> Duration {
        self.suspicion_time() / Self::CHALLENGES
    }

    /// For so long after something came from a member this node speaks up for it.
    pub(super) fn freshness(&self) -> Duration {
        self.probe_period() * 2
    }

    pub(super) fn validate(&self) {
        let detection = self.detection_time >= Duration::from_millis(100);
        assert!(detection, "a detection time below 100 ms was asked for");
        assert!(self.local_health <= 8, "a node may take nine times as long at most");
        let bytes = (256..=crate::wire::MAX_DATAGRAM_BYTES).contains(&self.max_datagram_bytes);
        assert!(bytes, "membership datagrams need at least 256 bytes and fit into UDP");
        let pauses = [
            self.hello_first_pause,
            self.hello_last_pause,
            self.digest_period,
            self.retry_after,
            self.push_pause,
        ];
        let positive = pauses.iter().all(|pause| !pause.is_zero());
        assert!(positive, "a pause of zero would leave no time between two datagrams");
    }

    pub(super) fn swim(&self) -> foca::Config {
        let payload_bytes = self.max_datagram_bytes - HEADER_BYTES;
        foca::Config {
            probe_period: self.probe_period(),
            probe_rtt: self.probe_round_trip(),
            num_indirect_probes: self.indirect_probes,
            max_transmissions: NonZeroU8::MIN.saturating_add(9),
            suspect_to_down_after: self.suspicion_time(),
            remove_down_after: Some(self.forget_after),
            max_packet_size: NonZeroUsize::MIN.saturating_add(payload_bytes - 1),
            notify_down_members: true,
            periodic_announce: None,
            periodic_announce_to_down_members: Some(foca::PeriodicParams {
                frequency: self.hello_last_pause,
                num_members: NonZeroUsize::MIN.saturating_add(1),
            }),
            periodic_gossip: Some(foca::PeriodicParams {
                frequency: self.probe_period(),
                num_members: self.indirect_probes,
            }),
        }
    }
}
