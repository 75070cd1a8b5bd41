//! The settings of TMTP.

use core::time::Duration;

use crate::domain::{DomainConfig, DomainError};
use crate::round_trips::Timeouts;

/// The settings of a [`Tmtp`](super::Tmtp) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who manages which domain, and what is kept.
    pub domains: DomainConfig,
    /// Over how long requests are spread at random beyond
    /// [`DomainConfig::detect_after`], so that one is heard by the others before they ask. About a
    /// way through the domain and back; longer makes fewer requests, and later ones.
    pub nack_spread: Duration,
    /// How long a member waits for a repair, after it has asked or heard another one ask, before it
    /// asks again, twice as long for the same node each time. The least is a round trip and
    /// [`DomainConfig::gather_for`], or longer.
    pub nack_timeouts: Timeouts,
    /// How often a member acknowledges to its manager while packets come.
    pub ack_interval: Duration,
    /// How long a manager waits for acknowledgements before it sends again what is lacking. Longer
    /// than [`Config::ack_interval`] and a round trip.
    pub retransmit_after: Duration,
    /// Messages of a group that are not acknowledged by all whom the sender manages; further ones
    /// are [held back](carom_proto::SendError::HeldBack).
    pub window: usize,
    /// For how long a member that does not come on may hold a sender back. Then it is
    /// [slow](carom_proto::Event::Slow), and not waited for until it is abreast of the others. It
    /// is told how many packets there are once in this time.
    pub slow_after: Duration,
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
    /// Acknowledgements without a pause.
    #[error("ack_interval must be above 0")]
    AckInterval,
    /// Everything would be sent twice, or nobody would be waited for.
    #[error("ack_interval must be below retransmit_after, and that at most slow_after")]
    Retransmit,
    /// Nothing could be sent.
    #[error("window must be at least 1")]
    Window,
}

impl Default for Config {
    /// For a local network: round trips of at most some milliseconds.
    fn default() -> Self {
        Self {
            domains: DomainConfig::default(),
            nack_spread: Duration::from_millis(2),
            nack_timeouts: Timeouts {
                initial: Duration::from_millis(20),
                least: Duration::from_millis(20),
                most: Duration::from_secs(2),
            },
            ack_interval: Duration::from_millis(50),
            retransmit_after: Duration::from_millis(200),
            window: 1024,
            slow_after: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// For a data center whose round trips take less than half a millisecond.
    pub fn datacenter() -> Self {
        let domains = DomainConfig {
            gather_for: Duration::ZERO,
            hold_down: Duration::from_millis(1),
            ..DomainConfig::default()
        };
        Self {
            domains,
            nack_spread: Duration::from_micros(200),
            nack_timeouts: Timeouts {
                initial: Duration::from_millis(2),
                least: Duration::from_millis(2),
                most: Duration::from_millis(100),
            },
            ack_interval: Duration::from_millis(1),
            retransmit_after: Duration::from_millis(4),
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
        if self.ack_interval.is_zero() {
            return Err(ConfigError::AckInterval);
        }
        let waits = [self.retransmit_after, self.slow_after];
        if self.ack_interval >= self.retransmit_after || !waits.is_sorted() {
            return Err(ConfigError::Retransmit);
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
        let nack_timeouts = Timeouts { least: Duration::ZERO, ..with().nack_timeouts };
        assert_eq!(refused(Config { nack_timeouts, ..with() }), ConfigError::NackTimeouts);
        let retransmit_after = Duration::from_secs(6);
        assert_eq!(refused(Config { retransmit_after, ..with() }), ConfigError::Retransmit);
        let ack_interval = Duration::from_millis(200);
        assert_eq!(refused(Config { ack_interval, ..with() }), ConfigError::Retransmit);
        assert_eq!(refused(Config { window: 0, ..with() }), ConfigError::Window);
    }
}
