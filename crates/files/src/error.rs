use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::block_sink::SinkError;
use crate::manifest::ManifestError;
use crate::names::{EntryPath, NameError};

/// A directory entry that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsendable {
    /// Path of the entry, escaped for display.
    pub path: String,
    /// Reason why the entry cannot be sent.
    pub why: String,
}

impl fmt::Display for Unsendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.why)
    }
}

fn unsendable(first: &[Unsendable], count: &usize) -> String {
    let named: Vec<String> = first.iter().map(ToString::to_string).collect();
    let more = match count.saturating_sub(first.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

/// Returns the text of an error without the system's error number.
pub(crate) fn plain(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// The reason why a source cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No source was given.
    #[error("no source was given")]
    Nothing,
    /// A source, or an entry of a source directory, cannot be read.
    #[error("cannot read '{path}': {}", plain(.error))]
    Read {
        /// Path of the source or entry.
        path: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A file has changed since it was scanned. Receivers discard incomplete transfers.
    #[error("'{0}' has changed since the transfer began")]
    Changed(String),
    /// A file no longer exists. Receivers keep the received pieces for a later transfer.
    #[error("'{0}' no longer exists")]
    Gone(String),
    /// Two sources have the same name.
    #[error("two sources have the name '{0}'")]
    SameName(String),
    /// A path such as `/` has no name for receivers, or the name of a reader contains a slash.
    #[error("'{0}' has no name that a receiver could use")]
    Nameless(PathBuf),
    /// The name of a source violates the rules for names.
    #[error("cannot send '{path}': {error}")]
    Name {
        /// Path of the entry, escaped for display.
        path: String,
        /// The violated rule.
        error: NameError,
    },
    /// A source is a device, pipe or socket.
    #[error("'{0}' is not a file, directory or symlink")]
    Special(PathBuf),
    /// A source directory contains entries that cannot be sent. See
    /// [`SendOptions::skip_unsendable`](crate::SendOptions::skip_unsendable).
    #[error("cannot send {}", unsendable(.0, .1))]
    Unsendable(
        /// The first five entries that cannot be sent, or all if there are fewer.
        Vec<Unsendable>,
        /// Total number of entries that cannot be sent.
        usize,
    ),
    /// The sources do not fit in a manifest, for example because they exceed a limit.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// The data of a reader cannot be copied into a temporary file.
    #[error("cannot copy the input into a temporary file in '{directory}': {}", plain(.error))]
    Spool {
        /// Directory of the temporary file.
        directory: String,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl SourceError {
    pub(crate) fn read(path: &Path, error: io::Error) -> Self {
        Self::Read { path: path.display().to_string(), error }
    }

    /// Converts a read error of an entry that could be read before.
    pub(crate) fn from_read(path: &EntryPath, error: io::Error) -> Self {
        let is_symlink_now = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Changed(path.to_string()),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Gone(path.to_string()),
            _ if is_symlink_now => Self::Changed(path.to_string()),
            _ => Self::Read { path: path.to_string(), error },
        }
    }
}

/// The reason why a transfer cannot start, or has ended for all receivers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A source cannot be sent.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// The address for receivers cannot be bound.
    #[error("cannot listen on {address}: {}", plain(.error))]
    Listen {
        /// The address, as given.
        address: std::net::SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The options are invalid or do not suit the stream.
    #[error("{0}")]
    Options(&'static str),
    /// At the start time, no receiver was ready or preparing, and none had failed.
    #[error("no receiver was ready at the start time")]
    NoReceivers,
    /// The stream is closed.
    #[error("{0}")]
    Sink(#[from] SinkError),
    /// The system cannot create a thread or prepare the listening socket.
    #[error("cannot create a thread for the sender: {}", plain(.0))]
    Start(io::Error),
    /// [`SendHandle::cancel`](crate::SendHandle::cancel) was called.
    #[error("the transfer was canceled")]
    Cancelled,
}

/// The reason why a receiver did not obtain a transfer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The sender cannot be reached, or the connection fails before the transfer begins.
    #[error("the sender cannot be reached: {0}")]
    Unreachable(String),
    /// The connection to the sender was lost for longer than `patience`. A later transfer resumes
    /// with the received pieces.
    #[error("the connection to the sender was lost; the received pieces are kept")]
    SenderGone,
    /// The sender ended the transfer before this receiver had all pieces.
    #[error("the sender ended the transfer: {0}")]
    Aborted(String),
    /// The sender ended the transfer because a source has changed. The received pieces are useless
    /// and were removed.
    #[error("the sender ended the transfer: {0}; the received pieces were removed")]
    Discarded(String),
    /// The sender rejected this receiver or gave it up.
    #[error("the sender rejected this receiver: {0}")]
    Refused(String),
    /// The manifest exceeds a limit or is invalid.
    #[error("cannot accept the transfer: {0}")]
    Manifest(#[from] ManifestError),
    /// The manifest does not match the id in the offer.
    #[error("the manifest does not match the transfer id in the offer")]
    OtherManifest,
    /// An entry already exists, and `overwrite` is not set.
    #[error("'{0}' already exists")]
    Exists(String),
    /// An existing entry cannot be replaced, even with `overwrite`, or the staging directory
    /// belongs to another user.
    #[error("'{path}' already exists and is {is}")]
    InTheWay {
        /// Path of the existing entry.
        path: String,
        /// Description of the existing entry.
        is: &'static str,
    },
    /// The disk space is insufficient. This is detected before the receiver joins the transfer.
    #[error("not enough space: {needed} bytes needed, {free} bytes free in '{directory}'")]
    NoSpace {
        /// Number of bytes of the transfer for which no space is allocated yet.
        needed: u64,
        /// Number of bytes that the file system has available for this user.
        free: u64,
        /// The target directory.
        directory: String,
    },
    /// An operation of the file system failed.
    #[error("cannot access '{path}': {error}")]
    Disk {
        /// Path of the file or directory.
        path: String,
        /// Error of the operating system.
        error: String,
    },
    /// Another process is receiving the same transfer into the same directory.
    #[error("another process is receiving this transfer into the same directory")]
    InUse,
    /// The system cannot create a thread or bind an address.
    #[error("cannot start the receiver: {0}")]
    Start(String),
    /// The receiver was dropped or stopped before it had all pieces.
    #[error("the receiver was stopped; the received pieces are kept")]
    Stopped,
}

impl ReceiveError {
    pub(crate) fn is_ours(&self) -> bool {
        let is_theirs = matches!(
            self,
            Self::Unreachable(_)
                | Self::SenderGone
                | Self::Aborted(_)
                | Self::Discarded(_)
                | Self::Refused(_)
                | Self::Stopped
        );
        !is_theirs
    }

    pub(crate) fn disk(path: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::Disk { path: path.to_string(), error: plain(&error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_told_without_its_number() {
        let error = || io::Error::from(Errno::NOENT);
        let read = SourceError::read(Path::new("a"), error());
        assert_eq!(read.to_string(), "cannot read 'a': No such file or directory");
        let disk = ReceiveError::disk("b", error());
        assert_eq!(disk.to_string(), "cannot access 'b': No such file or directory");
    }
}
