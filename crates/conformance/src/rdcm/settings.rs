//! The network of one scenario and the settings of its engines, drawn to cover rare paths.

use core::fmt;
use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::rdcm::topology::{Topology as Cluster, Vertex};
use carom_proto::rdcm::{Config, Congestion, Network, Slowest};
use carom_proto::{NodeId, Rng, SeqNo};
use carom_sim::{HostIx, Jitter, Link};

use crate::draw::one_of;
use crate::seeds::{keeps_ids, may_be_later};

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) shape: Shape,
    /// `true` if the engines know the network, which then forwards along their trees.
    pub(crate) is_known: bool,
    pub(crate) link: Link,
    pub(crate) receive_buffer: usize,
    pub(crate) hosts: Vec<HostIx>,
    pub(crate) deaf: Vec<HostIx>,
    pub(crate) config: Config,
    pub(crate) keeps_ids: bool,
    /// Permutes the nodes' ids, so that the host with the smallest id differs between scenarios.
    salt: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    BCube(u32),
    FatTree,
    Vl2,
    Tree,
    Racks,
    Flat,
}

/// Number of links in the longest path of most shapes.
const LINKS_OF_PATH: u32 = 6;
pub(super) const LIVES: u32 = 8;
const MOST_MEMBERS: usize = 16;

impl Shape {
    pub(crate) fn cluster(self) -> Cluster {
        let cluster = match self {
            Self::BCube(ports) => Cluster::bcube(ports, 1),
            Self::FatTree => Cluster::fat_tree(4),
            Self::Vl2 => Cluster::vl2(4, 4, 3),
            Self::Tree => Cluster::tree(&[2, 3, 3]),
            Self::Racks => Cluster::racks(&[5, 1, 6, 4]),
            Self::Flat => Cluster::racks(&[16]),
        };
        cluster.expect("a valid cluster")
    }
}

impl Settings {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xb01d_5e77);
        let shapes = [
            Shape::BCube(2),
            Shape::BCube(3),
            Shape::BCube(4),
            Shape::BCube(4),
            Shape::FatTree,
            Shape::FatTree,
            Shape::Vl2,
            Shape::Tree,
            Shape::Racks,
            Shape::Flat,
        ];
        let shape = one_of(&mut rng, &shapes);
        let is_known = shape != Shape::Flat && rng.chance(0.8);
        let link = draw_link(&mut rng);
        let distance = draw_distance(seed).filter(|_| may_be_later(seed));
        let link = distance.map_or(link, |delay| Link { delay, ..link });
        let receive_buffer = one_of(&mut rng, &[1024, 1024, 128, 16]);
        let hosts = draw_hosts(shape.cluster().hosts(), &mut rng);
        let mut config = draw_config(seed, &mut rng);
        let salt = rng.below(64) as u32;
        let mut deaf = Vec::new();
        if is_without_multicast(seed) {
            let share = one_of(&mut rng, &[1.0, 1.0, 0.5, 0.2]);
            deaf = hosts.iter().copied().filter(|_| rng.chance(share)).collect();
            config.relay_children = one_of(&mut rng, &[2, 2, 1, 3]);
        }
        if may_be_later(seed) {
            config.first_epoch = draw_first_number(seed ^ 0xe90c_f125);
            config.first_stream = draw_first_number(seed ^ 0x57e_a135);
            let first_number = draw_first_number(seed ^ 0x5e9_0123);
            config.first_number = first_number.map_or(SeqNo::FIRST, SeqNo);
        }
        let keeps_ids = keeps_ids(seed);
        Self { shape, is_known, link, receive_buffer, hosts, deaf, config, keeps_ids, salt }
    }

    pub(super) fn id(&self, host: HostIx, life: u32) -> NodeId {
        let life = if self.keeps_ids { 0 } else { life };
        let life = if self.salt & 1 == 0 { life } else { LIVES - life };
        NodeId(u64::from(life * 64 + (host.0 ^ self.salt)) + 1)
    }

    pub(super) fn ids(&self, host: HostIx) -> impl Iterator<Item = NodeId> {
        (0..LIVES).map(move |life| self.id(host, life))
    }

    /// Returns the settings of one life. Only the first life of the first host has a set stream
    /// number, which nodes must not share.
    pub(super) fn config_of(&self, host: HostIx, life: u32) -> Config {
        let is_first = (host, life) == (self.hosts[0], 0);
        let first_stream = self.config.first_stream.filter(|_| is_first);
        let network = match self.is_known {
            false => Network::Unknown,
            true => {
                let lives = |host: &HostIx| {
                    let vertex = Vertex(host.0);
                    self.ids(*host).map(move |id| (id, vertex))
                };
                let hosts = self.hosts.iter().flat_map(lives).collect();
                Network::Known { topology: Box::new(self.shape.cluster()), hosts }
            }
        };
        Config { network, first_stream, ..self.config.clone() }
    }

    /// Returns the maximum number of bytes that an engine may hold, either as the sender or as a
    /// receiver with an incomplete message.
    pub(super) fn limit_bytes(&self) -> usize {
        let Config { send_bytes, window_packets, message_bytes, .. } = self.config;
        send_bytes.max(window_packets as usize * self.config.fragment_bytes() + message_bytes)
    }

    /// Returns the maximum time of recovery after the network works again: to find a new sender, to
    /// send the waiting messages, and to be readmitted.
    pub(super) fn patience(&self, waiting_bytes: usize) -> Duration {
        let Config { gone_after, readmit_after, linger, slow_after, .. } = self.config;
        let slow = slow_after.unwrap_or(Duration::from_secs(5));
        let rate = self.config.rate.unwrap_or(u64::MAX).min(SLOWEST_BYTES_PER_SECOND);
        let sending = Duration::from_secs_f64(waiting_bytes as f64 / rate as f64);
        let out = 4 * (2 * gone_after + readmit_after + linger + slow) + SLOW_OUT;
        out + 2 * sending + LEAST_PATIENCE + TRIPS * LINKS_OF_PATH * self.link.delay
    }
}

