use std::io;

use carom_proto::loss::Loss;
use carom_proto::{lateral, rdcm, rmp};

use super::system_text::plain;
use crate::shared::addressing::{DEFAULT_MULTICAST_PORT, MulticastPool};

/// The error returned when a node could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The requested port is in use by another socket, or the simulated host already has a node.
    #[error("port {port} is in use")]
    AddressInUse {
        /// UDP port that is in use.
        port: u16,
        /// `true` for the multicast port, `false` for the unicast port.
        multicast: bool,
    },
    /// No interface has this name or address.
    #[error("unknown interface '{name}'")]
    UnknownInterface {
        /// Name or address, as given.
        name: String,
        /// Interfaces of this host, each as `name (address)`.
        known: Vec<String>,
    },
    /// No interface with an IPv4 address is up and either supports multicast or is loopback.
    #[error("no interface with an IPv4 address is up and supports multicast; loopback is down")]
    NoInterface,
    /// The operating system does not permit the operation to this process.
    #[error("this process has no permission to {action}")]
    Permission {
        /// Operation that was not permitted.
        action: String,
    },
    /// A seed is invalid, or its name does not resolve to an IPv4 address.
    #[error("seed {seed:?} is invalid: {reason}")]
    Seed {
        /// The seed, as given.
        seed: String,
        /// Reason why the seed was refused.
        reason: String,
    },
    /// The address of a registry is invalid, or its name does not resolve to an IPv4 address.
    #[error("registry {address:?} is invalid: {reason}")]
    Registry {
        /// The address, as given.
        address: String,
        /// Reason why the address was refused.
        reason: String,
    },
    /// The name of the cluster or of the rack is longer than 255 bytes.
    #[error("the name {name:?} is longer than 255 bytes")]
    LongName {
        /// Beginning of the name.
        name: String,
    },
    /// The pool is empty, or an address of the pool or its hello address is not a multicast address
    /// beyond the local link.
    #[error(
        "pool '{pool}' is invalid: expected one or more multicast addresses beyond \
         the local link"
    )]
    Pool {
        /// The pool, as given.
        pool: MulticastPool,
    },
    /// The multicast port is 0. All nodes share this port, so a node cannot select a free one.
    #[error("multicast port 0 is invalid: expected 1 to 65535")]
    MulticastPort,
    /// The injected loss is not [valid](Loss::is_valid): a rate is outside 0 to 1, a burst is
    /// shorter than 1 datagram, or bursts of this length cannot reach the rate.
    #[error(
        "injected loss '{loss}' is invalid: expected rates of 0 to 100 %, bursts of at least 1 \
         datagram, and a rate that such bursts allow"
    )]
    Loss {
        /// The injected loss, as given.
        loss: Loss,
    },
    /// The settings of the lateral engine are invalid.
    #[error("the settings of the lateral engine are invalid: {0}")]
    Lateral(#[from] lateral::ConfigError),
    /// The settings of the engine for ordered groups are invalid.
    #[error("the settings for ordered groups are invalid: {0}")]
    Ordered(#[from] rmp::ConfigError),
    /// The settings of the engine for bulk groups are invalid.
    #[error("the settings for bulk groups are invalid: {0}")]
    Bulk(#[from] rdcm::ConfigError),
    /// The shared driver of the node has stopped.
    #[error("the driver has stopped")]
    DriverStopped,
    /// The operating system refused another operation.
    #[error("cannot {action}: {}", plain(error))]
    System {
        /// Operation that failed.
        action: String,
        /// Error of the operating system. Its text is part of the message, so it is not a
        /// [`source`](std::error::Error::source).
        error: io::Error,
    },
}

impl StartError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::AddressInUse { port, multicast: false } => {
                format!("choose another port than {port}, or omit it to use a free port")
            }
            Self::AddressInUse { port, multicast: true } => format!(
                "choose another multicast port than {port} (the same for all nodes), or stop the \
                 program that uses it (ss -ulpn 'sport = :{port}')"
            ),
            Self::UnknownInterface { known, .. } => format!("use one of: {}", known.join(", ")),
            Self::NoInterface => "bring an interface up (ip link set lo up)".into(),
            Self::Permission { .. } => {
                "run with the required permission (ports below 1024 need CAP_NET_BIND_SERVICE), or \
                 choose another port"
                    .into()
            }
            Self::Registry { .. } => "write the address as HOST:PORT, such as 10.0.0.1:7402".into(),
            Self::LongName { .. } => "choose a shorter name".into(),
            Self::Seed { .. } => "write each seed as HOST:PORT, such as 10.0.0.1:7400".into(),
            Self::Pool { .. } => {
                format!(
                    "use addresses in 224.0.1.0 to 239.255.255.255, such as {}",
                    MulticastPool::default()
                )
            }
            Self::MulticastPort => {
                format!("give all nodes the same port, such as {DEFAULT_MULTICAST_PORT}")
            }
            Self::Loss { .. } => "use rates of 0 to 1, and longer bursts for a high rate".into(),
            Self::Lateral(lateral::ConfigError::PathMtu(_)) => {
                "raise path_mtu and the interface's MTU (ip link set dev IF mtu 1500)".into()
            }
            Self::Lateral(_) => "see lateral::Config for the allowed values".into(),
            Self::Ordered(_) => "see rmp::Config for the allowed values".into(),
            Self::Bulk(_) => "see rdcm::Config for the allowed values".into(),
            Self::DriverStopped => "create a new driver".into(),
            Self::System { error, .. } => match error.raw_os_error() {
                Some(TOO_MANY_FILES) => "raise the limit of open files (ulimit -n)".into(),
                _ => "run `carom doctor` to check this host for common causes".into(),
            },
        }
    }

    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { action },
            _ => Self::System { action, error: source },
        }
    }
}

/// The value of `EMFILE` on every Unix.
const TOO_MANY_FILES: i32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_and_every_fix_is_one_line() {
        let errors = [
            StartError::AddressInUse { port: 7400, multicast: false },
            StartError::AddressInUse { port: 7401, multicast: true },
            StartError::UnknownInterface { name: "x".into(), known: vec!["lo (::)".into()] },
            StartError::NoInterface,
            StartError::Permission { action: "bind".into() },
            StartError::Seed { seed: "x".into(), reason: "no port".into() },
            StartError::Registry { address: "x".into(), reason: "no port".into() },
            StartError::LongName { name: "x".into() },
            StartError::Pool { pool: MulticastPool::default() },
            StartError::MulticastPort,
            StartError::Loss { loss: Loss::Uniform(2.0) },
            StartError::Lateral(lateral::ConfigError::Stagger),
            StartError::DriverStopped,
            StartError::system("open a socket", io::Error::from_raw_os_error(24)),
        ];
        for error in errors {
            for line in [error.to_string(), error.fix()] {
                assert!(!line.is_empty() && !line.contains('\n') && !line.contains("  "), "{line}");
            }
        }
    }

    #[test]
    fn a_system_error_is_told_once_and_without_its_number() {
        use std::error::Error as _;
        let error = StartError::system("open a socket", io::Error::from_raw_os_error(24));
        assert_eq!(error.to_string(), "cannot open a socket: too many open files");
        assert!(error.source().is_none(), "a chain of causes would repeat it");
    }
}
