use core::time::Duration;

use crate::block::BLOCK_HEADER_BYTES;
use crate::config::{ConfigError, StreamConfig, require};
use crate::guest::DATA_BYTES;
use crate::round_trips::Timeouts;

/// The settings of an [`AckTimeout`](super::AckTimeout) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Settings of the streams of messages.
    pub streams: StreamConfig,
    /// Time for which a sender waits for acknowledgments. It doubles with each retransmission of a
    /// message. Default: initially 100 ms, then 1 ms to 2 s by the measured round trips.
    pub timeouts: Timeouts,
    /// Maximum number of retransmissions of a message to a member that does not acknowledge it.
    /// After that, the member is [lagging](carom_proto::Event::Slow), and the sender no longer
    /// waits for it. Default: 10.
    pub max_retransmissions: u32,
    /// Maximum number of messages of a group from the oldest unacknowledged one to the last.
    /// Further messages are [`HeldBack`](carom_proto::SendError::HeldBack). Default: 1024.
    pub window: usize,
    /// Time after which a missing packet is reported as lost. Default: 30 s.
    pub give_up_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams: StreamConfig::default(),
            timeouts: Timeouts {
                initial: Duration::from_millis(100),
                least: Duration::from_millis(1),
                most: Duration::from_secs(2),
            },
            max_retransmissions: 10,
            window: 1024,
            give_up_after: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.streams.check_path_mtu()?;
        require(self.timeouts.are_valid(), "timeouts must satisfy 0 < least <= initial <= most")?;
        require(
            self.window > 0 && self.streams.max_missing > 0 && self.streams.max_streams > 0,
            "window, max_missing and max_streams must be at least 1",
        )
    }

    /// Returns the maximum size, in bytes, of a message.
    pub fn payload_limit(&self) -> usize {
        self.streams.max_datagram_bytes() - DATA_BYTES - BLOCK_HEADER_BYTES
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
        let timeouts = Timeouts { least: Duration::from_secs(1), ..with().timeouts };
        assert!(broken(Config { timeouts, ..with() }).starts_with("timeouts "));
        assert!(broken(Config { window: 0, ..with() }).starts_with("window, "));
    }
}
