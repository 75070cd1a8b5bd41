//! How one node's RDCM engine is set.

use core::time::Duration;

use super::hosts::Hosts;
use super::packet::{DATA_BYTES, MAX_RELAYS, PLACE_BYTES};
use super::sending::IDLE_PART;
use super::sending::PIECE_COST;
use super::slowest::Slowest;
use super::topology::{Topology, Vertex};
use crate::bounds::out_of_bounds;
use crate::{Endpoint, NodeId, SeqNo};

/// The settings of an [`Rdcm`](super::Rdcm) engine. The defaults are for a local network of
/// which nothing is known.
///
/// A time is zero or from 1 us to 24 h.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of the largest IP packet on the path: no packet of ours is ever cut by IP.
    /// Default 1500.
    pub path_mtu: u16,
    /// Bytes of the largest message; larger ones are refused. Default and most: 1 MiB.
    pub message_bytes: usize,
    /// Bytes of messages that a sender keeps until all receivers have them, with some 40 for each
    /// packet; when it is full, more are refused. Default 32 MiB.
    pub send_bytes: usize,
    /// Packets that a receiver keeps for itself and for those whom it serves, at most; larger than
    /// the largest message. With packets of 1500 bytes the default, 16384, is 24 MiB.
    pub window_packets: u32,
    /// What the rate follows. Default BIC.
    pub congestion: Congestion,
    /// The share of the packets that a receiver may lose on the tree before it takes that for
    /// congestion: receivers repair faster than a window recovers, and many lose a few packets at
    /// any rate. Default 2 %, as in BBR; zero is BIC as it stands, which shares a link with TCP
    /// fairly.
    pub tolerated_loss: f64,
    /// Bytes in a second that a sender multicasts at most, headers of IP and UDP included; a packet
    /// of which copies are sent counts once. Default: no limit.
    pub rate: Option<u64>,
    /// Packets that a sender multicasts at once, at most. Default 48: a system call's worth.
    pub burst_packets: u32,
    /// Copies that the sender, and each receiver that passes data on, sends of a packet where
    /// multicast does not reach all: 1 to 16. More make the way shorter, and each link carries as
    /// many times the stream. Default 2. Only the sender's setting counts.
    pub relay_children: usize,
    /// Whether repairs go over links of the tree, as they do where a host has one link only: a
    /// receiver then expects as many packets less as it lacks (3.5). Default true.
    pub repairs_share_path: bool,
    /// How long a receiver waits before it repairs what its successor does not have, though it has
    /// later ones: the time to detect a loss (4). Default 4 ms, the paper's; zero is at once.
    pub detect_after: Duration,
    /// A repair that was not acknowledged is sent again after this time at the latest: sooner where
    /// the round trip is known to be shorter. Default 8 ms.
    pub resend_after: Duration,
    /// Packets that one acknowledgement is for, at most. Default 64.
    pub ack_every: u32,
    /// How long an acknowledgement waits for more packets, at most. Default 1 ms.
    pub ack_delay: Duration,
    /// Repairs to one successor that may be under way, at most: fewer while repairs are lost.
    /// Default 256.
    pub repairs_under_way: u32,
    /// A receiver that has not come further for this time asks the sender. Default 40 ms.
    pub ask_after: Duration,
    /// Each receiver tells the sender so often how far it is, or less often in a large group: so
    /// that the sender hears 10,000 reports in a second at most. Default 20 ms.
    pub report_every: Duration,
    /// How often the sender says how far it is, when it multicasts nothing. Default 20 ms as long
    /// as somebody lacks something, ten times that when nobody does. Where the end is it says a
    /// quarter of `ack_delay` after the last packet, and again after pauses that double.
    pub announce_every: Duration,
    /// A receiver that gets nothing by the tree for this time, while its predecessor does, is
    /// reported: a link of the tree must be dead. Default 200 ms.
    pub cut_after: Duration,
    /// A link that is believed dead is tried again after this time. Default 30 s.
    pub retry_link_after: Duration,
    /// A receiver of which nothing is heard for this time is left behind: the others go on, and it
    /// may come back. Default 400 ms.
    pub gone_after: Duration,
    /// A receiver that holds the others up for this time is left behind. Default 5 s; `None` if it
    /// is to be waited for, whatever it takes.
    pub slow_after: Option<Duration>,
    /// What becomes of a receiver that slows the others down without stopping them. Choose
    /// [`Slowest::Wait`] where everybody must get everything in one stream, and a share where most
    /// must not suffer for one. Default: it is left behind below half of the median's rate.
    pub slowest: Slowest,
    /// Who was left behind is let in again after this time at the earliest. Default 200 ms.
    pub readmit_after: Duration,
    /// What receivers still repair for each other when the sender is gone, they repair within this
    /// time. Default 1 s.
    pub linger: Duration,
    /// The epoch of the first places of this node's streams. Default `None`: a random one, which
    /// cannot be guessed. Simulations set it just below 2^31 or 2^32, so that epochs wrap early.
    pub first_epoch: Option<u32>,
    /// The number before that of this node's first stream. Default `None`: another one after each
    /// start and at each node: streams of two nodes must not have the same number. Simulations set
    /// that of one node just below 2^31 or 2^32, so that its numbers wrap early.
    pub first_stream: Option<u32>,
    /// The number of the first packet of each of this node's streams, as applications see it.
    /// Default [`SeqNo::FIRST`]. Simulations set it just below 2^31 or 2^32, so that the numbers of
    /// messages and losses wrap early.
    pub first_number: SeqNo,
    /// The network, as far as it is known. Only the sender's setting counts.
    pub network: Network,
}

