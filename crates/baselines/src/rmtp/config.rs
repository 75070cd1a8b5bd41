//! The settings of RMTP.

use core::time::Duration;

use crate::domain::{DomainConfig, DomainError, RepairBy};

/// The settings of an [`Rmtp`](super::Rmtp) engine. The names in brackets are those of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who answers for whom, and what is kept. [`DomainConfig::gather_for`] is how long a head
    /// collects a packet's requests before it sends it again (`T_retx`).
    pub domains: DomainConfig,
    /// When a repair for several is multicast in the domain (`MCAST_THRESH`).
    pub repair_by: RepairBy,
    /// How often a receiver acknowledges while packets come or are missing (`T_ack`). At least a
    /// round trip.
    pub ack_interval: Duration,
    /// How often a sender says how many messages there are and asks for acknowledgements
    /// (`T_sap`). Shorter discovers the loss of a last message sooner.
    pub beacon_interval: Duration,
    /// Messages of a group that are not acknowledged by all whom the sender answers for (`W_s`);
    /// further ones are [held back](carom_proto::SendError::HeldBack).
    pub window: usize,
    /// For how long a member that does not come on may hold a sender back. Then it is
    /// [slow](carom_proto::Event::Slow), and not waited for until it is abreast of the others.
    pub slow_after: Duration,
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// What all protocols with domains have in common is wrong.
    #[error(transparent)]
    Domains(#[from] DomainError),
    /// Acknowledgements or beacons without a pause.
    #[error("ack_interval, beacon_interval and slow_after must be above 0")]
    Intervals,
    /// Nothing could be sent.
    #[error("window must be at least 1")]
    Window,
}

impl Default for Config {
    /// For a local network: round trips of at most some milliseconds.
    fn default() -> Self {
        Self {
            domains: DomainConfig::default(),
            repair_by: RepairBy::FewerLinks,
            ack_interval: Duration::from_millis(20),
            beacon_interval: Duration::from_secs(1),
            window: 1024,
            slow_after: Duration::from_secs(5),
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
        let interval = Duration::from_millis(1);
        Self { domains, ack_interval: interval, beacon_interval: interval, ..Self::default() }
    }

    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.domains.validate()?;
        let intervals = [self.ack_interval, self.beacon_interval, self.slow_after];
        if intervals.iter().any(Duration::is_zero) {
            return Err(ConfigError::Intervals);
        }
        if self.window == 0 {
            return Err(ConfigError::Window);
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
        let ack_interval = Duration::ZERO;
        assert_eq!(refused(Config { ack_interval, ..with() }), ConfigError::Intervals);
        assert_eq!(refused(Config { window: 0, ..with() }), ConfigError::Window);
    }
}
