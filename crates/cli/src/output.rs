//! What goes to standard output: lines for people, or JSON for programs. And what goes to standard
//! error: words about it.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde::Serialize;

use crate::error::CliError;

/// Prints `value` as one line of JSON.
///
/// # Errors
/// If standard output does not take it.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::new(format!("cannot write JSON: {error}"), REPORT))?;
    lines(&text)
}

/// Prints `text` and a line's end.
///
/// # Errors
/// If standard output does not take it. A reader that has gone away is not an error.
pub(crate) fn lines(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(not_written(&error)),
        _ => Ok(()),
    }
}

/// Prints a line on standard error. If nobody reads it, or its disk is full, what it tells of goes
/// on all the same.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// As [`say`], where something must happen afterwards even if nobody reads standard error: waits
/// for at most 200 ms.
pub(crate) fn say_unless_blocked(line: String) {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        say(line);
        done.send(())
    });
    let _ = is_done.recv_timeout(Duration::from_millis(200));
}

/// Draws on standard error without ending the line. A terminal that does not take it is no reason
/// to end.
pub(crate) fn draw(text: impl Display) {
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Standard output did not take what was written to it.
pub(crate) fn not_written(error: &std::io::Error) -> CliError {
    let cause = format!("standard output: {}", crate::error::plain(error));
    CliError::new(cause, "see where the output goes: is the disk full?")
}

const REPORT: &str = "this is a bug in Carom: please report it";
