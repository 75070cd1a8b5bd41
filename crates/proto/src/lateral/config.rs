//! Settings of a node's lateral engine, which may differ between the members of a group. The
//! settings on which all members must agree are in [`GroupSettings`](crate::GroupSettings).

use core::time::Duration;

use super::packet::symbol::{FRAGMENT_HEADER_BYTES, MAX_MESSAGE_BYTES, SYMBOL_HEADER_BYTES};
use super::packet::{DATA_BYTES, ID_BYTES, REPAIR_BYTES};
use crate::bounds::{check, out_of_bounds};
use crate::{RateOfFire, SeqNo};

/// Settings of a [`Lateral`](super::Lateral) engine.
///
/// Each time must be 0 or from 1 us to 24 h. `heartbeat`, `give_up_after` and `buffer_age` must not
/// be 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Size, in bytes, of the largest IP packet that the path carries. At least 700, default 1500.
    /// A repair of a message in one packet must also fit, so its maximum is 1284 bytes at r = 8.
    pub path_mtu: u16,
    /// Maximum size of a message in bytes. Default and maximum 16 MiB. A message that does not fit
    /// in one packet is split into fragments. A message that fits in one packet is never too large,
    /// so 0 disables fragmentation.
    pub message_bytes: usize,
    /// Rate at which fragments are sent, in bytes per second, for all groups together. The limit
    /// prevents large messages from delaying other traffic. 0 means no limit. Default 32 MiB.
    pub pace_bytes_per_second: u64,
    /// Maximum number of packets in flight to the slowest member while messages are queued, capped
    /// at `window`. Unused if `window` is 0. Default 1024, the number that a receiver buffers
    /// (Ricochet 3.2.5).
    pub flight: u32,
    /// Maximum total size of queued messages in bytes. An empty queue accepts a message of any
    /// size. Default 32 MiB.
    pub queue_bytes: usize,
    /// Maximum memory, in bytes, for messages in reassembly, capped at half of `buffer_bytes`.
    /// Memory in use reduces the capacity of the data buffer. Default 32 MiB.
    pub assembly_bytes: usize,
    /// Set of packets that may share a repair. Default [`RepairScope::Regions`].
    pub scope: RepairScope,
    /// If `true`, this node's own packets enter its repair bins. A sender is the most reliable
    /// source of its packets. Default `true`; `false` in the papers.
    pub own_packets: bool,
    /// If `true`, a batch of packets draws no target that another open batch of the same region
    /// and lane holds, so that a packet goes to no member twice. If `false`, as in the papers, each
    /// batch draws its targets independently. Default `true`.
    pub exclusive_targets: bool,
    /// Number of lanes, at least 1. Packet k enters lane k mod `stagger`, so that a burst of losses
    /// is spread over `stagger` repairs (Ricochet slides). A larger value delays repairs by the
    /// same factor. Default 1.
    pub stagger: u8,
    /// Age of the oldest packet at which a partly filled batch is sent, which protects the last
    /// packets before a pause. If `None`, as in the papers, such batches are never sent. Default 20
    /// ms.
    pub flush_after: Option<Duration>,
    /// Maximum number of members of each group from which repair targets are drawn. These members
    /// are a uniformly random subset (Slingshot 3.3). `None` selects the full view. Default `None`.
    pub partial_view: Option<usize>,
    /// Method of solving repairs with several missing packets. Default [`Solver::Elimination`].
    pub solver: Solver,
    /// Maximum number of pending repairs. Default 256; 20 in the papers.
    pub pending_repairs: usize,
    /// Lifetime of a pending repair. Default 1 s.
    pub pending_age: Duration,
    /// NAK recovery (phase 2), which requests packets that no repair recovered. `None` disables it.
    pub nak: Option<NakConfig>,
    /// Time from the last message to the first heartbeat, which announces the end of the stream to
    /// the group. The interval doubles up to 64 times this value. If `None`, as in the papers, a
    /// sender sends only heartbeats that request acknowledgments or answer queries. Default 100 ms.
    pub heartbeat: Option<Duration>,
    /// Point from which a new receiver is owed the packets of a stream. Default
    /// [`StreamStart::AskSender`].
    pub stream_start: StreamStart,
    /// Lowest sequence number at which this node's streams may begin. Default 1. With
    /// [`StreamStart::FromFirst`], every stream begins with this number, and all members must use
    /// the same value. With [`StreamStart::AskSender`], a node whose incarnation is not 0 adds an
    /// offset below 2^31, which is derived from the incarnation and the group. Simulations set this
    /// value just below 2^31 or 2^32, so that numbers wrap around early.
    pub first_number: SeqNo,
    /// Time after which a missing packet is reported as lost, even if NAK attempts remain. Default
    /// 10 s.
    pub give_up_after: Duration,
    /// Maximum memory, in bytes, for packets kept for repairs and NAKs. Default 64 MiB.
    pub buffer_bytes: usize,
    /// Age at which packets kept for repairs and NAKs are evicted. Eviction may be delayed by up to
    /// an eighth of this time, so that many packets are evicted together. Default 10 s.
    pub buffer_age: Duration,
    /// Largest jump of a stream, in packets, for which the skipped packets are recovered. Packets
    /// skipped in a larger jump are reported as lost. Default 65536, maximum 2^24.
    pub max_gap: u32,
    /// Maximum number of packets by which a sender may lead the slowest member of a group. At this
    /// limit, the sender is held back. 0 means no limit, as in the papers. Default 16384.
    pub window: u32,
    /// Time for which a member may hold back a sender. The member is then reported as slow, and the
    /// sender does not wait for it until it has caught up. Default 500 ms.
    pub patience: Duration,
    /// Maximum number of senders remembered in each group. Default 4096.
    pub streams_per_group: usize,
}

