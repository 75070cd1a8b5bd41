//! The settings of sender-based FEC.

use core::time::Duration;

use super::packet::PARITY_BYTES;
use super::parity::LENGTH_BYTES;
use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;

/// Settings of a [`SenderFec`](super::SenderFec) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Size of the largest IP packet on the path, in bytes, at least 200. Default 1500. It limits
    /// the payload.
    pub path_mtu: u16,
    /// Number of data packets in a set, 1 to [`MAX_R`]. Default 8.
    pub r: u8,
    /// Number of parity packets sent for each set, 0 to [`MAX_C`]. 0 is multicast without repair.
    /// Default 5.
    pub c: u8,
    /// Time after the first packet of a set at which the parity of a partly filled set is sent, in
    /// the same proportion and rounded up. `None`: never, which leaves the last packets before a
    /// pause unprotected. Default 100 ms.
    pub flush_after: Option<Duration>,
    /// Time from the last message to the first heartbeat, which announces the end of the stream.
    /// The interval doubles up to 64 times this value. `None`: no heartbeats, so that the loss of a
    /// last message is detected only by the parity of its set, if any arrives. Default 100 ms.
    pub heartbeat: Option<Duration>,
    /// Time after which a missing packet is lost. Default 10 s.
    pub give_up_after: Duration,
    /// Maximum number of bytes of packets kept to decode others. Default 16 MiB.
    pub retain_bytes: usize,
    /// Start of the part of a stream that a receiver is owed. Default [`Owed::FirstHeard`].
    pub owed: Owed,
    /// Maximum number of missing packets in one stream. Beyond it, the oldest are lost. Default
    /// 4096.
    pub max_missing: usize,
    /// Maximum number of senders in one group. Further senders are refused and counted. Default
    /// 1024.
    pub max_streams: usize,
    /// Maximum number of incomplete sets of one stream whose parity is kept. Beyond it, the oldest
    /// is dropped. Default 64.
    pub max_sets: usize,
}

/// Maximum of [`Config::r`].
pub const MAX_R: u8 = 64;
/// Maximum of [`Config::c`].
pub const MAX_C: u8 = 64;

/// Reason why a [`Config`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The path MTU leaves no room for a message.
    #[error("path_mtu {0} is too small for a message: at least 200 is required")]
    PathMtu(u16),
    /// `r` or `c` is out of bounds.
    #[error("({r},{c}) is invalid: r must be 1 to 64, and c at most 64")]
    Rate {
        /// Configured number of data packets in a set.
        r: u8,
        /// Configured number of parity packets of a set.
        c: u8,
    },
    /// A timer interval is zero.
    #[error("flush_after and heartbeat must be above 0")]
    Pause,
    /// A bound is zero, so that nothing could be received or decoded.
    #[error("max_missing, max_streams and max_sets must be at least 1")]
    Bounds,
}

/// Size of the IP and UDP headers, in bytes.
const IP_UDP_BYTES: usize = 28;
const MIN_PATH_MTU: u16 = 200;

impl Default for Config {
    fn default() -> Self {
        Self {
            path_mtu: 1500,
            r: 8,
            c: 5,
            flush_after: Some(Duration::from_millis(100)),
            heartbeat: Some(Duration::from_millis(100)),
            give_up_after: Duration::from_secs(10),
            retain_bytes: 16 << 20,
            owed: Owed::FirstHeard,
            max_missing: 4096,
            max_streams: 1024,
            max_sets: 64,
        }
    }
}

impl Config {
    /// Checks that the settings are valid.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { path_mtu, r, c, .. } = *self;
        if path_mtu < MIN_PATH_MTU {
            return Err(ConfigError::PathMtu(path_mtu));
        }
        if r == 0 || r > MAX_R || c > MAX_C {
            return Err(ConfigError::Rate { r, c });
        }
        if self.flush_after == Some(Duration::ZERO) || self.heartbeat == Some(Duration::ZERO) {
            return Err(ConfigError::Pause);
        }
        if self.max_missing == 0 || self.max_streams == 0 || self.max_sets == 0 {
            return Err(ConfigError::Bounds);
        }
        Ok(())
    }

    /// Returns the size of the largest message, in bytes: its parity, which has an even length,
    /// fits the path MTU.
    pub fn payload_limit(&self) -> usize {
        let shard = usize::from(self.path_mtu) - IP_UDP_BYTES - PARITY_BYTES;
        shard / 2 * 2 - LENGTH_BYTES - BLOCK_HEADER_BYTES
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
        assert_eq!(refused(Config { r: 0, ..with() }), ConfigError::Rate { r: 0, c: 5 });
        assert_eq!(refused(Config { c: 65, ..with() }), ConfigError::Rate { r: 8, c: 65 });
        let heartbeat = Some(Duration::ZERO);
        assert_eq!(refused(Config { heartbeat, ..with() }), ConfigError::Pause);
        assert_eq!(refused(Config { max_sets: 0, ..with() }), ConfigError::Bounds);
    }
}
