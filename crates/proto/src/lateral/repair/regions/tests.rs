use super::*;
use crate::Rng;
use crate::lateral::repair::chain::tests::{
    Memberships, Selections, compare, papers_example, selections_of,
};
use proptest::prelude::*;

const A: GroupIx = GroupIx(0);
const B: GroupIx = GroupIx(1);
const C: GroupIx = GroupIx(2);

fn golden() -> Regions {
    let mut regions = with_c(RepairScope::Regions, &[5, 4, 3]);
    papers_example().into_iter().for_each(|(node, group)| regions.add(node, group));
    settle_checked(&mut regions);
    regions
}

fn settle_checked(regions: &mut Regions) {
    regions.check();
    regions.settle();
    regions.check();
}

fn changes(regions: &mut Regions) -> Vec<(RegionIx, Change)> {
    regions.settle();
    core::iter::from_fn(|| regions.next_change()).collect()
}

fn with_c(scope: RepairScope, cs: &[u8]) -> Regions {
    let mut regions = Regions::new(scope, Rng::new(3));
    cs.iter().zip(0..).for_each(|(c, group)| regions.set_c(GroupIx(group), *c));
    regions
}

fn groups_of(regions: &Regions, ix: RegionIx) -> Vec<GroupIx> {
    regions.shares(ix).map(|(group, _)| group).collect()
}

fn selections(regions: &Regions) -> Selections {
    let mut all = BTreeMap::new();
    for ix in (0..regions.slots() as u32).map(RegionIx) {
        for link in regions.links(ix, Span::ALL) {
            let shares = regions.shares(ix).filter(|(_, share)| *share >= link.share);
            let groups: Vec<GroupIx> = shares.map(|(group, _)| group).collect();
            assert_eq!(regions.set_of_all(&groups), link.set);
            all.insert((groups, groups_of(regions, ix)), link.targets);
        }
    }
    all
}

#[test]
fn example_of_figure_7() {
    let regions = golden();
    assert_eq!([0, 1, 2].map(|group: usize| regions.groups[group].size), [20, 20, 25]);
    let expected: [(&[GroupIx], &[GroupIx], f64); 12] = [
        (&[A, B, C], &[A, B, C], 1.2),
        (&[A, B], &[A, B], 0.4),
        (&[A, B], &[A, B, C], 0.8),
        (&[A, C], &[A, C], 0.36),
        (&[B, C], &[B, C], 0.84),
        (&[A], &[A], 1.25),
        (&[A], &[A, B], 0.1),
        (&[A], &[A, C], 0.39),
        (&[A], &[A, B, C], 0.5),
        (&[B], &[B], 0.2),
        (&[B], &[B, C], 0.56),
        (&[C], &[C], 0.6),
    ];
    let selected = selections(&regions);
    assert_eq!(selected.len(), 12, "bins are made for the chains of populated regions only");
    for (bin, region, targets) in &expected {
        let ours = selected[&(bin.to_vec(), region.to_vec())];
        assert!((ours - targets).abs() < 1e-9, "{bin:?} of {region:?}: {ours}, not {targets}");
    }
}

#[test]
fn bin_may_exist_for_a_group_set_that_is_no_region() {
    let mut regions = with_c(RepairScope::Regions, &[1, 1, 1]);
    // Node 1 is in A, B and C. A and B have the same size, and C is larger.
    [A, B, C].iter().for_each(|group| regions.add(NodeId(1), *group));
    regions.add(NodeId(2), C);
    regions.settle();
    let selected = selections(&regions);
    let abc = vec![A, B, C];
    assert_eq!(selected.len(), 3);
    assert_eq!(selected[&(abc.clone(), abc.clone())], 0.5);
    assert_eq!(selected[&(vec![A, B], abc)], 0.5);
    assert_eq!(selected[&(vec![C], vec![C])], 0.5);
}

#[test]
fn a_change_touches_the_regions_of_its_group_and_no_others() {
    let mut regions = golden();
    assert_eq!(changes(&mut regions).len(), regions.slots());
    regions.add(NodeId(100), C);
    let changes = changes(&mut regions).into_iter();
    let changes: BTreeMap<_, _> = changes.map(|(ix, it)| (groups_of(&regions, ix), it)).collect();
    let span = Span::between(3.0 / 25.0, 3.0 / 26.0);
    let only_c = || Change::Groups(SmallVec::from_elem(Moved { group: C, belongs: true }, 1), span);
    let expected = [
        (vec![A, B, C], only_c()),
        (vec![A, C], only_c()),
        (vec![B, C], only_c()),
        (vec![C], Change::Nodes),
    ];
    assert_eq!(changes, BTreeMap::from(expected));
}

#[test]
fn lone_node_takes_its_region_along() {
    let mut regions = with_c(RepairScope::Regions, &[1, 1, 1]);
    regions.add(NodeId(1), A);
    regions.add(NodeId(2), B);
    changes(&mut regions);
    regions.add(NodeId(1), C);
    regions.settle();
    assert_eq!(regions.slots(), 2);
    let change =
        Change::Groups(SmallVec::from_elem(Moved { group: C, belongs: true }, 1), Span::up_to(1.0));
    assert_eq!(changes(&mut regions), [(RegionIx(0), change)]);
    // If it joins other nodes or leaves other nodes behind, the nodes of the regions change.
    regions.remove(NodeId(1), C);
    changes(&mut regions);
    regions.add(NodeId(2), A);
    regions.settle();
    regions.remove(NodeId(2), B);
    let both = [(RegionIx(1), Change::Nodes), (RegionIx(0), Change::Nodes)];
    assert_eq!(changes(&mut regions), both);
    regions.check();
}

