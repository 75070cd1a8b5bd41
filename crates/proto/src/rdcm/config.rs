use core::time::Duration;

use super::limits::{MAX_MESSAGE_BYTES, MAX_PORTS, MAX_RELAYS, MIN_MTU, UDP_AND_IP_BYTES};
use super::network::Network;
use super::packet::{DATA_BYTES, Fragment, PLACE_BYTES};
use super::slowest::Slowest;
use super::topology::Vertex;
use crate::bounds::{check, out_of_bounds};
use crate::{NodeId, Origin, Rng, SeqNo};

/// Settings of an [`Rdcm`](super::Rdcm) engine. The defaults suit an unknown local network.
///
/// Each duration must be from 1 us to 24 h. `detect_after`, `retry_link_after`, `readmit_after` and
/// `linger` may also be zero.
#[derive(Clone, Debug)]
pub struct Config {
    /// Size, in bytes, of the largest IP packet that needs no fragmentation. Default 1500.
    pub path_mtu: u16,
    /// Maximum size of a message in bytes. Larger messages are refused. Default and maximum 1 MiB.
    pub message_bytes: usize,
    /// Size, in bytes, of the sender's buffer, which keeps messages until all receivers have them.
    /// Each packet has an overhead of about 40 bytes. A full buffer refuses messages. Default 32
    /// MiB.
    pub send_bytes: usize,
    /// Maximum number of packets that a receiver keeps for itself and for the receivers that it
    /// serves. It must exceed the number of packets of the largest message. Default 16384, about 24
    /// MB with packets of 1500 bytes.
    pub window_packets: u32,
    /// Congestion control of the sending rate. Default BIC.
    pub congestion: Congestion,
    /// Share of packets that may be lost on the tree before the loss counts as congestion. Repairs
    /// cost less time than a reduced window, and many networks lose a few packets at any rate.
    /// Default 2 %, as in BBR. With zero, BIC works as published and shares a link with TCP fairly.
    pub tolerated_loss: f64,
    /// Maximum rate of a sender's multicast in bytes per second, including the headers of IP and
    /// UDP. A packet counts once, regardless of unicast copies and repeated multicast. Default
    /// `None`: no limit.
    pub rate: Option<u64>,
    /// Number of packets that a paced sender may multicast at once. Default 48.
    pub burst_packets: u32,
    /// Number of copies of a packet, from 1 to 16, that the sender and each relaying receiver send
    /// where multicast does not reach all receivers. More copies make the path shorter, but each
    /// link carries the stream that many times. Default 2. Only the sender's setting has an effect.
    pub relay_children: usize,
    /// `true` if repairs use links of the tree, as on hosts with a single link. A receiver then
    /// reduces the number of packets that it expects by the number that it lacks (3.5). Default
    /// `true`.
    pub repairs_share_path: bool,
    /// Delay before a receiver repairs a packet that its successor lacks although the successor has
    /// later ones. It is the paper's time to detect a loss (4). With zero, packets are repaired at
    /// once. Default 4 ms, as in the paper.
    pub detect_after: Duration,
    /// Maximum time until an unacknowledged repair is sent again, unless acknowledgments take
    /// longer. It is sent earlier if the round-trip time is known to be shorter. A receiver that
    /// acknowledges nothing for three times as long no longer limits the rate. Default 8 ms.
    pub resend_after: Duration,
    /// Maximum number of packets per acknowledgment. Default 64.
    pub ack_every: u32,
    /// Maximum delay of an acknowledgment that waits for more packets. Default 1 ms.
    pub ack_delay: Duration,
    /// Maximum number of repairs in flight to one successor. Losses of repairs reduce the limit.
    /// Default 256.
    pub repairs_in_flight: u32,
    /// Time without progress until a receiver requests packets from the sender. Default 40 ms.
    pub ask_after: Duration,
    /// Interval between a receiver's progress reports to the sender. In a large group, the interval
    /// is longer, which limits the sender's load to 10,000 reports per second. Default 20 ms.
    pub report_every: Duration,
    /// Maximum interval between announcements of the stream's end while the sender multicasts
    /// nothing. The first announcement is sent a quarter of `ack_delay` after the last packet. The
    /// following intervals double up to this value. Once all receivers have everything, the
    /// interval is ten times longer. Default 20 ms.
    pub announce_every: Duration,
    /// Time after which a receiver is reported as cut off if it gets nothing through the tree while
    /// its predecessor does. A link of the tree is then assumed to be dead. Default 200 ms.
    pub cut_after: Duration,
    /// Time after which a link that was assumed to be dead is tried again. Default 30 s.
    pub retry_link_after: Duration,
    /// Minimum silence after which a receiver is evicted until it is heard again. Default 400 ms.
    pub gone_after: Duration,
    /// Time after which a receiver that stalls the others is evicted. With `None`, no receiver is
    /// evicted for this reason. The setting has no effect with [`Slowest::Wait`]. Default 5 s.
    pub slow_after: Option<Duration>,
    /// Policy for a receiver that slows down the other receivers without stopping them. Choose
    /// [`Slowest::Wait`] if every receiver must get everything in one stream. Choose a share if a
    /// single receiver must not slow down most of the others. By default, a receiver is evicted if
    /// its rate is less than half of the median receiver's rate.
    pub slowest: Slowest,
    /// Minimum time until an evicted receiver is readmitted. Default 200 ms.
    pub readmit_after: Duration,
    /// Time for which receivers repair for each other after the sender is gone. Default 1 s.
    pub linger: Duration,
    /// Epoch before that of the first places of this node's streams. Default `None`: a random
    /// epoch, which cannot be guessed. Simulations set it just below 2^31 or 2^32, so that epochs
    /// wrap around early.
    pub first_epoch: Option<u32>,
    /// Number that precedes the number of this node's first stream. Default `None`: a number that
    /// differs between nodes and between starts, because streams of two nodes must not have the
    /// same number. Simulations set it for one node just below 2^31 or 2^32, so that its numbers
    /// wrap around early.
    pub first_stream: Option<u32>,
    /// Sequence number, as seen by applications, of the first packet of each of this node's
    /// streams. Default [`SeqNo::FIRST`]. Simulations set it just below 2^31 or 2^32, so that the
    /// numbers of messages and losses wrap around early.
    pub first_number: SeqNo,
    /// Topology of the network, if it is known. Only the sender's setting has an effect.
    pub network: Network,
}

