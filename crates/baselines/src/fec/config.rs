use core::time::Duration;

use super::packet::{MAX_C, MAX_R, PARITY_BYTES};
use super::parity::LENGTH_BYTES;
use crate::block::BLOCK_HEADER_BYTES;
use crate::config::{ConfigError, StreamConfig, require};

/// The settings of a [`SenderFec`](super::SenderFec) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Settings of the streams of messages.
    pub streams: StreamConfig,
    /// Number of data packets per set, 1 to 64. Default: 8.
    pub r: u8,
    /// Number of parity packets per set, 0 to 64. With 0, there are no repairs. Default: 5.
    pub c: u8,
    /// Time from the first packet of a set to the flush of the set, if it is only partly filled.
    /// The number of parity packets is then reduced in proportion. With `None`, partly filled sets
    /// are never flushed, so the last packets are unprotected. Default: 100 ms.
    pub flush_after: Option<Duration>,
    /// Time from the last message to the first heartbeat, which announces the end of the stream.
    /// The interval doubles up to 64 times this value. With `None`, no heartbeats are sent, and the
    /// loss of a last message is detected only if parity of its set arrives. Default: 100 ms.
    pub heartbeat: Option<Duration>,
    /// Time after which a missing packet is reported as lost. Default: 10 s.
    pub give_up_after: Duration,
    /// Maximum total size, in bytes, of the packets kept to decode others. Default: 16 MiB.
    pub retain_bytes: usize,
    /// Maximum number of incomplete sets per stream. Beyond it, the oldest is dropped. Default: 64.
    pub max_sets: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams: StreamConfig::default(),
            r: 8,
            c: 5,
            flush_after: Some(Duration::from_millis(100)),
            heartbeat: Some(Duration::from_millis(100)),
            give_up_after: Duration::from_secs(10),
            retain_bytes: 16 << 20,
            max_sets: 64,
        }
    }
}

impl Config {
    /// Checks the settings, and returns the first violated rule as an error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { r, c, .. } = *self;
        self.streams.check_path_mtu()?;
        if r == 0 || r > MAX_R || c > MAX_C {
            return Err(ConfigError::Rate { r, c });
        }
        let zero = Some(Duration::ZERO);
        require(
            self.flush_after != zero && self.heartbeat != zero,
            "flush_after and heartbeat must be above 0",
        )?;
        require(
            self.streams.max_missing > 0 && self.streams.max_streams > 0 && self.max_sets > 0,
            "max_missing, max_streams and max_sets must be at least 1",
        )
    }

    /// Returns the maximum size, in bytes, of a message. Its parity has an even length, and fits
    /// within the MTU.
    pub fn payload_limit(&self) -> usize {
        let shard = self.streams.max_datagram_bytes() - PARITY_BYTES;
        shard / 2 * 2 - LENGTH_BYTES - BLOCK_HEADER_BYTES
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
        let refused = |config: Config| config.validate().expect_err("it is invalid");
        let broken = |config: Config| broken_rule(config.validate());
        let streams = StreamConfig { path_mtu: 9, ..with().streams };
        assert_eq!(refused(Config { streams, ..with() }), ConfigError::PathMtu(9));
        assert_eq!(refused(Config { r: 0, ..with() }), ConfigError::Rate { r: 0, c: 5 });
        assert_eq!(refused(Config { c: 65, ..with() }), ConfigError::Rate { r: 8, c: 65 });
        let heartbeat = Some(Duration::ZERO);
        assert!(broken(Config { heartbeat, ..with() }).starts_with("flush_after "));
        assert!(broken(Config { max_sets: 0, ..with() }).starts_with("max_missing, "));
    }
}
