//! Repair bins (Ricochet 3.2.1, 3.2.4): packets go in, repairs come out.
//!
//! Every bin exists once in each of `stagger` *lanes*; packet k goes to lane k mod `stagger`. What
//! a bin holds in one lane is a *fill*. When a fill begins it draws its targets, before it holds
//! anything; a fill that drew none only counts. After r packets the fill is sent to its targets
//! and the next begins.
//!
//! Two guarantees (section 3). A packet of group A goes to c_A members on average: Algorithm 1's
//! (see [`regions`](super::regions)). And it goes to each of them in one repair only: a fill draws
//! no node that another fill of the same lane has drawn from the same region and not yet sent to,
//! for fills that are open at the same time are those that can share a packet.
//!
//! What a fill could not draw for that reason its source *owes*, and draws as soon as it can: a bin
//! that has to wait for a node gets the next one that its region gives back, in the middle of a
//! count if need be. Debts are never forgiven while the region stands, so that the mean is exact.
//! They have a limit, [`MAX_OWED`], for where some group of the region wants every node to get
//! every packet, a node would have to change bins without a gap. What goes beyond the limit is
//! drawn from the nodes that other fills hold: there a packet may go to a node twice, rather than
//! the mean fall short. `targets_shared` counts those draws, `targets_short` those that are owed.
//!
//! How they follow the view: `rebuild`.

mod rebuild;

use alloc::collections::VecDeque;
use core::time::Duration;

use super::block::{Block, xor_growing};
use super::chain::{Link, SetId};
use super::config::RepairScope;
use super::fills::{BinIx, Cell, Lane, MAX_FILLS_AHEAD, draw_free, draw_shared};
use super::groups::GroupIx;
use super::packet::WireId;
use super::regions::{RegionIx, Regions};
use crate::{IdMap, NodeId, PacketId, Rng, Time};

/// The repair bins of a node.
#[derive(Debug)]
pub(super) struct Bins {
    regions: Regions,
    r: u8,
    flush_after: Option<Duration>,
    /// The bins of each group, by its index.
    of_group: Vec<Vec<BinIx>>,
    /// The bins that serve each region, by its index: its chain as it was last taken up.
    of_region: Vec<Vec<(Link, BinIx)>>,
    bins: Vec<Bin>,
    vacant: Vec<BinIx>,
    by_set: IdMap<SetId, BinIx>,
    /// Bins that have to be looked at once all changes are taken up.
    changed: Vec<BinIx>,
    /// The chain that is being taken up, with the bins that it has already.
    links: Vec<(Link, Option<BinIx>)>,
    lanes: Vec<Lane>,
    /// Fills with a packet and targets, by the age of their oldest packet.
    to_flush: VecDeque<Flush>,
    /// Buffers for the sums of fills, as many as were in use at once.
    spare_sums: Vec<Vec<u8>>,
    arrivals: u64,
    rng: Rng,
    full: Vec<BinIx>,
    /// How many targets a draw gives to each source of the bin.
    wanted: Vec<usize>,
    /// Regions that got nodes back for which bins wait.
    freed: Vec<RegionIx>,
    counts: Counts,
}

/// What the bins count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Targets that were drawn later, because open fills held all nodes of the region.
    pub(super) targets_short: u64,
    /// Targets that were drawn although another open fill held them.
    pub(super) targets_shared: u64,
    /// Bins that were sent part-filled because of their age.
    pub(super) flushed: u64,
    /// Repairs, one for each target, of bins that were sent part-filled because members changed.
    pub(super) cut_short: u64,
}

/// A repair that is to be sent.
#[derive(Debug)]
pub(super) struct Repair<'a> {
    /// Who gets it.
    pub(super) targets: &'a [(RegionIx, NodeId)],
    /// What it is the XOR of, 1 to r packets.
    pub(super) ids: &'a [WireId],
    /// The XOR of their blocks, as long as the longest.
    pub(super) sum: &'a [u8],
}

