//! Repair bins (Ricochet 3.2.1, 3.2.4), which combine packets into repairs.
//!
//! Every bin exists once in each of `stagger` *lanes*. Packet k enters lane k mod `stagger`. The
//! packets that a bin collects in one lane between drawing its targets and sending are a *batch*
//! ([`Batch`](batches::Batch)). A batch draws its targets when it begins, before it contains any
//! packet. A batch that draws no target only counts packets. After r packets, the batch is sent to
//! its targets and the next one begins.
//!
//! There are two guarantees (section 3). First, a packet of group A is sent to c_A members on
//! average, by Algorithm 1 (see [`chain`](super::chain)). Second, each of these members gets the
//! packet in one repair only: a batch draws no node that another open batch of the same lane has
//! drawn from the same region. Only batches that are open at the same time can share a packet.
//! With [`Config::exclusive_targets`] off, batches draw independently and only the first guarantee
//! holds.
//!
//! Targets that a batch could not draw because of the second guarantee are *owed* by its source and
//! drawn at the next opportunity. A bin that waits for a node gets the next one that is released in
//! its region, even in the middle of a count. A debt is canceled only when a view change unlinks
//! the bin from the region. With this exception, the mean is exact.
//!
//! Debts are limited by [`MAX_OWED`]. If a group of the region sends every packet to every node, a
//! node would have to move from one batch to the next without a gap. Targets beyond the limit are
//! therefore drawn from nodes that other batches hold. A packet may then reach a node twice, but
//! the mean remains correct. `targets_shared` counts these draws, and `targets_short` counts the
//! owed targets.

mod batches;
mod rebuild;

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::lateral::config::Config;
use crate::lateral::context::Context;
use crate::lateral::index::GroupIx;
use crate::lateral::packet::symbol::{Symbol, xor_growing};
use crate::lateral::packet::{Packet, WireId};
use crate::lateral::repair::chain::{Link, SetId};
use crate::lateral::repair::regions::{RegionIx, Regions};
use crate::{Destination, GroupId, IdMap, NodeId, PacketId, Rng, Time};
use batches::{BinIx, Cell, Lane, MAX_BATCHES_AHEAD, draw_free, draw_shared};

#[derive(Debug)]
pub(crate) struct Bins {
    regions: Regions,
    r: u8,
    exclusive_targets: bool,
    flush_after: Option<Duration>,
    of_group: Vec<Vec<BinIx>>,
    /// Bins that serve each region, with the links of its chain as last applied.
    of_region: Vec<Vec<(Link, BinIx)>>,
    bins: Vec<Bin>,
    vacant: Vec<BinIx>,
    by_set: IdMap<SetId, BinIx>,
    /// Bins to visit after all changes have been applied.
    changed: Vec<BinIx>,
    /// Chain that is being applied, with the existing bins that it keeps.
    links: Vec<(Link, Option<BinIx>)>,
    lanes: Vec<Lane>,
    /// Batches with a packet and targets, ordered by the age of their oldest packet.
    to_flush: VecDeque<Flush>,
    /// Reusable buffers for the XORs of batches, at most as many as were in use at once.
    spare_sums: Vec<Vec<u8>>,
    arrivals: u64,
    rng: Rng,
    full: Vec<BinIx>,
    wanted: Vec<usize>,
    /// Regions with waiting bins in which nodes were released.
    freed: Vec<RegionIx>,
    pub(crate) counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) targets_short: u64,
    pub(crate) targets_shared: u64,
    pub(crate) flushed: u64,
    pub(crate) cut_short: u64,
}

#[derive(Debug)]
pub(crate) struct Repair<'a> {
    pub(crate) targets: &'a [(RegionIx, NodeId)],
    pub(crate) ids: &'a [WireId],
    pub(crate) sum: &'a [u8],
}

impl Repair<'_> {
    pub(crate) fn send(&self, cx: &mut Context) {
        if self.targets.is_empty() {
            return;
        }
        cx.counters.xors += self.ids.len() as u64;
        cx.counters.repairs_sent += self.targets.len() as u64;
        let targets = self.targets.iter().map(|(_, node)| Destination::Node(*node));
        let packet = Packet::Repair { ids: self.ids, sum: self.sum };
        let bytes = cx.send(targets, (GroupId::NONE, 0), packet);
        cx.counters.repair_bytes_sent += bytes;
    }
}

