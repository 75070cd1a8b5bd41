use alloc::collections::{BTreeMap, VecDeque};

use crate::NodeId;

#[derive(Debug, Default)]
pub(super) struct Confirmations {
    pending: VecDeque<u64>,
    missed: BTreeMap<NodeId, u32>,
    /// First missing packets of the members that left during a pending confirmation.
    left: BTreeMap<NodeId, u64>,
}

impl Confirmations {
    pub(super) fn request(&mut self, end: u64) {
        if self.pending.back() != Some(&end) {
            self.pending.push_back(end);
        }
    }

    pub(super) fn record_missed(&mut self, node: NodeId, packets: u64) {
        if packets > 0 && !self.pending.is_empty() {
            let missed = self.missed.entry(node).or_default();
            *missed = missed.saturating_add(clamped(packets));
        }
    }

    /// Records that a member has left, whose first missing packet is `next`.
    pub(super) fn record_left(&mut self, node: NodeId, next: u64) {
        if !self.pending.is_empty() {
            self.left.insert(node, next);
        }
    }

    /// Returns the next confirmed end up to `released`, and the number of packets that each
    /// receiver lacks. `evicted` contains the evicted receivers with their first missing packets.
    pub(super) fn pop(
        &mut self,
        released: u64,
        evicted: impl Iterator<Item = (NodeId, u64)>,
    ) -> Option<(u64, Vec<(NodeId, u32)>)> {
        let end = *self.pending.front().filter(|end| **end <= released)?;
        let incomplete = self.incomplete(end, evicted);
        self.pending.pop_front();
        self.missed.clear();
        if self.pending.is_empty() {
            self.left.clear();
        }
        Some((end, incomplete))
    }

    /// Returns the receivers that lack packets before `end`, with the number of these packets.
    pub(super) fn incomplete(
        &self,
        end: u64,
        evicted: impl Iterator<Item = (NodeId, u64)>,
    ) -> Vec<(NodeId, u32)> {
        let mut missed = self.missed.clone();
        let left = self.left.iter().map(|(node, next)| (*node, *next));
        for (node, next) in evicted.chain(left).filter(|(_, next)| *next < end) {
            let missed = missed.entry(node).or_default();
            *missed = clamped(end - next).max(*missed);
        }
        missed.into_iter().collect()
    }
}

/// Returns a number of packets, or the maximum if it does not fit.
pub(super) fn clamped(packets: u64) -> u32 {
    u32::try_from(packets).unwrap_or(u32::MAX)
}
