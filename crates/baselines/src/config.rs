//! The checks that the settings of all protocols share.

/// Smallest path MTU that leaves room for a message, in bytes.
const MIN_PATH_MTU: u16 = 200;

/// Reason why the settings of a protocol are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The path MTU leaves no room for a message.
    #[error("path_mtu {0} is too small for a message: at least 200 is required")]
    PathMtu(u16),
    /// The numbers of packets in a set of sender-based FEC are out of bounds.
    #[error("({r},{c}) is invalid: r must be 1 to 64, and c at most 64")]
    Rate {
        /// Configured number of data packets in a set.
        r: u8,
        /// Configured number of parity packets of a set.
        c: u8,
    },
    /// A rule that the settings break.
    #[error("{0}")]
    Rule(&'static str),
}

pub(crate) fn check_path_mtu(path_mtu: u16) -> Result<(), ConfigError> {
    if path_mtu < MIN_PATH_MTU { Err(ConfigError::PathMtu(path_mtu)) } else { Ok(()) }
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