#[derive(Debug, Default)]
struct Bin {
    /// Groups of the bin, sorted.
    groups: Vec<GroupIx>,
    set: SetId,
    /// Number of regions from which the bin selects targets. A bin with 0 regions is vacant.
    regions: usize,
    /// `true` if the bin is in [`Bins::changed`].
    is_marked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flush {
    due: Time,
    bin: BinIx,
    lane: usize,
    generation: u32,
}

/// Maximum number of targets that a bin owes to a region in a lane.
const MAX_OWED: usize = 8;

impl Bins {
    pub(crate) fn new(config: &Config, mut rng: Rng) -> Self {
        let &Config { scope, stagger, exclusive_targets, flush_after, .. } = config;
        Self {
            by_set: IdMap::new(rng.next_u64()),
            regions: Regions::new(scope, rng.fork(1)),
            r: 1,
            exclusive_targets,
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

    pub(crate) fn set_r(&mut self, r: u8) {
        assert!(self.by_set.is_empty() || self.r == r, "r changed while bins exist");
        self.r = r;
    }

    pub(crate) fn set_c(&mut self, group: GroupIx, c: u8) {
        let groups = group.0 as usize + 1;
        if self.of_group.len() < groups {
            self.of_group.resize_with(groups, Vec::new);
        }
        self.regions.set_c(group, c);
    }

    pub(crate) fn add_node(&mut self, node: NodeId, group: GroupIx) {
        self.regions.add(node, group);
    }

    pub(crate) fn remove_node(&mut self, node: NodeId, group: GroupIx) {
        self.regions.remove(node, group);
    }

    pub(crate) fn accept(
        &mut self,
        now: Time,
        group: GroupIx,
        id: PacketId,
        symbol: &Symbol,
        mut send: impl FnMut(Repair<'_>),
    ) {
        self.rebuild(&mut send);
        let lane = (self.arrivals % self.lanes.len() as u64) as usize;
        self.arrivals += 1;
        let mut full = core::mem::take(&mut self.full);
        self.lanes[lane].count(&self.of_group[group.0 as usize], &mut full);
        full.retain(|bin| {
            let Lane { cells, batches, .. } = &mut self.lanes[lane];
            let (cell, batch) = (cells[bin.0 as usize], &mut batches[bin.0 as usize]);
            if cell.is_wanted() {
                if batch.ids.is_empty() {
                    batch.sum = self.spare_sums.pop().unwrap_or_default();
                    if let Some(after) = self.flush_after {
                        let (due, generation) = (now + after, batch.generation);
                        self.to_flush.push_back(Flush { due, bin: *bin, lane, generation });
                    }
                }
                batch.ids.push(id.into());
                xor_growing(&mut batch.sum, symbol.bytes());
            }
            cell.left() == 0
        });
        // No batch may end or draw targets before the packet has entered all of its bins.
        for bin in &full {
            if self.lanes[lane].cells[bin.0 as usize].is_wanted() {
                self.finish(*bin, lane, &mut send);
                self.lanes[lane].cells[bin.0 as usize] = Cell::idle(0);
            }
        }
        self.reassign_released(lane);
        for bin in full.drain(..) {
            // Bins that received a released node have already drawn.
            if self.lanes[lane].cells[bin.0 as usize].left() == 0 {
                self.draw(bin, lane);
            }
        }
        self.full = full;
        self.drop_stale_flushes();
    }

    /// Reads the memory that [`Bins::accept`] will need. The result is meaningless.
    pub(crate) fn prefetch(&self, group: GroupIx) -> u32 {
        const OF_A_CACHE_LINE: usize = 64 / size_of::<BinIx>();
        let of_group = self.of_group.get(group.0 as usize);
        let bins = of_group.into_iter().flatten().step_by(OF_A_CACHE_LINE);
        bins.fold(0, |seen, bin| seen ^ bin.0)
    }

    pub(crate) fn next_flush(&self) -> Option<Time> {
        self.to_flush.front().map(|flush| flush.due)
    }

    pub(crate) fn flush_due(&mut self, now: Time, mut send: impl FnMut(Repair<'_>)) {
        if self.next_flush().is_none_or(|due| due > now) {
            return;
        }
        self.rebuild(&mut send);
        while let Some(flush) = self.to_flush.front().copied().filter(|flush| flush.due <= now) {
            self.to_flush.pop_front();
            if !self.is_stale(&flush) {
                self.counts.flushed += 1;
                self.finish(flush.bin, flush.lane, &mut send);
                self.reassign_released(flush.lane);
                self.draw(flush.bin, flush.lane);
            }
        }
        self.drop_stale_flushes();
    }

    pub(crate) fn len(&self) -> usize {
        self.by_set.len()
    }

    pub(crate) fn check(&self) {
        self.regions.check();
        self.check_links();
        let live = || (0..self.bins.len()).filter(|bin| self.bins[*bin].regions > 0);
        let (r, is_exclusive) = (u32::from(self.r), self.exclusive_targets);
        self.lanes.iter().for_each(|lane| lane.check(live(), r, is_exclusive));
    }

    /// Sends the batch to those of its targets that still share a group, and empties it.
    fn finish(&mut self, bin: BinIx, lane: usize, send: &mut impl FnMut(Repair<'_>)) {
        let Lane { cells, batches, held, waiting } = &mut self.lanes[lane];
        let batch = &mut batches[bin.0 as usize];
        for (region, node) in &batch.targets {
            let held = &mut held[region.0 as usize];
            if let Some(at) = held.iter().position(|other| other == node) {
                held.swap_remove(at);
            }
            if !waiting[region.0 as usize].is_empty() {
                self.freed.push(*region);
            }
        }
        if !batch.ids.is_empty() {
            batch.targets.retain(|&mut (_, node)| self.regions.is_neighbour(node));
            send(Repair { targets: &batch.targets, ids: &batch.ids, sum: &batch.sum });
            batch.sum.clear();
            self.spare_sums.push(core::mem::take(&mut batch.sum));
        }
        batch.targets.clear();
        batch.ids.clear();
        batch.generation = batch.generation.wrapping_add(1);
        cells[bin.0 as usize] = Cell::idle(u32::from(self.r));
    }

    /// Draws the targets of an empty batch. If there are none, the number of further batches
    /// without targets is drawn in advance, so that bins that rarely draw a target are rarely
    /// visited. A node in many groups has many such bins. The outcome is the same as with one draw
    /// per batch, because the draws are independent and debts change only when there is a target.
    fn draw(&mut self, bin: BinIx, lane: usize) {
        if self.is_blocked(bin, lane) {
            return;
        }
        if self.lanes[lane].batches[bin.0 as usize].waits {
            let region = self.lanes[lane].batches[bin.0 as usize].sources[0].region;
            self.lanes[lane].stop_waiting(bin, region);
        }
        let due = self.lanes[lane].batches[bin.0 as usize].due;
        let idle = self.batches_without_target(bin, lane, due);
        let r = u32::from(self.r);
        let Lane { cells, batches, held, .. } = &mut self.lanes[lane];
        let (cell, batch) = (&mut cells[bin.0 as usize], &mut batches[bin.0 as usize]);
        let is_exclusive = self.exclusive_targets;
        batch.due = (1..MAX_BATCHES_AHEAD).contains(&idle);
        if idle > 0 {
            *cell = Cell::idle(idle * r);
            return;
        }
        debug_assert!(batch.targets.is_empty(), "a batch draws its targets once");
        for (source, wanted) in batch.sources.iter_mut().zip(&self.wanted) {
            let held = &mut held[source.region.0 as usize];
            let nodes = self.regions.nodes_mut(source.region);
            let mut take = |node| batch.targets.push((source.region, node));
            if !is_exclusive {
                draw_free(&mut self.rng, nodes, held, *wanted, &mut take);
                held.clear();
                continue;
            }
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
        if batch.targets.is_empty() {
            *cell = Cell::idle(r);
            self.lanes[lane].wait(bin);
        } else {
            *cell = Cell::wanted(r);
        }
    }

    /// If the bin owes targets, but not too many, and other batches hold all nodes of its only
    /// region, makes the bin wait and returns `true`.
    fn is_blocked(&mut self, bin: BinIx, lane: usize) -> bool {
        let Lane { cells, batches, held, .. } = &mut self.lanes[lane];
        let [source] = &mut batches[bin.0 as usize].sources[..] else { return false };
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

    /// Lets waiting bins draw the nodes that batches have just released. The new batches of these
    /// bins begin with the next packet.
    #[inline]
    fn reassign_released(&mut self, lane: usize) {
        while let Some(region) = self.freed.pop() {
            let Some(bin) = self.lanes[lane].waiting[region.0 as usize].first().copied() else {
                continue;
            };
            self.lanes[lane].stop_waiting(bin, region);
            let Lane { cells, batches, .. } = &mut self.lanes[lane];
            // The count without targets ends early, which reduces the number of owed targets.
            let rest = f64::from(cells[bin.0 as usize].left()) / f64::from(self.r);
            for source in &mut batches[bin.0 as usize].sources {
                source.owed = (source.owed - source.targets * rest).max(0.0);
            }
            self.draw(bin, lane);
        }
    }

    /// Draws the wanted targets of the next batch with targets. Returns the number of batches
    /// before it, or 0 if `due`.
    fn batches_without_target(&mut self, bin: BinIx, lane: usize, due: bool) -> u32 {
        let sources = &self.lanes[lane].batches[bin.0 as usize].sources;
        self.wanted.clear();
        if let [source] = &sources[..]
            && source.targets + source.owed < 1.0
        {
            // On a node in many groups, the usual case is one region, and one target or none.
            let mean = source.targets + source.owed;
            self.wanted.push(1);
            let trials = if due { 0 } else { MAX_BATCHES_AHEAD };
            return (0..trials).take_while(|_| !self.rng.chance(mean)).count() as u32;
        }
        let mut idle = 0;
        while idle < MAX_BATCHES_AHEAD {
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

    /// Drops the flush times of batches that were sent, so that the node is not woken for them.
    fn drop_stale_flushes(&mut self) {
        while self.to_flush.front().is_some_and(|flush| self.is_stale(flush)) {
            self.to_flush.pop_front();
        }
    }

    fn is_stale(&self, flush: &Flush) -> bool {
        self.lanes[flush.lane].batches[flush.bin.0 as usize].generation != flush.generation
    }
}

#[cfg(test)]
mod tests;
