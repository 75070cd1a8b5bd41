//! The settings of the ACK/timeout protocol.

use core::time::Duration;

use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;
use crate::guest::DATA_BYTES;
use crate::round_trips::Timeouts;

/// The settings of an [`AckTimeout`](super::AckTimeout) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the largest IP packet on the path. It limits the payload.
    pub path_mtu: u16,
    /// How long a sender waits for acknowledgements. It doubles with each retransmission of a
    /// message.
    pub timeouts: Timeouts,
    /// How often a message is sent again to a member that does not acknowledge it. Then the member
    /// is [slow](carom_proto::Event::Slow) and no longer waited for until it acknowledges anything.
    pub max_retransmissions: u32,
    /// Messages of a group that are not acknowledged by all; further ones are
    /// [held back](carom_proto::SendError::HeldBack).
    pub window: usize,
    /// How long a receiver hopes for a missing packet; then it is lost.
    pub give_up_after: Duration,
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
    /// The waits are in the wrong order, or there is none.
    #[error("the timeouts must be above 0, and the initial one between the others")]
    Timeouts,
    /// Nothing could be sent, missing or heard.
    #[error("window, max_missing and max_streams must be at least 1")]
    Bounds,
}

/// Bytes of the IP and UDP headers.
const IP_UDP_BYTES: usize = 28;
const MIN_PATH_MTU: u16 = 200;

impl Default for Config {
    fn default() -> Self {
        Self {
            path_mtu: 1500,
            timeouts: Timeouts {
                initial: Duration::from_millis(100),
                least: Duration::from_millis(1),
                most: Duration::from_secs(2),
            },
            max_retransmissions: 10,
            window: 1024,
            give_up_after: Duration::from_secs(30),
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
        if !self.timeouts.are_valid() {
            return Err(ConfigError::Timeouts);
        }
        if self.window == 0 || self.max_missing == 0 || self.max_streams == 0 {
            return Err(ConfigError::Bounds);
        }
        Ok(())
    }

    /// Bytes of the largest message.
    pub fn payload_limit(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES - DATA_BYTES - BLOCK_HEADER_BYTES
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
        let timeouts = Timeouts { least: Duration::from_secs(1), ..with().timeouts };
        assert_eq!(refused(Config { timeouts, ..with() }), ConfigError::Timeouts);
        assert_eq!(refused(Config { window: 0, ..with() }), ConfigError::Bounds);
    }
}
