use alloc::collections::{BTreeMap, VecDeque};

use crate::NodeId;

#[derive(Debug, Default)]
pub(super) struct Confirmations {
    pending: VecDeque<u64>,
    missed: BTreeMap<NodeId, u32>,
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
            *missed = missed.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
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
        self.pending.pop_front();
        let mut missed = core::mem::take(&mut self.missed);
        for (node, next) in evicted.filter(|(_, next)| *next < end) {
            let lacks = u32::try_from(end - next).unwrap_or(u32::MAX);
            missed.insert(node, missed.get(&node).map_or(lacks, |known| lacks.max(*known)));
        }
        Some((end, missed.into_iter().collect()))
    }
}