/// Draws a first number close to a wrap or a change of sign. The draw is independent of all others.
fn draw_first_number(seed: u64) -> Option<u32> {
    let mut rng = Rng::new(seed);
    let edges = [u32::MAX, i32::MAX as u32];
    rng.chance(0.25).then(|| one_of(&mut rng, &edges) - rng.below(8) as u32)
}

/// Draws the delay of each link for long paths. The draw is independent of all others.
fn draw_distance(seed: u64) -> Option<Duration> {
    let mut rng = Rng::new(seed ^ 0xfa4_d157);
    let path_ms = [5, 25, 100, 250];
    rng.chance(1.0 / 16.0)
        .then(|| Duration::from_millis(one_of(&mut rng, &path_ms)) / LINKS_OF_PATH)
}

fn draw_link(rng: &mut Rng) -> Link {
    let micros = Duration::from_micros;
    let delay = micros(one_of(rng, &[10, 10, 100, 1000]));
    let jitter = match rng.below(3) {
        0 => Jitter::Uniform(delay),
        1 => Jitter::Exponential(delay / 4),
        _ => Jitter::None,
    };
    let losses = [
        Loss::None,
        Loss::None,
        Loss::None,
        Loss::Uniform(0.001),
        Loss::Uniform(0.01),
        Loss::Burst { rate: 0.01, length: 8 },
    ];
    let link = Link::of_delay(delay).with_jitter(jitter).with_loss(one_of(rng, &losses));
    match one_of(rng, &[None, Some(1000), Some(200), Some(100)]) {
        Some(mbit) => link.with_bandwidth(mbit * 1_000_000, one_of(rng, &[300_000, 40_000])),
        None => link,
    }
}

/// Returns `true` in one of six seeds, in which multicast reaches only some of the hosts, or none.
pub(super) fn is_without_multicast(seed: u64) -> bool {
    seed.is_multiple_of(6)
}

fn draw_hosts(count: u32, rng: &mut Rng) -> Vec<HostIx> {
    let mut all: Vec<HostIx> = (0..count).map(HostIx).collect();
    let most = (count as usize).min(MOST_MEMBERS);
    let members = 2 + rng.below(most - 1);
    for place in 0..members {
        let other = place + rng.below(all.len() - place);
        all.swap(place, other);
    }
    all.truncate(members);
    all
}

