use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;

use crate::NodeId;

#[derive(Debug, Default)]
pub(super) struct Confirmations {
    pending: VecDeque<u64>,
    missed: BTreeMap<NodeId, u32>,
    /// Packets that members lacked when they left, up to the last pending confirmation.
    left: BTreeMap<NodeId, Range<u64>>,
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
        if let Some(until) = self.pending.back().filter(|until| next < **until) {
            self.left.insert(node, next..*until);
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
        self.left.retain(|_, lacked| lacked.end > end);
        Some((end, incomplete))
    }

    /// Returns the receivers that lack packets before `end`, with the number of these packets.
    pub(super) fn incomplete(
        &self,
        end: u64,
        evicted: impl Iterator<Item = (NodeId, u64)>,
    ) -> Vec<(NodeId, u32)> {
        let mut missed = self.missed.clone();
        let left = self.left.iter().map(|(node, it)| (*node, it.start..it.end.min(end)));
        let evicted = evicted.map(|(node, next)| (node, next..end));
        for (node, lacked) in evicted.chain(left).filter(|(_, lacked)| !lacked.is_empty()) {
            let missed = missed.entry(node).or_default();
            *missed = clamped(lacked.end - lacked.start).max(*missed);
        }
        missed.into_iter().collect()
    }
}

/// Returns a number of packets, or the maximum if it does not fit.
pub(super) fn clamped(packets: u64) -> u32 {
    u32::try_from(packets).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_that_left_is_in_no_later_confirmation() {
        let mut confirmations = Confirmations::default();
        let lacked = |node, packets| vec![(NodeId(node), packets)];
        let pop = |confirmations: &mut Confirmations| confirmations.pop(100, core::iter::empty());
        confirmations.request(5);
        confirmations.record_left(NodeId(2), 3);
        confirmations.request(9);
        confirmations.record_left(NodeId(3), 9);
        confirmations.record_left(NodeId(4), 8);
        assert_eq!(pop(&mut confirmations), Some((5, lacked(2, 2))));
        confirmations.request(12);
        assert_eq!(pop(&mut confirmations), Some((9, lacked(4, 1))));
        assert_eq!(pop(&mut confirmations), Some((12, vec![])));
        assert!(confirmations.left.is_empty());
    }
}
