//! Regions and Algorithm 1 (Ricochet 3.1).
//!
//! A *region* is a non-empty set of other nodes that share exactly the same set of this node's
//! groups. [`chain`] is Algorithm 1 for one region: which bins serve it, and how many of its nodes
//! each of them selects per repair. [`Regions`] keeps the regions as nodes come and go, and knows
//! which of them a change touches.

use alloc::collections::{BTreeMap, BTreeSet};

use super::config::RepairScope;
use super::groups::GroupIx;
use crate::NodeId;

/// Which region, among those that this node has; numbers of regions that died out are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegionIx(pub(super) u32);

/// One link of a region's chain: the bin of these groups selects this many targets per repair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    /// The bin's group set, in order.
    pub(super) groups: Vec<GroupIx>,
    /// Targets that it selects from the region for every repair, on average.
    pub(super) targets: f64,
}

/// Algorithm 1 for one region. `rates` holds, for each group of the region in order, the mean
/// number of its nodes that are to get each packet of the group, `c_A^R = c_A |R| / |A|`.
///
/// The first link's bin holds packets of all the region's groups and selects the least of these
/// numbers; the next one leaves out the groups that have got enough by that, and selects what the
/// least of the others still lacks; and so on. So every packet of a group A is in the bins of the
/// links up to the one where A is left out, and those select `c_A^R` targets together.
pub(super) fn chain(rates: &[(GroupIx, f64)]) -> Vec<Link> {
    let mut by_rate = rates.to_vec();
    by_rate.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mut links = Vec::new();
    let mut given = 0.0;
    let mut first = 0;
    while let Some(&(_, least)) = by_rate.get(first) {
        if least > given {
            let mut groups: Vec<GroupIx> =
                by_rate[first..].iter().map(|(group, _)| *group).collect();
            groups.sort_unstable();
            links.push(Link { groups, targets: least - given });
            given = least;
        }
        first += by_rate[first..].iter().take_while(|(_, rate)| *rate == least).count();
    }
    links
}

/// The regions around this node.
#[derive(Debug)]
pub(super) struct Regions {
    scope: RepairScope,
    regions: Vec<Region>,
    vacant: Vec<RegionIx>,
    by_groups: BTreeMap<Vec<GroupIx>, RegionIx>,
    neighbours: BTreeMap<NodeId, Vec<GroupIx>>,
    in_group: BTreeMap<GroupIx, GroupRegions>,
    touched: BTreeSet<RegionIx>,
}

#[derive(Debug, Default)]
struct Region {
    groups: Vec<GroupIx>,
    nodes: Vec<NodeId>,
}

/// A group's regions and size, this node not counted.
#[derive(Debug, Default)]
struct GroupRegions {
    regions: BTreeSet<RegionIx>,
    nodes: usize,
}

