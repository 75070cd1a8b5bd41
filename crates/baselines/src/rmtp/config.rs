use core::time::Duration;

use crate::config::{ConfigError, require};
use crate::domain::{DomainConfig, RepairBy};

/// The settings of an [`Rmtp`](super::Rmtp) engine. Names in parentheses are those of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Designated receivers, and retention of packets. [`DomainConfig::gather_for`] is the time for
    /// which a head gathers requests for a packet before it retransmits it (`T_retx`).
    pub domains: DomainConfig,
    /// Condition for sending a repair by multicast (`MCAST_THRESH`). Default:
    /// [`RepairBy::FewerLinks`].
    pub repair_by: RepairBy,
    /// Interval of acknowledgments (`T_ack`). Set it to at least one round trip. Default: 20 ms.
    pub ack_interval: Duration,
    /// Interval of a sender's beacons, which announce the end of its stream and request
    /// acknowledgments (`T_sap`). A shorter interval reveals a lost last message earlier. Default:
    /// 1 s.
    pub beacon_interval: Duration,
    /// Maximum number of messages of a group, counted from the oldest one that a child of the
    /// sender has not acknowledged (`W_s`). Further messages are refused with
    /// [`HeldBack`](carom_proto::SendError::HeldBack). Default: 1024.
    pub window: usize,
    /// Time for which a member without progress may hold back a sender. After that, the member is
    /// [lagging](carom_proto::Event::Slow), and the sender no longer waits for it. Default: 5 s.
    pub slow_after: Duration,
}

impl Default for Config {
    /// Returns settings for a local network with round trips of a few milliseconds.
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
    /// Returns settings for a data center with round trips below 0.5 ms, as in the RDCM paper.
    pub fn datacenter() -> Self {
        let domains = DomainConfig {
            gather_for: Duration::from_micros(100),
            hold_down: Duration::from_millis(1),
            ..DomainConfig::default()
        };
        let interval = Duration::from_millis(1);
        Self { domains, ack_interval: interval, beacon_interval: interval, ..Self::default() }
    }

    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.domains.validate()?;
        let intervals = [self.ack_interval, self.beacon_interval, self.slow_after];
        require(
            intervals.iter().all(|interval| !interval.is_zero()),
            "ack_interval, beacon_interval and slow_after must be above 0",
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
        let ack_interval = Duration::ZERO;
        assert!(broken(Config { ack_interval, ..with() }).starts_with("ack_interval, "));
        assert!(broken(Config { window: 0, ..with() }).starts_with("window "));
    }
}
