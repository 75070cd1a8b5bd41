use core::num::{NonZeroU8, NonZeroUsize};
use core::time::Duration;

use crate::Endpoint;
use crate::wire::HEADER_BYTES;

/// Settings of gossip membership. The defaults are intended for one LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Addresses of possible members. A node on the same LAN as the other nodes needs none.
    ///
    /// The node sends hellos to each address until it answers, and continues at a slow rate while
    /// no member has the address. The list may contain the node's own address. Default: none.
    pub seeds: Vec<Endpoint>,
    /// Network of the node. Datagrams of other networks are ignored.
    ///
    /// Such a datagram can arrive when a node inherits the address of a former member. Use a
    /// different number for each of several clusters that share hosts. Default: 0.
    pub network: u32,
    /// `true` if the node sends multicast hellos on the LAN. Default: `true`.
    pub lan_hello: bool,
    /// Time within which a crashed node is removed from every view, except in very rare cases.
    ///
    /// A smaller value causes more probes, and more false suspicions of busy nodes: a node that is
    /// stalled for half of this time may be declared dead. At least 100 ms. Default: 3 s.
    pub detection_time: Duration,
    /// `true` if every datagram from a member counts as a sign of life, `false` if only its
    /// answers to probes do. Default: `true`.
    pub heartbeats: bool,
    /// Maximum local health score. A slow node has a higher score and is slower to suspect others.
    ///
    /// A node with score s waits 1 + s times as long for a probe, and 1 + s / 12 times as long
    /// before it declares a suspected member dead. With at most 3, a node detects crashes within
    /// the detection time without help from other members. With 0, a node never distrusts its own
    /// findings, and its own stalls count against other nodes. At most 8. Default: 3.
    pub local_health: u32,
    /// Number of members that probe a silent member indirectly before it is suspected. Default: 3.
    pub indirect_probes: NonZeroUsize,
    /// Time without an answer after which a node considers itself the first. Default: 500 ms.
    pub settle_after: Duration,
    /// Maximum time for which a node waits for the data that its contact announced. Default: 5 s.
    pub settle_limit: Duration,
    /// Pause between the first two hellos. Each later pause is 1.5 times as long. Default: 50 ms.
    pub hello_first_pause: Duration,
    /// Maximum pause between two hellos. The members on a LAN together send about one hello per
    /// pause. Default: 5 s.
    pub hello_last_pause: Duration,
    /// Interval at which a node compares subscriptions with a random member. Default: 500 ms.
    pub digest_period: Duration,
    /// Time to wait for a member's confirmation or answer before the query is repeated.
    ///
    /// Use a few round-trip times. Each further wait is twice as long, up to 1 s. Default: 50 ms.
    pub retry_after: Duration,
    /// Minimum interval between pushes of subscriptions. The first change is sent at once, and
    /// changes that follow within this time are sent together. Default: 10 ms.
    pub push_pause: Duration,
    /// Time for which outdated reports cannot bring a failed member back. Default: 10 minutes.
    pub forget_after: Duration,
    /// Maximum size of a datagram in bytes, without the UDP and IP headers.
    ///
    /// It must be the same at all nodes. From 256 to 65507. Default: 1400.
    pub max_datagram_bytes: usize,
    /// Maximum number of other nodes that are known, including failed ones. Default: 4096.
    pub max_nodes: usize,
    /// Maximum number of groups of this node, and of each other node. Default: 16384.
    pub max_groups_per_node: usize,
    /// Maximum number of datagrams that wait to be sent. Default: 65536.
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
    /// Returns the interval at which a random member is probed: `detection_time` / 24.
    ///
    /// Each of n nodes probes one random node per period, so a crashed node is probed in a given
    /// period with probability 1 - 1/e. Of the 24 periods, 12 are reserved for the suspicion and
    /// one for the probe. In one of 60,000 crashes, no node probes the crashed node in time.
    pub fn probe_period(&self) -> Duration {
        self.detection_time / 24
    }

    /// Returns the time to wait for a direct probe before indirect ones are sent.
    pub fn probe_round_trip(&self) -> Duration {
        self.probe_period() * 2 / 5
    }

    /// Returns the time for which a suspected member can prove that it is alive.
    pub fn suspicion_time(&self) -> Duration {
        self.detection_time / 2
    }

    /// Number of challenges per suspicion. At 20 % loss, all of them fail in one of 27,000 cases.
    pub(super) const CHALLENGES: u32 = 10;

    pub(super) fn challenge_period(&self) -> Duration {
        self.suspicion_time() / Self::CHALLENGES
    }

    /// Returns the time for which this node defends a member after receiving a datagram from it.
    pub(super) fn freshness(&self) -> Duration {
        self.probe_period() * 2
    }

    pub(super) fn validate(&self) {
        let detection = self.detection_time >= Duration::from_millis(100);
        assert!(detection, "detection_time must be at least 100 ms");
        assert!(self.local_health <= 8, "local_health must be at most 8");
        let bytes = (256..=crate::wire::MAX_DATAGRAM_BYTES).contains(&self.max_datagram_bytes);
        assert!(bytes, "max_datagram_bytes must be from 256 to 65507");
        let pauses = [
            self.hello_first_pause,
            self.hello_last_pause,
            self.digest_period,
            self.retry_after,
            self.push_pause,
        ];
        let positive = pauses.iter().all(|pause| !pause.is_zero());
        assert!(positive, "the intervals between two datagrams must not be zero");
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
