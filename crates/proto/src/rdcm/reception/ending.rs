//! The end of a stream at a receiver: the sender fails, falls silent, or announces the end.

use super::super::around::Around;
use super::super::config::Config;
use super::Reception;
use crate::{LossCause, Time};

impl Reception {
    /// Marks the sender as gone. Receivers continue to repair for each other for a while.
    pub(in super::super) fn on_sender_gone(&mut self, around: &mut Around<'_>) {
        self.ends_at.get_or_insert(around.now + around.config.linger);
    }

    /// Handles the end of the stream, before packet `end`, of a sender that yields to another one.
    pub(in super::super) fn on_farewell(&mut self, around: &mut Around<'_>, end: u64) {
        self.sender_to = self.sender_to.max(end);
        self.known_to = self.known_to.max(end);
        self.on_sender_gone(around);
    }

    /// Handles the return of the sender as a member. Its stream continues if it is heard.
    pub(in super::super) fn on_sender_back(&mut self, now: Time) {
        if self.ends_at.take().is_some() {
            (self.sender_back_at, self.sender_heard_at) = (Some(now), now);
        }
    }

    /// Returns `true` if the sender is gone.
    pub(super) fn is_orphan(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Returns `true` if the stream is over.
    pub(in super::super) fn is_over(&self, now: Time, config: &Config) -> bool {
        self.over_at(config) <= now
    }

    /// Returns when the stream is over, if the sender is not heard until then.
    pub(super) fn over_at(&self, config: &Config) -> Time {
        let patience = if self.sender_back_at.is_some() { 1 } else { SENDER_PATIENCE };
        self.ends_at.unwrap_or(self.sender_heard_at + patience * config.sender_gone_after())
    }

    /// Delivers what is complete and reports the rest as lost.
    pub(in super::super) fn end(&mut self, around: &mut Around<'_>) {
        self.is_held = false;
        self.deliver(around);
        around.lose(self.sender, self.undelivered(), self.told_to(), LossCause::AttemptsSpent);
    }

    /// Returns the number after the last packet that is known to have been sent, either from the
    /// sender itself or because it arrived here.
    pub(in super::super) fn told_to(&self) -> u64 {
        self.sender_to.max(self.window.own().end())
    }
}

/// Factor by which a sender may be silent for longer if no view has reported it as gone.
const SENDER_PATIENCE: u32 = 10;