/// Congestion control of the sending rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// The window of the slowest receiver limits the rate (BIC, 3.5).
    Bic {
        /// Initial window, in packets.
        initial: u32,
    },
    /// Only the buffer space of the receivers limits the rate. Suitable only for a network without
    /// other traffic, and with a `rate` that the network carries.
    Room,
}

/// Reason why a [`Config`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The path MTU is too small.
    #[error("path_mtu {0} is invalid: expected at least {MIN_MTU} bytes")]
    PathMtu(u16),
    /// The maximum size of a message is too large.
    #[error("message_bytes {0} is invalid: expected at most {MAX_MESSAGE_BYTES}")]
    MessageBytes(usize),
    /// A buffer cannot hold the largest message.
    #[error("{0} is too small for the largest message")]
    Room(&'static str),
    /// A number or duration that must be positive is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A duration is out of bounds.
    #[error("{0} must be from 1 us to 24 h")]
    Time(&'static str),
    /// The tolerated loss is not a share from 0 up to but excluding 1.
    #[error("tolerated_loss {0} is invalid: expected at least 0 and less than 1")]
    Share(f64),
    /// The share of the median receiver's rate is out of bounds.
    #[error("slowest {0} is invalid: expected a share above 0% and below 100%")]
    Slowest(Slowest),
    /// There are more unicast copies than a receiver's place can list.
    #[error("relay_children {0} is invalid: expected at most {MAX_RELAYS}")]
    Relays(usize),
    /// A node is mapped to a vertex that is not a host of the topology.
    #[error("a node is mapped to {0}, which is not a host of the topology")]
    NoHost(Vertex),
    /// A vertex has more links than a receiver's place can list.
    #[error("{links} links at one host or switch of the topology: expected at most {most}")]
    Ports {
        /// Largest number of links at one vertex.
        links: usize,
        /// Maximum number of links.
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
            repairs_in_flight: 256,
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
    /// Returns these settings with a path MTU of `bytes`, or with the minimum if that is larger.
    pub fn with_path_mtu(self, bytes: u16) -> Self {
        Self { path_mtu: bytes.max(MIN_MTU as u16), ..self }
    }

    /// Returns the number of message bytes that fit in one packet.
    pub fn fragment_bytes(&self) -> usize {
        usize::from(self.path_mtu) - UDP_AND_IP_BYTES - DATA_BYTES
    }

    /// Returns a number that, by default, differs after each start, even with the same seed.
    pub(super) fn number_before_streams(&self, origin: Origin, seed: u64) -> u32 {
        let Origin { node, incarnation } = origin;
        let drawn = || Rng::new(seed ^ incarnation.0 ^ node.0.rotate_left(32)).next_u64() >> 32;
        self.first_stream.unwrap_or_else(|| drawn() as u32)
    }

    pub(super) fn packets_of(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.fragment_bytes()).max(1)
    }

    pub(super) fn most_children(&self) -> usize {
        let left = usize::from(self.path_mtu) - UDP_AND_IP_BYTES - PLACE_BYTES;
        MAX_PORTS.min(left / size_of::<NodeId>() - self.relay_children)
    }

    pub(super) fn report_interval(&self, receivers: u32) -> Duration {
        self.report_every.max(REPORT_SHARE * receivers)
    }

    pub(super) fn initial_window(&self) -> u64 {
        match self.congestion {
            Congestion::Bic { initial } => initial.into(),
            Congestion::Room => self.window_packets.into(),
        }
    }

    pub(super) fn idle_announce_every(&self) -> Duration {
        IDLE_PART * self.announce_every
    }

    pub(super) fn receiver_watch_every(&self) -> Duration {
        self.cut_after.min(self.gone_after) / 4
    }

    /// Returns the time after which an awaited acknowledgment is late: in that time, a repair would
    /// have been sent three times.
    pub(super) fn late_after(&self) -> Duration {
        (3 * self.resend_after).max(LATE_DELAYS * self.ack_delay)
    }

    pub(super) fn sender_watch_every(&self) -> Duration {
        self.gone_after / 4
    }

    pub(super) fn linger_in_ring(&self) -> Duration {
        self.cut_after
    }

    pub(super) fn sender_gone_after(&self) -> Duration {
        2 * self.gone_after.max(2 * self.idle_announce_every())
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// Returns the error for the first setting that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if usize::from(self.path_mtu) < MIN_MTU {
            return Err(ConfigError::PathMtu(self.path_mtu));
        }
        let fragments = self.packets_of(self.message_bytes);
        let largest = self.message_bytes.saturating_add(fragments * size_of::<Fragment>());
        let zero = ConfigError::Zero;
        check(&[
            (self.message_bytes > MAX_MESSAGE_BYTES, ConfigError::MessageBytes(self.message_bytes)),
            (self.send_bytes < largest, ConfigError::Room("send_bytes")),
            ((self.window_packets as usize) <= fragments, ConfigError::Room("window_packets")),
            (!(0.0..1.0).contains(&self.tolerated_loss), ConfigError::Share(self.tolerated_loss)),
            (!self.slowest.is_valid(), ConfigError::Slowest(self.slowest)),
            (self.relay_children > MAX_RELAYS, ConfigError::Relays(self.relay_children)),
            (self.rate == Some(0), zero("rate")),
            (self.burst_packets == 0, zero("burst_packets")),
            (self.relay_children == 0, zero("relay_children")),
            (self.ack_every == 0, zero("ack_every")),
            (self.repairs_in_flight == 0, zero("repairs_in_flight")),
            (self.congestion == Congestion::Bic { initial: 0 }, zero("the initial window")),
            (self.resend_after.is_zero(), zero("resend_after")),
            (self.ack_delay.is_zero(), zero("ack_delay")),
            (self.ask_after.is_zero(), zero("ask_after")),
            (self.report_every.is_zero(), zero("report_every")),
            (self.announce_every.is_zero(), zero("announce_every")),
            (self.cut_after.is_zero(), zero("cut_after")),
            (self.gone_after.is_zero(), zero("gone_after")),
            (self.slow_after == Some(Duration::ZERO), zero("slow_after")),
        ])?;
        self.check_times()?;
        let Network::Known { topology, hosts } = &self.network else { return Ok(()) };
        if let Some(place) = hosts.vertices().find(|vertex| !topology.is_host(*vertex)) {
            return Err(ConfigError::NoHost(place));
        }
        let vertices = (0..topology.len() as u32).map(Vertex);
        let ports = vertices.map(|vertex| topology.neighbours(vertex).len()).max();
        let most = self.most_children();
        let links = ports.filter(|ports| *ports > most);
        links.map_or(Ok(()), |links| Err(ConfigError::Ports { links, most }))
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        // The settings that must not be zero have already been checked.
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

const IDLE_PART: u32 = 10;
/// Minimum time until an acknowledgment is late, as a multiple of `ack_delay`.
const LATE_DELAYS: u32 = 8;
const REPORT_SHARE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::super::network::Hosts;
    use super::super::topology::Topology;
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_each_bound_is_checked() {
        assert_eq!(Config::default().validate(), Ok(()));
        let narrow = Config { path_mtu: MIN_MTU as u16, ..Config::default() };
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
