//! The settings of Bimodal Multicast.

use core::time::Duration;

use super::packet::RETRANSMISSION_BYTES;
use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;

/// The settings of a [`Bimodal`](super::Bimodal) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the largest IP packet on the path. It limits the payload, and how many ranges a
    /// digest has: those of the most recent messages.
    pub path_mtu: u16,
    /// Time between a member's rounds of gossip in a group (100 ms in the paper's experiments).
    pub round: Duration,
    /// Rounds for which a message is kept and gossiped about after it came.
    pub history_rounds: u32,
    /// Rounds after which a message that is missing is reported lost (the paper's loss
    /// notification). No more than [`Config::history_rounds`] makes sense.
    pub give_up_rounds: u32,
    /// Messages that a member sends again in a round at most, to all who solicit; further ones are
    /// counted and left to other rounds (the paper's round retransmission limit).
    pub retransmissions_per_round: u32,
    /// Messages that a member solicits in answer to a digest at most, the most recent first.
    pub solicited_per_digest: u32,
    /// Messages that are kept in a group at most; the oldest make room.
    pub max_history: usize,
    /// From where on a receiver is owed a sender's messages.
    pub owed: Owed,
    /// Packets of one stream that may be missing at a time; older ones are lost then.
    pub max_missing: usize,
    /// Senders that are heard in one group; others are refused and counted.
    pub max_streams: usize,
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No message would fit.
    #[error("path_mtu {0} leaves no room for a message; at least 200 is needed")]
    PathMtu(u16),
    /// Rounds without a pause.
    #[error("a round must take at least 100 us, and there must be at least one")]
    Rounds,
    /// Nothing could be kept, missing, heard or sent again.
    #[error("max_history, max_missing, max_streams and the limits must be at least 1")]
    Bounds,
}

/// Bytes of the IP and UDP headers.
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
    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The first thing that is wrong.
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

    /// Bytes of the largest datagram that fits the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    /// Bytes of the largest message: a retransmission of it fits the path MTU.
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
