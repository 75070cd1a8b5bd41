//! Receivers that the others do not wait for: who is not heard, or holds the others up.

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
    /// How long this node stood still, if it did for longer than a busy machine makes it late.
    pub(super) fn stopped_for(&self, now: Time, config: &Config) -> Duration {
        let late = now.since(self.watch_at);
        if late >= watch_every(config) / 4 { late } else { Duration::ZERO }
    }

    /// A receiver does not acknowledge anything to its predecessor.
    pub(in super::super) fn on_silent(&mut self, around: &mut Around<'_>, successor: NodeId) {
        around.counters.silences_heard += 1;
        // A predecessor may be the one that was not run, or not heard: what counts is what the
        // receiver reports itself.
        let interval = self.placing.report_interval(around.config);
        let gone_after = around.config.gone_after.max(interval * 2);
        let heard_at = self.placing.receiver(successor).map(|state| state.heard_at);
        let stopped_for = self.stopped_for(around.now, around.config);
        if heard_at.is_some_and(|at| around.now.since(at + stopped_for) >= gone_after) {
            self.leave_behind(around, successor, Why::Silent);
        }
    }

    /// The others go on without a receiver. The last one is waited for until it is no member any
    /// more: there are no others, and what is sent to nobody is lost.
    /// Returns `true` if they waited for it until now.
    fn leave_behind(&mut self, around: &mut Around<'_>, node: NodeId, why: Why) -> bool {
        let Some(state) = self.placing.receiver(node) else { return false };
        if self.placing.current().all(|(other, _)| other == node) {
            return false;
        }
        let behind = u32::try_from(self.next - state.next.min(self.next)).unwrap_or(u32::MAX);
        let is_new = self.placing.leave_behind(around, node, why);
        if is_new {
            tracing::info!(group = %around.group, %node, behind, "left behind");
            let slow = Slow { group: around.group, node, behind };
            around.events.push_back(Event::Slow(slow));
            self.take_children(around.config);
            self.on_progress(around);
        }
        is_new
    }

    /// A receiver that was left behind is there again.
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

    /// Tells a receiver a place again that has none any more, though it had taken one: it took the
    /// sender for gone. Of what it lacks the part that nobody keeps any more is lost to it: only
    /// the last receiver comes here so late, which is never left behind.
    pub(super) fn resume(&mut self, around: &mut Around<'_>, node: NodeId, next: u64) {
        let Some(state) = self.placing.receiver(node) else { return };
        let missed = if next < self.base { state.next - next } else { 0 };
        let first = if next < self.base { state.next } else { next.min(state.next) };
        // One that does not know of any packet has missed nothing.
        if self.placing.tell_again(around, node, first) && missed > 0 && next > 0 {
            self.note_missed(node, missed);
            let behind = u32::try_from(missed).unwrap_or(u32::MAX);
            around.events.push_back(Event::Slow(Slow { group: around.group, node, behind }));
        }
    }

    /// Looks for receivers that are not heard, or that hold the others up.
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

    /// Notes whether there is something to send that the receivers' windows do not let out.
    pub(super) fn note_wait(&mut self, around: &Around<'_>) {
        let has_data = self.starts_at.is_none() && self.next < self.end();
        let waits = has_data && !around.is_blocked && self.next >= self.limit();
        self.holdups.note(around.now, waits, self.settled_after(around.config));
    }

    /// How long a receiver was silent that is heard now, if the sender waited for it: most of its
    /// window was used up meanwhile, and most of the others were heard.
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

    /// The receiver was silent for so long, if the report was its own word.
    pub(super) fn charge_silence(&mut self, now: Time, node: NodeId, silence: Option<Duration>) {
        let is_heard = self.placing.receiver(node).is_some_and(|it| it.heard_at == now);
        if let Some(silence) = silence.filter(|_| is_heard) {
            self.holdups.charge(now, node, silence);
        }
    }

    /// The time in which all receivers report.
    pub(super) fn settled_after(&self, config: &Config) -> Duration {
        let interval = self.placing.report_interval(config);
        interval + interval / 4
    }

    /// Names whoever slows the others down, and goes on without whoever slows them too much.
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
                // Others may have waited for it, too.
                self.holdups = Holdups::default();
                return;
            }
        }
    }

    /// The receiver that holds all others up, if there is one: there is something to be sent that
    /// it does not expect yet, while the others expect much more.
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

/// How often the sender looks for receivers that are not heard.
pub(super) fn watch_every(config: &Config) -> Duration {
    config.gone_after / 4
}

/// A window is used up when less than this part of it is left.
const USED_UP: u64 = 8;
/// Packets by which a receiver's report may be behind what it expects by now.
const REPORT_LAG: u64 = 64;
/// A window so many times smaller than all others holds them up.
const SLOW_PART: u64 = 4;
