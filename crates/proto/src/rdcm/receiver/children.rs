//! Overlay children of a receiver, which together account for its branch (section 3.3).

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::super::next_ack::NextAck;
use super::super::packet::{Place, RingAck};
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Children {
    ring: u32,
    children: BTreeMap<NodeId, Child>,
    includes_itself: bool,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    known_to: u64,
    limit: u64,
    by_tree: u32,
    heard_at: Time,
    next_ack: NextAck,
}

impl Children {
    /// Adopts a place. Returns `true` if children changed. New ones expect packets below `limit`.
    pub(super) fn on_place(&mut self, now: Time, node: NodeId, place: &Place, limit: u64) -> bool {
        let children = &place.children;
        let others: BTreeSet<NodeId> = children.iter().copied().filter(|it| *it != node).collect();
        let has_changed = !self.children.keys().eq(&others);
        self.children.retain(|child, _| others.contains(child));
        for child in others {
            let next_ack = NextAck::default();
            let new = Child { known_to: 0, limit, by_tree: 0, heard_at: now, next_ack };
            self.children.entry(child).or_insert(new);
        }
        self.ring = place.children_ring;
        self.includes_itself = self.children.len() < children.len();
        has_changed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Awaits acknowledgments from the children that have not accounted for all packets below
    /// `known_to`.
    pub(super) fn expect_acks(&mut self, now: Time, known_to: u64) {
        let behind = self.children.values_mut().filter(|child| child.known_to < known_to);
        behind.for_each(|child| child.next_ack.await_from(now));
    }

    /// Records an acknowledgment. Returns `true` if a child sent it. The window ends at `end`, and
    /// packets are known below `known_to`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        from: NodeId,
        ack: &RingAck,
        end: u64,
        known_to: u64,
    ) -> bool {
        let child = self.children.get_mut(&from).filter(|_| ack.ring == self.ring);
        let Some(child) = child else { return false };
        child.known_to = child.known_to.max(ack.known_to.min(end));
        (child.limit, child.by_tree) = (ack.limit, ack.by_tree);
        child.heard_at = now;
        child.next_ack.on_ack(now, child.known_to >= known_to);
        true
    }

    /// Returns the number below which the packets that the branch lacks are known.
    ///
    /// If this receiver and a child elsewhere below the branch lack a packet, it was lost above
    /// both, or rarely twice. Waiting for all children would be as slow as the slowest child.
    pub(super) fn known_to(&self, known_to: u64) -> u64 {
        let all = self.on_time().map(|child| Some(child.known_to));
        let (most, second) = all.fold((None, None), |(most, second), it| match it > most {
            true => (it, most),
            false => (most, second.max(it)),
        });
        // A receiver that is not its own child shares its path with one of its children.
        let enough = if self.includes_itself { most } else { second };
        enough.unwrap_or(u64::MAX).min(known_to)
    }

    pub(super) fn limit(&self, own: u64) -> u64 {
        self.on_time().map(|child| child.limit).fold(own, u64::min)
    }

    /// Returns the number of packets that this receiver, with its own count `own`, and all branches
    /// of its children got through the tree. It stops only if the tree reaches none of them.
    pub(super) fn by_tree(&self, own: u32) -> u32 {
        self.children.values().map(|child| child.by_tree).fold(own, u32::wrapping_add)
    }

    /// Returns the children whose acknowledgments are not late.
    fn on_time(&self) -> impl Iterator<Item = &Child> {
        self.children.values().filter(|child| !child.next_ack.is_late)
    }

    /// Returns `true` if the acknowledgment of a child has become late.
    pub(super) fn find_late(&mut self, now: Time, late_after: Duration) -> bool {
        let mut is_any_late = false;
        for child in self.children.values_mut() {
            is_any_late |= child.next_ack.find_late(now, late_after);
        }
        is_any_late
    }

    pub(super) fn late_at(&self, late_after: Duration) -> Option<Time> {
        self.children.values().filter_map(|child| child.next_ack.late_at(late_after)).min()
    }

    /// Returns `true` if any child is heard.
    ///
    /// While the branch is whole, a child that has accounted for all packets below `known_to` has
    /// nothing to report, and is not silent. If the branch lacks packets, that child must report:
    /// a child that has left the ring unnoticed would hold the packets forever.
    pub(super) fn check_silence(
        &mut self,
        now: Time,
        is_whole: bool,
        known_to: u64,
        gone_after: Duration,
    ) -> bool {
        for child in self.children.values_mut() {
            if is_whole && child.known_to >= known_to {
                child.heard_at = now;
            }
        }
        self.children.values().any(|child| now.since(child.heard_at) < gone_after)
    }

    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        for child in self.children.values_mut() {
            child.heard_at = now.min(child.heard_at + stopped_for);
            child.next_ack.make_up_for_stop(now, stopped_for);
        }
    }
}