/// Set of packets that may share a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairScope {
    /// All packets of the groups that the sender and the target of the repair share (Ricochet).
    Regions,
    /// Only packets of the same group (Slingshot; "per-group repairs" of Ricochet's figure 4).
    PerGroup,
}

/// Method of solving repairs with two or more missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// Each repair waits until all but one of its packets have arrived, as in the papers.
    Peeling,
    /// Repairs are treated as equations over GF(2) and solved together. This recovers more packets.
    Elimination,
}

/// Point from which a new receiver is owed the packets of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// The first packet sent after the sender learned of the receiver, which queries the sender for
    /// it.
    AskSender,
    /// The very first packet, for experiments in which all members are present from the start.
    FromFirst,
}

/// Settings of NAK recovery.
#[derive(Clone, Debug, PartialEq)]
pub struct NakConfig {
    /// Time allowed for repairs to recover a missing packet before the first NAK. Default 25 ms.
    pub after: Duration,
    /// Maximum random delay that is added to each attempt. Default 5 ms.
    pub jitter: Duration,
    /// Nodes to query first. Default [`AskFirst::RepairSender`].
    pub first: AskFirst,
    /// First retry interval. It doubles up to 4 times this value, or 16 times after 8 attempts.
    /// Default 10 ms.
    pub retry: Duration,
    /// Maximum number of attempts for one packet. Default 40.
    pub attempts: u8,
    /// Maximum number of packets requested per second. 0 disables requests. Default 50000.
    pub ids_per_second: u32,
    /// Maximum number of packets retransmitted per second. 0 disables retransmissions. Default
    /// 50000.
    pub answers_per_second: u32,
}

/// Nodes to query first for a missing packet. Later attempts alternate between random members and
/// the packet's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskFirst {
    /// The nodes that sent repairs containing the packet, then the packet's sender.
    RepairSender,
    /// The packet's sender, then the nodes that sent repairs containing the packet.
    DataSender,
    /// A random member of the group.
    AnyMember,
}

