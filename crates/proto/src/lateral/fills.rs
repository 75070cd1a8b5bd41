//! What repair bins hold: fills, in lanes.

use alloc::collections::BTreeMap;

use super::block::Block;
use super::regions::RegionIx;
use crate::{NodeId, PacketId, Rng};

/// One of the `stagger` interleaved sets of fills.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The part of each fill that every packet touches, by bin.
    pub(super) cells: Vec<Cell>,
    /// The rest of it, by bin.
    pub(super) fills: Vec<Fill>,
    /// Nodes drawn by open fills, by region.
    pub(super) held: Vec<Vec<NodeId>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Packets until the fill is full; or, if it draws none, until one is that draws a target.
    pub(super) left: u32,
    /// Whether the fill drew a target.
    pub(super) wanted: bool,
    /// Whether the next fill is known to draw a target.
    pub(super) due: bool,
}

#[derive(Debug, Default)]
pub(super) struct Fill {
    pub(super) targets: Vec<(RegionIx, NodeId)>,
    pub(super) packets: Vec<(PacketId, Block)>,
    /// Which of the bin's fills in this lane it is.
    pub(super) generation: u32,
}

impl Lane {
    /// The invariants, for the `bins` there are: see [`super::bins::Bins::check`].
    pub(super) fn check(&self, bins: impl Iterator<Item = usize>, r: u32) {
        let mut drawn: BTreeMap<RegionIx, Vec<NodeId>> = BTreeMap::new();
        for bin in bins {
            let (cell, fill) = (&self.cells[bin], &self.fills[bin]);
            assert_eq!(cell.wanted, !fill.targets.is_empty(), "a fill counts for nobody");
            assert!(cell.left > 0 && (cell.left <= r || cell.due), "a full bin was not sent");
            let holds = if cell.wanted { r - cell.left } else { 0 };
            assert_eq!(fill.packets.len(), holds as usize, "a fill lost or gained packets");
            for (region, node) in &fill.targets {
                drawn.entry(*region).or_default().push(*node);
            }
        }
        for (held, region) in self.held.iter().zip(0..) {
            let mut held = held.clone();
            let mut drawn = drawn.remove(&RegionIx(region)).unwrap_or_default();
            held.sort_unstable();
            drawn.sort_unstable();
            assert_eq!(held, drawn, "a region's held nodes are not those that fills have drawn");
            drawn.dedup();
            assert_eq!(held, drawn, "a node was drawn by two open fills");
        }
    }
}

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
