//! What repair bins hold: fills, in lanes.

use alloc::collections::BTreeMap;

use smallvec::SmallVec;

use super::packet::WireId;
use super::regions::RegionIx;
use crate::{NodeId, RateOfFire, Rng};

/// Which bin, among those that there are; numbers of bins that disappeared are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BinIx(pub(super) u32);

/// One of the `stagger` interleaved sets of fills.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The part of each fill that every packet touches, by bin.
    pub(super) cells: Vec<Cell>,
    /// The rest of it, by bin.
    pub(super) fills: Vec<Fill>,
    /// Nodes drawn by open fills, by region; twice if two fills share one.
    pub(super) held: Vec<Vec<NodeId>>,
    /// Bins that owe the region targets and found all of its nodes held, by region. The one that
    /// waited longest gets the next node that a fill gives back.
    pub(super) waiting: Vec<Vec<BinIx>>,
}

/// How many packets a bin still counts, in one lane: until its fill is full, or, if it draws no
/// target, until one is to draw some. It is all that most packets touch of most bins, so that it
/// is one small number: the highest bit says that the fill has targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell(u16);

/// The largest count of a [`Cell`] must leave its highest bit free.
const _: () = assert!(MAX_FILLS_AHEAD * (RateOfFire::MAX_R as u32) < Cell::WANTED as u32);

/// Aligned so that its fields take up no more cache lines than they fill: fills are visited in an
/// order that no cache foresees.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Fill {
    /// The regions that its targets are drawn from.
    pub(super) sources: SmallVec<[Source; 1]>,
    pub(super) targets: SmallVec<[(RegionIx, NodeId); 1]>,
    /// The packets that it holds.
    pub(super) ids: Vec<WireId>,
    /// Their XOR. The buffer is taken when the first packet comes, so that few are in use, and
    /// those in the cache.
    pub(super) sum: Vec<u8>,
    /// Which of the bin's fills in this lane it is.
    pub(super) generation: u32,
    /// Whether the next fill is known to draw a target.
    pub(super) due: bool,
    /// Whether the bin is in [`Lane::waiting`] of its only region.
    pub(super) waits: bool,
}

/// A region that a bin selects targets from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) region: RegionIx,
    /// Targets for every repair, on average.
    pub(super) targets: f64,
    /// Targets owed from earlier draws.
    pub(super) owed: f64,
}

impl Cell {
    const WANTED: u16 = 1 << 15;

    /// A fill without targets, or several, of `left` packets, at least 1.
    pub(super) fn idle(left: u32) -> Self {
        Self(left as u16)
    }

    /// A fill with targets that takes `left` packets, at least 1.
    pub(super) fn wanted(left: u32) -> Self {
        Self(left as u16 | Self::WANTED)
    }

    /// Counts a packet; says whether it has to be looked at: the fill has targets, or is over.
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
    /// The bin, which has one region, gets the next node of it that is given back.
    pub(super) fn wait(&mut self, bin: BinIx) {
        let fill = &mut self.fills[bin.0 as usize];
        if let [source] = &fill.sources[..]
            && !core::mem::replace(&mut fill.waits, true)
        {
            self.waiting[source.region.0 as usize].push(bin);
        }
    }

    /// The bin waits no longer for a node of the region, if it did.
    pub(super) fn stop_waiting(&mut self, bin: BinIx, region: RegionIx) {
        if core::mem::take(&mut self.fills[bin.0 as usize].waits) {
            self.waiting[region.0 as usize].retain(|other| *other != bin);
        }
    }

    /// Counts a packet in all of `bins`; `noted` are those that have to be looked at. Nothing else
    /// is done for each bin of a packet, of which there are a hundred in a thousand groups, and
    /// that without a branch: which bins are noted cannot be predicted.
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

    /// The invariants, for the `bins` there are: see [`super::bins::Bins::check`].
    pub(super) fn check(&self, bins: impl Iterator<Item = usize>, r: u32) {
        let mut drawn: BTreeMap<RegionIx, Vec<NodeId>> = BTreeMap::new();
        let mut waiting = 0;
        for bin in bins {
            let (cell, fill) = (&self.cells[bin], &self.fills[bin]);
            assert_eq!(cell.is_wanted(), !fill.targets.is_empty(), "a fill counts for nobody");
            // Fills that draw no target are counted several at once.
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

/// For how many fills in advance it is decided at once that they draw no target.
pub(super) const MAX_FILLS_AHEAD: u32 = 1000;

/// Draws up to `wanted` random nodes that are not in `held`, adds them to it and gives them to
/// `take`; returns how many there were.
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

/// Draws up to `wanted` of the nodes that only other fills hold, adds them to `held` and gives them
/// to `take`; returns how many there were. The last `own` of `held` are the fill's own. `nodes` are
/// in random order, for [`draw_free`] has just looked at all of them.
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
