use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use carom_proto::rdcm::manager::service::LinkReportError;

/// An error that prevents a registry process, detector or observer from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {}", plain(error))]
    Listen {
        /// Command-line flag that sets the address.
        flag: &'static str,
        /// Address that cannot be bound.
        address: SocketAddr,
        /// Error from the operating system.
        error: io::Error,
    },
    /// The system cannot set up a thread, its runtime or its sockets.
    #[error("cannot start a thread or its runtime: {}", plain(.0))]
    Start(io::Error),
    /// A report on a link refers to no link of the topology.
    #[error("{0}")]
    Link(#[from] LinkReportError),
    /// The process has no topology for a multicast manager, or has ended.
    #[error("this registry has no multicast manager")]
    NoManager,
    /// The thread of the process or detector panicked, and has already reported the panic.
    #[error("a thread of the registry has panicked")]
    Panicked,
}

/// Reason why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory or a file in it cannot be created, inspected, moved or opened.
    #[error("cannot open {path}: {error}")]
    Open {
        /// Path of the database.
        path: PathBuf,
        /// Error from the system or the database.
        error: String,
    },
    /// The database is empty, or is missing although a store existed in the directory.
    #[error("the store has lost its data: {path} {how}")]
    Lost {
        /// Path of the database.
        path: PathBuf,
        /// Kind of loss: `is empty` or `is missing`.
        how: &'static str,
    },
    /// The file is already open, usually in another process.
    #[error("{path} is in use by another process")]
    InUse {
        /// Path of the database.
        path: PathBuf,
    },
    /// The tables or keys of the store have the format of another version of this program.
    #[error("store format {found} is not supported: expected {expected}")]
    Format {
        /// Format of the store.
        found: u32,
        /// Format that this version supports.
        expected: u32,
    },
    /// The database file has the format of another version of this program.
    #[error("{path} has file format {found}, which is not supported")]
    FileFormat {
        /// Path of the database.
        path: PathBuf,
        /// Format of the file.
        found: u8,
    },
    /// The store belongs to another cluster, or has another number of partitions.
    #[error("the store belongs to {theirs}, not to {ours}")]
    Other {
        /// Cluster and number of partitions of the store.
        theirs: String,
        /// Requested cluster and number of partitions.
        ours: String,
    },
    /// Etcd gives no conclusive answer in time, for example because no member is reachable.
    #[error("etcd does not answer at {addresses}: {error}")]
    Unreachable {
        /// Client addresses of the etcd members, separated by commas.
        addresses: String,
        /// Error of the last attempt.
        error: String,
    },
    /// Etcd or its client rejects a request, or the database of etcd is full.
    #[error("etcd at {addresses} rejected the request: {error}")]
    Refused {
        /// Client addresses of the etcd members, separated by commas.
        addresses: String,
        /// Reason for the rejection.
        error: String,
    },
    /// The settings for etcd are invalid, for the given reason.
    #[error("{0}")]
    Settings(String),
    /// The program was built without the feature `etcd`, which the store requires.
    #[error("this program was built without etcd support")]
    NotBuilt,
    /// The data of the store is damaged.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// Description of the damage.
        what: String,
    },
    /// An operation on the embedded store failed.
    #[error("the store failed: {error}")]
    Failed {
        /// Error from the system or the database.
        error: String,
        /// `true` if the disk or the quota is full.
        is_full: bool,
    },
}

impl StoreError {
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Failed { is_full: true, .. })
    }
}

/// Returns the text of a system error without its number, starting with a lowercase letter.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

impl RegistryError {
    /// Returns a suggestion for resolving the error, for the `fix:` line of the command.
    pub fn fix(&self) -> String {
        match self {
            Self::Store(StoreError::Open { .. }) => {
                "use a writable directory: carom registry --store DIR".into()
            }
            Self::Store(StoreError::InUse { .. }) => {
                "stop the other process, or use another directory: --store DIR".into()
            }
            Self::Store(StoreError::Format { .. } | StoreError::FileFormat { .. }) => {
                "use the version of carom that wrote it, or an empty directory".into()
            }
            Self::Store(StoreError::Other { .. }) => {
                "pass the --cluster and --partitions that the store was created with, or use an \
                 empty directory (with etcd: another --cluster)"
                    .into()
            }
            Self::Store(StoreError::Unreachable { .. }) => {
                "start etcd, or pass its client addresses: --etcd URL,URL,URL".into()
            }
            Self::Store(StoreError::Refused { .. }) => {
                "see the log of etcd, and `carom registry --help` for users and TLS".into()
            }
            Self::Link(error) => error.fix().into(),
            Self::NoManager => "start it with a network: carom registry --topology FILE".into(),
            Self::Store(StoreError::Settings(_)) => "see `carom registry --help`".into(),
            Self::Store(StoreError::NotBuilt) => {
                "build it with `cargo build --release --features etcd`, which needs protoc \
                 (Debian: protobuf-compiler)"
                    .into()
            }
            Self::Store(StoreError::Lost { .. } | StoreError::Damaged { .. }) => {
                "restore it from a backup, or use --new-store to start with an empty store (with \
                 etcd: another --cluster); running nodes then join again"
                    .into()
            }
            Self::Store(StoreError::Failed { is_full: true, .. }) => "free some disk space".into(),
            Self::Store(StoreError::Failed { .. }) => "check the disk, and try again".into(),
            Self::Listen { flag, error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                format!("stop the process that uses it, or use another port: {flag} ADDRESS:PORT")
            }
            Self::Listen { flag, error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                format!("use a port of 1024 or more, or run as root: {flag} ADDRESS:PORT")
            }
            Self::Listen { flag, .. } => {
                format!("use an address of this host: {flag} ADDRESS:PORT")
            }
            Self::Start(_) | Self::Panicked => "see the message above, and try again".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fix_of_a_refused_address_depends_on_the_cause() {
        for (kind, expected) in [
            (io::ErrorKind::AddrInUse, "use another port"),
            (io::ErrorKind::PermissionDenied, "use a port of 1024 or more"),
            (io::ErrorKind::AddrNotAvailable, "use an address of this host"),
        ] {
            let address = ([10, 0, 0, 1], 80).into();
            let fix = RegistryError::Listen { flag: "--http", address, error: kind.into() }.fix();
            assert!(fix.contains(expected) && fix.contains("--http ADDRESS:PORT"), "{fix}");
        }
    }
}
