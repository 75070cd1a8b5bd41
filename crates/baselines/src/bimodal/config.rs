use core::time::Duration;

use crate::block::BLOCK_HEADER_BYTES;
use crate::config::{ConfigError, StreamConfig, require};
use crate::guest::REPAIR_BYTES;

/// The settings of a [`Bimodal`](super::Bimodal) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Settings of the streams of messages. The path MTU also limits the number of ranges in a
    /// digest, which lists the most recent ones.
    pub streams: StreamConfig,
    /// Interval of gossip rounds in a group, at least 100 us. Default: 100 ms, as in the paper.
    pub round: Duration,
    /// Number of rounds for which a message is kept and listed in digests. Default: 20.
    pub history_rounds: u32,
    /// Number of rounds after which a missing message is reported as lost (the paper's loss
    /// notification). A value above [`Config::history_rounds`] has no benefit. Default: 20.
    pub give_up_rounds: u32,
    /// Maximum number of messages that a member retransmits per round to all members (the paper's
    /// round retransmission limit). Further ones are counted and not sent. Default: 100.
    pub retransmissions_per_round: u32,
    /// Maximum number of messages that a member solicits per digest, newest first. Default: 50.
    pub solicited_per_digest: u32,
    /// Maximum number of messages kept per group. If exceeded, the oldest are evicted. Default:
    /// 16384.
    pub max_history: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams: StreamConfig::default(),
            round: Duration::from_millis(100),
            history_rounds: 20,
            give_up_rounds: 20,
            retransmissions_per_round: 100,
            solicited_per_digest: 50,
            max_history: 16_384,
        }
    }
}

impl Config {
    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.streams.check_path_mtu()?;
        let is_long = self.round >= Duration::from_micros(100);
        require(
            is_long && self.history_rounds > 0 && self.give_up_rounds > 0,
            "round must be at least 100 us, history_rounds and give_up_rounds at least 1",
        )?;
        let limits = [self.retransmissions_per_round, self.solicited_per_digest];
        let bounds = [self.max_history, self.streams.max_missing, self.streams.max_streams];
        require(
            !limits.contains(&0) && !bounds.contains(&0),
            "max_history, max_missing, max_streams, retransmissions_per_round and \
             solicited_per_digest must be at least 1",
        )
    }

    /// Returns the maximum size, in bytes, of a message: its retransmission fits within the MTU.
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
        assert_eq!(Config::default().validate(), Ok(()));
        let with = Config::default;
        let broken = |config: Config| broken_rule(config.validate());
        let streams = StreamConfig { path_mtu: 9, ..with().streams };
        let path_mtu = Config { streams, ..with() }.validate();
        assert_eq!(path_mtu, Err(ConfigError::PathMtu(9)));
        assert!(broken(Config { round: Duration::ZERO, ..with() }).starts_with("round "));
        assert!(broken(Config { give_up_rounds: 0, ..with() }).starts_with("round "));
        assert!(broken(Config { max_history: 0, ..with() }).starts_with("max_history, "));
    }
}
