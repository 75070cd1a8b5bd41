//! Regions (Ricochet 3.1.1).
//!
//! A *region* is a non-empty set of other nodes that share exactly the same set of this node's
//! groups. [`Regions`] keeps them, and the [`Chain`] of each, as nodes come and go, and knows which
//! of them a change touches and how.
//!
//! A change of one group costs time in proportion to the regions of the group: in each of them the
//! group moves within the chain. Where all nodes of a region come to the same group or leave it,
//! the region gets another set of groups and stays what it was otherwise: so it is with a node that
//! has a region to itself, as most have in many groups, and with a group that this node leaves.
//!
//! Changes are noted, and take effect by [`Regions::settle`] with the next packet. Nodes that come
//! to hundreds of groups one after the other, as when a cluster starts, move once.

mod checking;

use alloc::collections::BTreeMap;

use smallvec::SmallVec;

use super::chain::{Chain, Link, SetId, Span};
use super::config::RepairScope;
use super::groups::GroupIx;
use crate::{IdMap, NodeId, Rng};

/// Which region, among those that this node has; numbers of regions that died out are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegionIx(pub(super) u32);

/// The regions around this node.
#[derive(Debug)]
pub(super) struct Regions {
    scope: RepairScope,
    regions: Vec<Region>,
    vacant: Vec<RegionIx>,
    by_set: IdMap<SetId, RegionIx>,
    neighbours: BTreeMap<NodeId, Neighbour>,
    /// By index; those that this node is or was in.
    groups: Vec<OfGroup>,
    touched: Vec<RegionIx>,
    /// Nodes whose groups changed since they were put where they stand, and groups whose size or c
    /// did since their share was computed; each once.
    moving: Vec<NodeId>,
    reshared: Vec<GroupIx>,
    /// Draws what [`SetId`]s are made of.
    rng: Rng,
}

/// How a region changed.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Change {
    #[default]
    None,
    /// The region has the nodes that it had. These groups have other shares now, or came in, or
    /// went out. Classes outside the span are as they were.
    Groups(SmallVec<[Moved; 4]>, Span),
    /// It has other nodes: all of it may be different.
    Nodes,
}

/// A group that moved within the chain of a region. If it is named several times, the last holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moved {
    pub(super) group: GroupIx,
    /// Whether it is one of the region's.
    pub(super) belongs: bool,
}

#[derive(Debug, Default)]
struct Region {
    groups: Vec<GroupIx>,
    nodes: Vec<NodeId>,
    chain: Chain,
    /// Since it was last asked for.
    change: Change,
}

#[derive(Debug, Default)]
struct Neighbour {
    groups: Vec<GroupIx>,
    set: SetId,
    /// What [`Neighbour::set`] was when the node was put where it stands.
    placed: SetId,
    /// The groups in which that differs from the groups that it has now, in order; not kept of a
    /// node that stands nowhere.
    changed: SmallVec<[GroupIx; 4]>,
    stands: bool,
    /// Whether it is among [`Regions::moving`].
    is_moving: bool,
}

#[derive(Debug)]
struct OfGroup {
    /// The set of this group alone.
    set: SetId,
    regions: Vec<RegionIx>,
    /// How many other nodes are in it.
    size: usize,
    c: u8,
    /// The part of its members that each packet is to get to.
    share: f64,
    /// Whether it is among [`Regions::reshared`].
    is_reshared: bool,
}

