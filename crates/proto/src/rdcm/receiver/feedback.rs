use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Range;
use core::time::Duration;

use super::super::config::Config;
use super::super::packet::{Place, RingAck};
use super::ack_scheduler::AckScheduler;
use crate::{NodeId, Time};

#[derive(Debug)]
pub(super) struct Feedback {
    /// Acknowledgments in the leaf ring, to the predecessor (`own`) and to the parent.
    own: AckScheduler,
    parent: AckScheduler,
    branch: Option<BranchFeedback>,
    pub(super) report_at: Time,
    pub(super) reported_next: u64,
}

#[derive(Debug, Default)]
struct BranchFeedback {
    acks: AckScheduler,
    reported_to: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DueAcks {
    pub(super) own: bool,
    pub(super) parent: bool,
    pub(super) branch: bool,
}

impl DueAcks {
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

    pub(super) fn ack_soon(&mut self, now: Time, config: &Config) {
        let branch = self.branch.as_mut().map(|branch| &mut branch.acks);
        for acks in [&mut self.own, &mut self.parent].into_iter().chain(branch) {
            acks.on_packet(now, config.ack_every, config.ack_delay);
        }
    }

    pub(super) fn ack_at_once(&mut self, now: Time) {
        self.on_gap(now);
        self.ack_branch(now);
    }

    /// Schedules the acknowledgment of the branch at once.
    pub(super) fn ack_branch(&mut self, now: Time) {
        if let Some(branch) = &mut self.branch {
            branch.acks.at_once(now);
        }
    }

    /// Schedules the receiver's own acknowledgments at once, but not those of the branch.
    pub(super) fn on_gap(&mut self, now: Time) {
        self.own.at_once(now);
        self.parent.at_once(now);
    }

    /// Schedules the acknowledgment of a repair. Predecessors get it at once, because they wait for
    /// it and may be about to send the same repair. The parent in the leaf ring gets it later.
    pub(super) fn on_repair(&mut self, now: Time, delay: Duration) {
        self.own.at_once(now);
        self.parent.within(now, delay);
        self.ack_branch(now);
    }

    /// Schedules the branch's ACK: at once if the branch lacks packets below `known_to` that were
    /// not reported before, otherwise within the usual delay. `has_all` returns `true` if the
    /// branch has every packet of a range.
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

    /// Returns and resets what is due. If `is_same`, the leaf ring's predecessor is the parent.
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
