//! The settings of Bimodal Multicast.

use core::time::Duration;

use super::packet::RETRANSMISSION_BYTES;
use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;

/// Settings of a [`Bimodal`](super::Bimodal) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Size of the largest IP packet on the path, in bytes, at least 200. Default 1500. It limits
    /// the payload, and the number of ranges in a digest: those of the most recent messages are
    /// kept.
    pub path_mtu: u16,
    /// Interval of a member's gossip rounds in a group, at least 100 us. Default 100 ms, as in the
    /// paper's experiments.
    pub round: Duration,
    /// Number of rounds for which a message is kept and gossiped about after its arrival. Default
    /// 20.
    pub history_rounds: u32,
    /// Number of rounds after which a missing message is reported as lost (the paper's loss
    /// notification). A value above [`Config::history_rounds`] has no benefit. Default 20.
    pub give_up_rounds: u32,
    /// Maximum number of messages that a member retransmits per round, to all members together (the
    /// paper's round retransmission limit). Further ones are counted and left to later rounds.
    /// Default 100.
    pub retransmissions_per_round: u32,
    /// Maximum number of messages that a member solicits in response to a digest, most recent
    /// first. Default 50.
    pub solicited_per_digest: u32,
    /// Maximum number of messages kept in a group. Beyond it, the oldest are evicted. Default
    /// 16384.
    pub max_history: usize,
    /// Start of the part of a stream that a receiver is owed. Default [`Owed::FirstHeard`].
    pub owed: Owed,
    /// Maximum number of missing packets in one stream. Beyond it, the oldest are lost. Default
    /// 4096.
    pub max_missing: usize,
    /// Maximum number of senders in one group. Further senders are refused and counted. Default
    /// 1024.
    pub max_streams: usize,
}

/// Reason why a [`Config`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The path MTU leaves no room for a message.
    #[error("path_mtu {0} is too small for a message: at least 200 is required")]
    PathMtu(u16),
    /// A round is too short, or a number of rounds is zero.
    #[error("round must be at least 100 us, history_rounds and give_up_rounds at least 1")]
    Rounds,
    /// A bound is zero, so that nothing could be kept, received or retransmitted.
    #[error(
        "max_history, max_missing, max_streams, retransmissions_per_round and solicited_per_digest \
         must be at least 1"
    )]
    Bounds,
}

/// Size of the IP and UDP headers, in bytes.
const IP_UDP_BYTES: usize = 28;
const MIN_PATH_MTU: u16 = 200;

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
    /// Checks that the settings are valid.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.path_mtu < MIN_PATH_MTU {
            return Err(ConfigError::PathMtu(self.path_mtu));
        }
        let is_short = self.round < Duration::from_micros(100);
        if is_short || self.history_rounds == 0 || self.give_up_rounds == 0 {
            return Err(ConfigError::Rounds);
        }
        let limits = [self.retransmissions_per_round, self.solicited_per_digest];
        let bounds = [self.max_history, self.max_missing, self.max_streams];
        if limits.contains(&0) || bounds.contains(&0) {
            return Err(ConfigError::Bounds);
        }
        Ok(())
    }

    /// Returns the size of the largest datagram that fits the path MTU, in bytes.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    /// Returns the size of the largest message, in bytes: its retransmission fits the path MTU.
    pub fn payload_limit(&self) -> usize {
        self.max_datagram_bytes() - RETRANSMISSION_BYTES - BLOCK_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(Config::default().validate(), Ok(()));
        let refused = |config: Config| config.validate().expect_err("it cannot work");
        let with = Config::default;
        assert_eq!(refused(Config { path_mtu: 9, ..with() }), ConfigError::PathMtu(9));
        let round = Duration::ZERO;
        assert_eq!(refused(Config { round, ..with() }), ConfigError::Rounds);
        assert_eq!(refused(Config { give_up_rounds: 0, ..with() }), ConfigError::Rounds);
        assert_eq!(refused(Config { max_history: 0, ..with() }), ConfigError::Bounds);
    }
}
