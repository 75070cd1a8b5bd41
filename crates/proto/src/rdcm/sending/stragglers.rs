//! Receivers that the others do not wait for: who is not heard, or holds the others up.

use alloc::vec::Vec;

use super::super::around::Around;
use super::super::packet::Report;
use super::super::placing::{ReceiverState, Why};
use super::Sending;
use crate::{Event, NodeId, Slow};

impl Sending {
    /// A receiver does not acknowledge anything to its predecessor.
    pub(in super::super) fn on_silent(&mut self, around: &mut Around<'_>, successor: NodeId) {
        around.counters.silences_heard += 1;
        // What it reports itself is not older than that, if it is there.
        let interval = self.placing.report_interval(around.config);
        let gone_after = (around.config.gone_after / 2).max(interval * 2);
        let heard_at = self.placing.receiver(successor).map(|state| state.heard_at);
        if heard_at.is_some_and(|at| around.now.since(at) >= gone_after) {
            self.leave_behind(around, successor, Why::Silent);
        }
    }

    /// The others go on without a receiver. The last one is waited for until it is no member any
    /// more: there are no others, and what is sent to nobody is lost.
    fn leave_behind(&mut self, around: &mut Around<'_>, node: NodeId, why: Why) {
        let Some(state) = self.placing.receiver(node) else { return };
        if self.placing.current().all(|(other, _)| other == node) {
            return;
        }
        let behind = u32::try_from(self.next - state.next.min(self.next)).unwrap_or(u32::MAX);
        if self.placing.leave_behind(around, node, why) {
            tracing::info!(group = %around.group, %node, behind, "left behind");
            let slow = Slow { group: around.group, node, behind };
            around.events.push_back(Event::Slow(slow));
            self.take_children(around.config);
            self.on_progress(around);
        }
    }

    /// A receiver that was left behind is there again.
    pub(super) fn readmit(&mut self, around: &mut Around<'_>, node: NodeId, report: &Report) {
        let Some(state) = self.placing.receiver(node) else { return };
        let takes_more = report.epoch == 0 || report.limit > report.next;
        if !takes_more || self.placing.readmit_at(node, around.config) > around.now {
            return;
        }
        let is_kept = report.next >= self.base;
        let first = if is_kept { report.next } else { self.first_for_joiner() };
        let missed = first.saturating_sub(report.next.max(state.next));
        self.note_missed(node, missed);
        self.placing.readmit(around, node, first);
        self.take_children(around.config);
    }

    /// Looks for receivers that are not heard, or that hold the others up.
    pub(super) fn watch(&mut self, around: &mut Around<'_>) {
        let (now, config) = (around.now, around.config);
        let silent = (config.gone_after * 2).max(self.placing.report_interval(config) * 8);
        let gone = self.placing.current().filter(|(_, it)| now.since(it.heard_at) >= silent);
        let gone: Vec<NodeId> = gone.map(|(node, _)| node).collect();
        gone.into_iter().for_each(|node| self.leave_behind(around, node, Why::Silent));
        self.placing.announce_to_left_behind(around, self.next);
        let Some(slow_after) = config.slow_after else { return };
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

/// Packets by which a receiver's report may be behind what it expects by now.
const REPORT_LAG: u64 = 64;
/// A window so many times smaller than all others holds them up.
const SLOW_PART: u64 = 4;
