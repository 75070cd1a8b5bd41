use core::time::Duration;

use super::super::config::Config;
use super::send_buffer::SendBuffer;
use crate::Time;

#[derive(Debug)]
pub(super) struct Announcements {
    pub(super) next_at: Time,
    count: u32,
}

impl Announcements {
    pub(super) fn new(next_at: Time) -> Self {
        Self { next_at, count: 0 }
    }

    pub(super) fn on_data(&mut self, now: Time, config: &Config, buffer: &SendBuffer) {
        self.count = 0;
        self.next_at = now + self.delay(config, buffer);
    }

    pub(super) fn on_sent(&mut self, now: Time, config: &Config, buffer: &SendBuffer) {
        self.count += 1;
        self.next_at = now + self.delay(config, buffer);
    }

    /// Returns the time to the next announcement. The intervals double, as in LBRM, because the
    /// last packets or the announcements may be lost.
    fn delay(&self, config: &Config, buffer: &SendBuffer) -> Duration {
        let every = config.announce_every;
        if buffer.has_unsent() {
            return every;
        }
        match buffer.base == buffer.next && self.count > 0 {
            true => config.idle_announce_every(),
            false => every.min(config.ack_delay / FIRST_PART * (1 << self.count.min(16))),
        }
    }
}

/// The end is first announced after the maximum acknowledgment delay divided by this number.
const FIRST_PART: u32 = 4;
