use core::time::Duration;

use super::hierarchy::Hierarchy;
use crate::block::BLOCK_HEADER_BYTES;
use crate::config::{ConfigError, StreamConfig, require};
use crate::guest::REPAIR_BYTES;
use crate::reception::Terms;

/// The settings of domains: hierarchy, repairs and retention.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainConfig {
    /// Heads and members of the domains. Default: [`Hierarchy::flat`].
    pub hierarchy: Hierarchy,
    /// Settings of the streams of messages.
    pub streams: StreamConfig,
    /// Delay from the detection of a gap to the first request, to tolerate reordering. Default: 0.
    pub detect_after: Duration,
    /// Time for which a head gathers requests for a packet, before it serves them together. A
    /// larger value reduces the number of repairs and delays them. Default: 1 ms.
    pub gather_for: Duration,
    /// Time after a repair for which a head ignores further requests of the same receivers, which
    /// they may have sent before the repair arrived. Use at least one round trip. Default: 10 ms.
    pub hold_down: Duration,
    /// Number of requests without a repair after which a member turns to the next node above. With
    /// LBRM and TMTP, the wait for the same node doubles each time. Default: 4.
    pub climb_after: u32,
    /// Time after which a missing packet is reported as lost. Default: 30 s.
    pub give_up_after: Duration,
    /// Time for which packets are kept for repairs. Default: 60 s.
    pub retain_for: Duration,
    /// Maximum total size, in bytes, of the packets kept for repairs. Default: 16 MiB.
    pub retain_bytes: usize,
}

/// The condition for sending a repair by multicast in the domain, not by unicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairBy {
    /// The multicast crosses fewer links than the unicasts. Favors RMTP and LBRM (RDCM 4.1).
    FewerLinks,
    /// There are more requestors than this number.
    Threshold(usize),
}

impl Default for DomainConfig {
    /// Returns settings with one domain, for a local network with round trips of a few ms.
    fn default() -> Self {
        Self {
            hierarchy: Hierarchy::flat(),
            streams: StreamConfig::default(),
            detect_after: Duration::ZERO,
            gather_for: Duration::from_millis(1),
            hold_down: Duration::from_millis(10),
            climb_after: 4,
            give_up_after: Duration::from_secs(30),
            retain_for: Duration::from_secs(60),
            retain_bytes: 16 << 20,
        }
    }
}

impl DomainConfig {
    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.streams.check_path_mtu()?;
        require(!self.hold_down.is_zero(), "hold_down must be above 0")?;
        require(
            self.climb_after > 0 && self.streams.max_missing > 0 && self.streams.max_streams > 0,
            "climb_after, max_missing and max_streams must be at least 1",
        )
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms { streams: self.streams, give_up_after: self.give_up_after }
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
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(DomainConfig::default().validate(), Ok(()));
        let with = DomainConfig::default;
        let broken = |config: DomainConfig| broken_rule(config.validate());
        let streams = StreamConfig { path_mtu: 9, ..with().streams };
        let path_mtu = DomainConfig { streams, ..with() }.validate();
        assert_eq!(path_mtu, Err(ConfigError::PathMtu(9)));
        let hold_down = Duration::ZERO;
        assert!(broken(DomainConfig { hold_down, ..with() }).starts_with("hold_down "));
        assert!(broken(DomainConfig { climb_after: 0, ..with() }).starts_with("climb_after, "));
    }
}