/// What the sending rate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// The window of the slowest receiver, by BIC (3.5), which begins with so many packets.
    Bic {
        /// Packets.
        initial: u32,
    },
    /// The room that receivers have: only for networks where nothing else is sent, and with a rate
    /// that they carry.
    Room,
}

/// The network that the multicast tree and the overlay are built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Nothing is known: hosts are taken to be in racks of 32, in the order in which they come.
    Unknown,
    /// A topology, and which node is where.
    Known {
        /// The topology.
        topology: Box<Topology>,
        /// The hosts of the nodes. Who is not among them, or stands where another node is, gets one
        /// of the topology's [places for visitors](Topology::with_visitors). If it has none, the
        /// former cannot be a receiver, and of several on one host the one is there that has
        /// joined last: a node that was restarted has another id.
        hosts: Hosts,
    },
}

impl Network {
    /// A node can be reached there; see [`Hosts::meet`].
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        if let Self::Known { hosts, .. } = self {
            hosts.meet(node, endpoint);
        }
    }

    /// A node is gone.
    pub fn part(&mut self, node: NodeId) {
        if let Self::Known { hosts, .. } = self {
            hosts.part(node);
        }
    }

    /// The host at which the network says that a node is.
    pub(super) fn host_of(&self, node: NodeId) -> Option<Vertex> {
        match self {
            Self::Unknown => None,
            Self::Known { hosts, .. } => hosts.of(node),
        }
    }

    /// Whether it is a host of the network, and no place for whoever comes.
    pub(super) fn names(&self, host: Vertex) -> bool {
        match self {
            Self::Unknown => false,
            Self::Known { topology, .. } => !topology.visitors().contains(&host.0),
        }
    }
}

/// What is wrong with settings.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The path is too narrow.
    #[error("a path MTU of {0} bytes: at least {LEAST_MTU} are needed")]
    PathMtu(u16),
    /// The largest message is too large.
    #[error("messages of {0} bytes: at most {MAX_MESSAGE_BYTES} are possible")]
    MessageBytes(usize),
    /// A buffer does not hold the largest message.
    #[error("{0} is too small for the largest message")]
    Room(&'static str),
    /// A number or a time is zero that must not be.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A time that no timer is meant for.
    #[error("{0} must be from 1 us to 24 h")]
    Time(&'static str),
    /// Not a share.
    #[error("{0} is no share of losses that could be tolerated")]
    Share(f64),
    /// Not a share of a rate.
    #[error("a slowest share of {0}: it must be above 0 and below 1")]
    Slowest(Slowest),
    /// More copies than the place of a receiver can tell.
    #[error("{0} receivers to relay to: at most {MAX_RELAYS} are possible")]
    Relays(usize),
    /// A node is said to be where no host is.
    #[error("a node is said to be at {0}, which is no host of the topology")]
    NoHost(Vertex),
    /// More receivers at one switch than the place of a receiver can tell.
    #[error("{links} links at one point of the topology: at most {most} fit the packets")]
    Ports {
        /// The most that there are.
        links: usize,
        /// The most that are possible.
        most: usize,
    },
}

impl Default for Config {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            path_mtu: 1500,
            message_bytes: MAX_MESSAGE_BYTES,
            send_bytes: 32 << 20,
            window_packets: 1 << 14,
            congestion: Congestion::Bic { initial: 32 },
            tolerated_loss: 0.02,
            rate: None,
            burst_packets: 48,
            relay_children: 2,
            repairs_share_path: true,
            detect_after: ms(4),
            resend_after: ms(8),
            ack_every: 64,
            ack_delay: ms(1),
            repairs_under_way: 256,
            ask_after: ms(40),
            report_every: ms(20),
            announce_every: ms(20),
            cut_after: ms(200),
            retry_link_after: ms(30_000),
            gone_after: ms(400),
            slow_after: Some(ms(5000)),
            slowest: Slowest::default(),
            readmit_after: ms(200),
            linger: ms(1000),
            first_epoch: None,
            first_stream: None,
            first_number: SeqNo::FIRST,
            network: Network::Unknown,
        }
    }
}