/// Error returned for an invalid [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// `path_mtu` is less than 700 bytes.
    #[error("path_mtu {0} is invalid: expected at least 700 bytes")]
    PathMtu(u16),
    /// `stagger` is 0.
    #[error("stagger must not be 0: 1 disables staggering")]
    Stagger,
    /// A setting that must be positive is 0.
    #[error("{0} must not be 0")]
    Zero(&'static str),
    /// `max_gap` is larger than 2^24.
    #[error("max_gap {0} is invalid: expected at most 16777216")]
    MaxGap(u32),
    /// A time is neither 0 nor between 1 us and 24 h.
    #[error("{0} must be from 1 us to 24 h")]
    Time(&'static str),
}

const IP_UDP_BYTES: usize = 28;
pub(super) const MIN_PATH_MTU: u16 = 700;
/// Maximum number of packets queued in one group. A number that is farther ahead counts as an old
/// one.
pub(super) const MAX_AHEAD: i32 = 1 << 24;
const MAX_GAP: u32 = MAX_AHEAD as u32;

impl Default for Config {
    fn default() -> Self {
        Self {
            path_mtu: 1500,
            message_bytes: MAX_MESSAGE_BYTES,
            pace_bytes_per_second: 32 << 20,
            flight: 1024,
            queue_bytes: 32 << 20,
            assembly_bytes: 32 << 20,
            scope: RepairScope::Regions,
            own_packets: true,
            exclusive_targets: true,
            stagger: 1,
            flush_after: Some(Duration::from_millis(20)),
            partial_view: None,
            solver: Solver::Elimination,
            pending_repairs: 256,
            pending_age: Duration::from_secs(1),
            nak: Some(NakConfig::default()),
            heartbeat: Some(Duration::from_millis(100)),
            stream_start: StreamStart::AskSender,
            first_number: SeqNo::FIRST,
            give_up_after: Duration::from_secs(10),
            buffer_bytes: 64 << 20,
            buffer_age: Duration::from_secs(10),
            max_gap: 1 << 16,
            window: 1 << 14,
            patience: Duration::from_millis(500),
            streams_per_group: 4096,
        }
    }
}

impl Default for NakConfig {
    fn default() -> Self {
        Self {
            after: Duration::from_millis(25),
            jitter: Duration::from_millis(5),
            first: AskFirst::RepairSender,
            retry: Duration::from_millis(10),
            attempts: 40,
            ids_per_second: 50_000,
            answers_per_second: 50_000,
        }
    }
}

impl Config {
    /// Returns the settings of the papers. Own packets stay out of the bins, repair targets are
    /// drawn independently, there is no flush, heartbeat or window, repairs are solved by peeling,
    /// and all messages fit in one packet.
    pub fn as_in_the_papers() -> Self {
        Self {
            message_bytes: 0,
            own_packets: false,
            exclusive_targets: false,
            flush_after: None,
            solver: Solver::Peeling,
            pending_repairs: 20,
            heartbeat: None,
            stream_start: StreamStart::FromFirst,
            window: 0,
            ..Self::default()
        }
    }

    /// Checks that all settings are within their bounds.
    ///
    /// # Errors
    /// Returns an error for the first invalid setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let zero = ConfigError::Zero;
        check(&[
            (self.path_mtu < MIN_PATH_MTU, ConfigError::PathMtu(self.path_mtu)),
            (self.stagger == 0, ConfigError::Stagger),
            (self.max_gap == 0, zero("max_gap")),
            (self.flight == 0, zero("flight")),
            (self.streams_per_group == 0, zero("streams_per_group")),
            (self.partial_view == Some(0), zero("partial_view")),
            (self.give_up_after.is_zero(), zero("give_up_after")),
            (self.buffer_age.is_zero(), zero("buffer_age")),
            (self.heartbeat == Some(Duration::ZERO), zero("heartbeat")),
            (self.max_gap > MAX_GAP, ConfigError::MaxGap(self.max_gap)),
        ])?;
        self.check_times()
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let nak = |time: fn(&NakConfig) -> Duration| self.nak.as_ref().map_or(Duration::ZERO, time);
        let times = [
            ("flush_after", self.flush_after.unwrap_or_default()),
            ("pending_age", self.pending_age),
            ("nak.after", nak(|nak| nak.after)),
            ("nak.jitter", nak(|nak| nak.jitter)),
            ("nak.retry", nak(|nak| nak.retry)),
            ("heartbeat", self.heartbeat.unwrap_or_default()),
            ("give_up_after", self.give_up_after),
            ("buffer_age", self.buffer_age),
            ("patience", self.patience),
        ];
        out_of_bounds(&times).map_or(Ok(()), |name| Err(ConfigError::Time(name)))
    }

    /// Returns the size, in bytes, of the largest datagram that fits in the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    /// Returns the size, in bytes, of the largest message in a group with this rate-of-fire.
    pub fn payload_limit(&self, rate: RateOfFire) -> usize {
        self.message_bytes.min(MAX_MESSAGE_BYTES).max(self.packet_limit(rate))
    }

    /// Returns the size, in bytes, of the largest message that fits in one packet. A repair that
    /// contains it and the ids of r packets still fits in the path MTU.
    pub fn packet_limit(&self, rate: RateOfFire) -> usize {
        let repair = REPAIR_BYTES + usize::from(rate.r) * ID_BYTES;
        self.max_datagram_bytes() - repair.max(DATA_BYTES) - SYMBOL_HEADER_BYTES
    }

    pub(super) fn fragment_bytes(&self, rate: RateOfFire) -> u16 {
        (self.packet_limit(rate) - FRAGMENT_HEADER_BYTES) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_a_packet_follows_from_r_and_the_path_mtu() {
        let config = Config::default();
        assert_eq!(config.packet_limit(RateOfFire::new(8, 5)), 1500 - 28 - 40 - 8 * 16 - 20);
        assert_eq!(config.payload_limit(RateOfFire::new(8, 5)), 16 << 20);
        let whole = Config { message_bytes: 0, ..config };
        assert_eq!(whole.payload_limit(RateOfFire::new(8, 5)), 1284);
        let small = Config { path_mtu: MIN_PATH_MTU, ..Config::default() };
        assert_eq!(small.validate(), Ok(()));
        assert!(small.packet_limit(RateOfFire::new(RateOfFire::MAX_R, 5)) >= 100);
    }

    #[test]
    fn papers_settings_undo_every_deviation_that_has_a_setting() {
        let (papers, ours) = (Config::as_in_the_papers(), Config::default());
        assert!(!papers.own_packets && ours.own_packets);
        assert!(!papers.exclusive_targets && ours.exclusive_targets);
        assert_eq!((papers.flush_after, papers.heartbeat), (None, None));
        assert!(ours.flush_after.is_some() && ours.heartbeat.is_some());
        assert_eq!((papers.solver, papers.pending_repairs), (Solver::Peeling, 20));
        assert_eq!((papers.window, papers.message_bytes), (0, 0));
        assert_eq!(papers.stream_start, StreamStart::FromFirst);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let refused = |config: Config| config.validate().expect_err("the settings are invalid");
        let mtu = Config { path_mtu: 500, ..Config::default() };
        assert_eq!(refused(mtu), ConfigError::PathMtu(500));
        assert_eq!(refused(Config { stagger: 0, ..Config::default() }), ConfigError::Stagger);
        let view = Config { partial_view: Some(0), ..Config::default() };
        assert_eq!(refused(view), ConfigError::Zero("partial_view"));
        let gap = |max_gap| Config { max_gap, ..Config::default() };
        assert_eq!(gap(1 << 24).validate(), Ok(()));
        assert_eq!(refused(gap((1 << 24) + 1)), ConfigError::MaxGap((1 << 24) + 1));
        for retry in [Duration::MAX, Duration::from_nanos(999)] {
            let nak = NakConfig { retry, ..NakConfig::default() };
            let time = Config { nak: Some(nak), ..Config::default() };
            assert_eq!(refused(time), ConfigError::Time("nak.retry"));
        }
        assert_eq!(Config::as_in_the_papers().validate(), Ok(()));
    }
}
