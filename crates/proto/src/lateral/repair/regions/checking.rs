use super::{Neighbour, RegionIx, Regions};
use crate::lateral::config::RepairScope;
use crate::lateral::index::GroupIx;

impl Regions {
    pub(crate) fn check(&self) {
        let mut places = 0;
        let mut filed = 0;
        for (region, ix) in self.regions.iter().zip((0..).map(RegionIx)) {
            assert_eq!(
                region.nodes.is_empty(),
                region.groups.is_empty(),
                "a region is partly empty"
            );
            let set = self.set_of_all(&region.groups);
            if !region.nodes.is_empty() {
                assert_eq!(
                    self.by_set.get(&set),
                    Some(&ix),
                    "a region is registered under another set"
                );
            }
            places += region.nodes.len();
            filed += region.groups.len();
            for group in &region.groups {
                let regions = &self.groups[group.0 as usize].regions;
                assert!(regions.contains(&ix), "a group does not list one of its regions");
            }
            for node in &region.nodes {
                let groups = self.neighbours.get(node).map(Neighbour::stands_for);
                let fits = groups.is_some_and(|groups| match self.scope {
                    RepairScope::Regions => groups == region.groups,
                    RepairScope::PerGroup => groups.contains(&region.groups[0]),
                });
                assert!(fits, "a neighbor is in the wrong region");
            }
        }
        let all = self.neighbours.values();
        let expected: usize = match self.scope {
            RepairScope::Regions => all.filter(|neighbour| neighbour.stands).count(),
            RepairScope::PerGroup => all.map(|neighbour| neighbour.stands_for().len()).sum(),
        };
        assert_eq!(places, expected, "a neighbor is in no region, or in too many");
        self.check_groups(filed);
    }

    fn check_groups(&self, filed: usize) {
        let known: usize = self.groups.iter().map(|group| group.regions.len()).sum();
        assert_eq!(known, filed, "a group lists a region that has left it");
        let live = self.regions.iter().filter(|region| !region.nodes.is_empty()).count();
        assert_eq!(self.by_set.len(), live, "a removed region is still registered");
        for (of_group, ix) in self.groups.iter().zip((0..).map(GroupIx)) {
            let has = |neighbour: &&Neighbour| neighbour.groups.binary_search(&ix).is_ok();
            let size = self.neighbours.values().filter(has).count();
            assert_eq!(of_group.size, size, "a group's size is wrong");
            assert_eq!(
                of_group.is_reshared,
                self.reshared.contains(&ix),
                "a group is wrongly marked as reshared"
            );
        }
        for (node, neighbour) in &self.neighbours {
            let [set, placed] =
                [&neighbour.groups, &neighbour.stands_for()].map(|groups| self.set_of_all(groups));
            assert_eq!(neighbour.set, set, "a neighbor's set does not match its groups");
            assert_eq!(neighbour.placed, placed, "a neighbor is placed for the wrong groups");
            assert_eq!(
                neighbour.is_moving,
                self.moving.contains(node),
                "a neighbor is wrongly marked as moving"
            );
            assert!(neighbour.is_moving || placed == set, "a neighbor is in its former region");
        }
    }
}

impl Neighbour {
    fn stands_for(&self) -> Vec<GroupIx> {
        let mut groups = if self.stands { self.groups.clone() } else { Vec::new() };
        for group in &self.changed {
            match groups.binary_search(group) {
                Ok(place) => drop(groups.remove(place)),
                Err(place) => groups.insert(place, *group),
            }
        }
        groups
    }
}
