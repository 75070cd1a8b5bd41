//! Overlay children of the sender, which are the receivers whose acknowledgments set its window.

use alloc::collections::BTreeMap;
use core::ops::Range;
use core::time::Duration;

use super::super::config::{Config, Congestion};
use super::super::context::Context;
use super::super::next_ack::NextAck;
use super::super::packet::RingAck;
use super::super::successor::{RepairTiming, Successor};
use super::pacer::Span;
use crate::{NodeId, Time};

#[derive(Debug)]
pub(super) struct Children {
    children: BTreeMap<NodeId, Child>,
    /// All children as a single successor. Packets that none of them has are multicast again.
    all: Successor,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    known_to: u64,
    limit: u64,
    next_ack: NextAck,
}

impl Children {
    pub(super) fn new(now: Time, sender: NodeId, first: u64) -> Self {
        Self { children: BTreeMap::new(), all: Successor::new(now, ALL, sender, first) }
    }

    pub(super) fn set(&mut self, nodes: &[NodeId], limit: u64) {
        self.children.retain(|child, _| nodes.contains(child));
        for node in nodes {
            let new = Child { known_to: 0, limit, next_ack: NextAck::default() };
            self.children.entry(*node).or_insert(new);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    pub(super) fn limit(&self) -> u64 {
        self.on_time().map(|child| child.limit).min().unwrap_or(u64::MAX)
    }

    pub(super) fn known_to(&self) -> Option<u64> {
        self.on_time().map(|child| child.known_to).min()
    }

    /// Returns the children whose acknowledgments are not late, or all if all are late, because
    /// data sent to no receiver is lost.
    fn on_time(&self) -> impl Iterator<Item = &Child> {
        let are_all_late = self.children.values().all(|child| child.next_ack.is_late);
        self.children.values().filter(move |child| are_all_late || !child.next_ack.is_late)
    }

    pub(super) fn find_late(&mut self, now: Time, config: &Config) {
        let late_after = self.late_after(config);
        for child in self.children.values_mut() {
            if child.next_ack.find_late(now, late_after) {
                // The others' acknowledgment of the measured packet arrived earlier.
                self.all.round_trip.forget_probe();
            }
        }
    }

    pub(super) fn late_at(&self, config: &Config) -> Option<Time> {
        let late_after = self.late_after(config);
        self.children.values().filter_map(|child| child.next_ack.late_at(late_after)).min()
    }

    fn late_after(&self, config: &Config) -> Duration {
        config.late_after().max(self.all.round_trip.timeout())
    }

    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        for child in self.children.values_mut() {
            child.next_ack.make_up_for_stop(now, stopped_for);
        }
    }

    /// Returns the current window and round-trip time, or `None` if the rate does not follow the
    /// receivers or nothing has been measured yet.
    pub(super) fn span(&self, config: &Config, base: u64) -> Option<Span> {
        if config.congestion == Congestion::Room {
            return None;
        }
        let acknowledged = self.known_to()?.max(base);
        let round_trip = self.all.round_trip.smoothed()?;
        let packets = self.limit().saturating_sub(acknowledged).max(2);
        Some(Span { window: packets.saturating_mul(config.path_mtu.into()), round_trip })
    }

    pub(super) fn on_sent(&mut self, now: Time, number: u64, config: &Config) {
        self.children.values_mut().for_each(|child| child.next_ack.await_from(now));
        match self.children.is_empty() {
            true => self.all.round_trip.forget_probe(),
            false => self.all.await_ack(now, number, &timing(config)),
        }
    }

    /// Records an acknowledgment. Returns `true` if it lowers a limit. `sent` are the packets that
    /// were sent and are kept.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context<'_>,
        from: NodeId,
        ack: &RingAck,
        sent: Range<u64>,
        has_stopped: bool,
    ) -> bool {
        let Some(child) = self.children.get_mut(&from) else { return false };
        child.known_to = child.known_to.max(ack.known_to);
        child.next_ack.on_ack(cx.now, child.known_to >= sent.end);
        if has_stopped {
            // The time for which this node was suspended is not part of the round trip.
            self.all.round_trip.forget_probe();
        }
        let is_reduced = ack.limit < child.limit;
        child.limit = ack.limit;
        let mut all = RingAck::new(ALL, &ack.has, self.known_to().unwrap_or(0), 0, 0);
        // Packets of a child count as received through the tree, to measure each round trip.
        all.by_tree = all.known_to as u32;
        let fresh = self.all.on_ack(cx.now, &all, &timing(cx.config));
        let due = cx.now + cx.config.detect_after;
        for number in fresh.start.max(sent.start)..fresh.end {
            self.all.mark_missing(number, due);
        }
        is_reduced
    }

    pub(super) fn poll_repair(
        &mut self,
        now: Time,
        config: &Config,
        is_kept: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        if self.children.is_empty() {
            return None;
        }
        self.all.poll_repair(now, &timing(config), is_kept)
    }

    pub(super) fn next_repair(&mut self, config: &Config) -> Option<Time> {
        if self.children.is_empty() {
            return None;
        }
        self.all.next_repair(&timing(config))
    }
}

/// Returns the receivers' timing with a longer `silent_after`, because several rings are involved.
fn timing(config: &Config) -> RepairTiming {
    let timing = RepairTiming::new(config);
    RepairTiming { silent_after: timing.silent_after * 4, ..timing }
}

const ALL: u32 = u32::MAX;
