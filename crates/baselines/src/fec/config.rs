//! The settings of sender-based FEC.

use core::time::Duration;

use super::packet::PARITY_BYTES;
use super::parity::LENGTH_BYTES;
use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;

/// The settings of a [`SenderFec`](super::SenderFec) engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the largest IP packet on the path. It limits the payload.
    pub path_mtu: u16,
    /// Data packets in a set, 1 to [`MAX_R`].
    pub r: u8,
    /// Parity packets sent for each set, 0 to [`MAX_C`]; 0 is multicast without any repair.
    pub c: u8,
    /// How long the first packet of a set waits for the set to be full; then parity of what there
    /// is is sent, in the same proportion and rounded up. `None`: for ever, so that the last
    /// packets before a silence are not protected.
    pub flush_after: Option<Duration>,
    /// How long after a message the sender says how far it has come, if nothing follows; then it
    /// doubles each time, up to 64 times as long. Without it the loss of a last message is never
    /// noticed. `None`: never.
    pub heartbeat: Option<Duration>,
    /// How long a missing packet is hoped for; then it is lost.
    pub give_up_after: Duration,
    /// Bytes of memory for packets that may still be needed to decode others.
    pub retain_bytes: usize,
    /// From where on a receiver is owed a sender's messages.
    pub owed: Owed,
    /// Packets of one stream that may be missing at a time; older ones are lost then.
    pub max_missing: usize,
    /// Senders that are heard in one group; others are refused and counted.
    pub max_streams: usize,
    /// Sets of one stream of which parity waits for more; the oldest makes room.
    pub max_sets: usize,
}

/// The largest [`Config::r`].
pub const MAX_R: u8 = 64;
/// The largest [`Config::c`].
pub const MAX_C: u8 = 64;

/// Why a [`Config`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No message would fit.
    #[error("path_mtu {0} leaves no room for a message; at least 200 is needed")]
    PathMtu(u16),
    /// r or c is out of bounds.
    #[error("({r},{c}): r must be 1 to 64, c at most 64")]
    Rate {
        /// Data packets in a set.
        r: u8,
        /// Parity packets of a set.
        c: u8,
    },
    /// Timers without a pause.
    #[error("flush_after and heartbeat must be above 0")]
    Pause,
    /// Nothing could be missing, heard or solved.
    #[error("max_missing, max_streams and max_sets must be at least 1")]
    Bounds,
}

/// Bytes of the IP and UDP headers.
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
    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The first thing that is wrong.
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

    /// Bytes of the largest message: parity of it, of an even length, fits the path MTU.
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
