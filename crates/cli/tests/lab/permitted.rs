use super::{Error, skipping};

/// Returns the value. Returns `None` after a report if this machine lacks a privilege or a program.
pub(crate) fn permitted<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.lacks_prerequisite() => {
            skipping::lacking(error.cause());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
