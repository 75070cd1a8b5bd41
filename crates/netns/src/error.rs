use std::fmt;
use std::io::ErrorKind;

/// An operation on a lab that failed, with the way to make it succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    cause: String,
    fix: String,
    lacks_prerequisite: bool,
}

impl Error {
    pub(crate) fn new(cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { cause: cause.into(), fix: fix.into(), lacks_prerequisite: false }
    }

    /// Creates the error for a machine that lacks a privilege or a program.
    pub(crate) fn lacking(cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { lacks_prerequisite: true, ..Self::new(cause, fix) }
    }

    /// Creates the error for a failed system operation on `what`.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let cause = format!("{what}: {error}");
        match error.kind() {
            ErrorKind::PermissionDenied => Self::lacking(cause, PRIVILEGE),
            ErrorKind::NotFound => Self::new(cause, "check that the file and its folder exist"),
            _ => {
                Self::new(cause, "check the limits of this machine: memory, processes, open files")
            }
        }
    }

    /// Creates the error for a failed system call.
    pub(crate) fn system(what: impl fmt::Display, errno: nix::errno::Errno) -> Self {
        Self::io(what, &std::io::Error::from(errno))
    }

    /// Returns the failed operation, its values and the reason, on one line.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns the way to make the operation succeed, on one line.
    pub fn fix(&self) -> &str {
        &self.fix
    }

    /// Returns `true` if this machine lacks a privilege or a program that a lab needs. A test may
    /// then report that it cannot run.
    pub fn lacks_prerequisite(&self) -> bool {
        self.lacks_prerequisite
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nfix: {}", self.cause, self.fix)
    }
}

impl std::error::Error for Error {}

pub(crate) const PRIVILEGE: &str =
    "run as root, or permit user namespaces: sysctl -w kernel.unprivileged_userns_clone=1";
