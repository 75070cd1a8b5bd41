//! The settings of SRM.

use core::time::Duration;

use super::packet::REPAIR_BYTES;
use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;

/// The settings of an [`Srm`](super::Srm) engine. The names in brackets are those of ns-2.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the largest IP packet on the path. It limits the payload, and how many reports a
    /// session message has: the others have their turn in the next one.
    pub path_mtu: u16,
    /// How request and repair timers are drawn.
    pub timing: Timing,
    /// How far the other members are taken to be away.
    pub distance: Distance,
    /// How long a gap is looked at before it counts as a loss, for which a request timer is set.
    /// Zero, as in ns-2: at once. Longer lets packets come that were only overtaken.
    pub detect_after: Duration,
    /// How often the timer of a request is backed off at most (`requestBackoffLimit_`: 5).
    pub backoff_limit: u32,
    /// Mean time between a member's session messages in a group (`sessionDelay_`: 1 s); each is
    /// drawn from 0.9 to 1.1 times that. Shorter discovers the loss of a last message sooner.
    pub session_interval: Duration,
    /// The share of the group's data bandwidth, as measured, that all its session messages
    /// together should not exceed (section III-A: 5 %): the interval is stretched to keep it, to
    /// [`Config::max_session_interval`] at most. `None`, as in ns-2: never stretched.
    pub session_share: Option<f64>,
    /// How far the interval is stretched at most.
    pub max_session_interval: Duration,
    /// How long a missing packet is hoped for; then it is lost. SRM itself never gives up.
    pub give_up_after: Duration,
    /// How long packets are kept to answer requests. SRM itself keeps everything.
    pub retain_for: Duration,
    /// Bytes of memory for them.
    pub retain_bytes: usize,
    /// From where on a receiver is owed a sender's messages.
    pub owed: Owed,
    /// Packets of one stream that may be missing at a time; older ones are lost then.
    pub max_missing: usize,
    /// Senders that are heard in one group; others are refused and counted.
    pub max_streams: usize,
}

/// The parameters of the timers: a request waits for C1 to C1 + C2 times the distance to the
/// source, a repair for D1 to D1 + D2 times the distance to the requestor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// The same for ever, as ns-2's `Agent/SRM`.
    Fixed {
        /// Distances that a request waits at least (`C1_`: 2).
        c1: f64,
        /// Distances over which requests are spread beyond that (`C2_`: 2).
        c2: f64,
        /// Distances that a repair waits at least (`D1_`: 1).
        d1: f64,
        /// Distances over which repairs are spread beyond that (`D2_`: 1).
        d2: f64,
    },
    /// D1 = D2 = log10 of the group's size, as section V-A and ns-2's `Agent/SRM/Fixed` have it.
    LogOfGroup {
        /// As in [`Timing::Fixed`].
        c1: f64,
        /// As in [`Timing::Fixed`].
        c2: f64,
    },
    /// Adapted to the duplicates and delays that each member sees (section VII, ns-2's
    /// `Agent/SRM/Adaptive`): C1 = C2 = 2 and D1 = D2 = log10 of the group's size at first.
    Adaptive,
}

/// How far the other members are taken to be away: one-way delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Measured by session messages, as NTP does; this much before the first measurement
    /// (1 s in ns-2).
    Estimated {
        /// The distance of a member that has not been measured.
        until_known: Duration,
    },
    /// Always the same, whatever the network is like.
    Fixed(Duration),
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No message would fit.
    #[error("path_mtu {0} leaves no room for a message; at least 200 is needed")]
    PathMtu(u16),
    /// A parameter of the timers is negative or no number.
    #[error("the parameters of the timers must be 0 or more")]
    Timing,
    /// Session messages without a pause.
    #[error("session_interval must be at least 1 ms and at most max_session_interval")]
    SessionInterval,
    /// A share of 0 would mean no session messages at all.
    #[error("session_share must be above 0")]
    SessionShare,
    /// Nothing could be missing or heard.
    #[error("max_missing and max_streams must be at least 1")]
    Bounds,
}

/// Bytes of the IP and UDP headers.
const IP_UDP_BYTES: usize = 28;
const MIN_PATH_MTU: u16 = 200;

impl Default for Config {
    /// [`Config::ns2_fixed`].
    fn default() -> Self {
        Self::ns2_fixed()
    }
}

