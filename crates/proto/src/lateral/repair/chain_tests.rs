use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::NodeId;
use crate::lateral::config::RepairScope;
use crate::lateral::index::GroupIx;

pub(crate) type Memberships = BTreeMap<NodeId, BTreeSet<GroupIx>>;
pub(crate) type Selections = BTreeMap<(Vec<GroupIx>, Vec<GroupIx>), f64>;

/// Returns the members of the groups 0 to 2 in figures 5 to 7 of the Ricochet paper: |a|=5 |b|=1
/// |c|=5 |ab|=2 |ac|=3 |bc|=7 |abc|=10.
pub(crate) fn papers_example() -> Vec<(NodeId, GroupIx)> {
    let regions: [(&[u32], usize); 7] = [
        (&[0], 5),
        (&[1], 1),
        (&[2], 5),
        (&[0, 1], 2),
        (&[0, 2], 3),
        (&[1, 2], 7),
        (&[0, 1, 2], 10),
    ];
    let groups_of = regions.into_iter().flat_map(|(groups, nodes)| [groups].repeat(nodes));
    let nodes = (1..).map(NodeId).zip(groups_of);
    nodes.flat_map(|(node, groups)| groups.iter().map(move |ix| (node, GroupIx(*ix)))).collect()
}

/// Computes the selections from the memberships alone, as in the paper.
pub(crate) fn selections_of(
    memberships: &Memberships,
    scope: RepairScope,
    c_of: impl Fn(GroupIx) -> u8,
) -> Selections {
    let mut regions: BTreeMap<Vec<GroupIx>, usize> = BTreeMap::new();
    let mut sizes: BTreeMap<GroupIx, usize> = BTreeMap::new();
    for groups in memberships.values().filter(|groups| !groups.is_empty()) {
        groups.iter().for_each(|group| *sizes.entry(*group).or_default() += 1);
        match scope {
            RepairScope::Regions => {
                *regions.entry(groups.iter().copied().collect()).or_default() += 1;
            }
            RepairScope::PerGroup => groups.iter().for_each(|group| {
                *regions.entry(vec![*group]).or_default() += 1;
            }),
        }
    }
    let mut selections = BTreeMap::new();
    for (region, nodes) in regions {
        let rate = |group: &GroupIx| {
            let targets = usize::from(c_of(*group)).min(sizes[group]);
            (*group, (targets * nodes) as f64 / sizes[group] as f64)
        };
        for (bin, targets) in in_full(region.iter().map(rate).collect()) {
            selections.insert((bin, region.clone()), targets);
        }
    }
    selections
}

fn in_full(mut rates: Vec<(GroupIx, f64)>) -> Vec<(Vec<GroupIx>, f64)> {
    rates.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mut links = Vec::new();
    let mut given = 0.0;
    let mut first = 0;
    while let Some(&(_, least)) = rates.get(first) {
        if least > given {
            let mut groups: Vec<GroupIx> = rates[first..].iter().map(|(group, _)| *group).collect();
            groups.sort_unstable();
            links.push((groups, least - given));
            given = least;
        }
        first += rates[first..].iter().take_while(|(_, rate)| *rate == least).count();
    }
    links
}

pub(crate) fn compare(ours: &Selections, expected: &Selections) {
    assert!(ours.keys().eq(expected.keys()), "{ours:?}, not {expected:?}");
    for ((place, ours), expected) in ours.iter().zip(expected.values()) {
        assert!((ours - expected).abs() < 1e-9, "{place:?}: {ours}, not {expected}");
    }
}

#[test]
fn groups_of_equal_share_leave_the_chain_together() {
    let mut rng = Rng::new(1);
    let sets: Vec<SetId> = (0..4).map(|_| SetId::draw(&mut rng)).collect();
    let mut chain = Chain::default();
    for (set, share) in sets.iter().zip([0.5, 0.25, 0.5, 0.0]) {
        chain.insert(share, *set);
    }
    let links: Vec<Link> = chain.links(3, Span::ALL).collect();
    assert_eq!(links.len(), 2, "a group without targets is in no bin");
    assert_eq!((links[0].set, links[0].targets), (sets[0] ^ sets[1] ^ sets[2], 0.75));
    assert_eq!((links[1].set, links[1].targets), (sets[0] ^ sets[2], 0.75));
    chain.remove(0.5, sets[2]);
    chain.insert(0.25, sets[2]);
    let links: Vec<Link> = chain.links(1, Span::ALL).collect();
    assert_eq!((links[0].set, links[0].targets), (sets[0] ^ sets[1] ^ sets[2], 0.25));
    assert_eq!((links[1].set, links[1].targets), (sets[0], 0.25));
}

#[test]
fn a_change_concerns_the_classes_in_its_span_and_the_next() {
    let mut rng = Rng::new(1);
    let mut chain = Chain::default();
    for share in [0.1, 0.2, 0.3, 0.4, 0.5] {
        chain.insert(share, SetId::draw(&mut rng));
    }
    let all: Vec<Link> = chain.links(1, Span::ALL).collect();
    let links = |span| chain.links(1, span).collect::<Vec<Link>>();
    assert_eq!(links(Span::between(0.3, 0.2)), all[1..4]);
    assert_eq!(links(Span::between(0.25, 0.25)), all[2..3]);
    assert_eq!(links(Span::between(0.5, 0.35)), all[3..]);
    assert_eq!(links(Span::up_to(0.1)), all[..2]);
    assert_eq!(links(Span::between(0.6, 0.6)), []);
}