#[derive(Debug, Default)]
struct Bin {
    /// Its groups, in order.
    groups: Vec<GroupIx>,
    set: SetId,
    /// In how many regions it selects targets; 0 if it does not exist.
    regions: usize,
    /// Whether it is noted in [`Bins::changed`].
    is_noted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flush {
    due: Time,
    bin: BinIx,
    lane: usize,
    generation: u32,
}

/// Targets that a bin may owe a region in a lane. What it should draw beyond that it draws from the
/// nodes of other fills.
const MAX_OWED: usize = 8;

impl Bins {
    pub(super) fn new(
        scope: RepairScope,
        stagger: u8,
        flush_after: Option<Duration>,
        mut rng: Rng,
    ) -> Self {
        Self {
            by_set: IdMap::new(rng.next_u64()),
            regions: Regions::new(scope, rng.fork(1)),
            r: 1,
            flush_after,
            of_group: Vec::new(),
            of_region: Vec::new(),
            bins: Vec::new(),
            vacant: Vec::new(),
            changed: Vec::new(),
            links: Vec::new(),
            lanes: (0..stagger).map(|_| Lane::default()).collect(),
            to_flush: VecDeque::new(),
            spare_sums: Vec::new(),
            arrivals: 0,
            rng,
            full: Vec::new(),
            wanted: Vec::new(),
            freed: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The r of all the node's groups; set while there are no bins.
    pub(super) fn set_r(&mut self, r: u8) {
        assert!(self.by_set.is_empty() || self.r == r, "r changed under existing bins");
        self.r = r;
    }

    /// `group` has this c from now on.
    pub(super) fn set_c(&mut self, group: GroupIx, c: u8) {
        let groups = group.0 as usize + 1;
        if self.of_group.len() < groups {
            self.of_group.resize_with(groups, Vec::new);
        }
        self.regions.set_c(group, c);
    }

    /// `node` is in `group` from now on.
    pub(super) fn add_node(&mut self, node: NodeId, group: GroupIx) {
        self.regions.add(node, group);
    }

    /// `node` is no longer in `group`.
    pub(super) fn remove_node(&mut self, node: NodeId, group: GroupIx) {
        self.regions.remove(node, group);
    }

    /// Accounts a packet of `group`: it enters the group's bins, and `send` gets what became full.
    pub(super) fn accept(
        &mut self,
        now: Time,
        group: GroupIx,
        id: PacketId,
        block: &Block,
        mut send: impl FnMut(Repair<'_>),
    ) {
        self.rebuild(&mut send);
        let lane = (self.arrivals % self.lanes.len() as u64) as usize;
        self.arrivals += 1;
        let mut full = core::mem::take(&mut self.full);
        self.lanes[lane].count(&self.of_group[group.0 as usize], &mut full);
        full.retain(|bin| {
            let Lane { cells, fills, .. } = &mut self.lanes[lane];
            let (cell, fill) = (cells[bin.0 as usize], &mut fills[bin.0 as usize]);
            if cell.is_wanted() {
                if fill.ids.is_empty() {
                    fill.sum = self.spare_sums.pop().unwrap_or_default();
                    if let Some(after) = self.flush_after {
                        let (due, generation) = (now + after, fill.generation);
                        self.to_flush.push_back(Flush { due, bin: *bin, lane, generation });
                    }
                }
                fill.ids.push(id.into());
                xor_growing(&mut fill.sum, block.bytes());
            }
            cell.left() == 0
        });
        // Only now, when the packet is in all its bins, may fills end and others draw targets.
        for bin in &full {
            if self.lanes[lane].cells[bin.0 as usize].is_wanted() {
                self.finish(*bin, lane, &mut send);
                self.lanes[lane].cells[bin.0 as usize] = Cell::idle(0);
            }
        }
        self.hand_over(lane);
        for bin in full.drain(..) {
            // Not those to which a node was handed over.
            if self.lanes[lane].cells[bin.0 as usize].left() == 0 {
                self.draw(bin, lane);
            }
        }
        self.full = full;
        self.forget_stale_flushes();
    }

    /// Looks at what [`Bins::accept`] needs for a packet of `group`; what it saw is of no meaning.
    pub(super) fn look(&self, group: GroupIx) -> u32 {
        const OF_A_CACHE_LINE: usize = 64 / size_of::<BinIx>();
        let of_group = self.of_group.get(group.0 as usize);
        let bins = of_group.into_iter().flatten().step_by(OF_A_CACHE_LINE);
        bins.fold(0, |seen, bin| seen ^ bin.0)
    }

    /// When the next part-filled bin is to be sent.
    pub(super) fn next_flush(&self) -> Option<Time> {
        self.to_flush.front().map(|flush| flush.due)
    }

    /// Sends the part-filled bins whose oldest packet has waited long enough.
    pub(super) fn flush_due(&mut self, now: Time, mut send: impl FnMut(Repair<'_>)) {
        if self.next_flush().is_none_or(|due| due > now) {
            return;
        }
        self.rebuild(&mut send);
        while let Some(flush) = self.to_flush.front().copied().filter(|flush| flush.due <= now) {
            self.to_flush.pop_front();
            if !self.is_stale(&flush) {
                self.counts.flushed += 1;
                self.finish(flush.bin, flush.lane, &mut send);
                self.hand_over(flush.lane);
                self.draw(flush.bin, flush.lane);
            }
        }
        self.forget_stale_flushes();
    }

    /// What was counted so far.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many bins there are.
    pub(super) fn len(&self) -> usize {
        self.by_set.len()
    }

    /// The invariants: what is held is what open fills have drawn, no fill holds more than r
    /// packets or any without having targets, and groups, regions and bins know each other.
    pub(super) fn check(&self) {
        self.regions.check();
        self.check_links();
        let live = || (0..self.bins.len()).filter(|bin| self.bins[*bin].regions > 0);
        self.lanes.iter().for_each(|lane| lane.check(live(), u32::from(self.r)));
    }

    /// Sends what the fill holds to those of its targets who are still there, and empties it.
    fn finish(&mut self, bin: BinIx, lane: usize, send: &mut impl FnMut(Repair<'_>)) {
        let Lane { cells, fills, held, waiting } = &mut self.lanes[lane];
        let fill = &mut fills[bin.0 as usize];
        for (region, node) in &fill.targets {
            let held = &mut held[region.0 as usize];
            if let Some(at) = held.iter().position(|other| other == node) {
                held.swap_remove(at);
            }
            if !waiting[region.0 as usize].is_empty() {
                self.freed.push(*region);
            }
        }
        if !fill.ids.is_empty() {
            fill.targets.retain(|&mut (_, node)| self.regions.is_neighbour(node));
            send(Repair { targets: &fill.targets, ids: &fill.ids, sum: &fill.sum });
            fill.sum.clear();
            self.spare_sums.push(core::mem::take(&mut fill.sum));
        }
        fill.targets.clear();
        fill.ids.clear();
        fill.generation = fill.generation.wrapping_add(1);
        cells[bin.0 as usize] = Cell::idle(u32::from(self.r));
    }

    /// Draws the targets of an empty fill. If it draws none, it is decided at once how many more
    /// will draw none, so that bins which rarely draw a target, of which a node in many groups has
    /// many, are rarely looked at. That is the same as deciding over each fill when it begins: the
    /// draws are independent, and what is owed changes only when there is a target.
    fn draw(&mut self, bin: BinIx, lane: usize) {
        if self.is_blocked(bin, lane) {
            return;
        }
        if self.lanes[lane].fills[bin.0 as usize].waits {
            let region = self.lanes[lane].fills[bin.0 as usize].sources[0].region;
            self.lanes[lane].stop_waiting(bin, region);
        }
        let due = self.lanes[lane].fills[bin.0 as usize].due;
        let idle = self.fills_without_target(bin, lane, due);
        let r = u32::from(self.r);
        let Lane { cells, fills, held, .. } = &mut self.lanes[lane];
        let (cell, fill) = (&mut cells[bin.0 as usize], &mut fills[bin.0 as usize]);
        fill.due = (1..MAX_FILLS_AHEAD).contains(&idle);
        if idle > 0 {
            *cell = Cell::idle(idle * r);
            return;
        }
        debug_assert!(fill.targets.is_empty(), "a fill draws its targets once");
        for (source, wanted) in fill.sources.iter_mut().zip(&self.wanted) {
            let held = &mut held[source.region.0 as usize];
            let nodes = self.regions.nodes_mut(source.region);
            let mut take = |node| fill.targets.push((source.region, node));
            let drawn = draw_free(&mut self.rng, nodes, held, *wanted, &mut take);
            let mut short = wanted - drawn;
            if short > MAX_OWED {
                let shared = draw_shared(nodes, held, drawn, short - MAX_OWED, &mut take);
                self.counts.targets_shared += shared as u64;
                short -= shared;
            }
            source.owed = short as f64;
            self.counts.targets_short += short as u64;
        }
        if fill.targets.is_empty() {
            *cell = Cell::idle(r);
            self.lanes[lane].wait(bin);
        } else {
            *cell = Cell::wanted(r);
        }
    }

    /// Whether the bin owes targets that cannot be had, because other fills have drawn all nodes of
    /// its only region. It owes more by that, and tries again when a node is given back, or after a
    /// fill's worth of packets.
    fn is_blocked(&mut self, bin: BinIx, lane: usize) -> bool {
        let Lane { cells, fills, held, .. } = &mut self.lanes[lane];
        let [source] = &mut fills[bin.0 as usize].sources[..] else { return false };
        if source.owed < 1.0 || source.owed + source.targets > MAX_OWED as f64 {
            return false;
        }
        let held = &held[source.region.0 as usize];
        let nodes = self.regions.nodes(source.region);
        let blocked = held.len() >= nodes.len() && nodes.iter().all(|node| held.contains(node));
        if blocked {
            self.counts.targets_short += source.owed as u64;
            source.owed += source.targets;
            cells[bin.0 as usize] = Cell::idle(u32::from(self.r));
            self.lanes[lane].wait(bin);
        }
        blocked
    }

    /// Gives the nodes that fills have just given back to the bins that wait for them, each that
    /// has waited longest in its region. Their fills begin with the next packet.
    fn hand_over(&mut self, lane: usize) {
        while let Some(region) = self.freed.pop() {
            let Some(bin) = self.lanes[lane].waiting[region.0 as usize].first().copied() else {
                continue;
            };
            self.lanes[lane].stop_waiting(bin, region);
            let Lane { cells, fills, .. } = &mut self.lanes[lane];
            // The count that was to pass without a target ends early, so that it owes less.
            let rest = f64::from(cells[bin.0 as usize].left()) / f64::from(self.r);
            for source in &mut fills[bin.0 as usize].sources {
                source.owed = (source.owed - source.targets * rest).max(0.0);
            }
            self.draw(bin, lane);
        }
    }

    /// Draws how many targets each source gives, until one gives any; returns how many fills draw
    /// none before that. None does if this one is known to be `due`.
    fn fills_without_target(&mut self, bin: BinIx, lane: usize, due: bool) -> u32 {
        let sources = &self.lanes[lane].fills[bin.0 as usize].sources;
        self.wanted.clear();
        if let [source] = &sources[..]
            && source.targets + source.owed < 1.0
        {
            // The usual case in many groups: one region, and one target or none.
            let mean = source.targets + source.owed;
            self.wanted.push(1);
            let trials = if due { 0 } else { MAX_FILLS_AHEAD };
            return (0..trials).take_while(|_| !self.rng.chance(mean)).count() as u32;
        }
        let mut idle = 0;
        while idle < MAX_FILLS_AHEAD {
            self.wanted.clear();
            for source in sources {
                self.wanted.push(self.rng.round(source.targets + source.owed));
            }
            if self.wanted.iter().any(|wanted| *wanted > 0) {
                break;
            }
            idle += u32::from(!due);
        }
        idle
    }

    /// Fills that went out in the meantime leave their flush time behind. They are forgotten as
    /// soon as they come to the front, so that nobody is woken for them.
    fn forget_stale_flushes(&mut self) {
        while self.to_flush.front().is_some_and(|flush| self.is_stale(flush)) {
            self.to_flush.pop_front();
        }
    }

    fn is_stale(&self, flush: &Flush) -> bool {
        self.lanes[flush.lane].fills[flush.bin.0 as usize].generation != flush.generation
    }
}

#[cfg(test)]
#[path = "bins_tests.rs"]
mod tests;