#[test]
fn nodes_that_all_move_take_their_region_along() {
    let mut regions = with_c(RepairScope::Regions, &[1, 1, 1]);
    let nodes = || (1..=3).map(NodeId);
    nodes().for_each(|node| [A, B].iter().for_each(|group| regions.add(node, *group)));
    changes(&mut regions);
    let groups_moved = |regions: &mut Regions, group, belongs| {
        let changes = changes(regions);
        let [(RegionIx(0), Change::Groups(moved, _))] = &changes[..] else {
            panic!("expected one region with changed groups: {changes:?}");
        };
        moved.last() == Some(&Moved { group, belongs })
    };
    nodes().for_each(|node| regions.remove(node, A));
    assert!(groups_moved(&mut regions, A, false));
    regions.check();
    nodes().for_each(|node| regions.add(node, C));
    assert!(groups_moved(&mut regions, C, true));
    regions.check();
    assert_eq!(regions.nodes(RegionIx(0)), [NodeId(1), NodeId(2), NodeId(3)]);
    nodes().take(2).for_each(|node| regions.remove(node, C));
    let both = [(RegionIx(1), Change::Nodes), (RegionIx(0), Change::Nodes)];
    assert_eq!(changes(&mut regions), both);
    regions.check();
}

#[test]
fn nodes_that_join_many_groups_at_once_move_once() {
    const GROUPS: u32 = 100;
    let mut regions = with_c(RepairScope::Regions, &[1; GROUPS as usize]);
    for group in (0..GROUPS).map(GroupIx) {
        (1..=3).for_each(|node| regions.add(NodeId(node), group));
    }
    regions.add(NodeId(4), A);
    regions.remove(NodeId(4), A);
    assert!(regions.is_touched() && regions.slots() == 0 && !regions.is_neighbour(NodeId(4)));
    assert_eq!(changes(&mut regions), [(RegionIx(0), Change::Nodes)]);
    assert_eq!(regions.nodes(RegionIx(0)), [NodeId(1), NodeId(2), NodeId(3)]);
    regions.remove(NodeId(2), B);
    regions.add(NodeId(2), B);
    assert_eq!(changes(&mut regions), []);
    assert!(!regions.is_touched());
    regions.check();
}

#[test]
fn the_list_of_changed_groups_has_an_end() {
    let mut regions = with_c(RepairScope::Regions, &[1, 1, 1]);
    [A, B].iter().for_each(|group| regions.add(NodeId(1), *group));
    changes(&mut regions);
    for _ in 0..10 {
        regions.add(NodeId(2), A);
        regions.add(NodeId(3), B);
        regions.settle();
        regions.remove(NodeId(2), A);
        regions.remove(NodeId(3), B);
        regions.settle();
    }
    let changes = changes(&mut regions);
    assert!(changes.contains(&(RegionIx(0), Change::Nodes)), "{changes:?}");
}

#[test]
fn with_per_group_repairs_every_group_is_one_region() {
    let mut regions = with_c(RepairScope::PerGroup, &[5, 5]);
    for node in 1..=6 {
        regions.add(NodeId(node), A);
        regions.add(NodeId(node), B);
    }
    settle_checked(&mut regions);
    let selected = selections(&regions);
    assert_eq!(selected.len(), 2);
    assert!(selected.values().all(|targets| (targets - 5.0).abs() < 1e-9));
    regions.remove(NodeId(3), A);
    settle_checked(&mut regions);
    assert_eq!([0, 1].map(|group: usize| regions.groups[group].size), [5, 6]);
}

proptest! {
    /// The first guarantee of section 3.
    #[test]
    fn every_group_gets_its_c_for_random_memberships(
        changes in prop::collection::vec((0..40_u64, 0..6_u32, 0..4), 1..250),
        settles_every in 1..60_usize,
        cs in prop::collection::vec(0..9_u8, 6),
        scope in prop::sample::select(vec![RepairScope::Regions, RepairScope::PerGroup]),
    ) {
        let mut regions = with_c(scope, &cs);
        let mut memberships = Memberships::new();
        for (place, (node, group, kind)) in changes.into_iter().enumerate() {
            let (node, group) = (NodeId(node), GroupIx(group));
            if kind > 0 {
                regions.add(node, group);
                memberships.entry(node).or_default().insert(group);
            } else {
                regions.remove(node, group);
                memberships.entry(node).or_default().remove(&group);
            }
            if place.is_multiple_of(settles_every) {
                settle_checked(&mut regions);
            }
        }
        settle_checked(&mut regions);
        let c_of = |group: GroupIx| cs[group.0 as usize];
        let selected = selections(&regions);
        compare(&selected, &selections_of(&memberships, scope, c_of));
        for group in (0..6).map(GroupIx) {
            let size = memberships.values().filter(|groups| groups.contains(&group)).count();
            let targets: f64 = selected
                .iter()
                .filter(|((bin, _), _)| bin.contains(&group))
                .map(|(_, targets)| targets)
                .sum();
            let expected = usize::from(c_of(group)).min(size) as f64;
            prop_assert!((targets - expected).abs() < 1e-9, "{targets}, not {expected}");
        }
    }
}
