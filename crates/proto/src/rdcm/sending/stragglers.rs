//! Eviction of receivers that are silent or slow the others down.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::Report;
use super::super::placing::{ReceiverState, Why};
use super::super::slowest::Slowest;
use super::Sending;
use super::holdups::{Holdup, Holdups, LATELY};
use crate::{Event, Limiting, NodeId, Slow, Time};

impl Sending {
    /// Returns the time for which this node stood still, or zero if it was only as late as on a
    /// busy machine.
    pub(super) fn stopped_for(&self, now: Time, config: &Config) -> Duration {
        let late = now.since(self.watch_at);
        if late >= watch_every(config) / 4 { late } else { Duration::ZERO }
    }

    /// Handles a predecessor's report that a receiver acknowledges nothing.
    pub(in super::super) fn on_silent(&mut self, around: &mut Around<'_>, successor: NodeId) {
        around.counters.silences_heard += 1;
        // The predecessor may itself have stood still, or be cut off. The receiver's own reports
        // decide.
        let interval = self.placing.report_interval(around.config);
        let gone_after = around.config.gone_after.max(interval * 2);
        let heard_at = self.placing.receiver(successor).map(|state| state.heard_at);
        let stopped_for = self.stopped_for(around.now, around.config);
        if heard_at.is_some_and(|at| around.now.since(at + stopped_for) >= gone_after) {
            self.leave_behind(around, successor, Why::Silent);
        }
    }

    /// Evicts a receiver. The last one is never evicted: no other receiver would benefit, and data
    /// sent to no receiver is lost. Returns `true` if the others waited for it until now.
    fn leave_behind(&mut self, around: &mut Around<'_>, node: NodeId, why: Why) -> bool {
        let Some(state) = self.placing.receiver(node) else { return false };
        if self.placing.current().all(|(other, _)| other == node) {
            return false;
        }
        let behind = u32::try_from(self.next - state.next.min(self.next)).unwrap_or(u32::MAX);
        let is_new = self.placing.leave_behind(around, node, why);
        if is_new {
            tracing::info!(group = %around.group, %node, behind, "evicted");
            let slow = Slow { group: around.group, node, behind };
            around.events.push_back(Event::Slow(slow));
            self.take_children(around.config);
            self.on_progress(around);
        }
        is_new
    }

    /// Readmits an evicted receiver that is heard again, if it accepts more data and its pause has
    /// ended.
    pub(super) fn readmit(&mut self, around: &mut Around<'_>, node: NodeId, report: &Report) {
        let Some(state) = self.placing.receiver(node) else { return };
        let takes_more = report.epoch == 0 || report.limit > report.next;
        if !takes_more || self.placing.readmit_at(node) > around.now {
            return;
        }
        let next = self.placing.reported(node, report);
        let is_kept = next >= self.base;
        let first = if is_kept { next } else { self.first_for_joiner() };
        let missed = first.saturating_sub(next.max(state.next));
        self.note_missed(node, missed);
        self.placing.readmit(around, node, first);
        self.take_children(around.config);
    }

    /// Assigns a place again to a receiver that has lost the one it had taken, because it took the
    /// sender for gone. The packets that it lacks and that the sender no longer keeps are lost to
    /// it. This happens only to the last receiver, which is never evicted.
    pub(super) fn resume(&mut self, around: &mut Around<'_>, node: NodeId, next: u64) {
        let Some(state) = self.placing.receiver(node) else { return };
        let missed = if next < self.base { state.next - next } else { 0 };
        let first = if next < self.base { state.next } else { next.min(state.next) };
        // A receiver that does not know of any packet has missed nothing.
        if self.placing.tell_again(around, node, first) && missed > 0 && next > 0 {
            self.note_missed(node, missed);
            let behind = u32::try_from(missed).unwrap_or(u32::MAX);
            around.events.push_back(Event::Slow(Slow { group: around.group, node, behind }));
        }
    }

    /// Evicts receivers that are silent or stall the others.
    pub(super) fn watch(&mut self, around: &mut Around<'_>) {
        let (now, config) = (around.now, around.config);
        let silent = (config.gone_after * 2).max(self.placing.report_interval(config) * 8);
        let gone = self.placing.current().filter(|(_, it)| now.since(it.heard_at) >= silent);
        let gone: Vec<NodeId> = gone.map(|(node, _)| node).collect();
        for node in gone {
            self.leave_behind(around, node, Why::Silent);
        }
        self.placing.announce_to_left_behind(around, self.next);
        self.look_at_holdups(around);
        let slow_after = config.slow_after.filter(|_| config.slowest != Slowest::Wait);
        let Some(slow_after) = slow_after else { return };
        self.slowest = self.find_slowest().map(|node| match self.slowest {
            Some((before, since)) if before == node => (node, since),
            _ => (node, now),
        });
        if let Some((node, since)) = self.slowest
            && now.since(since) >= slow_after
        {
            self.slowest = None;
            self.leave_behind(around, node, Why::Slow);
        }
    }