impl Regions {
    pub(super) fn new(scope: RepairScope, mut rng: Rng) -> Self {
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

    /// `group` has this c from now on; where it has fewer other members than that, all of them are
    /// to get every packet.
    pub(super) fn set_c(&mut self, group: GroupIx, c: u8) {
        self.know(group);
        self.groups[group.0 as usize].c = c;
        self.reshare(group);
    }

    /// `node` is in `group` from now on.
    pub(super) fn add(&mut self, node: NodeId, group: GroupIx) {
        self.know(group);
        let neighbour = self.neighbours.entry(node).or_default();
        let Err(place) = neighbour.groups.binary_search(&group) else { return };
        neighbour.groups.insert(place, group);
        self.groups[group.0 as usize].size += 1;
        self.move_later(node, group);
    }

    /// `node` is no longer in `group`.
    pub(super) fn remove(&mut self, node: NodeId, group: GroupIx) {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        let Ok(place) = neighbour.groups.binary_search(&group) else { return };
        neighbour.groups.remove(place);
        self.groups[group.0 as usize].size -= 1;
        self.move_later(node, group);
    }

    /// Puts all nodes where they belong by now, and takes up the sizes that the groups have.
    pub(super) fn settle(&mut self) {
        let mut reshared = core::mem::take(&mut self.reshared);
        reshared.drain(..).for_each(|group| self.share_out(group));
        self.reshared = reshared;
        let mut moving = core::mem::take(&mut self.moving);
        moving.drain(..).for_each(|node| self.relocate(node));
        self.moving = moving;
    }

    /// A region that changed since this last named it, and how, until there is none left; those
    /// that died out are among them, with no nodes.
    pub(super) fn next_change(&mut self) -> Option<(RegionIx, Change)> {
        let ix = self.touched.pop()?;
        Some((ix, core::mem::take(&mut self.regions[ix.0 as usize].change)))
    }

    /// Whether there is such a region, or will be once the changes are settled.
    pub(super) fn is_touched(&self) -> bool {
        let is_settled = self.moving.is_empty() && self.reshared.is_empty();
        !(is_settled && self.touched.is_empty())
    }

    /// The groups of a region with their shares, in order.
    pub(super) fn shares(&self, region: RegionIx) -> impl Iterator<Item = (GroupIx, f64)> {
        let groups = self.regions[region.0 as usize].groups.iter();
        groups.map(|group| (*group, self.groups[group.0 as usize].share))
    }

    /// The part of its members that each packet of `group` is to get to.
    pub(super) fn share_of(&self, group: GroupIx) -> f64 {
        self.groups[group.0 as usize].share
    }

    /// The bins that serve a region, those that a change in the `span` can change; none if it has
    /// died out.
    pub(super) fn links(&self, region: RegionIx, span: Span) -> impl Iterator<Item = Link> {
        let region = &self.regions[region.0 as usize];
        region.chain.links(region.nodes.len(), span)
    }

    /// The nodes of a region; empty once it has died out.
    pub(super) fn nodes(&self, region: RegionIx) -> &[NodeId] {
        &self.regions[region.0 as usize].nodes
    }

    /// The nodes of a region, in any order that the caller likes to give them.
    pub(super) fn nodes_mut(&mut self, region: RegionIx) -> &mut [NodeId] {
        &mut self.regions[region.0 as usize].nodes
    }

    /// How many regions there are or were at once.
    pub(super) fn slots(&self) -> usize {
        self.regions.len()
    }

    /// Whether `node` shares any group with this node.
    pub(super) fn is_neighbour(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| !neighbour.groups.is_empty())
    }

    /// The set of one group.
    pub(super) fn set_of(&self, group: GroupIx) -> SetId {
        self.groups[group.0 as usize].set
    }

    fn set_of_all(&self, groups: &[GroupIx]) -> SetId {
        groups.iter().fold(SetId::default(), |set, group| set ^ self.set_of(*group))
    }

    fn know(&mut self, group: GroupIx) {
        while self.groups.len() <= group.0 as usize {
            let set = SetId::draw(&mut self.rng);
            self.groups.push(OfGroup {
                set,
                regions: Vec::new(),
                size: 0,
                c: 0,
                share: 0.0,
                is_reshared: false,
            });
        }
    }

    fn reshare(&mut self, group: GroupIx) {
        let of_group = &mut self.groups[group.0 as usize];
        if !core::mem::replace(&mut of_group.is_reshared, true) {
            self.reshared.push(group);
        }
    }

