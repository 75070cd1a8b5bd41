use core::time::Duration;

use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;
use crate::config::{ConfigError, check_path_mtu, require};
use crate::guest::{REPAIR_BYTES, max_datagram_bytes};

/// The settings of a [`Bimodal`](super::Bimodal) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Size, in bytes, of the largest IP packet on the path, at least 200. It limits the payload
    /// and the number of ranges in a digest, which lists the most recent ones. Default: 1500.
    pub path_mtu: u16,
    /// Interval of gossip rounds in a group, at least 100 us. Default: 100 ms, as in the paper.
    pub round: Duration,
    /// Number of rounds for which a message is kept and listed in digests. Default: 20.
    pub history_rounds: u32,
    /// Number of rounds after which a missing message is reported as lost (the paper's loss
    /// notification). A value above [`Config::history_rounds`] has no benefit. Default: 20.
    pub give_up_rounds: u32,
    /// Maximum number of messages that a member retransmits per round to all members (the paper's
    /// round retransmission limit). Further ones are counted and left to later rounds.
    pub retransmissions_per_round: u32,
    /// Maximum number of messages that a member solicits per digest, newest first. Default: 50.
    pub solicited_per_digest: u32,
    /// Maximum number of messages kept per group. If exceeded, the oldest are evicted. Default:
    /// 16384.
    pub max_history: usize,
    /// First message of a stream that a receiver is owed. Default: [`Owed::FirstHeard`].
    pub owed: Owed,
    /// Maximum number of missing packets per stream. Beyond it, the oldest are lost. Default: 4096.
    pub max_missing: usize,
    /// Maximum number of senders in a group. More are refused and counted. Default: 1024.
    pub max_streams: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path_mtu: 1500,
            round: Duration::from_millis(100),
            history_rounds: 20,
            give_up_rounds: 20,
            retransmissions_per_round: 100,
            solicited_per_digest: 50,
            max_history: 16_384,
            owed: Owed::FirstHeard,
            max_missing: 4096,
            max_streams: 1024,
        }
    }
}

impl Config {
    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_path_mtu(self.path_mtu)?;
        let is_long = self.round >= Duration::from_micros(100);
        require(
            is_long && self.history_rounds > 0 && self.give_up_rounds > 0,
            "round must be at least 100 us, history_rounds and give_up_rounds at least 1",
        )?;
        let limits = [self.retransmissions_per_round, self.solicited_per_digest];
        let bounds = [self.max_history, self.max_missing, self.max_streams];
        require(
            !limits.contains(&0) && !bounds.contains(&0),
            "max_history, max_missing, max_streams, retransmissions_per_round and \
             solicited_per_digest must be at least 1",
        )
    }

    /// Returns the size, in bytes, of the largest datagram that fits within the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        max_datagram_bytes(self.path_mtu)
    }

    /// Returns the maximum size, in bytes, of a message: its retransmission fits within the MTU.
    pub fn payload_limit(&self) -> usize {
        self.max_datagram_bytes() - REPAIR_BYTES - BLOCK_HEADER_BYTES
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
        let path_mtu = Config { path_mtu: 9, ..with() }.validate();
        assert_eq!(path_mtu, Err(ConfigError::PathMtu(9)));
        assert!(broken(Config { round: Duration::ZERO, ..with() }).starts_with("round "));
        assert!(broken(Config { give_up_rounds: 0, ..with() }).starts_with("round "));
        assert!(broken(Config { max_history: 0, ..with() }).starts_with("max_history, "));
    }
}
