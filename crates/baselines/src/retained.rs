use core::time::Duration;
use std::collections::VecDeque;

use carom_proto::{GroupId, IdMap, PacketId, Time};

use crate::block::Block;

/// A buffer of symbols by packet id, bounded by bytes and by age. It evicts the oldest first.
#[derive(Debug)]
pub struct Retained {
    blocks: IdMap<PacketId, Block>,
    order: VecDeque<(Time, PacketId)>,
    bytes: usize,
    max_bytes: usize,
    max_age: Duration,
    evicted_by_age: u64,
    evicted_by_bytes: u64,
}

/// Memory of one symbol in addition to its own bytes, for its entries in the map and in the queue.
const ENTRY_BYTES: usize = size_of::<(PacketId, Block)>() + size_of::<(Time, PacketId)>();

/// Maximum number of symbols that [`Retained::check`] verifies one by one.
const BLOCKS_CHECKED: usize = 64;

impl Retained {
    pub(crate) fn new(max_bytes: usize, max_age: Duration, seed: u64) -> Self {
        Self {
            blocks: IdMap::new(seed),
            order: VecDeque::new(),
            bytes: 0,
            max_bytes,
            max_age,
            evicted_by_age: 0,
            evicted_by_bytes: 0,
        }
    }

    pub(crate) fn insert(&mut self, now: Time, id: PacketId, block: Block) {
        let bytes = cost(&block);
        self.evict_old(now);
        if self.blocks.contains(&id) {
            return;
        }
        if bytes > self.max_bytes {
            self.evicted_by_bytes += 1;
            return;
        }
        while self.bytes + bytes > self.max_bytes && self.evict_oldest() {
            self.evicted_by_bytes += 1;
        }
        self.bytes += bytes;
        self.blocks.insert(id, block);
        self.order.push_back((now, id));
    }

    pub(crate) fn get(&self, id: &PacketId) -> Option<&Block> {
        self.blocks.get(id)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evict_old(&mut self, now: Time) {
        let horizon = now.before(self.max_age);
        while self.order.front().is_some_and(|(at, _)| *at < horizon) && self.evict_oldest() {
            self.evicted_by_age += 1;
        }
    }

    pub(crate) fn forget_group(&mut self, group: GroupId) {
        let Self { blocks, order, bytes, .. } = self;
        order.retain(|(_, id)| {
            let stays = id.group != group;
            if !stays && let Some(block) = blocks.remove(id) {
                *bytes -= cost(&block);
            }
            stays
        });
    }

    pub(crate) fn by_name(&self) -> [(&'static str, u64); 2] {
        let Self { evicted_by_age, evicted_by_bytes, .. } = *self;
        [("evicted_by_age", evicted_by_age), ("evicted_by_bytes", evicted_by_bytes)]
    }

    /// Asserts the invariants. Checks each symbol only while there are few, because the simulator
    /// calls this after every step.
    pub(crate) fn check(&self) {
        assert_eq!(self.blocks.len(), self.order.len(), "a block is not in the queue");
        assert!(self.bytes <= self.max_bytes, "the block buffer exceeds its limit");
        if self.order.len() <= BLOCKS_CHECKED {
            let stored = self.order.iter().map(|(_, id)| self.blocks.get(id).map_or(0, cost));
            assert_eq!(stored.sum::<usize>(), self.bytes, "the byte count of the blocks is wrong");
            assert!(self.order.iter().is_sorted_by_key(|(at, _)| *at), "blocks are out of order");
        }
    }

    fn evict_oldest(&mut self) -> bool {
        let Some((_, id)) = self.order.pop_front() else { return false };
        if let Some(block) = self.blocks.remove(&id) {
            self.bytes -= cost(&block);
        }
        true
    }
}

fn cost(block: &Block) -> usize {
    block.bytes().len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::{NodeId, SeqNo};

    fn id(group: u32, seqno: u32) -> PacketId {
        PacketId { sender: NodeId(1), group: GroupId(group), seqno: SeqNo(seqno) }
    }

    #[test]
    fn blocks_leave_by_age_and_by_bytes_the_oldest_first() {
        let block = Block::of_message(Time(0), None, &[0; 100]);
        let room = 3 * (ENTRY_BYTES + block.bytes().len());
        let mut retained = Retained::new(room, Duration::from_nanos(10), 1);
        for seqno in 0..4 {
            retained.insert(Time(u64::from(seqno)), id(1, seqno), block.clone());
            retained.check();
        }
        assert!(retained.get(&id(1, 0)).is_none());
        assert!(retained.get(&id(1, 1)).is_some());
        retained.evict_old(Time(12));
        assert!(retained.get(&id(1, 1)).is_none());
        assert_eq!(retained.by_name(), [("evicted_by_age", 1), ("evicted_by_bytes", 1)]);
        retained.forget_group(GroupId(1));
        retained.check();
        assert!(retained.get(&id(1, 3)).is_none());
    }
}
