use core::time::Duration;

use super::super::config::Config;
use crate::Time;

#[derive(Debug)]
pub(crate) struct SenderLiveness {
    heard_at: Time,
    /// Time at which receivers stop repairing for each other after the sender is gone.
    ends_at: Option<Time>,
    back_at: Option<Time>,
}

impl SenderLiveness {
    pub(super) fn new(now: Time) -> Self {
        Self { heard_at: now, ends_at: None, back_at: None }
    }

    pub(crate) fn on_heard(&mut self, now: Time) {
        self.heard_at = now;
    }

    pub(super) fn on_gone(&mut self, now: Time, linger: Duration) {
        self.ends_at.get_or_insert(now + linger);
    }

    pub(crate) fn on_back(&mut self, now: Time) {
        if self.ends_at.take().is_some() {
            (self.back_at, self.heard_at) = (Some(now), now);
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Returns `true` if the sender is not gone and was heard recently. The time `stopped_for`
    /// during which this node was suspended does not count.
    ///
    /// A sender that has yielded becomes silent before all receivers have heard the other sender.
    pub(super) fn is_heard(&self, now: Time, stopped_for: Duration, config: &Config) -> bool {
        let silence = now.since(self.heard_at).saturating_sub(stopped_for);
        !self.is_gone() && silence < config.sender_gone_after()
    }

    /// Returns `true` if the sender was reported as gone, is a member again, and was not heard
    /// since. Its stream has ended if it left and rejoined, but continues if the view was wrong.
    pub(super) fn is_doubtful(&self) -> bool {
        self.back_at.is_some_and(|back_at| self.heard_at <= back_at)
    }

    pub(crate) fn over_at(&self, config: &Config) -> Time {
        let factor = if self.back_at.is_some() { 1 } else { UNREPORTED_FACTOR };
        self.ends_at.unwrap_or(self.heard_at + factor * config.sender_gone_after())
    }

    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        self.heard_at = now.min(self.heard_at + stopped_for);
    }
}

/// Factor by which a sender may be silent for longer if no view has reported it as gone.
const UNREPORTED_FACTOR: u32 = 10;
