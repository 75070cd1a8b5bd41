//! Contents of repair bins: batches, in lanes.

use alloc::collections::BTreeMap;

use smallvec::SmallVec;

use super::packet::WireId;
use super::regions::RegionIx;
use crate::{NodeId, RateOfFire, Rng};

/// Index of a bin. Indices of removed bins are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BinIx(pub(super) u32);

/// One of the `stagger` interleaved sets of batches.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The part of each batch that every packet touches, by bin.
    pub(super) cells: Vec<Cell>,
    /// The rest of each batch, by bin.
    pub(super) fills: Vec<Fill>,
    /// Nodes drawn by open batches, by region. A node that two batches share is listed twice.
    pub(super) held: Vec<Vec<NodeId>>,
    /// Bins that owe targets to the region and found all of its nodes held, by region. The first
    /// one has waited longest, and gets the next node that a batch releases.
    pub(super) waiting: Vec<Vec<BinIx>>,
}

/// Number of packets that a bin still counts in one lane: until its batch is full or, if the batch
/// has no targets, until one is to draw some. The highest bit is set if the batch has targets. Most
/// packets touch nothing else of most bins, which is why it is one small number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell(u16);

/// The largest count of a [`Cell`] must leave its highest bit free.
const _: () = assert!(MAX_FILLS_AHEAD * (RateOfFire::MAX_R as u32) < Cell::WANTED as u32);

/// The packets that a bin collects in one lane between drawing its targets and sending.
///
/// Aligned to cache lines, because batches are visited in an unpredictable order.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Fill {
    /// Regions that its targets are drawn from.
    pub(super) sources: SmallVec<[Source; 1]>,
    pub(super) targets: SmallVec<[(RegionIx, NodeId); 1]>,
    /// Packets in the batch.
    pub(super) ids: Vec<WireId>,
    /// XOR of their symbols. The buffer is taken when the first packet arrives, so that few buffers
    /// are in use and these stay in the cache.
    pub(super) sum: Vec<u8>,
    /// Number of this batch among those of the bin in this lane.
    pub(super) generation: u32,
    /// `true` if the next batch is known to draw a target.
    pub(super) due: bool,
    /// `true` if the bin is in [`Lane::waiting`] of its only region.
    pub(super) waits: bool,
}

/// A region that a bin selects targets from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) region: RegionIx,
    /// Mean number of targets for each repair.
    pub(super) targets: f64,
    /// Targets owed from earlier draws.
    pub(super) owed: f64,
}

impl Cell {
    const WANTED: u16 = 1 << 15;

    /// Creates the cell of one or more batches without targets, `left` packets long in all. `left`
    /// is at least 1.
    pub(super) fn idle(left: u32) -> Self {
        Self(left as u16)
    }

    /// Creates the cell of a batch with targets for `left` packets, at least 1.
    pub(super) fn wanted(left: u32) -> Self {
        Self(left as u16 | Self::WANTED)
    }

    /// Counts a packet. Returns `true` if the batch has targets or the count is over.
    pub(super) fn tick(&mut self) -> bool {
        self.0 -= 1;
        // Zero wraps around, so that one comparison finds both.
        self.0.wrapping_sub(1) >= Self::WANTED - 1
    }

    pub(super) fn left(self) -> u32 {
        u32::from(self.0 & !Self::WANTED)
    }

    pub(super) fn is_wanted(self) -> bool {
        self.0 & Self::WANTED != 0
    }
}

impl Lane {
    /// Lets a bin with one region wait for the next node that is released there.
    pub(super) fn wait(&mut self, bin: BinIx) {
        let fill = &mut self.fills[bin.0 as usize];
        if let [source] = &fill.sources[..]
            && !core::mem::replace(&mut fill.waits, true)
        {
            self.waiting[source.region.0 as usize].push(bin);
        }
    }

    /// Removes the bin from those that wait for a node of the region.
    pub(super) fn stop_waiting(&mut self, bin: BinIx, region: RegionIx) {
        if core::mem::take(&mut self.fills[bin.0 as usize].waits) {
            self.waiting[region.0 as usize].retain(|other| *other != bin);
        }
    }

    /// Counts a packet in all of `bins`. `noted` becomes those for which [`Cell::tick`] returns
    /// `true`.
    ///
    /// Nothing else is done for each bin of a packet, of which there are about a hundred in a
    /// thousand groups. The loop has no branch, because which bins are noted cannot be predicted.
    pub(super) fn count(&mut self, bins: &[BinIx], noted: &mut Vec<BinIx>) {
        noted.clear();
        noted.resize(bins.len(), BinIx(0));
        let mut count = 0;
        for bin in bins {
            noted[count] = *bin;
            count += usize::from(self.cells[bin.0 as usize].tick());
        }
        noted.truncate(count);
    }

    /// Checks the invariants of the existing `bins`: see [`super::bins::Bins::check`].
    pub(super) fn check(&self, bins: impl Iterator<Item = usize>, r: u32) {
        let mut drawn: BTreeMap<RegionIx, Vec<NodeId>> = BTreeMap::new();
        let mut waiting = 0;
        for bin in bins {
            let (cell, fill) = (&self.cells[bin], &self.fills[bin]);
            assert_eq!(cell.is_wanted(), !fill.targets.is_empty(), "a fill counts for nobody");
            // Several batches without targets are counted at once.
            let most = if cell.is_wanted() { r } else { r * MAX_FILLS_AHEAD };
            assert!((1..=most).contains(&cell.left()), "a full bin was not sent");
            let holds = if cell.is_wanted() { r - cell.left() } else { 0 };
            assert_eq!(fill.ids.len(), holds as usize, "a fill lost or gained packets");
            for (place, (region, node)) in fill.targets.iter().enumerate() {
                let twice = fill.targets[..place].contains(&(*region, *node));
                assert!(!twice, "a fill has drawn a node twice");
                drawn.entry(*region).or_default().push(*node);
            }
            waiting += usize::from(fill.waits);
            assert!(!(fill.waits && cell.is_wanted()), "a fill with targets waits for one");
        }
        for (held, region) in self.held.iter().zip(0..) {
            let mut held = held.clone();
            let mut drawn = drawn.remove(&RegionIx(region)).unwrap_or_default();
            held.sort_unstable();
            drawn.sort_unstable();
            assert_eq!(held, drawn, "a region's held nodes are not those that fills have drawn");
        }
        let listed: usize = self.waiting.iter().map(Vec::len).sum();
        assert_eq!(listed, waiting, "not all bins that wait are those on the lists");
    }
}

/// Maximum number of batches without targets that are drawn in advance.
pub(super) const MAX_FILLS_AHEAD: u32 = 1000;

/// Draws up to `wanted` random nodes that are not in `held`, adds them to `held` and passes them to
/// `take`. Returns their number.
pub(super) fn draw_free(
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

/// Draws up to `wanted` nodes that only other batches hold, adds them to `held` and passes them to
/// `take`. Returns their number. The last `own` of `held` are the batch's own. `nodes` are in
/// random order, because [`draw_free`] has just visited all of them.
pub(super) fn draw_shared(
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
