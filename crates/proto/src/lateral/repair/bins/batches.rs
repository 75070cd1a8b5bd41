use alloc::collections::BTreeMap;

use smallvec::SmallVec;

use crate::lateral::packet::WireId;
use crate::lateral::repair::regions::RegionIx;
use crate::{NodeId, RateOfFire, Rng};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BinIx(pub(crate) u32);

#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Part of each batch that every packet accesses, indexed by bin.
    pub(crate) cells: Vec<Cell>,
    pub(crate) batches: Vec<Batch>,
    /// Nodes drawn by open batches, indexed by region. A node that two batches share is listed
    /// twice. Empty if batches draw independently.
    pub(crate) held: Vec<Vec<NodeId>>,
    /// Bins that owe targets to a region while all of its nodes are held, indexed by region. The
    /// first bin has waited longest.
    pub(crate) waiting: Vec<Vec<BinIx>>,
}

/// Number of packets that a bin has yet to count in one lane. The count ends when the batch is full
/// or, if the batch has no targets, when a later batch has to draw some. The highest bit is set if
/// the batch has targets. Most packets access only this part of most bins, so it is a single small
/// number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell(u16);

/// The largest count of a [`Cell`] must leave its highest bit free.
const _: () = assert!(MAX_BATCHES_AHEAD * (RateOfFire::MAX_R as u32) < Cell::WANTED as u32);

/// A batch, aligned to cache lines because batches are visited in an unpredictable order.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Batch {
    pub(crate) sources: SmallVec<[Source; 1]>,
    pub(crate) targets: SmallVec<[(RegionIx, NodeId); 1]>,
    pub(crate) ids: Vec<WireId>,
    /// XOR of the batch's symbols. The buffer is taken when the first packet arrives, so that few
    /// buffers are in use and these stay in the cache.
    pub(crate) sum: Vec<u8>,
    pub(crate) generation: u32,
    /// `true` if the next batch is known to draw a target.
    pub(crate) due: bool,
    /// `true` if the bin is in [`Lane::waiting`] of its only region.
    pub(crate) waits: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) region: RegionIx,
    pub(crate) targets: f64,
    pub(crate) owed: f64,
}

impl Cell {
    const WANTED: u16 = 1 << 15;

    /// Counts `left` packets without targets. If it is 0, the bin must draw before the next packet.
    pub(crate) fn idle(left: u32) -> Self {
        Self(left as u16)
    }

    /// Creates the cell for a batch with targets, which counts `left` more packets (at least 1).
    pub(crate) fn wanted(left: u32) -> Self {
        Self(left as u16 | Self::WANTED)
    }

    /// Counts a packet. Returns `true` if the batch has targets or the count has ended.
    pub(crate) fn tick(&mut self) -> bool {
        self.0 -= 1;
        // Zero wraps around, so that one comparison detects both cases.
        self.0.wrapping_sub(1) >= Self::WANTED - 1
    }

    pub(crate) fn left(self) -> u32 {
        u32::from(self.0 & !Self::WANTED)
    }

    pub(crate) fn is_wanted(self) -> bool {
        self.0 & Self::WANTED != 0
    }
}

impl Lane {
    pub(crate) fn wait(&mut self, bin: BinIx) {
        let batch = &mut self.batches[bin.0 as usize];
        if let [source] = &batch.sources[..]
            && !core::mem::replace(&mut batch.waits, true)
        {
            self.waiting[source.region.0 as usize].push(bin);
        }
    }

    pub(crate) fn stop_waiting(&mut self, bin: BinIx, region: RegionIx) {
        if core::mem::take(&mut self.batches[bin.0 as usize].waits) {
            self.waiting[region.0 as usize].retain(|other| *other != bin);
        }
    }

    /// Counts a packet in all of `bins`. Sets `noted` to the bins for which [`Cell::tick`] returns
    /// `true`.
    ///
    /// On a node in a thousand groups, a packet is in about a hundred bins, and nothing else is
    /// done for most of them. The loop has no branch, because the processor could not predict which
    /// bins are noted.
    pub(crate) fn count(&mut self, bins: &[BinIx], noted: &mut Vec<BinIx>) {
        noted.clear();
        noted.resize(bins.len(), BinIx(0));
        let mut count = 0;
        for bin in bins {
            noted[count] = *bin;
            count += usize::from(self.cells[bin.0 as usize].tick());
        }
        noted.truncate(count);
    }

    pub(crate) fn check(&self, bins: impl Iterator<Item = usize>, r: u32, is_exclusive: bool) {
        let mut drawn: BTreeMap<RegionIx, Vec<NodeId>> = BTreeMap::new();
        let mut waiting = 0;
        for bin in bins {
            let (cell, batch) = (&self.cells[bin], &self.batches[bin]);
            assert_eq!(cell.is_wanted(), !batch.targets.is_empty(), "a cell contradicts a batch");
            // A cell can count several batches without targets at once.
            let most = if cell.is_wanted() { r } else { r * MAX_BATCHES_AHEAD };
            assert!((1..=most).contains(&cell.left()), "a full batch was not sent");
            let holds = if cell.is_wanted() { r - cell.left() } else { 0 };
            assert_eq!(batch.ids.len(), holds as usize, "a batch lost or gained packets");
            for (place, (region, node)) in batch.targets.iter().enumerate() {
                let twice = batch.targets[..place].contains(&(*region, *node));
                assert!(!twice, "a batch has drawn a node twice");
                if is_exclusive {
                    drawn.entry(*region).or_default().push(*node);
                }
            }
            waiting += usize::from(batch.waits);
            assert!(!(batch.waits && cell.is_wanted()), "a batch with targets waits for one");
        }
        for (held, region) in self.held.iter().zip(0..) {
            let mut held = held.clone();
            let mut drawn = drawn.remove(&RegionIx(region)).unwrap_or_default();
            held.sort_unstable();
            drawn.sort_unstable();
            assert_eq!(held, drawn, "a region's held nodes differ from the drawn ones");
        }
        let listed: usize = self.waiting.iter().map(Vec::len).sum();
        assert_eq!(listed, waiting, "the lists do not match the waiting bins");
    }
}

pub(crate) const MAX_BATCHES_AHEAD: u32 = 1000;

pub(crate) fn draw_free(
    rng: &mut Rng,
    nodes: &mut [NodeId],
    held: &mut Vec<NodeId>,
    wanted: usize,
    mut take: impl FnMut(NodeId),
) -> usize {
    let before = held.len();
    let mut drawn = 0;
    let mut seen = 0;
    while drawn < wanted && seen < nodes.len() {
        let other = seen + rng.below(nodes.len() - seen);
        nodes.swap(seen, other);
        let node = nodes[seen];
        seen += 1;
        if !held[..before].contains(&node) {
            held.push(node);
            take(node);
            drawn += 1;
        }
    }
    drawn
}

/// Draws up to `wanted` nodes that only other batches hold. The last `own` entries of `held` belong
/// to this batch. `nodes` are in random order, because [`draw_free`] has just visited all of them.
pub(crate) fn draw_shared(
    nodes: &[NodeId],
    held: &mut Vec<NodeId>,
    own: usize,
    wanted: usize,
    mut take: impl FnMut(NodeId),
) -> usize {
    let own = held.len() - own..held.len();
    let before = held.len();
    for node in nodes {
        if held.len() - before == wanted {
            break;
        }
        if !held[own.clone()].contains(node) {
            held.push(*node);
            take(*node);
        }
    }
    held.len() - before
}