impl Config {
    /// ns-2's `Agent/SRM/Fixed`: C1 = C2 = 2, D1 = D2 = log10 of the group's size, a session
    /// message each second, and a distance of 1 s until it is measured.
    pub fn ns2_fixed() -> Self {
        Self {
            path_mtu: 1500,
            timing: Timing::LogOfGroup { c1: 2.0, c2: 2.0 },
            distance: Distance::Estimated { until_known: Duration::from_secs(1) },
            detect_after: Duration::ZERO,
            backoff_limit: 5,
            session_interval: Duration::from_secs(1),
            session_share: None,
            max_session_interval: Duration::from_secs(32),
            give_up_after: Duration::from_secs(120),
            retain_for: Duration::from_secs(60),
            retain_bytes: 16 << 20,
            owed: Owed::FirstHeard,
            max_missing: 4096,
            max_streams: 1024,
        }
    }

    /// SRM as the Slingshot and Ricochet papers measured it in a rack: with parameters for the
    /// Internet. C1 = C2 = 2, D1 = D2 = 1 and a distance of 1 s whatever the network is like, so
    /// that a loss is asked for 3 s and repaired about 4 s after its discovery (Ricochet 4.2.1:
    /// "roughly 4 seconds"); and session messages within 5 % of the data, so that losses are
    /// discovered by the sender's next packet.
    pub fn wide_area() -> Self {
        Self {
            timing: Timing::Fixed { c1: 2.0, c2: 2.0, d1: 1.0, d2: 1.0 },
            distance: Distance::Fixed(Duration::from_secs(1)),
            session_share: Some(0.05),
            give_up_after: Duration::from_secs(600),
            ..Self::ns2_fixed()
        }
    }

    /// ns-2's `Agent/SRM/Adaptive`.
    pub fn ns2_adaptive() -> Self {
        Self { timing: Timing::Adaptive, ..Self::ns2_fixed() }
    }

    /// As SRM could be set in a data center: distances measured from the first second on and
    /// taken to be a millisecond before that, adaptive timers, session messages as often as 5 % of
    /// the traffic allow.
    pub fn datacenter() -> Self {
        Self {
            timing: Timing::Adaptive,
            distance: Distance::Estimated { until_known: Duration::from_millis(1) },
            session_interval: Duration::from_millis(100),
            session_share: Some(0.05),
            max_session_interval: Duration::from_secs(5),
            give_up_after: Duration::from_secs(30),
            ..Self::ns2_fixed()
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
        let parameters = match self.timing {
            Timing::Fixed { c1, c2, d1, d2 } => [c1, c2, d1, d2],
            Timing::LogOfGroup { c1, c2 } => [c1, c2, 0.0, 0.0],
            Timing::Adaptive => [0.0; 4],
        };
        if parameters.iter().any(|it| !it.is_finite() || *it < 0.0) {
            return Err(ConfigError::Timing);
        }
        let pauses = Duration::from_millis(1)..=self.max_session_interval;
        if !pauses.contains(&self.session_interval) {
            return Err(ConfigError::SessionInterval);
        }
        if self.session_share.is_some_and(|share| share.is_nan() || share <= 0.0) {
            return Err(ConfigError::SessionShare);
        }
        if self.max_missing == 0 || self.max_streams == 0 {
            return Err(ConfigError::Bounds);
        }
        Ok(())
    }

    /// Bytes of the largest datagram that fits the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    /// Bytes of the largest message: a repair of it fits the path MTU.
    pub fn payload_limit(&self) -> usize {
        self.max_datagram_bytes() - REPAIR_BYTES - BLOCK_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_valid_and_what_cannot_work_is_refused() {
        let (fixed, adaptive) = (Config::ns2_fixed(), Config::ns2_adaptive());
        for config in [fixed, adaptive, Config::wide_area(), Config::datacenter()] {
            assert_eq!(config.validate(), Ok(()));
        }
        let refused = |config: Config| config.validate().expect_err("it cannot work");
        let with = Config::default;
        assert_eq!(refused(Config { path_mtu: 9, ..with() }), ConfigError::PathMtu(9));
        let timing = Timing::LogOfGroup { c1: f64::NAN, c2: 1.0 };
        assert_eq!(refused(Config { timing, ..with() }), ConfigError::Timing);
        let session_interval = Duration::ZERO;
        assert_eq!(refused(Config { session_interval, ..with() }), ConfigError::SessionInterval);
        let session_share = Some(0.0);
        assert_eq!(refused(Config { session_share, ..with() }), ConfigError::SessionShare);
        assert_eq!(refused(Config { max_missing: 0, ..with() }), ConfigError::Bounds);
    }
}
