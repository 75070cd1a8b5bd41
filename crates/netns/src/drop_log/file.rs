use std::fmt::Display;
use std::path::Path;

use crate::error::Error;

pub(super) fn unwritten(path: &Path, error: impl Display) -> Error {
    let cause = format!("cannot write {}: {error}", path.display());
    Error::new(cause, "check whether the disk is full")
}

pub(super) fn unread(path: &Path, error: impl Display) -> Error {
    let cause = format!("cannot read {}: {error}", path.display());
    Error::new(cause, "use a file that a drop log has written")
}
