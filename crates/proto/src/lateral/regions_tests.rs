use super::*;
use proptest::prelude::*;

const A: GroupIx = GroupIx(0);
const B: GroupIx = GroupIx(1);
const C: GroupIx = GroupIx(2);

/// Figures 5 to 7 of the Ricochet paper: |a|=5 |b|=1 |c|=5 |ab|=2 |ac|=3 |bc|=7 |abc|=10.
fn golden() -> Regions {
    let populations: [(&[GroupIx], u64); 7] = [
        (&[A], 5),
        (&[B], 1),
        (&[C], 5),
        (&[A, B], 2),
        (&[A, C], 3),
        (&[B, C], 7),
        (&[A, B, C], 10),
    ];
    let mut regions = Regions::new(RepairScope::Regions);
    let mut node = 0;
    for (groups, count) in populations {
        for _ in 0..count {
            node += 1;
            groups.iter().for_each(|group| regions.add(NodeId(node), *group));
        }
    }
    regions.check();
    regions
}

fn golden_c(group: GroupIx) -> u8 {
    [5, 4, 3][group.0 as usize]
}

/// All of what the bins select: (bin, region) -> targets.
fn selections(
    regions: &Regions,
    c_of: impl Fn(GroupIx) -> u8 + Copy,
) -> BTreeMap<(Vec<GroupIx>, Vec<GroupIx>), f64> {
    let mut all = BTreeMap::new();
    for (groups, ix) in &regions.by_groups {
        for link in regions.chain(*ix, c_of) {
            all.insert((link.groups, groups.clone()), link.targets);
        }
    }
    all
}

#[test]
fn the_papers_example_comes_out_as_in_figure_7() {
    let regions = golden();
    assert_eq!([A, B, C].map(|group| regions.group_size(group)), [20, 20, 25]);
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
    let selected = selections(&regions, golden_c);
    assert_eq!(selected.len(), 12, "bins are made for the chains of populated regions only");
    for (bin, region, targets) in &expected {
        let ours = selected[&(bin.to_vec(), region.to_vec())];
        assert!((ours - targets).abs() < 1e-9, "{bin:?} of {region:?}: {ours}, not {targets}");
    }
}

#[test]
fn a_bin_may_exist_for_a_group_set_that_is_nobodys_region() {
    let mut regions = Regions::new(RepairScope::Regions);
    // Node 1 is in A, B and C; A and B have the same size, C is larger.
    [A, B, C].iter().for_each(|group| regions.add(NodeId(1), *group));
    regions.add(NodeId(2), C);
    let ix = regions.by_groups[&vec![A, B, C]];
    let links = regions.chain(ix, |_| 1);
    assert_eq!(links.len(), 2);
    assert_eq!((links[0].groups.clone(), links[0].targets), (vec![A, B, C], 0.5));
    assert_eq!((links[1].groups.clone(), links[1].targets), (vec![A, B], 0.5));
}

#[test]
fn a_change_touches_the_regions_of_its_group_and_no_others() {
    let mut regions = golden();
    let all = regions.take_touched();
    assert_eq!(all.len(), regions.slots());
    regions.add(NodeId(100), C);
    let touched: Vec<Vec<GroupIx>> = regions
        .take_touched()
        .into_iter()
        .map(|ix| regions.regions[ix.0 as usize].groups.clone())
        .collect();
    assert_eq!(touched.len(), 4, "c, ac, bc and abc: {touched:?}");
    assert!(touched.iter().all(|groups| groups.contains(&C)));
}

#[test]
fn with_per_group_repairs_every_group_is_one_region() {
    let mut regions = Regions::new(RepairScope::PerGroup);
    for node in 1..=6 {
        regions.add(NodeId(node), A);
        regions.add(NodeId(node), B);
    }
    regions.check();
    let selected = selections(&regions, |_| 5);
    assert_eq!(selected.len(), 2);
    assert!(selected.values().all(|targets| *targets == 5.0));
    regions.remove(NodeId(3), A);
    regions.check();
    assert_eq!((regions.group_size(A), regions.group_size(B)), (5, 6));
}

proptest! {
    /// The first guarantee of section 3: every packet of a group A goes to c_A nodes of A on
    /// average, or to all of them where there are fewer.
    #[test]
    fn every_group_gets_its_c_for_random_memberships(
        memberships in prop::collection::vec((0..40_u64, 0..6_u32), 1..160),
        departures in prop::collection::vec((0..40_u64, 0..6_u32), 0..60),
        cs in prop::collection::vec(0..9_u8, 6),
    ) {
        let mut regions = Regions::new(RepairScope::Regions);
        memberships.iter().for_each(|(node, group)| regions.add(NodeId(*node), GroupIx(*group)));
        departures.iter().for_each(|(node, group)| regions.remove(NodeId(*node), GroupIx(*group)));
        regions.check();
        let c_of = |group: GroupIx| cs[group.0 as usize];
        let selected = selections(&regions, c_of);
        for group in (0..6).map(GroupIx) {
            let size = regions.group_size(group);
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
