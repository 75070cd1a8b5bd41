//! Requests of a receiver to the sender for packets that no other receiver repairs (section 3.4).

use core::ops::Range;

use super::super::config::Config;
use super::super::limits::MAX_RANGES;
use super::super::sack_set::SackSet;
use crate::Time;

#[derive(Debug)]
pub(super) struct RepairRequests {
    progress: u64,
    /// Time since which the first missing packet is the same, or time at which it was requested.
    stuck_since: Time,
    pub(super) requested_to: Option<u64>,
}

impl RepairRequests {
    pub(super) fn new(now: Time, first: u64) -> Self {
        Self { progress: first, stuck_since: now, requested_to: None }
    }

    pub(super) fn on_progress(&mut self, now: Time, next: u64) {
        if next > self.progress {
            (self.progress, self.stuck_since) = (next, now);
        }
    }

    pub(super) fn due(&self, config: &Config, own: &SackSet, end: u64) -> Option<Time> {
        if own.next() >= end {
            return None;
        }
        // The requested packets have arrived, so the next request does not have to wait.
        let continues = self.requested_to.is_some_and(|end| own.next() >= end);
        let wait = if continues { config.ack_delay } else { config.ask_after };
        Some(self.stuck_since + wait)
    }

    pub(super) fn request(&mut self, now: Time, own: &SackSet, end: u64) -> Vec<Range<u64>> {
        self.stuck_since = now;
        let tail = own.end()..end.max(own.end());
        let mut left = MAX_REQUESTED;
        let mut ranges = Vec::new();
        for range in own.missing().chain([tail]).filter(|range| !range.is_empty()) {
            if left == 0 || ranges.len() == MAX_RANGES {
                break;
            }
            let range = range.start..range.end.min(range.start + left);
            left -= range.end - range.start;
            ranges.push(range);
        }
        if let Some(last) = ranges.last() {
            self.requested_to = Some(last.end);
        }
        ranges
    }
}

const MAX_REQUESTED: u64 = 256;
