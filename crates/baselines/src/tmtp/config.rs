use core::time::Duration;

use crate::config::{ConfigError, require};
use crate::domain::DomainConfig;
use crate::round_trips::Timeouts;

/// The settings of a [`Tmtp`](super::Tmtp) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Domain managers, and retention of packets.
    pub domains: DomainConfig,
    /// Maximum random delay of a NAK in addition to [`DomainConfig::detect_after`], so that other
    /// members receive one NAK before they send theirs. Set it to about one round trip within the
    /// domain. A larger value reduces the number of NAKs and delays them. Default: 2 ms.
    pub nack_spread: Duration,
    /// Time for which a member waits for a repair, after its own NAK or another member's, before it
    /// sends the next NAK. It doubles with each NAK to the same manager. Set the minimum to at
    /// least one round trip plus [`DomainConfig::gather_for`]. Default: 20 ms to 2 s.
    pub nack_timeouts: Timeouts,
    /// Interval of a member's acknowledgments to its manager while packets arrive. Default: 50 ms.
    pub ack_interval: Duration,
    /// Time for which a manager waits for acknowledgments before it retransmits. Set it above
    /// [`Config::ack_interval`] plus a round trip. Default: 200 ms.
    pub retransmit_after: Duration,
    /// Maximum number of messages of a group from the oldest unacknowledged one to the last.
    /// Further messages are [`HeldBack`](carom_proto::SendError::HeldBack). Default: 1024.
    pub window: usize,
    /// Time for which a member without progress may hold back a sender. After that, the member is
    /// [lagging](carom_proto::Event::Slow), and the sender no longer waits for it. From then on,
    /// its manager sends it the end of the stream at least once per this time. Default: 5 s.
    pub slow_after: Duration,
}

impl Default for Config {
    /// Returns settings for a local network with round trips of a few milliseconds.
    fn default() -> Self {
        Self {
            domains: DomainConfig::default(),
            nack_spread: Duration::from_millis(2),
            nack_timeouts: Timeouts::from_least(Duration::from_millis(20), Duration::from_secs(2)),
            ack_interval: Duration::from_millis(50),
            retransmit_after: Duration::from_millis(200),
            window: 1024,
            slow_after: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// Returns settings for a data center with round trips below half a millisecond.
    pub fn datacenter() -> Self {
        let domains = DomainConfig {
            gather_for: Duration::ZERO,
            hold_down: Duration::from_millis(1),
            ..DomainConfig::default()
        };
        Self {
            domains,
            nack_spread: Duration::from_micros(200),
            nack_timeouts: Timeouts::from_least(
                Duration::from_millis(2),
                Duration::from_millis(100),
            ),
            ack_interval: Duration::from_millis(1),
            retransmit_after: Duration::from_millis(4),
            ..Self::default()
        }
    }

    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.domains.validate()?;
        require(
            self.nack_timeouts.are_valid(),
            "nack_timeouts must satisfy 0 < least <= initial <= most",
        )?;
        require(!self.ack_interval.is_zero(), "ack_interval must be above 0")?;
        // Otherwise, packets would be retransmitted before an acknowledgment is due.
        let waits = [self.retransmit_after, self.slow_after];
        require(
            self.ack_interval < self.retransmit_after && waits.is_sorted(),
            "ack_interval must be below retransmit_after, and retransmit_after at most slow_after",
        )?;
        require(self.window > 0, "window must be at least 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamConfig;
    use crate::config::tests::broken_rule;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(Config::default().validate(), Ok(()));
        assert_eq!(Config::datacenter().validate(), Ok(()));
        let with = Config::default;
        let broken = |config: Config| broken_rule(config.validate());
        let streams = StreamConfig { path_mtu: 9, ..with().domains.streams };
        let domains = DomainConfig { streams, ..with().domains };
        let path_mtu = Config { domains, ..with() }.validate();
        assert_eq!(path_mtu, Err(ConfigError::PathMtu(9)));
        let nack_timeouts = Timeouts { least: Duration::ZERO, ..with().nack_timeouts };
        assert!(broken(Config { nack_timeouts, ..with() }).starts_with("nack_timeouts "));
        let late = "ack_interval must be below ";
        let retransmit_after = Duration::from_secs(6);
        assert!(broken(Config { retransmit_after, ..with() }).starts_with(late));
        let ack_interval = Duration::from_millis(200);
        assert!(broken(Config { ack_interval, ..with() }).starts_with(late));
        assert!(broken(Config { window: 0, ..with() }).starts_with("window "));
    }
}
