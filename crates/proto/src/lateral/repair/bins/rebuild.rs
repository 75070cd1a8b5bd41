//! Updates of the bins after changes to the regions. View changes take effect with the next packet
//! or flush, or when this node leaves a group.
//!
//! If the nodes of a region changed, its whole chain is linked again. If only groups changed, the
//! links of the shares between which they moved are compared with the former links of the same
//! shares. Their group sets differ at most by the changed groups. A bin that serves no other region
//! gets its new set in place. All other links remain.
//!
//! A change in one group therefore takes a few steps for each of its regions. Bins are created or
//! removed, at one step for each of their groups, only where a class of equal shares begins or
//! ends, or where regions share bins.
//!
//! A batch continues through a change as long as all of its packets are useful to all of its
//! targets. It is sent early in three cases: the nodes of a region from which it has targets
//! change, the bin stops serving such a region, or the bin loses a group.

use super::batches::{Batch, BinIx, Cell, Lane, Source};
use super::{Bin, Bins, Repair};
use crate::lateral::repair::chain::{Link, SetId, Span};
use crate::lateral::repair::regions::{Change, Moved, RegionIx};

impl Bins {
    pub(crate) fn rebuild(&mut self, send: &mut impl FnMut(Repair<'_>)) {
        if self.regions.is_touched() {
            self.apply_changes(send);
        }
    }

    /// Applies the changes, out of line so that packets without a change pay only for the check.
    #[inline(never)]
    fn apply_changes(&mut self, send: &mut impl FnMut(Repair<'_>)) {
        self.regions.settle();
        let regions = self.regions.slots();
        self.of_region.resize_with(regions, Vec::new);
        for lane in &mut self.lanes {
            lane.held.resize_with(regions, Vec::new);
            lane.waiting.resize_with(regions, Vec::new);
        }
        while let Some((region, change)) = self.regions.next_change() {
            self.relink(region, &change, send);
        }
        // Other batches may draw targets only after all batches that have to be sent are sent.
        let mut changed = core::mem::take(&mut self.changed);
        for bin in changed.drain(..) {
            self.bins[bin.0 as usize].is_marked = false;
            if self.bins[bin.0 as usize].regions == 0 {
                self.remove_bin(bin);
            } else {
                self.draw_where_unopened(bin);
            }
        }
        self.changed = changed;
        // Bins that wait for a node of a changed region try again by themselves.
        self.freed.clear();
        self.drop_stale_flushes();
    }

    pub(crate) fn check_links(&self) {
        let mut serving = vec![0; self.bins.len()];
        for (_, bin) in self.of_region.iter().flatten() {
            serving[bin.0 as usize] += 1;
        }
        let mut filed = 0;
        for ((bin, serving), ix) in self.bins.iter().zip(serving).zip((0..).map(BinIx)) {
            assert_eq!(bin.regions, serving, "a bin has miscounted its regions");
            assert_eq!(bin.regions == 0, bin.groups.is_empty(), "a bin is partly empty");
            for lane in &self.lanes {
                let sources = lane.batches[ix.0 as usize].sources.len();
                assert_eq!(sources, serving, "a bin selects from regions that it does not serve");
            }
            if bin.regions > 0 {
                let sets = bin.groups.iter().map(|group| self.regions.set_of(*group));
                assert_eq!(
                    sets.fold(SetId::default(), |a, b| a ^ b),
                    bin.set,
                    "a bin has the wrong set"
                );
                assert_eq!(
                    self.by_set.get(&bin.set),
                    Some(&ix),
                    "a bin is registered under another set"
                );
            }
            for group in &bin.groups {
                let known = self.of_group[group.0 as usize].contains(&ix);
                assert!(known, "a group does not list one of its bins");
            }
            filed += bin.groups.len();
        }
        let known: usize = self.of_group.iter().map(Vec::len).sum();
        assert_eq!(known, filed, "a group lists a bin that it is not in");
    }

    fn relink(&mut self, region: RegionIx, change: &Change, send: &mut impl FnMut(Repair<'_>)) {
        let span = if let Change::Groups(_, span) = change { *span } else { Span::ALL };
        let mut links = core::mem::take(&mut self.links);
        links.extend(self.regions.links(region, span).map(|link| (link, None)));
        let mut chain = core::mem::take(&mut self.of_region[region.0 as usize]);
        let before = span.places(&chain, |(link, _)| link.share);
        let mut at = 0;
        for (old, bin) in &chain[before.clone()] {
            // Both lists are sorted by share.
            while links.get(at).is_some_and(|(new, _)| new.share < old.share) {
                at += 1;
            }
            let same = links.get_mut(at).filter(|(new, _)| new.share.total_cmp(&old.share).is_eq());
            match (change, same) {
                (Change::Groups(changed, _), Some((new, kept)))
                    if self.regroup(*bin, changed, old, new, send) =>
                {
                    self.retarget(*bin, region, old, new);
                    *kept = Some(*bin);
                }
                _ => self.unlink(*bin, region, send),
            }
        }
        let mut bin_of =
            |link: Link, kept: Option<BinIx>| kept.unwrap_or_else(|| self.link(region, &link));
        if links.len() == before.len() {
            for (place, (link, kept)) in chain[before].iter_mut().zip(links.drain(..)) {
                *place = (link, bin_of(link, kept));
            }
        } else {
            chain.splice(before, links.drain(..).map(|(link, kept)| (link, bin_of(link, kept))));
        }
        self.of_region[region.0 as usize] = chain;
        self.links = links;
    }

    /// Changes a bin to the groups of another link, which differ at most by the `changed` groups.
    /// Returns `false` if another bin has the new set, or another region needs the old one.
    fn regroup(
        &mut self,
        bin: BinIx,
        changed: &[Moved],
        old: &Link,
        new: &Link,
        send: &mut impl FnMut(Repair<'_>),
    ) -> bool {
        if old.set == new.set {
            return true;
        }
        let record = &mut self.bins[bin.0 as usize];
        if record.regions > 1 || self.by_set.contains(&new.set) {
            return false;
        }
        self.by_set.remove(&old.set);
        self.by_set.insert(new.set, bin);
        record.set = new.set;
        let mut lost = false;
        for Moved { group, belongs } in changed {
            let belongs = *belongs && self.regions.share_of(*group) >= new.share;
            match record.groups.binary_search(group) {
                Ok(place) if !belongs => {
                    record.groups.remove(place);
                    forget(&mut self.of_group[group.0 as usize], bin);
                    lost = true;
                }
                Err(place) if belongs => {
                    record.groups.insert(place, *group);
                    self.of_group[group.0 as usize].push(bin);
                }
                _ => {}
            }
        }
        if lost {
            self.send_early(bin, send);
        }
        true
    }

    fn retarget(&mut self, bin: BinIx, region: RegionIx, old: &Link, new: &Link) {
        if old.targets.total_cmp(&new.targets).is_eq() {
            return;
        }
        for lane in &mut self.lanes {
            let sources = lane.batches[bin.0 as usize].sources.iter_mut();
            for source in sources.filter(|source| source.region == region) {
                source.targets = new.targets;
            }
        }
        self.mark_changed(bin);
    }

    fn send_early(&mut self, bin: BinIx, send: &mut impl FnMut(Repair<'_>)) {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].batches[bin.0 as usize].ids.is_empty() {
                self.cut_short(bin, lane, send);
                self.mark_changed(bin);
            }
        }
    }

    fn cut_short(&mut self, bin: BinIx, lane: usize, send: &mut impl FnMut(Repair<'_>)) {
        let mut repairs = 0;
        self.finish(bin, lane, &mut |repair: Repair<'_>| {
            repairs += repair.targets.len() as u64;
            send(repair);
        });
        self.counts.cut_short += repairs;
    }

    fn unlink(&mut self, bin: BinIx, region: RegionIx, send: &mut impl FnMut(Repair<'_>)) {
        for lane in 0..self.lanes.len() {
            let batch = &self.lanes[lane].batches[bin.0 as usize];
            if batch.targets.iter().any(|(other, _)| *other == region) {
                self.cut_short(bin, lane, send);
            }
            self.lanes[lane].stop_waiting(bin, region);
            let sources = &mut self.lanes[lane].batches[bin.0 as usize].sources;
            sources.retain(|source| source.region != region);
        }
        self.bins[bin.0 as usize].regions -= 1;
        self.mark_changed(bin);
    }

    fn link(&mut self, region: RegionIx, link: &Link) -> BinIx {
        let bin = match self.by_set.get(&link.set) {
            Some(bin) => *bin,
            None => self.make_bin(region, link),
        };
        self.bins[bin.0 as usize].regions += 1;
        for lane in &mut self.lanes {
            if let [only] = &lane.batches[bin.0 as usize].sources[..] {
                // Bins that serve several regions do not wait.
                let only = only.region;
                lane.stop_waiting(bin, only);
            }
            let source = Source { region, targets: link.targets, owed: 0.0 };
            lane.batches[bin.0 as usize].sources.push(source);
        }
        self.mark_changed(bin);
        bin
    }

    fn make_bin(&mut self, region: RegionIx, link: &Link) -> BinIx {
        let bin = self.vacant.pop().unwrap_or_else(|| {
            self.bins.push(Bin::default());
            let idle = Cell::idle(u32::from(self.r));
            for lane in &mut self.lanes {
                lane.cells.push(idle);
                lane.batches.push(Batch::default());
            }
            BinIx(self.bins.len() as u32 - 1)
        });
        let record = &mut self.bins[bin.0 as usize];
        record.set = link.set;
        let shares = self.regions.shares(region).filter(|(_, share)| *share >= link.share);
        record.groups.extend(shares.map(|(group, _)| group));
        for group in &record.groups {
            self.of_group[group.0 as usize].push(bin);
        }
        self.by_set.insert(link.set, bin);
        bin
    }

    /// Removes a bin whose batches were sent when the last region was unlinked.
    fn remove_bin(&mut self, bin: BinIx) {
        let record = &mut self.bins[bin.0 as usize];
        for group in record.groups.drain(..) {
            forget(&mut self.of_group[group.0 as usize], bin);
        }
        self.by_set.remove(&record.set);
        let idle = Cell::idle(u32::from(self.r));
        for lane in &mut self.lanes {
            lane.cells[bin.0 as usize] = idle;
            lane.batches[bin.0 as usize].due = false;
        }
        self.vacant.push(bin);
    }

    fn mark_changed(&mut self, bin: BinIx) {
        if !core::mem::replace(&mut self.bins[bin.0 as usize].is_marked, true) {
            self.changed.push(bin);
        }
    }

    /// Cancels the draws of a changed bin that were made in advance. Batches that have not begun
    /// draw now. Batches that have counted packets draw at the end of their count.
    fn draw_where_unopened(&mut self, bin: BinIx) {
        let r = u32::from(self.r);
        for lane in 0..self.lanes.len() {
            let Lane { cells, batches, .. } = &mut self.lanes[lane];
            let cell = &mut cells[bin.0 as usize];
            if !cell.is_wanted() {
                *cell = Cell::idle((cell.left() - 1) % r + 1);
                batches[bin.0 as usize].due = false;
                if cell.left() == r {
                    self.draw(bin, lane);
                }
            }
        }
    }
}

fn forget(bins: &mut Vec<BinIx>, bin: BinIx) {
    /// Number of bins that are compared at once, without a branch.
    const AT_ONCE: usize = 16;
    let is_in = |some: &[BinIx]| some.iter().fold(false, |found, other| found | (*other == bin));
    let Some(first) = bins.chunks(AT_ONCE).position(is_in).map(|chunk| chunk * AT_ONCE) else {
        return;
    };
    if let Some(behind) = bins[first..].iter().position(|other| *other == bin) {
        bins.swap_remove(first + behind);
    }
}
