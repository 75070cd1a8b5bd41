//! Timing of a receiver's acknowledgments to its neighbors in the rings, and of its reports to the
//! sender.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::super::config::Config;
use super::super::packet::{Place, RingAck};
use super::ack_scheduler::AckScheduler;
use crate::{NodeId, Time};

#[derive(Debug)]
pub(super) struct Feedback {
    /// Acknowledgments in the leaf ring, of the packets that are here: to the predecessor and to
    /// the parent.
    own: AckScheduler,
    parent: AckScheduler,
    /// `None` without a seat in a proxy ring.
    branch: Option<BranchFeedback>,
    pub(super) report_at: Time,
    /// First missing packet in the last report to the sender.
    pub(super) reported_next: u64,
}

/// Schedule of acknowledgments in the proxy ring, of the packets that the branch has.
#[derive(Debug, Default)]
struct BranchFeedback {
    acks: AckScheduler,
    /// Number up to which the losses of the branch were reported.
    reported_to: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DueAcks {
    /// To the predecessor in the leaf ring.
    pub(super) own: bool,
    /// To the parent in the leaf ring.
    pub(super) parent: bool,
    /// To the predecessor and the parent in the proxy ring.
    pub(super) branch: bool,
}

impl DueAcks {
    /// Returns the packets to the neighbors of a place, with the acknowledgments of the receiver's
    /// own packets and of those of its branch.
    pub(super) fn packets(
        self,
        place: &Place,
        own: Option<&RingAck>,
        branch: Option<&RingAck>,
    ) -> BTreeMap<NodeId, Vec<RingAck>> {
        let mut packets: BTreeMap<NodeId, Vec<RingAck>> = BTreeMap::new();
        let leaf = [(self.own, place.leaf.predecessor), (self.parent, place.leaf.parent)];
        for (_, node) in leaf.into_iter().filter(|(is_due, _)| *is_due) {
            packets.insert(node, own.into_iter().cloned().collect());
        }
        if let (Some(seat), Some(ack)) = (place.proxy, branch) {
            for node in BTreeSet::from([seat.predecessor, seat.parent]) {
                packets.entry(node).or_default().push(ack.clone());
            }
        }
        packets
    }
}

impl Feedback {
    pub(super) fn new(now: Time) -> Self {
        let (own, parent) = Default::default();
        Self { own, parent, branch: None, report_at: now, reported_next: 0 }
    }

    pub(super) fn on_place(&mut self, now: Time, is_proxy: bool) {
        self.branch = is_proxy.then(BranchFeedback::default);
        self.ack_at_once(now);
    }

    /// Schedules all acknowledgments, together with those of packets that follow soon.
    pub(super) fn ack_soon(&mut self, now: Time, config: &Config) {
        let branch = self.branch.as_mut().map(|branch| &mut branch.acks);
        for acks in [&mut self.own, &mut self.parent].into_iter().chain(branch) {
            acks.on_packet(now, config.ack_every, config.ack_delay);
        }
    }

    pub(super) fn ack_at_once(&mut self, now: Time) {
        self.on_gap(now);
        if let Some(branch) = &mut self.branch {
            branch.acks.at_once(now);
        }
    }

    /// Schedules an immediate acknowledgment that shows a gap at this receiver. Acknowledgments of
    /// the branch are not affected.
    pub(super) fn on_gap(&mut self, now: Time) {
        self.own.at_once(now);
        self.parent.at_once(now);
    }

    /// Schedules the acknowledgment of a repair. Predecessors get it at once, because they wait for
    /// it and may be about to send the repair, too. The parent in the leaf ring gets it later.
    pub(super) fn on_repair(&mut self, now: Time, delay: Duration) {
        self.own.at_once(now);
        self.parent.within(now, delay);
        if let Some(branch) = &mut self.branch {
            branch.acks.at_once(now);
        }
    }

    /// Schedules acknowledgments of the branch, after one of a child. All losses of the branch
    /// below `known_to` are known. If it lacks some that were not reported before, they are
    /// reported at once. `has_all` returns `true` for a range of which the branch lacks nothing.
    pub(super) fn on_child(
        &mut self,
        now: Time,
        delay: Duration,
        known_to: u64,
        has_all: impl FnOnce(Range<u64>) -> bool,
    ) {
        let Some(branch) = &mut self.branch else { return };
        let fresh = branch.reported_to..known_to;
        branch.reported_to = known_to.max(fresh.start);
        match has_all(fresh) {
            true => branch.acks.within(now, delay),
            false => branch.acks.at_once(now),
        }
    }

    /// Returns the acknowledgments that are due, which then count as sent. `is_same` is `true` if
    /// the predecessor in the leaf ring is also the parent.
    pub(super) fn take_due(&mut self, now: Time, is_same: bool) -> DueAcks {
        let (own, parent) = (self.own.take_due(now), self.parent.take_due(now));
        if is_same && (own || parent) {
            (self.own, self.parent) = Default::default();
        }
        let branch = self.branch.as_mut().is_some_and(|branch| branch.acks.take_due(now));
        DueAcks { own, parent, branch }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let branch = self.branch.as_ref().and_then(|branch| branch.acks.due);
        [self.own.due, self.parent.due, branch].into_iter().flatten().min()
    }
}