fn draw_config(seed: u64, rng: &mut Rng) -> Config {
    let (ms, micros) = (Duration::from_millis, Duration::from_micros);
    let message_bytes = one_of(rng, &[16 << 10, 16 << 10, 64 << 10]);
    let is_paced = rng.chance(0.4);
    let rates = [400_000, 1_500_000, 8_000_000];
    let report_every = one_of(rng, &[20_u64, 20, 5, 50]);
    let mut config = Config {
        path_mtu: one_of(rng, &[1500, 1500, 1500, 1280, 9000]),
        message_bytes,
        send_bytes: one_of(rng, &[1 << 20, 200 << 10, 64 << 10, message_bytes])
            .max(2 * message_bytes + 100),
        congestion: match is_paced {
            true => Congestion::Room,
            false => Congestion::Bic { initial: one_of(rng, &[32, 32, 8, 1]) },
        },
        rate: (is_paced || rng.chance(0.6)).then(|| one_of(rng, &rates)),
        burst_packets: one_of(rng, &[48, 8, 1]),
        repairs_share_path: rng.chance(0.5),
        detect_after: one_of(rng, &[ms(4), ms(2), Duration::ZERO]),
        resend_after: one_of(rng, &[ms(8), ms(8), ms(2), ms(30)]),
        ack_every: one_of(rng, &[64, 64, 8, 1]),
        ack_delay: one_of(rng, &[ms(1), ms(1), micros(200), ms(5)]),
        repairs_in_flight: one_of(rng, &[256, 256, 8, 1]),
        ask_after: one_of(rng, &[ms(40), ms(40), ms(10), ms(200)]),
        report_every: ms(report_every),
        announce_every: one_of(rng, &[ms(20), ms(20), ms(5), ms(100)]),
        cut_after: one_of(rng, &[ms(200), ms(200), ms(50)]),
        retry_link_after: one_of(rng, &[ms(30_000), ms(1000)]),
        gone_after: one_of(rng, &[ms(400), ms(400), ms(1000), ms(200)]),
        slow_after: one_of(rng, &[Some(ms(5000)), Some(ms(1000)), None]),
        readmit_after: one_of(rng, &[ms(200), ms(200), ms(50), Duration::ZERO]),
        linger: one_of(rng, &[ms(1000), ms(200), Duration::ZERO]),
        ..Config::default()
    };
    let policies = [Slowest::default(), Slowest::default(), Slowest::LeaveBehind, Slowest::Wait];
    let mut apart = Rng::new(seed ^ 0x736c_6f77);
    if may_be_later(seed) {
        let is_apart = seed < SLOWEST_FROM;
        config.slowest = one_of(if is_apart { &mut apart } else { &mut *rng }, &policies);
    }
    let least = message_bytes.div_ceil(config.fragment_bytes()) as u32 + 1;
    config.window_packets = one_of(rng, &[1024, 256, 64, 16]).max(least);
    config
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, is_known, link, receive_buffer, deaf, config, keeps_ids, .. } = self;
        let known = if *is_known { "known" } else { "unknown" };
        let deaf: Vec<u32> = deaf.iter().map(|host| host.0).collect();
        write!(f, "{shape:?}, {known}, {link:?}, receive buffers of {receive_buffer}, ")?;
        let ids = if *keeps_ids { "kept" } else { "new" };
        write!(f, "{ids} ids after restarts, without multicast {deaf:?}, {config:?}")
    }
}

/// First seed of scenarios that draw the policy for slow receivers with the other settings. Smaller
/// seeds draw it separately, which keeps their other settings unchanged.
const SLOWEST_FROM: u64 = 700_000_000;
/// Throughput of a window of one packet over the slowest paths, without another limit.
const SLOWEST_BYTES_PER_SECOND: u64 = 50_000;
/// Maximum time for which a receiver is evicted because it is slow.
const SLOW_OUT: Duration = Duration::from_secs(10);
const LEAST_PATIENCE: Duration = Duration::from_secs(5);
const TRIPS: u32 = 100;
