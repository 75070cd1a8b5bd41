use core::time::Duration;

use super::packet::REPAIR_BYTES;
use crate::block::BLOCK_HEADER_BYTES;
use crate::config::{ConfigError, StreamConfig, require};

/// The settings of an [`Srm`](super::Srm) engine. The names in parentheses are those of ns-2. The
/// defaults are those of [`Config::ns2_fixed`].
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Settings of the streams of messages. The path MTU also limits the number of reports in a
    /// session message. Further reports follow in the next one.
    pub streams: StreamConfig,
    /// Parameters of the request and repair timers.
    pub timing: Timing,
    /// Source of the distances to the other members.
    pub distance: Distance,
    /// Delay after which a gap counts as a loss, to tolerate reordering. Default: 0, as in ns-2.
    pub detect_after: Duration,
    /// Maximum number of backoffs that increase the interval of a request timer
    /// (`requestBackoffLimit_`: 5). Later requests keep the largest interval. Default: 5.
    pub backoff_limit: u32,
    /// Mean interval of a member's session messages in a group, at least 1 ms (`sessionDelay_`: 1
    /// s). Each interval is drawn from 0.9 to 1.1 times the mean. A shorter interval reveals a lost
    /// last message earlier. Default: 1 s.
    pub session_interval: Duration,
    /// Maximum share of the group's measured data bandwidth that all its session messages together
    /// may use (section III-A: 5 %). The interval is stretched up to
    /// [`Config::max_session_interval`] to keep within it. With `None`, as in ns-2, it never is.
    pub session_share: Option<f64>,
    /// Maximum of the stretched interval. Default: 32 s.
    pub max_session_interval: Duration,
    /// Time after which a missing packet is lost. SRM itself never gives up. Default: 120 s.
    pub give_up_after: Duration,
    /// Time for which packets are kept for repairs. SRM itself keeps all packets. Default: 60 s.
    pub retain_for: Duration,
    /// Maximum total size, in bytes, of the packets kept for repairs. Default: 16 MiB.
    pub retain_bytes: usize,
}

/// The parameters of the timers. A request waits for C1 to C1 + C2 times the distance to the
/// source, and a repair for D1 to D1 + D2 times the distance to the requestor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// Constant parameters, as in ns-2's `Agent/SRM`.
    Fixed {
        /// Minimum wait of a request, in distances (`C1_`: 2).
        c1: f64,
        /// Spread of requests beyond the minimum, in distances (`C2_`: 2).
        c2: f64,
        /// Minimum wait of a repair, in distances (`D1_`: 1).
        d1: f64,
        /// Spread of repairs beyond the minimum, in distances (`D2_`: 1).
        d2: f64,
    },
    /// D1 = D2 = log10 of the group's size, as in section V-A and ns-2's `Agent/SRM/Fixed`.
    LogOfGroup {
        /// Minimum wait of a request, in distances, as in [`Timing::Fixed`].
        c1: f64,
        /// Spread of requests beyond the minimum, in distances, as in [`Timing::Fixed`].
        c2: f64,
    },
    /// Parameters that adapt to the observed duplicates and delays (section VII, ns-2's
    /// `Agent/SRM/Adaptive`). Initially C1 = C2 = 2 and D1 = D2 = log10 of the group's size.
    Adaptive,
}

/// The source of the distances to the other members. A distance is a one-way delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Distances measured by session messages, as in NTP.
    Estimated {
        /// Distance to a member before it is measured (1 s in ns-2).
        until_known: Duration,
    },
    /// A constant distance, independent of the network.
    Fixed(Duration),
}

impl Default for Config {
    fn default() -> Self {
        Self::ns2_fixed()
    }
}

impl Config {
    /// Returns the settings of ns-2's `Agent/SRM/Fixed`: C1 = C2 = 2, D1 = D2 = log10 of the
    /// group's size, one session message per second, and a distance of 1 s before it is measured.
    pub fn ns2_fixed() -> Self {
        Self {
            streams: StreamConfig::default(),
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
        }
    }

    /// Returns the settings of the Slingshot and Ricochet papers for SRM in a rack.
    ///
    /// C1 = C2 = 2, D1 = D2 = 1, and the distance is always 1 s, so a loss is requested about 3 s
    /// and repaired about 4 s after its detection (Ricochet 4.2.1: "roughly 4 seconds"). Session
    /// messages use up to 5 % of the data rate, so losses are detected by the sender's next packet.
    pub fn wide_area() -> Self {
        Self {
            timing: Timing::Fixed { c1: 2.0, c2: 2.0, d1: 1.0, d2: 1.0 },
            distance: Distance::Fixed(Duration::from_secs(1)),
            session_share: Some(0.05),
            give_up_after: Duration::from_secs(600),
            ..Self::ns2_fixed()
        }
    }

    /// Returns the settings of ns-2's `Agent/SRM/Adaptive`.
    pub fn ns2_adaptive() -> Self {
        Self { timing: Timing::Adaptive, ..Self::ns2_fixed() }
    }

    /// Returns settings for a data center. The timers are adaptive, and a distance is assumed to be
    /// 1 ms before it is measured. Session messages are sent every 100 ms, or less often to stay
    /// within 5 % of the traffic.
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

    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.streams.check_path_mtu()?;
        let parameters = match self.timing {
            Timing::Fixed { c1, c2, d1, d2 } => [c1, c2, d1, d2],
            Timing::LogOfGroup { c1, c2 } => [c1, c2, 0.0, 0.0],
            Timing::Adaptive => [0.0; 4],
        };
        require(
            parameters.iter().all(|it| it.is_finite() && *it >= 0.0),
            "timer parameters must be finite and at least 0",
        )?;
        let intervals = Duration::from_millis(1)..=self.max_session_interval;
        require(
            intervals.contains(&self.session_interval),
            "session_interval must be at least 1 ms and at most max_session_interval",
        )?;
        require(
            self.session_share.is_none_or(|share| share > 0.0),
            "session_share must be above 0",
        )?;
        require(
            self.streams.max_missing > 0 && self.streams.max_streams > 0,
            "max_missing and max_streams must be at least 1",
        )
    }

    /// Returns the maximum size, in bytes, of a message: its repair fits within the path MTU.
    pub fn payload_limit(&self) -> usize {
        self.streams.max_datagram_bytes() - REPAIR_BYTES - BLOCK_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::broken_rule;

    #[test]
    fn the_presets_are_valid_and_what_cannot_work_is_refused() {
        let (fixed, adaptive) = (Config::ns2_fixed(), Config::ns2_adaptive());
        for config in [fixed, adaptive, Config::wide_area(), Config::datacenter()] {
            assert_eq!(config.validate(), Ok(()));
        }
        let with = Config::default;
        let broken = |config: Config| broken_rule(config.validate());
        let streams = StreamConfig { path_mtu: 9, ..with().streams };
        let path_mtu = Config { streams, ..with() }.validate();
        assert_eq!(path_mtu, Err(ConfigError::PathMtu(9)));
        let timing = Timing::LogOfGroup { c1: f64::NAN, c2: 1.0 };
        assert!(broken(Config { timing, ..with() }).starts_with("timer "));
        let session_interval = Duration::ZERO;
        assert!(broken(Config { session_interval, ..with() }).starts_with("session_interval "));
        let session_share = Some(0.0);
        assert!(broken(Config { session_share, ..with() }).starts_with("session_share "));
        let streams = StreamConfig { max_missing: 0, ..with().streams };
        assert!(broken(Config { streams, ..with() }).starts_with("max_missing "));
    }
}
