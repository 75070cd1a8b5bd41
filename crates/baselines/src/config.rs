/// Settings of the streams of messages, which all protocols have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Maximum size, in bytes, of an IP packet, at least 200. It limits the payload. Default: 1500.
    pub path_mtu: u16,
    /// First message of a stream that a receiver is owed. Default: [`Owed::FirstHeard`].
    pub owed: Owed,
    /// Maximum number of missing packets per stream. Beyond it, the oldest are lost. Default: 4096.
    pub max_missing: usize,
    /// Maximum number of open streams in a group. Others are refused and counted. Default: 1024.
    pub max_streams: usize,
}

/// The first message of a stream that a receiver is owed, that is, must deliver or report as lost.
/// A receiver that has rejoined is not owed messages that it knew of before it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owed {
    /// The first message that arrives from the sender itself, or that the sender announces as next.
    #[default]
    FirstHeard,
    /// The sender's very first message, for experiments that count losses of first packets.
    First,
}

/// Minimum path MTU, in bytes, that leaves room for a message.
const MIN_PATH_MTU: u16 = 200;
const IP_UDP_BYTES: usize = 28;

/// The reason why the settings of a protocol are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the variants describe the fields")]
pub enum ConfigError {
    /// The path MTU leaves no room for a message.
    #[error("path_mtu {0} leaves no room for a message: at least 200 bytes are required")]
    PathMtu(u16),
    /// The number of data or parity packets in a set of sender-based FEC is out of bounds.
    #[error("(r, c) = ({r}, {c}) is invalid: r must be 1 to 64, and c at most 64")]
    Rate { r: u8, c: u8 },
    /// The settings break this rule.
    #[error("{0}")]
    Rule(&'static str),
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { path_mtu: 1500, owed: Owed::FirstHeard, max_missing: 4096, max_streams: 1024 }
    }
}

impl StreamConfig {
    /// Returns the default settings, but receivers are owed the sender's very first message.
    pub fn from_first() -> Self {
        Self { owed: Owed::First, ..Self::default() }
    }

    /// Returns the size, in bytes, of the largest datagram that fits within the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    pub(crate) fn check_path_mtu(&self) -> Result<(), ConfigError> {
        let Self { path_mtu, .. } = *self;
        if path_mtu < MIN_PATH_MTU { Err(ConfigError::PathMtu(path_mtu)) } else { Ok(()) }
    }
}

pub(crate) fn require(is_kept: bool, rule: &'static str) -> Result<(), ConfigError> {
    if is_kept { Ok(()) } else { Err(ConfigError::Rule(rule)) }
}

pub(crate) fn assert_valid(protocol: &str, checked: Result<(), ConfigError>) {
    if let Err(error) = checked {
        panic!("invalid {protocol} configuration: {error}");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn broken_rule(checked: Result<(), ConfigError>) -> &'static str {
        match checked {
            Err(ConfigError::Rule(rule)) => rule,
            other => panic!("no rule is broken: {other:?}"),
        }
    }
}