impl Regions {
    pub(super) fn new(scope: RepairScope) -> Self {
        Self {
            scope,
            regions: Vec::new(),
            vacant: Vec::new(),
            by_groups: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            in_group: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// `node` is in `group` from now on.
    pub(super) fn add(&mut self, node: NodeId, group: GroupIx) {
        let groups = self.neighbours.entry(node).or_default();
        let Err(place) = groups.binary_search(&group) else { return };
        let before = groups.clone();
        groups.insert(place, group);
        let after = groups.clone();
        self.in_group.entry(group).or_default().nodes += 1;
        self.relocate(node, &before, &after);
        self.touch(group);
    }

    /// `node` is no longer in `group`.
    pub(super) fn remove(&mut self, node: NodeId, group: GroupIx) {
        let Some(groups) = self.neighbours.get_mut(&node) else { return };
        let Ok(place) = groups.binary_search(&group) else { return };
        let before = groups.clone();
        groups.remove(place);
        let after = groups.clone();
        if after.is_empty() {
            self.neighbours.remove(&node);
        }
        self.touch(group);
        self.relocate(node, &before, &after);
        if let Some(of_group) = self.in_group.get_mut(&group) {
            of_group.nodes -= 1;
            if of_group.nodes == 0 {
                self.in_group.remove(&group);
            }
        }
    }

    /// Whether a change waits to be taken up.
    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The regions whose nodes, groups or group sizes changed since this was last asked; those
    /// that died out are among them, with no nodes.
    pub(super) fn take_touched(&mut self) -> BTreeSet<RegionIx> {
        core::mem::take(&mut self.touched)
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

    /// The bins that serve a region. `c_of` gives the c of each group; where a group has fewer
    /// than c other members, all of them are to get every packet.
    pub(super) fn chain(&self, region: RegionIx, c_of: impl Fn(GroupIx) -> u8) -> Vec<Link> {
        let region = &self.regions[region.0 as usize];
        let rates: Vec<(GroupIx, f64)> = region
            .groups
            .iter()
            .map(|group| {
                let size = self.group_size(*group);
                let targets = usize::from(c_of(*group)).min(size);
                (*group, (targets * region.nodes.len()) as f64 / size as f64)
            })
            .collect();
        chain(&rates)
    }

    /// How many other nodes are in `group`.
    pub(super) fn group_size(&self, group: GroupIx) -> usize {
        self.in_group.get(&group).map_or(0, |of_group| of_group.nodes)
    }

    /// Whether `node` shares any group with this node.
    pub(super) fn is_neighbour(&self, node: NodeId) -> bool {
        self.neighbours.contains_key(&node)
    }

    /// The invariants: every neighbour stands in exactly the regions of its groups, and every
    /// group knows its regions and its size.
    pub(super) fn check(&self) {
        let mut places = 0;
        for (groups, ix) in &self.by_groups {
            let region = &self.regions[ix.0 as usize];
            assert_eq!(&region.groups, groups, "a region is filed under other groups");
            assert!(!region.nodes.is_empty(), "a region that died out is still filed");
            places += region.nodes.len();
            for group in groups {
                let filed = self.in_group.get(group).is_some_and(|g| g.regions.contains(ix));
                assert!(filed, "a group does not know one of its regions");
            }
        }
        let expected: usize = match self.scope {
            RepairScope::Regions => self.neighbours.len(),
            RepairScope::PerGroup => self.neighbours.values().map(Vec::len).sum(),
        };
        assert_eq!(places, expected, "a neighbour stands in no region, or in too many");
        for (group, of_group) in &self.in_group {
            let size = self.neighbours.values().filter(|g| g.contains(group)).count();
            assert_eq!(of_group.nodes, size, "a group's size is wrong");
        }
    }

    /// Moves `node` from the regions that its groups `before` put it in to those of `after`.
    fn relocate(&mut self, node: NodeId, before: &[GroupIx], after: &[GroupIx]) {
        let (old, new) = (self.keys(before), self.keys(after));
        for key in old.iter().filter(|key| !new.contains(key)) {
            self.take_out(node, key);
        }
        for key in new.iter().filter(|key| !old.contains(key)) {
            self.put_in(node, key);
        }
    }

    fn keys(&self, groups: &[GroupIx]) -> Vec<Vec<GroupIx>> {
        match self.scope {
            RepairScope::Regions if groups.is_empty() => Vec::new(),
            RepairScope::Regions => vec![groups.to_vec()],
            RepairScope::PerGroup => groups.iter().map(|group| vec![*group]).collect(),
        }
    }

    fn put_in(&mut self, node: NodeId, groups: &[GroupIx]) {
        let ix = match self.by_groups.get(groups) {
            Some(ix) => *ix,
            None => self.found(groups),
        };
        self.regions[ix.0 as usize].nodes.push(node);
        self.touched.insert(ix);
    }

    fn found(&mut self, groups: &[GroupIx]) -> RegionIx {
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.regions.push(Region::default());
            RegionIx(self.regions.len() as u32 - 1)
        });
        self.regions[ix.0 as usize].groups = groups.to_vec();
        self.by_groups.insert(groups.to_vec(), ix);
        for group in groups {
            self.in_group.entry(*group).or_default().regions.insert(ix);
        }
        ix
    }

    fn take_out(&mut self, node: NodeId, groups: &[GroupIx]) {
        let ix = *self.by_groups.get(groups).expect("a node's region exists while it is in it");
        let region = &mut self.regions[ix.0 as usize];
        region.nodes.retain(|other| *other != node);
        self.touched.insert(ix);
        if region.nodes.is_empty() {
            for group in core::mem::take(&mut region.groups) {
                if let Some(of_group) = self.in_group.get_mut(&group) {
                    of_group.regions.remove(&ix);
                }
            }
            self.by_groups.remove(groups);
            self.vacant.push(ix);
        }
    }

    /// The size of `group` changes the targets of all its regions.
    fn touch(&mut self, group: GroupIx) {
        if let Some(of_group) = self.in_group.get(&group) {
            self.touched.extend(&of_group.regions);
        }
    }
}

#[cfg(test)]
#[path = "regions_tests.rs"]
mod tests;
