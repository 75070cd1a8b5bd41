//! How one node's lateral engine is set. Members of a group may differ in all of this; what they
//! must agree on is in [`GroupSettings`](crate::GroupSettings).

use core::time::Duration;

use super::block::{BLOCK_HEADER_BYTES, MAX_MESSAGE_BYTES, PIECE_HEADER_BYTES};
use super::packet::{DATA_BYTES, ID_BYTES, REPAIR_BYTES};
use super::queries::MAX_AHEAD;
use crate::bounds::out_of_bounds;
use crate::{RateOfFire, SeqNo};

/// The settings of a [`Lateral`](super::Lateral) engine.
///
/// A time is zero or from 1 us to 24 h.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the largest IP packet on the path. Repairs never exceed it, so that it limits what
    /// fits a packet: 1284 bytes at r = 8 and the default of 1500.
    pub path_mtu: u16,
    /// Bytes of the largest message: one that does not fit a packet is cut into pieces. At most
    /// 16 MiB, the default; what fits a packet is always taken, so that 0 turns cutting off.
    pub message_bytes: usize,
    /// Bytes per second at which pieces leave, of all groups together: they must not crowd out
    /// everything else. 0 is no limit. Default 32 MiB.
    pub pace_bytes_per_second: u64,
    /// Pieces that may be under way to the slowest member; never more than the window. Default
    /// 1024, which is what a receiver buffers (Ricochet 3.2.5).
    pub flight: u32,
    /// Bytes of messages that wait until their pieces have left. One is taken whatever its size
    /// while none waits. Default 32 MiB.
    pub queue_bytes: usize,
    /// Bytes of messages that are put together at the same time; what is in use of them is taken
    /// off `buffer_bytes`, at most half of those. Default 32 MiB.
    pub assembly_bytes: usize,
    /// Whether repairs mix packets of all groups that sender and target share.
    pub scope: RepairScope,
    /// Whether this node's own messages enter its repair bins: it is their surest source. Off is
    /// what the papers do. Default on.
    pub own_packets: bool,
    /// Interleaved copies of each repair bin, at least 1: packet k goes into copy k mod this, so
    /// that a burst of losses is spread over as many repairs (Ricochet slides). Default 1.
    pub stagger: u8,
    /// A part-filled bin is sent when its oldest packet is this old, so that the last packets
    /// before a silence are protected too. `None` is what the papers do. Default 20 ms.
    pub flush_after: Option<Duration>,
    /// Repair targets are chosen among at most this many members of each group, a uniformly random
    /// subset (Slingshot 3.3). `None`, the default, is the full view.
    pub partial_view: Option<usize>,
    /// How repairs with several missing packets are used.
    pub solver: Solver,
    /// Pending repairs kept at most. Default 256; the papers keep 20.
    pub pending_repairs: usize,
    /// How long a pending repair is kept. Default 1 s.
    pub pending_age: Duration,
    /// Phase 2: asking for what repairs did not bring. `None` turns it off.
    pub nak: Option<NakConfig>,
    /// After this time without a message a sender tells the group how far it has come, and again
    /// at doubling intervals up to 64 times this, then at that one. `None` is what the papers do.
    /// Default 100 ms.
    pub heartbeat: Option<Duration>,
    /// What a node that hears a stream for the first time is owed of it.
    pub stream_start: StreamStart,
    /// The number of the first packet of this node's streams. Default 1. Tests and simulations set
    /// it just below 2^31 or 2^32, so that numbers wrap early; nothing else depends on it.
    pub first_number: SeqNo,
    /// A missing packet is given up after this time, whatever else is tried. Default 10 s.
    pub give_up_after: Duration,
    /// Bytes of packets kept to decode repairs and to answer NAKs. Default 64 MiB.
    pub buffer_bytes: usize,
    /// How long packets are kept for that; up to an eighth longer, so that many are dropped at
    /// once. Default 10 s.
    pub buffer_age: Duration,
    /// A jump of a stream by more than this many packets is not caught up with: what was skipped
    /// is reported as lost. Default 65536, at most 2^24.
    pub max_gap: u32,
    /// Messages that a node may have sent in a group without the slowest member's confirmation;
    /// beyond that it is held back. 0 never holds back, as the papers do. Default 16384.
    pub window: u32,
    /// How long a member may hold back a sender; then it is reported as slow and no longer waited
    /// for until it has caught up. Default 500 ms.
    pub patience: Duration,
    /// Senders remembered in each group at most. Default 4096.
    pub streams_per_group: usize,
}

/// Which packets may share a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairScope {
    /// All packets of groups that sender and target share (Ricochet).
    Regions,
    /// Only packets of the same group (Slingshot; "per-group repairs" of Ricochet's figure 4).
    PerGroup,
}

