use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The drops, the lag and the first error of all worlds of a lab.
#[derive(Debug, Default)]
pub(super) struct Account {
    kernel_drops: AtomicU64,
    lag_ns: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Account {
    /// Returns the number of datagrams that the kernel dropped at full buffers of sockets.
    pub(super) fn kernel_drops(&self) -> u64 {
        self.kernel_drops.load(Ordering::Relaxed)
    }

    /// Returns the longest time by which an event was late.
    pub(super) fn lag(&self) -> Duration {
        Duration::from_nanos(self.lag_ns.load(Ordering::Relaxed))
    }

    /// Returns the first error. Results of the worlds are then void.
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn add_kernel_drops(&self, drops: u64) {
        self.kernel_drops.fetch_add(drops, Ordering::Relaxed);
    }

    pub(super) fn note_lag(&self, lag: Duration) {
        self.lag_ns.fetch_max(lag.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn note_error(&self, what: &str, error: &dyn std::fmt::Display) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{what}: {error}"));
    }
}
