//! What can go wrong with a control process.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::about::FORMAT;

/// Why a control process cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {}", plain(error))]
    Listen {
        /// The flag of the command that names it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no thread or runtime.
    #[error("cannot start: {}", plain(.0))]
    Start(io::Error),
    /// The process ended by an error of its own, which it has reported.
    #[error("the control process has failed")]
    Panicked,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be made or the file not be opened.
    #[error("{path}: {error}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system or the database says.
        error: String,
    },
    /// There was a store, and its data is gone.
    #[error("the store has lost its data: {path} {how}")]
    Lost {
        /// The file.
        path: PathBuf,
        /// What has become of it.
        how: &'static str,
    },
    /// Another process has the file open.
    #[error("{path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by another version of this program.
    #[error("the store has format {found}, this program knows {FORMAT}")]
    Format {
        /// What the file says.
        found: u32,
    },
    /// The database has a file format of another version of this program.
    #[error("{path} has file format {found}, which this program does not read")]
    FileFormat {
        /// The file.
        path: PathBuf,
        /// What the file says.
        found: u8,
    },
    /// It belongs to another cluster, or to one with other partitions.
    #[error("the store is that of {theirs}, not of {ours}")]
    Other {
        /// What the file says.
        theirs: String,
        /// What was asked for.
        ours: String,
    },
    /// No member of etcd answers, or none that has the others.
    #[error("etcd does not answer at {addresses}: {error}")]
    Unreachable {
        /// Where it was asked.
        addresses: String,
        /// What the last attempt said.
        error: String,
    },
    /// Etcd answers, and does not do what it is asked.
    #[error("etcd at {addresses} refuses: {error}")]
    Refused {
        /// Where it was asked.
        addresses: String,
        /// What it says.
        error: String,
    },
    /// The settings of etcd cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The program was built without etcd.
    #[error("this program was built without etcd")]
    NotBuilt,
    /// What is stored makes no sense.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// It was read or written in vain.
    #[error("the store failed: {error}")]
    Failed {
        /// What the database says.
        error: String,
        /// Whether the disk is full.
        is_full: bool,
    },
}

impl StoreError {
    /// Whether there is no room left.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Failed { is_full: true, .. })
    }
}

/// The text of a system error without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

impl ControlError {
    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::Store(StoreError::Open { .. }) => {
                "give a folder that can be written: carom control --store DIR".into()
            }
            Self::Store(StoreError::InUse { .. }) => {
                "end the other process, or give this one a folder of its own".into()
            }
            Self::Store(StoreError::Format { .. } | StoreError::FileFormat { .. }) => {
                "use the version of carom that wrote it, or an empty folder".into()
            }
            Self::Store(StoreError::Other { .. }) => {
                "give the --cluster and --partitions it was made with, or an empty folder, or with \
                 etcd another --cluster"
                    .into()
            }
            Self::Store(StoreError::Unreachable { .. }) => {
                "start etcd, or give the addresses of its clients: --etcd URL,URL,URL".into()
            }
            Self::Store(StoreError::Refused { .. }) => {
                "see the log of etcd; for users and TLS: carom control --help".into()
            }
            Self::Store(StoreError::Settings(_)) => "see carom control --help".into(),
            Self::Store(StoreError::NotBuilt) => {
                "build it with `cargo build --release --features etcd`; that needs protoc, of \
                 Debian's protobuf-compiler"
                    .into()
            }
            Self::Store(StoreError::Lost { .. } | StoreError::Damaged { .. }) => {
                "restore it from a copy, or begin an empty one with --new-store (with etcd: \
                 another --cluster): nodes that run join again by themselves"
                    .into()
            }
            Self::Store(StoreError::Failed { is_full: true, .. }) => "make room on the disk".into(),
            Self::Store(StoreError::Failed { .. }) => "see what the disk has, and try again".into(),
            Self::Listen { flag, error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                format!("end the process that has it, or give another port: {flag} ADDRESS:PORT")
            }
            Self::Listen { flag, .. } => {
                format!("give an address of this host: {flag} ADDRESS:PORT")
            }
            Self::Start(_) | Self::Panicked => "see the message above, and try again".into(),
        }
    }
}