    /// Records whether there is data to send that the receivers' windows do not allow.
    pub(super) fn note_wait(&mut self, around: &Around<'_>) {
        let has_data = self.starts_at.is_none() && self.next < self.end();
        let waits = has_data && !around.is_blocked && self.next >= self.limit();
        self.holdups.note(around.now, waits, self.settled_after(around.config));
    }

    /// Returns the silence of a receiver that is heard now, if the sender waited for it: most of
    /// its window was used up meanwhile, and most of the others were heard.
    pub(super) fn silence_of(&self, around: &Around<'_>, node: NodeId) -> Option<Duration> {
        let (now, settled_after) = (around.now, self.settled_after(around.config));
        let state = self.placing.receiver(node).filter(|it| it.left_behind_at.is_none())?;
        let silence = now.since(state.heard_at);
        let has_data = self.starts_at.is_none() && self.next < self.end();
        let has_stopped = !self.stopped_for(now, around.config).is_zero();
        if silence < settled_after || !has_data || has_stopped {
            return None;
        }
        let window = state.limit.saturating_sub(state.next);
        let left = state.limit.saturating_sub(self.next);
        let silent = self.placing.current().filter(|it| it.1.heard_at + settled_after <= now);
        let is_of_few = silent.count() * 2 <= self.placing.current().count();
        (is_of_few && left * USED_UP <= window).then_some(silence)
    }

    /// Charges a receiver for its silence, if the report is genuine.
    pub(super) fn charge_silence(&mut self, now: Time, node: NodeId, silence: Option<Duration>) {
        let is_heard = self.placing.receiver(node).is_some_and(|it| it.heard_at == now);
        if let Some(silence) = silence.filter(|_| is_heard) {
            self.holdups.charge(now, node, silence);
        }
    }

    /// Returns the time within which all receivers report.
    pub(super) fn settled_after(&self, config: &Config) -> Duration {
        let interval = self.placing.report_interval(config);
        interval + interval / 4
    }

    /// Reports receivers that slow the others down, and evicts those that slow them down too much.
    fn look_at_holdups(&mut self, around: &mut Around<'_>) {
        self.note_wait(around);
        let slowest = around.config.slowest;
        for holdup in self.holdups.of_late(around.now, slowest.span()) {
            let Holdup { node, held, held_lately, since, is_news } = holdup;
            let is_too_much = held > slowest.most_waits();
            let is_left_behind = is_too_much && self.leave_behind(around, node, Why::Pace(held));
            if !is_left_behind && !is_news {
                continue;
            }
            let since = around.now.since(since);
            let group = around.group;
            let (held, over) = (held_lately, LATELY);
            let limiting = Limiting { group, node, held, over, since, is_left_behind };
            around.events.push_back(Event::Limiting(limiting));
            self.holdups.on_named(around.now, node);
            if is_left_behind {
                // The others may have waited for more than one receiver.
                self.holdups = Holdups::default();
                return;
            }
        }
    }

    /// Returns the receiver that stalls the others, if any: there is data beyond its window, while
    /// the others' windows are much larger.
    fn find_slowest(&self) -> Option<NodeId> {
        if self.next >= self.end() || self.placing.current().count() < 2 {
            return None;
        }
        let room = |state: &ReceiverState| state.limit.saturating_sub(state.next);
        let mut by_limit: Vec<(u64, NodeId, u64)> =
            self.placing.current().map(|(node, it)| (it.limit, node, room(it))).collect();
        by_limit.sort_unstable();
        let [(limit, node, least), (_, _, second), ..] = by_limit[..] else { return None };
        let is_bound = limit <= self.next + REPORT_LAG;
        (is_bound && least * SLOW_PART <= second).then_some(node)
    }
}

/// Returns the interval between checks for silent receivers.
pub(super) fn watch_every(config: &Config) -> Duration {
    config.gone_after / 4
}

/// Inverse of the remaining part of a window below which it counts as used up.
const USED_UP: u64 = 8;
/// Maximum number of packets by which a receiver's report lags its current limit.
const REPORT_LAG: u64 = 64;
/// Ratio of the second smallest window to the smallest one from which on the latter stalls the
/// others.
const SLOW_PART: u64 = 4;
