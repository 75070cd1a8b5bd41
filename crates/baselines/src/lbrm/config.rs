//! The settings of LBRM.

use core::time::Duration;

use crate::domain::{DomainConfig, DomainError, RepairBy};
use crate::round_trips::Timeouts;

/// The settings of an [`Lbrm`](super::Lbrm) engine. The names in brackets are those of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who logs for whom, and what is kept. The paper has two tiers: a primary logging server, and
    /// a secondary one at each site.
    pub domains: DomainConfig,
    /// When a repair for several is multicast at the site.
    pub repair_by: RepairBy,
    /// How long a receiver waits for a repair before it asks again, twice as long for the same node
    /// each time. The least is a round trip and [`DomainConfig::gather_for`], or longer.
    pub nack_timeouts: Timeouts,
    /// How long after a message the first heartbeat comes (`h_min`: 0.25 s). Shorter discovers the
    /// loss of a last message sooner.
    pub first_heartbeat: Duration,
    /// The longest pause between heartbeats (`h_max`: 32 s).
    pub max_heartbeat: Duration,
    /// By how much each pause is longer than the one before (`backoff`: 2).
    pub backoff: f64,
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// What all protocols with domains have in common is wrong.
    #[error(transparent)]
    Domains(#[from] DomainError),
    /// Requests without a pause, or with pauses in the wrong order.
    #[error("the nack_timeouts must be above 0, and the initial one between the others")]
    NackTimeouts,
    /// Heartbeats without a pause, or pauses that grow downwards.
    #[error("first_heartbeat must be above 0 and at most max_heartbeat, and backoff at least 1")]
    Heartbeats,
}

impl Default for Config {
    /// With the heartbeats of the paper, for a local network.
    fn default() -> Self {
        Self {
            domains: DomainConfig::default(),
            repair_by: RepairBy::FewerLinks,
            nack_timeouts: Timeouts {
                initial: Duration::from_millis(20),
                least: Duration::from_millis(20),
                most: Duration::from_secs(2),
            },
            first_heartbeat: Duration::from_millis(250),
            max_heartbeat: Duration::from_secs(32),
            backoff: 2.0,
        }
    }
}

impl Config {
    /// For a data center whose round trips take less than half a millisecond, as the RDCM paper
    /// simulates one.
    pub fn datacenter() -> Self {
        let domains = DomainConfig {
            gather_for: Duration::from_micros(100),
            hold_down: Duration::from_millis(1),
            ..DomainConfig::default()
        };
        Self {
            domains,
            nack_timeouts: Timeouts {
                initial: Duration::from_millis(2),
                least: Duration::from_millis(2),
                most: Duration::from_millis(100),
            },
            first_heartbeat: Duration::from_millis(1),
            max_heartbeat: Duration::from_secs(1),
            ..Self::default()
        }
    }

    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.domains.validate()?;
        if !self.nack_timeouts.are_valid() {
            return Err(ConfigError::NackTimeouts);
        }
        let has_pauses = !self.first_heartbeat.is_zero();
        let grows = self.backoff.is_finite() && self.backoff >= 1.0;
        if !has_pauses || self.first_heartbeat > self.max_heartbeat || !grows {
            return Err(ConfigError::Heartbeats);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(Config::default().validate(), Ok(()));
        assert_eq!(Config::datacenter().validate(), Ok(()));
        let refused = |config: Config| config.validate().expect_err("it cannot work");
        let with = Config::default;
        let domains = DomainConfig { path_mtu: 9, ..DomainConfig::default() };
        let expected = ConfigError::Domains(DomainError::PathMtu(9));
        assert_eq!(refused(Config { domains, ..with() }), expected);
        let nack_timeouts = Timeouts { least: Duration::ZERO, ..with().nack_timeouts };
        assert_eq!(refused(Config { nack_timeouts, ..with() }), ConfigError::NackTimeouts);
        let first_heartbeat = Duration::from_secs(33);
        assert_eq!(refused(Config { first_heartbeat, ..with() }), ConfigError::Heartbeats);
        assert_eq!(refused(Config { backoff: f64::NAN, ..with() }), ConfigError::Heartbeats);
    }
}
