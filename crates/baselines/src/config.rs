/// Minimum path MTU, in bytes, that leaves room for a message.
const MIN_PATH_MTU: u16 = 200;

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
