//! Ctrl-C: a request to end that wakes whoever waits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{CliError, Outcome, SIGNALLED};
use crate::output;

/// Whether, and how often, the user asked to end.
pub(crate) struct Interrupt {
    asked: Mutex<u32>,
    wake: Condvar,
    /// Tells how it went so far.
    last_words: Mutex<Option<Box<dyn Fn() -> String + Send>>>,
}

/// Listens for Ctrl-C, and for the signals that ask a program to end.
///
/// # Errors
/// If the system does not let us.
pub(crate) fn listen() -> Result<&'static Interrupt, CliError> {
    listen_with(PATIENCE)
}

/// As [`listen`], for a command whose end may take this long.
///
/// # Errors
/// If the system does not let us.
pub(crate) fn listen_with(patience: Duration) -> Result<&'static Interrupt, CliError> {
    listen_by(move || on_signal(patience))
}

/// As [`listen`], for a command that decides itself what each time means: it is never ended by
/// force.
///
/// # Errors
/// If the system does not let us.
pub(crate) fn listen_to_all() -> Result<&'static Interrupt, CliError> {
    listen_by(|| {
        INTERRUPT.ask();
    })
}

fn listen_by(on_signal: impl FnMut() + Send + 'static) -> Result<&'static Interrupt, CliError> {
    ctrlc::set_handler(on_signal).map_err(|error| {
        CliError::new(format!("cannot listen for Ctrl-C: {error}"), "start it in another shell")
    })?;
    Ok(&INTERRUPT)
}

/// The end of a verb that was to get something done: one that was interrupted has not, and whoever
/// ran it must not take that for success.
pub(crate) fn told_by_code(ended: Result<Outcome, CliError>) -> Result<Outcome, CliError> {
    match ended {
        Err(error) if error.is_interruption() => {
            output::say(&error);
            Ok(Outcome::INTERRUPTED)
        }
        ended => ended,
    }
}

impl Interrupt {
    /// Whether the user asked to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.count() > 0
    }

    /// How often the user asked to end.
    pub(crate) fn count(&self) -> u32 {
        *self.locked()
    }

    /// Waits for at most `timeout`; true as soon as the user asks to end.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        self.wait_for_more(0, timeout) > 0
    }

    /// Waits for at most `timeout`, or until the user has asked to end more than `seen` times;
    /// returns how often it was.
    pub(crate) fn wait_for_more(&self, seen: u32, timeout: Duration) -> u32 {
        let waited = self.wake.wait_timeout_while(self.locked(), timeout, |asked| *asked <= seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sets what is printed if the end must be forced.
    pub(crate) fn set_last_words(&self, words: impl Fn() -> String + Send + 'static) {
        let mut last_words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        *last_words = Some(Box::new(words));
    }

    /// Asks to end; false if it was asked before.
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

/// The first signal asks; a second one, or an end that takes too long, ends at once. The latter
/// happens when standard output is not read, or in the middle of long work.
fn on_signal(patience: Duration) {
    if !INTERRUPT.ask() {
        std::process::exit(SIGNALLED.into());
    }
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        let last_words = INTERRUPT.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = last_words.as_ref().map_or_else(String::new, |words| words() + "\n");
        let why = format!("it did not end within {patience:?} by itself");
        output::say_unless_blocked(format!("{words}ended by force: {why}"));
        std::process::exit(SIGNALLED.into());
    });
}

static INTERRUPT: Interrupt =
    Interrupt { asked: Mutex::new(0), wake: Condvar::new(), last_words: Mutex::new(None) };
const PATIENCE: Duration = Duration::from_millis(800);
