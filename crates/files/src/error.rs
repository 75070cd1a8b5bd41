//! What can go wrong, by whom it happens to.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::manifest::ManifestError;
use crate::names::{EntryPath, NameError};
use crate::sink::SinkError;

/// Something inside a directory that cannot be sent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsendable {
    /// What, made fit to be shown.
    pub path: String,
    /// Why.
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

/// What the system says, without its number.
pub(crate) fn plain(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Why something cannot be sent, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is nothing to send.
    #[error("nothing to send was given")]
    Nothing,
    /// It cannot be read.
    #[error("cannot read {path}: {}", plain(.error))]
    Read {
        /// What.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// It is not what it was when the transfer began; what receivers have of it is not used.
    #[error("{0} has changed since the transfer began")]
    Changed(String),
    /// It was there when the transfer began. What receivers have of it is kept, for when it is
    /// back.
    #[error("{0} is not there any more")]
    Gone(String),
    /// Two sources have the same name.
    #[error("two of the paths are called {0}")]
    SameName(String),
    /// A path like `/`, or a name with a slash in it.
    #[error("{0} has no name that receivers could use")]
    Nameless(PathBuf),
    /// A name that receivers would refuse.
    #[error("cannot send {path}: {error}")]
    Name {
        /// The name, made fit to be shown.
        path: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// A device, pipe or socket.
    #[error("{0} is neither a file nor a directory nor a symlink")]
    Special(PathBuf),
    /// Inside a directory that was given is what a transfer cannot carry: symlinks that lead out
    /// of it, devices, pipes and sockets, names that receivers would refuse. See
    /// [`SendOptions::skip_unsendable`](crate::SendOptions::skip_unsendable).
    #[error("cannot send {}", unsendable(.0, .1))]
    Unsendable(
        /// The first of them, with the reasons.
        Vec<Unsendable>,
        /// How many there are.
        usize,
    ),
    /// There is more than a transfer can have.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// The temporary file for what comes from a reader cannot be written.
    #[error("cannot copy the input into a temporary file in {directory}: {}", plain(.error))]
    Spool {
        /// Where it is made.
        directory: String,
        /// What the system says.
        error: io::Error,
    },
}

impl SourceError {
    pub(crate) fn read(path: &Path, error: io::Error) -> Self {
        Self::Read { path: path.display().to_string(), error }
    }

    /// An error while reading what could be read before: if it has become shorter or something
    /// else, it has changed.
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

/// Why a transfer cannot begin, or ended for everybody.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The sources.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// The address for the receivers cannot be listened at.
    #[error("cannot listen at {address}: {}", plain(.error))]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The options contradict each other or the stream.
    #[error("{0}")]
    Options(&'static str),
    /// The time to begin has come and no receiver has.
    #[error("no receiver has connected")]
    NoReceivers,
    /// The stream is closed.
    #[error("{0}")]
    Sink(#[from] SinkError),
    /// The system gives no thread.
    #[error("cannot start: {}", plain(.0))]
    Start(io::Error),
    /// [`SendHandle::cancel`](crate::SendHandle::cancel) was called.
    #[error("it was cancelled")]
    Cancelled,
}

/// Why a receiver does not get a transfer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The sender answers at none of its addresses.
    #[error("the sender cannot be reached: {0}")]
    Unreachable(String),
    /// The sender was lost and has not come back within the patience; what was received is kept
    /// and a later transfer goes on from there.
    #[error("the sender is gone; what was received is kept, for when it comes back")]
    SenderGone,
    /// The sender ended the transfer for everybody.
    #[error("the sender ended the transfer: {0}")]
    Aborted(String),
    /// The sender ended the transfer for everybody, and what was received of it is of no use: it
    /// was removed.
    #[error("the sender ended the transfer: {0}; what was received of it was removed")]
    Discarded(String),
    /// The sender does not take this receiver.
    #[error("the sender refuses: {0}")]
    Refused(String),
    /// The manifest is refused.
    #[error("what the sender offers is refused: {0}")]
    Manifest(#[from] ManifestError),
    /// The manifest is not that of the offer.
    #[error("the sender's list of files is not what its offer names")]
    OtherManifest,
    /// Something is there already, and `overwrite` is not set.
    #[error("{0} exists already")]
    Exists(String),
    /// Something is there already that cannot be replaced, even with `overwrite`.
    #[error("{path} exists already and is {is}")]
    InTheWay {
        /// What.
        path: String,
        /// What it is instead.
        is: &'static str,
    },
    /// There is not enough space, known before anything is received.
    #[error("{needed} bytes are needed and {free} are free in {directory}")]
    NoSpace {
        /// Bytes that are still to come.
        needed: u64,
        /// Bytes that the file system gives to this user.
        free: u64,
        /// Where they are needed.
        directory: String,
    },
    /// The file system does not do what it is asked.
    #[error("{path}: {error}")]
    Disk {
        /// What was to be read or written.
        path: String,
        /// What the system says.
        error: String,
    },
    /// Another process receives the same into the same directory.
    #[error("another process is receiving this into the same directory")]
    InUse,
    /// The system gives no thread or address.
    #[error("cannot start: {0}")]
    Start(String),
    /// The receiving was dropped or stopped.
    #[error("stopped; what was received is kept")]
    Stopped,
}

impl ReceiveError {
    /// Whether it is this receiver's own, so that the sender has to be told.
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
        assert_eq!(read.to_string(), "cannot read a: No such file or directory");
        let disk = ReceiveError::disk("b", error());
        assert_eq!(disk.to_string(), "b: No such file or directory");
    }
}
