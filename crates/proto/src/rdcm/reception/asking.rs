//! Requests of a receiver to the sender for packets that no other receiver repairs (section 3.4).

use alloc::vec::Vec;
use core::time::Duration;

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::{MAX_RANGES, Packet};
use super::Reception;
use crate::Time;

impl Reception {
    /// Returns `true` if the sender is online, as far as is known. A sender that has yielded to
    /// another one falls silent, and some receivers may not have heard of the other one yet.
    pub(in super::super) fn hears_sender(&self, now: Time, config: &Config) -> bool {
        let silence = now.since(self.sender_heard_at).saturating_sub(self.stopped_for(now));
        !self.is_orphan() && silence < config.sender_gone_after()
    }

    /// Returns `true` if another sender may be followed. If the sender was reported as gone and is
    /// a member again, its stream has ended if it left and rejoined, and continues if the view was
    /// wrong. The sender is followed only once it is heard.
    pub(in super::super) fn follows_another(&self, now: Time, config: &Config) -> bool {
        let is_doubtful = self.sender_back_at.is_some_and(|back| self.sender_heard_at <= back);
        is_doubtful || !self.hears_sender(now, config)
    }

    /// Returns the time for which this node stood still and could hear no other node.
    pub(super) fn stopped_for(&self, now: Time) -> Duration {
        now.since(self.watch_at)
    }

    /// Excludes the time for which this node stood still from the silence of the sender and of
    /// neighbors.
    pub(super) fn make_up_for_stop(&mut self, now: Time) {
        let stopped_for = self.stopped_for(now);
        let make_up = |heard_at: &mut Time| *heard_at = now.min(*heard_at + stopped_for);
        make_up(&mut self.sender_heard_at);
        self.children.values_mut().for_each(|child| make_up(&mut child.heard_at));
        self.window.successors_mut().for_each(|it| make_up(it.heard_at_mut()));
    }

    /// Returns when to request packets from the sender that others do not repair.
    pub(super) fn ask_at(&self, config: &Config) -> Option<Time> {
        let next = self.window.own().next();
        if next >= self.known_to || next >= self.window.end() {
            return None;
        }
        // The requested packets have arrived and more are missing: the next request need not wait.
        let goes_on = self.asked_to.is_some_and(|end| next >= end);
        let wait = if goes_on { config.ack_delay } else { config.ask_after };
        Some(self.stuck_since + wait)
    }

    pub(super) fn ask(&mut self, around: &mut Around<'_>) {
        self.stuck_since = around.now;
        let end = self.known_to.min(self.window.end());
        let own = self.window.own();
        let tail = own.end()..end.max(own.end());
        let mut left = ASKED_AT_ONCE;
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
            self.asked_to = Some(last.end);
            around.counters.asks_sent += 1;
            around.unicast(self.sender, &Packet::Ask(ranges));
        }
    }
}

/// Maximum number of packets per request.
const ASKED_AT_ONCE: u64 = 256;
