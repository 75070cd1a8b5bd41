use std::io;
use std::path::PathBuf;

use crate::record::RecordError;

/// A node could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A number of the assignment is too small.
    #[error("{flag} {value} is invalid: expected at least {least}")]
    TooSmall {
        /// Name of the argument.
        flag: &'static str,
        /// Value of the argument.
        value: u64,
        /// Smallest allowed value.
        least: u64,
    },
    /// The settings are not valid.
    #[error("the settings in {} are invalid: {error}", path.display())]
    Settings {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: toml::de::Error,
    },
    /// A system call failed.
    #[error("{tried}: {error}")]
    Io {
        /// Operation that failed.
        tried: String,
        /// Cause.
        error: io::Error,
    },
    /// Carom reported an error.
    #[error("{0}")]
    Carom(String),
    /// The harness closed standard input without `stop`.
    #[error("standard input ended without `stop`")]
    Abandoned,
    /// The files could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl NodeError {
    pub(super) fn io(tried: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { tried: tried.to_owned(), error }
    }
}
