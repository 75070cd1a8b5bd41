//! Text or JSON on standard output, and messages on standard error.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde::Serialize;

use crate::error::CliError;

/// Prints `value` as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::new(format!("cannot write JSON: {error}"), REPORT))?;
    lines(&text)
}

/// Prints `text` and a line feed. A closed pipe is not an error.
pub fn lines(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(not_written(&error)),
        _ => Ok(()),
    }
}

/// Prints a line on standard error, if possible: a closed pipe must not stop the command.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Like [`say`], but takes at most 200 ms, for use before steps that must always follow.
pub fn say_unless_blocked(line: String) {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        say(line);
        done.send(())
    });
    let _ = is_done.recv_timeout(Duration::from_millis(200));
}

/// Writes to standard error without ending the line, if possible.
pub fn draw(text: impl Display) {
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Returns the error for a failed write to standard output.
pub fn not_written(error: &std::io::Error) -> CliError {
    let cause = format!("cannot write standard output: {}", crate::error::plain(error));
    CliError::new(cause, "check where the output is written, and whether the disk is full")
}

const REPORT: &str = "this is a bug in Carom: please report it";