    /// Notes that `group` was just given to `node` or taken from it.
    fn move_later(&mut self, node: NodeId, group: GroupIx) {
        self.reshare(group);
        let of_group = self.set_of(group);
        let neighbour = self.neighbours.get_mut(&node).expect("its groups were just changed");
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

    /// Takes up a new size or c of `group` in all its regions.
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

    /// Moves `node` to the region of its groups.
    fn relocate(&mut self, node: NodeId) {
        let neighbour = self.neighbours.get_mut(&node).expect("it stays until it was moved");
        neighbour.is_moving = false;
        let changed = core::mem::take(&mut neighbour.changed);
        let (before, after) = (neighbour.placed, neighbour.set);
        // Who shares no group is in no region.
        let (stood, stands) = (neighbour.stands, !neighbour.groups.is_empty());
        (neighbour.placed, neighbour.stands) = (after, stands);
        if !(stood && changed.is_empty()) {
            match self.scope {
                RepairScope::PerGroup => self.relocate_in_each(node, stood, &changed),
                RepairScope::Regions => {
                    let is_moved = stood && stands && self.take_along(before, after, &changed);
                    if stood && !is_moved {
                        self.take_out(node, before);
                    }
                    if stands && !is_moved {
                        let groups = core::mem::take(&mut self.neighbour(node).groups);
                        self.put_in(node, after, &groups);
                        self.neighbour(node).groups = groups;
                    }
                }
            }
        }
        if !stands {
            self.neighbours.remove(&node);
        }
    }

    /// Where every group is a region: who stood nowhere comes to all its groups.
    fn relocate_in_each(&mut self, node: NodeId, stood: bool, changed: &[GroupIx]) {
        let groups = core::mem::take(&mut self.neighbour(node).groups);
        for group in if stood { changed } else { &groups[..] } {
            let set = self.set_of(*group);
            if groups.binary_search(group).is_ok() {
                self.put_in(node, set, &[*group]);
            } else {
                self.take_out(node, set);
            }
        }
        self.neighbour(node).groups = groups;
    }

    fn neighbour(&mut self, node: NodeId) -> &mut Neighbour {
        self.neighbours.get_mut(&node).expect("it is being moved")
    }

    /// If all nodes of the region `before` move on to `after`, and there is no such region yet, it
    /// becomes that one by the `changed` groups, each of which it gets or loses, unless these are
    /// so many that it is as well to begin anew. Returns `true` if it did.
    fn take_along(&mut self, before: SetId, after: SetId, changed: &[GroupIx]) -> bool {
        let Some(&ix) = self.by_set.get(&before) else { return false };
        let region = &mut self.regions[ix.0 as usize];
        let many = changed.len() > 1 && changed.len() > region.groups.len() / 4;
        if many || self.by_set.contains(&after) {
            return false;
        }
        // One that stays behind ends the search, and the next one that moves on finds `after`.
        let moves_on = |node| self.neighbours.get(node).is_some_and(|it| it.set == after);
        if !region.nodes.iter().all(moves_on) {
            return false;
        }
        for node in &region.nodes {
            let neighbour = self.neighbours.get_mut(node).expect("it moves on");
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

    fn put_in(&mut self, node: NodeId, set: SetId, groups: &[GroupIx]) {
        let ix = match self.by_set.get(&set) {
            Some(ix) => *ix,
            None => self.found(set, groups),
        };
        let region = &mut self.regions[ix.0 as usize];
        region.nodes.push(node);
        region.renew(ix, &mut self.touched);
    }

    fn found(&mut self, set: SetId, groups: &[GroupIx]) -> RegionIx {
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

    fn take_out(&mut self, node: NodeId, set: SetId) {
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
    /// Notes that a group moved, by which classes in the `span` changed.
    fn touch(&mut self, ix: RegionIx, moved: Moved, span: Span, touched: &mut Vec<RegionIx>) {
        match &mut self.change {
            Change::None => {
                touched.push(ix);
                self.change = Change::Groups(SmallVec::from_elem(moved, 1), span);
            }
            // With that many it is as well to begin anew, and the list has an end.
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

    /// Notes that nodes came or went.
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
#[path = "regions_tests.rs"]
mod tests;