impl Config {
    /// These settings for packets of up to so many bytes, or the least that is possible.
    pub fn with_path_mtu(self, bytes: u16) -> Self {
        Self { path_mtu: bytes.max(LEAST_MTU as u16), ..self }
    }

    /// Bytes of a message that fit a packet.
    pub fn piece_bytes(&self) -> usize {
        usize::from(self.path_mtu) - UDP_AND_IP_BYTES - DATA_BYTES
    }

    /// Returns the number of the first packet of a stream, in the 64 bits that do not wrap.
    pub(super) fn first_packet(&self) -> u64 {
        u64::from(self.first_number.minus(1).0) + 1
    }

    /// Packets that a message of so many bytes takes; an empty one takes one.
    pub(super) fn packets_of(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.piece_bytes()).max(1)
    }

    /// Overlay children of one receiver at most: its place must fit a packet.
    pub(super) fn most_children(&self) -> usize {
        let left = usize::from(self.path_mtu) - UDP_AND_IP_BYTES - PLACE_BYTES;
        MAX_PORTS.min(left / size_of::<NodeId>() - self.relay_children)
    }

    /// How often each of so many receivers reports.
    pub(super) fn report_interval(&self, receivers: u32) -> Duration {
        self.report_every.max(REPORT_SHARE * receivers)
    }

    /// A sender that is not heard for so long does not send any more.
    pub(super) fn sender_gone_after(&self) -> Duration {
        2 * self.gone_after.max(2 * IDLE_PART * self.announce_every)
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if usize::from(self.path_mtu) < LEAST_MTU {
            return Err(ConfigError::PathMtu(self.path_mtu));
        }
        if self.message_bytes > MAX_MESSAGE_BYTES {
            return Err(ConfigError::MessageBytes(self.message_bytes));
        }
        let pieces = self.packets_of(self.message_bytes);
        if self.send_bytes < self.message_bytes + pieces * PIECE_COST {
            return Err(ConfigError::Room("send_bytes"));
        }
        if (self.window_packets as usize) <= pieces {
            return Err(ConfigError::Room("window_packets"));
        }
        if !(0.0..1.0).contains(&self.tolerated_loss) {
            return Err(ConfigError::Share(self.tolerated_loss));
        }
        if !self.slowest.is_valid() {
            return Err(ConfigError::Slowest(self.slowest));
        }
        if self.relay_children > MAX_RELAYS {
            return Err(ConfigError::Relays(self.relay_children));
        }
        if let Network::Known { topology, hosts } = &self.network {
            if let Some(place) = hosts.vertices().find(|vertex| !topology.is_host(*vertex)) {
                return Err(ConfigError::NoHost(place));
            }
            let vertices = (0..topology.len() as u32).map(Vertex);
            let ports = vertices.map(|vertex| topology.neighbours(vertex).len()).max();
            let most = self.most_children();
            if let Some(links) = ports.filter(|ports| *ports > most) {
                return Err(ConfigError::Ports { links, most });
            }
        }
        self.check_zeros()?;
        self.check_times()
    }

    fn check_zeros(&self) -> Result<(), ConfigError> {
        let zeros = [
            (self.rate == Some(0), "rate"),
            (self.burst_packets == 0, "burst_packets"),
            (self.relay_children == 0, "relay_children"),
            (self.ack_every == 0, "ack_every"),
            (self.repairs_under_way == 0, "repairs_under_way"),
            (self.congestion == Congestion::Bic { initial: 0 }, "the initial window"),
            (self.resend_after.is_zero(), "resend_after"),
            (self.ack_delay.is_zero(), "ack_delay"),
            (self.ask_after.is_zero(), "ask_after"),
            (self.report_every.is_zero(), "report_every"),
            (self.announce_every.is_zero(), "announce_every"),
            (self.cut_after.is_zero(), "cut_after"),
            (self.gone_after.is_zero(), "gone_after"),
            (self.slow_after == Some(Duration::ZERO), "slow_after"),
        ];
        match zeros.iter().find(|(is_zero, _)| *is_zero) {
            Some((_, name)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        // Those that must not be zero were looked at.
        let times = [
            ("detect_after", self.detect_after),
            ("resend_after", self.resend_after),
            ("ack_delay", self.ack_delay),
            ("ask_after", self.ask_after),
            ("report_every", self.report_every),
            ("announce_every", self.announce_every),
            ("cut_after", self.cut_after),
            ("retry_link_after", self.retry_link_after),
            ("gone_after", self.gone_after),
            ("slow_after", self.slow_after.unwrap_or_default()),
            ("readmit_after", self.readmit_after),
            ("linger", self.linger),
        ];
        out_of_bounds(&times).map_or(Ok(()), |name| Err(ConfigError::Time(name)))
    }
}

/// Bytes of the headers of IP (version 6) and UDP.
pub(super) const UDP_AND_IP_BYTES: usize = 48;
/// The largest message that any configuration takes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// The narrowest path: a packet must hold two acknowledgements with all their ranges.
pub(super) const LEAST_MTU: usize = 700;
/// The most links at one point of a topology.
pub const MAX_PORTS: usize = 128;
/// The sender hears a report in this time, on average, or less often.
const REPORT_SHARE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_each_bound_is_checked() {
        assert_eq!(Config::default().validate(), Ok(()));
        let narrow = Config { path_mtu: LEAST_MTU as u16, ..Config::default() };
        assert_eq!(narrow.validate(), Ok(()));
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate().expect_err("it is out of bounds")
        };
        assert_eq!(refused(|it| it.path_mtu = 576), ConfigError::PathMtu(576));
        let bytes = MAX_MESSAGE_BYTES + 1;
        assert_eq!(
            refused(|it| it.message_bytes = MAX_MESSAGE_BYTES + 1),
            ConfigError::MessageBytes(bytes)
        );
        assert_eq!(refused(|it| it.send_bytes = 1000), ConfigError::Room("send_bytes"));
        assert_eq!(refused(|it| it.window_packets = 100), ConfigError::Room("window_packets"));
        assert_eq!(refused(|it| it.rate = Some(0)), ConfigError::Zero("rate"));
        let time = ConfigError::Time("gone_after");
        assert_eq!(refused(|it| it.gone_after = Duration::MAX), time);
        assert_eq!(refused(|it| it.gone_after = Duration::from_nanos(3)), time);
        let share = Slowest::Share(1.0);
        assert_eq!(refused(|it| it.slowest = Slowest::Share(1.0)), ConfigError::Slowest(share));
        assert_eq!(refused(|it| it.relay_children = 0), ConfigError::Zero("relay_children"));
        assert_eq!(refused(|it| it.relay_children = 17), ConfigError::Relays(17));
        let wide = refused(|it| {
            let topology = Topology::racks(&[200]).expect("a rack");
            it.network = Network::Known { topology: topology.into(), hosts: Hosts::default() };
        });
        assert_eq!(wide, ConfigError::Ports { links: 201, most: MAX_PORTS });
        let nowhere = refused(|it| {
            let topology = Topology::racks(&[2]).expect("a rack");
            let hosts = [(NodeId(1), Vertex(2))].into_iter().collect();
            it.network = Network::Known { topology: topology.into(), hosts };
        });
        assert_eq!(nowhere, ConfigError::NoHost(Vertex(2)), "it is the switch");
    }
}
