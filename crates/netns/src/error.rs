use std::fmt;

/// An operation on a lab that failed, with the way to make it succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    cause: String,
    fix: String,
}

impl Error {
    pub(crate) fn new(cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { cause: cause.into(), fix: fix.into() }
    }

    /// Creates the error for a failed system operation on `what`.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let fix = match error.kind() {
            std::io::ErrorKind::PermissionDenied => PRIVILEGE,
            std::io::ErrorKind::NotFound => "check that the file and its folder exist",
            _ => "check the limits of this machine: memory, processes, open files",
        };
        Self::new(format!("{what}: {error}"), fix)
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nfix: {}", self.cause, self.fix)
    }
}

impl std::error::Error for Error {}

pub(crate) const PRIVILEGE: &str =
    "run as root, or permit user namespaces: sysctl -w kernel.unprivileged_userns_clone=1";
