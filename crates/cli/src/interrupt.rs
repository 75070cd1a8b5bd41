//! Ctrl-C: a request to end that wakes whoever waits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::CliError;

/// Whether the user asked to end.
pub(crate) struct Interrupt {
    asked: Mutex<bool>,
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
    ctrlc::set_handler(move || on_signal(patience)).map_err(|error| {
        CliError::new(format!("cannot listen for Ctrl-C: {error}"), "start it in another shell")
    })?;
    Ok(&INTERRUPT)
}

impl Interrupt {
    /// Whether the user asked to end.
    pub(crate) fn is_asked(&self) -> bool {
        *self.locked()
    }

    /// Waits for at most `timeout`; true as soon as the user asks to end.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let waited = self.wake.wait_timeout_while(self.locked(), timeout, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// What to print if the end must be forced, because whoever reads our output does not take it.
    pub(crate) fn set_last_words(&self, words: impl Fn() -> String + Send + 'static) {
        let mut last_words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        *last_words = Some(Box::new(words));
    }

    /// Asks to end; false if it was asked before.
    fn ask(&self) -> bool {
        let first = !std::mem::replace(&mut *self.locked(), true);
        self.wake.notify_all();
        first
    }

    fn locked(&self) -> MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first signal asks; a second one, or an end that takes too long, ends at once. The latter
/// happens when whoever reads our standard output does not take it.
fn on_signal(patience: Duration) {
    if !INTERRUPT.ask() {
        std::process::exit(SIGNALLED);
    }
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        let last_words = INTERRUPT.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = &*last_words {
            eprintln!("{}", words());
        }
        eprintln!("ended by force: the output was not taken");
        std::process::exit(SIGNALLED);
    });
}

static INTERRUPT: Interrupt =
    Interrupt { asked: Mutex::new(false), wake: Condvar::new(), last_words: Mutex::new(None) };
const PATIENCE: Duration = Duration::from_millis(800);
const SIGNALLED: i32 = 130;
