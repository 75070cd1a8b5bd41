//! What can go wrong with a control process.

use std::io;
use std::net::SocketAddr;

use crate::embedded::StoreError;

/// Why a control process cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no thread or runtime.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// The process ended by an error of its own, which it has reported.
    #[error("the control process has failed")]
    Panicked,
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
            Self::Store(StoreError::Format { .. }) => {
                "use the version of carom that wrote it, or an empty folder".into()
            }
            Self::Store(StoreError::Other { .. }) => {
                "give the --cluster and --partitions it was made with, or an empty folder".into()
            }
            Self::Store(StoreError::Damaged { .. }) => {
                "give an empty folder: the nodes join again by themselves".into()
            }
            Self::Store(StoreError::Failed { is_full: true, .. }) => "make room on the disk".into(),
            Self::Store(StoreError::Failed { .. }) => "see what the disk has, and try again".into(),
            Self::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                "end the process that has it, or give another port: --listen ADDRESS:PORT".into()
            }
            Self::Listen { .. } => "give an address of this host: --listen ADDRESS:PORT".into(),
            Self::Start(_) | Self::Panicked => "see the message above, and try again".into(),
        }
    }
}
