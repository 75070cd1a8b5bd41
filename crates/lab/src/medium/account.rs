use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What happened to datagrams besides the losses of the worlds, and the first error.
#[derive(Debug, Default)]
pub(super) struct Account {
    kernel_drops: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Account {
    pub(super) fn kernel_drops(&self) -> u64 {
        self.kernel_drops.load(Ordering::Relaxed)
    }

    /// Returns the first error. Later results of the worlds are then void.
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn add_kernel_drops(&self, drops: u64) {
        self.kernel_drops.fetch_add(drops, Ordering::Relaxed);
    }

    pub(super) fn note_error(&self, what: &str, error: &dyn std::fmt::Display) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{what}: {error}"));
    }
}
