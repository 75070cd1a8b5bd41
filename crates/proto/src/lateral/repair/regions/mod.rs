//! Regions (Ricochet 3.1.1).
//!
//! A *region* is a non-empty set of other nodes that share exactly the same set of this node's
//! groups. [`Regions`] maintains the regions and the [`Chain`] of each through view changes. It
//! also records the regions that a change affects and the kind of the change.
//!
//! The time for a change in one group is proportional to the number of its regions, because the
//! group moves within the chain of each region. If all nodes of a region join or leave the same
//! group, and no other region has the new set of groups, the region gets this set and otherwise
//! remains unchanged. This is usual in many groups, where most nodes are alone in their regions.
//!
//! Changes are recorded, and [`Regions::settle`] applies them with the next packet. Nodes that join
//! hundreds of groups one after the other, for example at cluster start, move only once.

mod checking;

use alloc::collections::BTreeMap;

use smallvec::SmallVec;

use crate::lateral::config::RepairScope;
use crate::lateral::index::GroupIx;
use crate::lateral::repair::chain::{Chain, Link, SetId, Span};
use crate::{IdMap, NodeId, Rng};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RegionIx(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Regions {
    scope: RepairScope,
    regions: Vec<Region>,
    vacant: Vec<RegionIx>,
    by_set: IdMap<SetId, RegionIx>,
    neighbours: BTreeMap<NodeId, Neighbour>,
    /// Groups that this node has joined, including former ones, by index.
    groups: Vec<OfGroup>,
    touched: Vec<RegionIx>,
    /// Nodes whose groups have changed since they were placed, each listed once.
    moving: Vec<NodeId>,
    /// Groups whose size or c has changed since their share was computed, each listed once.
    reshared: Vec<GroupIx>,
    rng: Rng,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum Change {
    #[default]
    None,
    /// The nodes are the same. These groups changed, and only classes in the span are affected.
    Groups(SmallVec<[Moved; 4]>, Span),
    Nodes,
}

/// A group that moved within the chain of a region. Only the last entry of a group is valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moved {
    pub(crate) group: GroupIx,
    pub(crate) belongs: bool,
}

#[derive(Debug, Default)]
struct Region {
    groups: Vec<GroupIx>,
    nodes: Vec<NodeId>,
    chain: Chain,
    change: Change,
}

#[derive(Debug, Default)]
struct Neighbour {
    groups: Vec<GroupIx>,
    set: SetId,
    placed: SetId,
    /// Groups in which `placed` differs from the current set, sorted. Unused for unplaced nodes.
    changed: SmallVec<[GroupIx; 4]>,
    stands: bool,
    is_moving: bool,
}

#[derive(Debug, Default)]
struct OfGroup {
    set: SetId,
    regions: Vec<RegionIx>,
    size: usize,
    c: u8,
    share: f64,
    is_reshared: bool,
}

impl Regions {
    pub(crate) fn new(scope: RepairScope, mut rng: Rng) -> Self {
        Self {
            scope,
            regions: Vec::new(),
            vacant: Vec::new(),
            by_set: IdMap::new(rng.next_u64()),
            neighbours: BTreeMap::new(),
            groups: Vec::new(),
            touched: Vec::new(),
            moving: Vec::new(),
            reshared: Vec::new(),
            rng,
        }
    }

    /// Makes each packet reach `c` other members on average, or all if the group has fewer.
    pub(crate) fn set_c(&mut self, group: GroupIx, c: u8) {
        self.ensure_group(group);
        self.groups[group.0 as usize].c = c;
        self.reshare(group);
    }

    pub(crate) fn add(&mut self, node: NodeId, group: GroupIx) {
        self.ensure_group(group);
        let neighbour = self.neighbours.entry(node).or_default();
        let Err(place) = neighbour.groups.binary_search(&group) else { return };
        neighbour.groups.insert(place, group);
        self.groups[group.0 as usize].size += 1;
        self.record_move(node, group);
    }

    pub(crate) fn remove(&mut self, node: NodeId, group: GroupIx) {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        let Ok(place) = neighbour.groups.binary_search(&group) else { return };
        neighbour.groups.remove(place);
        self.groups[group.0 as usize].size -= 1;
        self.record_move(node, group);
    }

    pub(crate) fn settle(&mut self) {
        let mut reshared = core::mem::take(&mut self.reshared);
        reshared.drain(..).for_each(|group| self.share_out(group));
        self.reshared = reshared;
        let mut moving = core::mem::take(&mut self.moving);
        moving.drain(..).for_each(|node| self.move_node(node));
        self.moving = moving;
    }

    /// Includes regions that have become empty.
    pub(crate) fn next_change(&mut self) -> Option<(RegionIx, Change)> {
        let ix = self.touched.pop()?;
        Some((ix, core::mem::take(&mut self.regions[ix.0 as usize].change)))
    }

    pub(crate) fn is_touched(&self) -> bool {
        let is_settled = self.moving.is_empty() && self.reshared.is_empty();
        !(is_settled && self.touched.is_empty())
    }

    pub(crate) fn shares(&self, region: RegionIx) -> impl Iterator<Item = (GroupIx, f64)> {
        let groups = self.regions[region.0 as usize].groups.iter();
        groups.map(|group| (*group, self.groups[group.0 as usize].share))
    }

    pub(crate) fn share_of(&self, group: GroupIx) -> f64 {
        self.groups[group.0 as usize].share
    }

    pub(crate) fn links(&self, region: RegionIx, span: Span) -> impl Iterator<Item = Link> {
        let region = &self.regions[region.0 as usize];
        region.chain.links(region.nodes.len(), span)
    }

    pub(crate) fn nodes(&self, region: RegionIx) -> &[NodeId] {
        &self.regions[region.0 as usize].nodes
    }

    pub(crate) fn nodes_mut(&mut self, region: RegionIx) -> &mut [NodeId] {
        &mut self.regions[region.0 as usize].nodes
    }

    pub(crate) fn slots(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn is_neighbour(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| !neighbour.groups.is_empty())
    }

    pub(crate) fn set_of(&self, group: GroupIx) -> SetId {
        self.groups[group.0 as usize].set
    }

    fn set_of_all(&self, groups: &[GroupIx]) -> SetId {
        groups.iter().fold(SetId::default(), |set, group| set ^ self.set_of(*group))
    }

    fn ensure_group(&mut self, group: GroupIx) {
        while self.groups.len() <= group.0 as usize {
            let set = SetId::draw(&mut self.rng);
            self.groups.push(OfGroup { set, ..OfGroup::default() });
        }
    }

    fn reshare(&mut self, group: GroupIx) {
        let of_group = &mut self.groups[group.0 as usize];
        if !core::mem::replace(&mut of_group.is_reshared, true) {
            self.reshared.push(group);
        }
    }

    fn record_move(&mut self, node: NodeId, group: GroupIx) {
        self.reshare(group);
        let of_group = self.set_of(group);
        let neighbour = self.neighbours.get_mut(&node).expect("the node is a neighbor");
        neighbour.set ^= of_group;
        if neighbour.stands {
            match neighbour.changed.binary_search(&group) {
                Ok(place) => drop(neighbour.changed.remove(place)),
                Err(place) => neighbour.changed.insert(place, group),
            }
        }
        if !core::mem::replace(&mut neighbour.is_moving, true) {
            self.moving.push(node);
        }
    }

    fn share_out(&mut self, group: GroupIx) {
        let Self { groups, regions, touched, .. } = self;
        let of_group = &mut groups[group.0 as usize];
        of_group.is_reshared = false;
        let targets = of_group.size.min(usize::from(of_group.c));
        // A group without members is in no region.
        let share = targets as f64 / of_group.size.max(1) as f64;
        let before = core::mem::replace(&mut of_group.share, share);
        if before.total_cmp(&share).is_ne() {
            for ix in &of_group.regions {
                let region = &mut regions[ix.0 as usize];
                region.chain.remove(before, of_group.set);
                region.chain.insert(share, of_group.set);
                let moved = Moved { group, belongs: true };
                region.touch(*ix, moved, Span::between(before, share), touched);
            }
        }
    }

    fn move_node(&mut self, node: NodeId) {
        let neighbour = self.neighbours.get_mut(&node).expect("a neighbor exists until it moves");
        neighbour.is_moving = false;
        let changed = core::mem::take(&mut neighbour.changed);
        let (before, after) = (neighbour.placed, neighbour.set);
        // A node that shares no group is in no region.
        let (stood, stands) = (neighbour.stands, !neighbour.groups.is_empty());
        (neighbour.placed, neighbour.stands) = (after, stands);
        if !(stood && changed.is_empty()) {
            match self.scope {
                RepairScope::PerGroup => self.move_in_each_group(node, stood, &changed),
                RepairScope::Regions => {
                    let is_moved =
                        stood && stands && self.move_whole_region(before, after, &changed);
                    if stood && !is_moved {
                        self.remove_node(node, before);
                    }
                    if stands && !is_moved {
                        let groups = core::mem::take(&mut self.neighbour(node).groups);
                        self.insert_node(node, after, &groups);
                        self.neighbour(node).groups = groups;
                    }
                }
            }
        }
        if !stands {
            self.neighbours.remove(&node);
        }
    }

    /// Adds a node to the regions of its changed groups, or removes it from them. A node that was
    /// not placed is added to the regions of all of its groups. With [`RepairScope::PerGroup`],
    /// each group is one region.
    fn move_in_each_group(&mut self, node: NodeId, stood: bool, changed: &[GroupIx]) {
        let groups = core::mem::take(&mut self.neighbour(node).groups);
        for group in if stood { changed } else { &groups[..] } {
            let set = self.set_of(*group);
            if groups.binary_search(group).is_ok() {
                self.insert_node(node, set, &[*group]);
            } else {
                self.remove_node(node, set);
            }
        }
        self.neighbour(node).groups = groups;
    }

    fn neighbour(&mut self, node: NodeId) -> &mut Neighbour {
        self.neighbours.get_mut(&node).expect("a neighbor that is being moved exists")
    }

    /// Changes the groups of a whole region. Returns `false` if not all of its nodes move to
    /// `after`, if a region with this set already exists, or if so many groups changed that a new
    /// region is as cheap.
    fn move_whole_region(&mut self, before: SetId, after: SetId, changed: &[GroupIx]) -> bool {
        let Some(&ix) = self.by_set.get(&before) else { return false };
        let region = &mut self.regions[ix.0 as usize];
        let many = changed.len() > 1 && changed.len() > region.groups.len() / 4;
        if many || self.by_set.contains(&after) {
            return false;
        }
        // A node that stays ends the search. The next node that moves finds that `after` exists.
        let moves_too = |node| self.neighbours.get(node).is_some_and(|it| it.set == after);
        if !region.nodes.iter().all(moves_too) {
            return false;
        }
        for node in &region.nodes {
            let neighbour = self.neighbours.get_mut(node).expect("a neighbor that moves exists");
            neighbour.placed = after;
            neighbour.changed.clear();
        }
        self.by_set.remove(&before);
        self.by_set.insert(after, ix);
        for group in changed {
            let of_group = &mut self.groups[group.0 as usize];
            let belongs = match region.groups.binary_search(group) {
                Ok(place) => {
                    region.groups.remove(place);
                    region.chain.remove(of_group.share, of_group.set);
                    of_group.forget(ix);
                    false
                }
                Err(place) => {
                    region.groups.insert(place, *group);
                    region.chain.insert(of_group.share, of_group.set);
                    of_group.regions.push(ix);
                    true
                }
            };
            let moved = Moved { group: *group, belongs };
            region.touch(ix, moved, Span::up_to(of_group.share), &mut self.touched);
        }
        true
    }

    fn insert_node(&mut self, node: NodeId, set: SetId, groups: &[GroupIx]) {
        let ix = match self.by_set.get(&set) {
            Some(ix) => *ix,
            None => self.create_region(set, groups),
        };
        let region = &mut self.regions[ix.0 as usize];
        region.nodes.push(node);
        region.renew(ix, &mut self.touched);
    }

    fn create_region(&mut self, set: SetId, groups: &[GroupIx]) -> RegionIx {
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.regions.push(Region::default());
            RegionIx(self.regions.len() as u32 - 1)
        });
        self.by_set.insert(set, ix);
        let region = &mut self.regions[ix.0 as usize];
        region.groups.extend_from_slice(groups);
        for group in groups {
            let of_group = &mut self.groups[group.0 as usize];
            of_group.regions.push(ix);
            region.chain.insert(of_group.share, of_group.set);
        }
        ix
    }

    fn remove_node(&mut self, node: NodeId, set: SetId) {
        let Some(&ix) = self.by_set.get(&set) else { return };
        let region = &mut self.regions[ix.0 as usize];
        region.nodes.retain(|other| *other != node);
        region.renew(ix, &mut self.touched);
        if region.nodes.is_empty() {
            region.chain = Chain::default();
            for group in region.groups.drain(..) {
                self.groups[group.0 as usize].forget(ix);
            }
            self.by_set.remove(&set);
            self.vacant.push(ix);
        }
    }
}

impl Region {
    fn touch(&mut self, ix: RegionIx, moved: Moved, span: Span, touched: &mut Vec<RegionIx>) {
        match &mut self.change {
            Change::None => {
                touched.push(ix);
                self.change = Change::Groups(SmallVec::from_elem(moved, 1), span);
            }
            // With more groups, linking the whole chain costs no more. This also bounds the list.
            Change::Groups(groups, _) if groups.len() > self.groups.len() => {
                self.change = Change::Nodes;
            }
            Change::Groups(groups, spanned) => {
                *spanned = spanned.with(span);
                if groups.last() != Some(&moved) {
                    groups.push(moved);
                }
            }
            Change::Nodes => {}
        }
    }

    fn renew(&mut self, ix: RegionIx, touched: &mut Vec<RegionIx>) {
        if self.change == Change::None {
            touched.push(ix);
        }
        self.change = Change::Nodes;
    }
}

impl OfGroup {
    fn forget(&mut self, region: RegionIx) {
        if let Some(place) = self.regions.iter().position(|other| *other == region) {
            self.regions.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests;
