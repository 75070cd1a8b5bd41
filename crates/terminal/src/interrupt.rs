//! Ctrl-C: interrupt requests that wake waiting threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{CliError, Outcome, SIGNALLED};
use crate::output;

/// A counter of the user's interrupt requests.
pub struct Interrupt {
    asked: Mutex<u32>,
    wake: Condvar,
    /// Function that returns the text to print if the command does not end in time.
    last_words: Mutex<Option<Box<dyn Fn() -> String + Send>>>,
}

/// Counts Ctrl-C, SIGTERM and SIGHUP as interrupt requests. The process is terminated at a second
/// request, or if it has not ended 0.8 s after the first one.
pub fn listen() -> Result<&'static Interrupt, CliError> {
    listen_with(PATIENCE)
}

/// Like [`listen`], but for a command that may need up to `patience` to end.
pub fn listen_with(patience: Duration) -> Result<&'static Interrupt, CliError> {
    listen_by(move || on_signal(patience))
}

/// Like [`listen`], but for a command that handles every request itself and is never terminated.
pub fn listen_to_all() -> Result<&'static Interrupt, CliError> {
    listen_by(|| {
        INTERRUPT.ask();
    })
}

fn listen_by(on_signal: impl FnMut() + Send + 'static) -> Result<&'static Interrupt, CliError> {
    ctrlc::set_handler(on_signal).map_err(|error| {
        CliError::new(format!("cannot handle Ctrl-C: {error}"), "start it in another shell")
    })?;
    Ok(&INTERRUPT)
}

/// Converts an interruption into exit code 130, and prints its cause.
///
/// It is for commands whose caller must not mistake an interrupted run for a success.
pub fn into_outcome(ended: Result<Outcome, CliError>) -> Result<Outcome, CliError> {
    match ended {
        Err(error) if error.is_interruption() => {
            output::say(&error);
            Ok(Outcome::INTERRUPTED)
        }
        ended => ended,
    }
}

impl Interrupt {
    /// Returns `true` if there was an interrupt request.
    pub fn is_asked(&self) -> bool {
        self.count() > 0
    }

    /// Returns the number of interrupt requests.
    pub fn count(&self) -> u32 {
        *self.locked()
    }

    /// Waits for an interrupt request, for at most `timeout`. Returns `true` if there was one.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.wait_for_more(0, timeout) > 0
    }

    /// Waits up to `timeout` for more than `seen` requests. Returns the number of requests.
    pub fn wait_for_more(&self, seen: u32, timeout: Duration) -> u32 {
        let waited = self.wake.wait_timeout_while(self.locked(), timeout, |asked| *asked <= seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sets the text to print if the process is terminated because it did not end in time.
    pub fn set_last_words(&self, words: impl Fn() -> String + Send + 'static) {
        let mut last_words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        *last_words = Some(Box::new(words));
    }

    fn ask(&self) -> bool {
        let mut asked = self.locked();
        *asked = asked.saturating_add(1);
        self.wake.notify_all();
        *asked == 1
    }

    fn locked(&self) -> MutexGuard<'_, u32> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an interrupt request. A second one terminates the process at once. After the first one,
/// the process is terminated if it has not ended within `patience`, because the reader of standard
/// output is blocked or a long computation is running.
fn on_signal(patience: Duration) {
    if !INTERRUPT.ask() {
        std::process::exit(SIGNALLED.into());
    }
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        let last_words = INTERRUPT.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = last_words.as_ref().map_or_else(String::new, |words| words() + "\n");
        let why = format!("the command did not end within {patience:?}");
        output::say_unless_blocked(format!("{words}terminated by force: {why}"));
        std::process::exit(SIGNALLED.into());
    });
}

static INTERRUPT: Interrupt =
    Interrupt { asked: Mutex::new(0), wake: Condvar::new(), last_words: Mutex::new(None) };
const PATIENCE: Duration = Duration::from_millis(800);
