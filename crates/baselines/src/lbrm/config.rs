use core::time::Duration;

use crate::config::{ConfigError, require};
use crate::domain::{DomainConfig, RepairBy};
use crate::round_trips::Timeouts;

/// The settings of an [`Lbrm`](super::Lbrm) engine. Names in parentheses are those of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Loggers, and retention. The paper has a primary logger, and a secondary logger at each site.
    pub domains: DomainConfig,
    /// Condition for sending a repair by multicast at the site. Default: [`RepairBy::FewerLinks`].
    pub repair_by: RepairBy,
    /// Time for which a receiver waits for a repair. It doubles with each NAK to the same logger.
    /// Set the minimum to at least one round trip plus [`DomainConfig::gather_for`]. Default: 20 ms
    /// to 2 s.
    pub nack_timeouts: Timeouts,
    /// Time from the last message to the first heartbeat, which reveals the loss of a last message
    /// (`h_min`). Default: 0.25 s, as in the paper.
    pub first_heartbeat: Duration,
    /// Maximum interval of heartbeats (`h_max`: 32 s). Default: 32 s.
    pub max_heartbeat: Duration,
    /// Factor between successive heartbeat intervals, at least 1 (`backoff`: 2). Default: 2.
    pub backoff: f64,
}

impl Default for Config {
    /// Returns settings for a local network, with the heartbeat intervals of the paper.
    fn default() -> Self {
        Self {
            domains: DomainConfig::default(),
            repair_by: RepairBy::FewerLinks,
            nack_timeouts: Timeouts::from_least(Duration::from_millis(20), Duration::from_secs(2)),
            first_heartbeat: Duration::from_millis(250),
            max_heartbeat: Duration::from_secs(32),
            backoff: 2.0,
        }
    }
}

impl Config {
    /// Returns settings for a data center with round trips below 0.5 ms, as in the RDCM paper.
    pub fn datacenter() -> Self {
        let domains = DomainConfig {
            gather_for: Duration::from_micros(100),
            hold_down: Duration::from_millis(1),
            ..DomainConfig::default()
        };
        Self {
            domains,
            nack_timeouts: Timeouts::from_least(
                Duration::from_millis(2),
                Duration::from_millis(100),
            ),
            first_heartbeat: Duration::from_millis(1),
            max_heartbeat: Duration::from_secs(1),
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
        let intervals = [self.first_heartbeat, self.max_heartbeat];
        require(
            !self.first_heartbeat.is_zero()
                && intervals.is_sorted()
                && self.backoff.is_finite()
                && self.backoff >= 1.0,
            "first_heartbeat must be above 0 and at most max_heartbeat, and backoff must be finite \
             and at least 1",
        )
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
        let first_heartbeat = Duration::from_secs(33);
        assert!(broken(Config { first_heartbeat, ..with() }).starts_with("first_heartbeat "));
        assert!(broken(Config { backoff: f64::NAN, ..with() }).starts_with("first_heartbeat "));
    }
}