/// How repairs with two or more missing packets are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// Such a repair waits until all but one of its packets have come (the papers' rule).
    Peeling,
    /// Such repairs are equations over GF(2) and are solved together.
    Elimination,
}

/// What a node that hears a stream for the first time is owed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// What was sent since the sender learnt of this member: the sender is asked.
    AskSender,
    /// Everything: for experiments in which all members are there from the start.
    FromFirst,
}

/// How missing packets are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct NakConfig {
    /// How long repairs have time to bring a missing packet. Default 25 ms.
    pub after: Duration,
    /// Each asking is delayed by up to this much more, at random. Default 5 ms.
    pub jitter: Duration,
    /// Who is asked first; the others follow. Default the repair's sender.
    pub first: AskFirst,
    /// Time before the next one is asked; it doubles up to 4 times this, and after 8 askings up to
    /// 16 times. Default 10 ms.
    pub retry: Duration,
    /// Askings for one packet at most. Default 40.
    pub attempts: u8,
    /// Packets asked for per second at most. Default 50000.
    pub ids_per_second: u32,
    /// Packets sent again for others per second at most. Default 50000.
    pub answers_per_second: u32,
}

/// Who is asked first for a missing packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskFirst {
    /// Who sent a repair that contains it, then the packet's own sender, then other members.
    RepairSender,
    /// The packet's own sender, then who sent a repair, then other members.
    DataSender,
    /// Any member of the group, at random.
    AnyMember,
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No message would fit.
    #[error("path_mtu {0} leaves no room for a message beside r = 32; at least 700 is needed")]
    PathMtu(u16),
    /// Zero copies of each bin.
    #[error("stagger is 0; 1 turns staggering off")]
    Stagger,
    /// A limit is zero that makes no sense as zero.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// A number that is farther ahead is taken for one of long ago.
    #[error("max_gap {0}: at most 16777216")]
    MaxGap(u32),
    /// A time that no timer is meant for.
    #[error("{0} must be from 1 us to 24 h")]
    Time(&'static str),
}

/// Bytes of IPv4 and UDP headers.
const IP_UDP_BYTES: usize = 28;
pub(super) const MIN_PATH_MTU: u16 = 700;
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
    /// The settings under which the engine does what the papers describe and no more: own packets
    /// stay out of the bins, no flush, no heartbeat, the papers' solver, no window, and no message
    /// larger than a packet.
    pub fn as_in_the_papers() -> Self {
        Self {
            message_bytes: 0,
            own_packets: false,
            flush_after: None,
            solver: Solver::Peeling,
            pending_repairs: 20,
            heartbeat: None,
            stream_start: StreamStart::FromFirst,
            window: 0,
            ..Self::default()
        }
    }

    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.path_mtu < MIN_PATH_MTU {
            return Err(ConfigError::PathMtu(self.path_mtu));
        }
        if self.stagger == 0 {
            return Err(ConfigError::Stagger);
        }
        let limits = [
            ("max_gap", self.max_gap == 0),
            ("flight", self.flight == 0),
            ("streams_per_group", self.streams_per_group == 0),
            ("partial_view", self.partial_view == Some(0)),
            ("give_up_after", self.give_up_after.is_zero()),
            ("buffer_age", self.buffer_age.is_zero()),
            ("heartbeat", self.heartbeat == Some(Duration::ZERO)),
        ];
        if let Some((name, _)) = limits.iter().find(|(_, zero)| *zero) {
            return Err(ConfigError::Zero(name));
        }
        if self.max_gap > MAX_GAP {
            return Err(ConfigError::MaxGap(self.max_gap));
        }
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

    /// Bytes of the largest datagram that fits the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    /// Bytes of the largest message in a group with this rate-of-fire.
    pub fn payload_limit(&self, rate: RateOfFire) -> usize {
        self.message_bytes.min(MAX_MESSAGE_BYTES).max(self.packet_limit(rate))
    }

    /// Bytes of the largest message that fits a packet: a repair that holds it and the ids of r
    /// packets still fits the path MTU.
    pub fn packet_limit(&self, rate: RateOfFire) -> usize {
        let repair = REPAIR_BYTES + usize::from(rate.r) * ID_BYTES;
        self.max_datagram_bytes() - repair.max(DATA_BYTES) - BLOCK_HEADER_BYTES
    }

    /// Bytes of a message's pieces, but for the last.
    pub(super) fn piece_bytes(&self, rate: RateOfFire) -> u16 {
        (self.packet_limit(rate) - PIECE_HEADER_BYTES) as u16
    }

    /// Bytes that messages may take up while they are put together.
    pub(super) fn assembly_limit(&self) -> usize {
        self.assembly_bytes.min(self.buffer_bytes / 2)
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
    fn settings_that_cannot_work_are_refused() {
        let refused = |config: Config| config.validate().expect_err("it cannot work");
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
