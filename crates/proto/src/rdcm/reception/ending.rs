//! How a stream ends at a receiver: its sender has gone, or falls silent, or says where the end is.

use super::super::around::Around;
use super::super::config::Config;
use super::Reception;
use crate::{LossCause, Time};

impl Reception {
    /// The sender is gone: what receivers have they give each other, for a while.
    pub(in super::super) fn on_sender_gone(&mut self, around: &mut Around<'_>) {
        self.ends_at.get_or_insert(around.now + around.config.linger);
    }

    /// The sender has given way to another one, and its stream ends before packet `end`.
    pub(in super::super) fn on_farewell(&mut self, around: &mut Around<'_>, end: u64) {
        self.sender_to = self.sender_to.max(end);
        self.known_to = self.known_to.max(end);
        self.on_sender_gone(around);
    }

    /// The sender is a member again: if it is heard, its stream goes on.
    pub(in super::super) fn on_sender_back(&mut self, now: Time) {
        if self.ends_at.take().is_some() {
            (self.sender_back_at, self.sender_heard_at) = (Some(now), now);
        }
    }

    /// Whether the sender is gone.
    pub(super) fn is_orphan(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Whether it is over.
    pub(in super::super) fn is_over(&self, now: Time, config: &Config) -> bool {
        self.over_at(config) <= now
    }

    /// When it is over, if nothing is heard of the sender until then.
    pub(super) fn over_at(&self, config: &Config) -> Time {
        let patience = if self.sender_back_at.is_some() { 1 } else { SENDER_PATIENCE };
        self.ends_at.unwrap_or(self.sender_heard_at + patience * config.sender_gone_after())
    }

    /// What has not come does not come any more.
    pub(in super::super) fn end(&mut self, around: &mut Around<'_>) {
        self.is_held = false;
        self.deliver(around);
        around.lose(self.sender, self.undelivered(), self.told_to(), LossCause::AttemptsSpent);
    }

    /// The number after the last packet that is known to have been sent: by the sender itself, or
    /// because it is here.
    pub(in super::super) fn told_to(&self) -> u64 {
        self.sender_to.max(self.window.own().end())
    }
}

/// A sender that nobody says to be gone may be silent for so many times as long as one that was.
const SENDER_PATIENCE: u32 = 10;
