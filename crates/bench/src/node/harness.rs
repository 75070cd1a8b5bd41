use std::io::{self, BufRead as _, Write as _};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::thread;

use super::error::NodeError;

/// The lines that the harness writes to standard input.
pub(super) struct Harness {
    lines: Receiver<String>,
    is_stopped: Arc<AtomicBool>,
}

impl Harness {
    /// Reads on a thread, so that `stop` and the end of the input are noticed while sending. The
    /// thread ends with the input, or with the process.
    pub(super) fn on_standard_input() -> Self {
        let (to, lines) = channel();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if line == "stop" {
                    stopped.store(true, Ordering::Relaxed);
                }
                if to.send(line).is_err() {
                    break;
                }
            }
            stopped.store(true, Ordering::Relaxed);
        });
        Self { lines, is_stopped }
    }

    pub(super) fn wait_for(&self, line: &str) -> Result<(), NodeError> {
        let found = self.lines.iter().find(|read| read == line);
        found.map(|_| ()).ok_or(NodeError::Abandoned)
    }

    /// Returns a flag that is set on `stop` and at the end of the input.
    pub(super) fn stopped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_stopped)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Writes a line to the harness.
pub(super) fn report(line: &str) -> Result<(), NodeError> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(NodeError::io("cannot write standard output"))
}
