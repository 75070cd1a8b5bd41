use std::sync::MutexGuard;

use crate::error::Error;
use crate::outages::Toggle;

/// An outage, which ends when it is dropped.
#[derive(Debug)]
pub struct Outage<'a> {
    /// Taken at the end.
    toggle: Option<Toggle>,
    _only: MutexGuard<'a, ()>,
}

impl<'a> Outage<'a> {
    /// Begins an outage, the only one while `only` is locked.
    pub(crate) fn begin(mut toggle: Toggle, only: MutexGuard<'a, ()>) -> Result<Self, Error> {
        toggle.set(true)?;
        Ok(Self { toggle: Some(toggle), _only: only })
    }

    /// Ends the outage, and waits until this has taken effect.
    pub fn end(mut self) -> Result<(), Error> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), Error> {
        let Some(mut toggle) = self.toggle.take() else { return Ok(()) };
        // If its nft has ended, another one succeeds.
        toggle.set(false).or_else(|_| toggle.reset())
    }
}

impl Drop for Outage<'_> {
    fn drop(&mut self) {
        // This fails if the lab was removed, and the outage with it.
        let _ = self.stop();
    }
}
