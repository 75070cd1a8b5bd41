use std::collections::BTreeSet;

use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_assume, proptest};

use super::{MulticastTree, Overlay, RingMember, Seat, Seats, Vertex};
use crate::Rng;
use crate::rdcm::manager::group_tests::{Group, any_group};
use crate::rdcm::topology::Topology;

fn below(tree: &MulticastTree, vertex: Vertex) -> BTreeSet<Vertex> {
    let mut found: BTreeSet<Vertex> =
        tree.children(vertex).flat_map(|child| below(tree, child)).collect();
    found.extend(tree.receivers().get(&vertex));
    found
}

fn check(tree: &MulticastTree, overlay: &Overlay, topology: &Topology) {
    let seats = overlay.seats();
    assert!(seats.keys().eq(tree.receivers()), "each receiver has one leaf ring");
    for (vertex, ring) in &overlay.rings {
        assert!(
            ring.members.len() > 1 && ring.members.len() <= topology.neighbours(*vertex).len() + 1
        );
        for member in &ring.members {
            let branch: BTreeSet<Vertex> = match member.branch == *vertex {
                true => [*vertex].into(),
                false => below(tree, member.branch),
            };
            assert!(branch.contains(&member.proxy));
            assert_eq!(member.is_leaf, branch.len() == 1);
        }
        if ring.parent == tree.sender() {
            assert_eq!(below(tree, *vertex), *tree.receivers(), "only the highest ring has it");
        } else {
            assert!(below(tree, *vertex).contains(&ring.parent));
            assert!(seats[&ring.parent].proxy.is_some());
        }
    }
    for (receiver, Seats { leaf, proxy, children_ring, children }) in seats {
        let in_rings = overlay.rings.values();
        let count = in_rings.flat_map(|ring| &ring.members).filter(|it| it.proxy == receiver);
        assert_eq!(count.count(), 1 + usize::from(proxy.is_some()));
        assert_ne!(leaf.successor, receiver);
        assert_eq!(children.is_empty(), proxy.is_none(), "a proxy has overlay children");
        assert_eq!(children_ring.is_some(), proxy.is_some());
    }
}

proptest! {
    #[test]
    fn each_receiver_is_in_one_leaf_ring_and_at_most_one_proxy_ring(
        group in any_group(), seed in any::<u64>(),
    ) {
        let tree = group.tree();
        let overlay = Overlay::of_tree(&tree, None, &mut Rng::new(seed));
        check(&tree, &overlay, &group.topology);
    }

    #[test]
    fn joins_and_leaves_change_rings_on_their_own_path_only(
        group in any_group(), seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let before = group.tree();
        let hosts: Vec<Vertex> = (0..group.topology.hosts()).map(Vertex).collect();
        let host = hosts[rng.below(hosts.len())];
        prop_assume!(host != group.sender);
        let mut after = before.clone();
        match before.receivers().contains(&host) {
            true => prop_assert!(after.prune(host)),
            false => prop_assert!(after.graft(&group.topology, &BTreeSet::new(), host)),
        }
        prop_assume!(after.receivers().len() > 1);
        let was = Overlay::of_tree(&before, None, &mut rng);
        let is = Overlay::of_tree(&after, Some(&was), &mut rng);
        check(&after, &is, &group.topology);
        let larger = if after.contains(host) { &after } else { &before };
        let above = |vertex: &Vertex| larger.above(*vertex).map(|above| above.vertex);
        let way: Vec<Vertex> = core::iter::successors(Some(host), above).collect();
        for (vertex, ring) in &was.rings {
            if !way.contains(vertex) {
                let now = is.rings.get(vertex).map(|ring| &ring.members);
                prop_assert_eq!(now, Some(&ring.members));
            }
        }
    }

    #[test]
    fn the_same_tree_again_changes_nothing(group in any_group(), seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let tree = group.tree();
        let overlay = Overlay::of_tree(&tree, None, &mut rng);
        prop_assert_eq!(&Overlay::of_tree(&tree, Some(&overlay), &mut rng), &overlay);
    }
}

#[test]
fn a_single_receiver_is_alone_with_the_sender() {
    let tree = Group::of_first(Topology::racks(&[2, 2]).expect("a topology"), 3..4).tree();
    let seats = Overlay::of_tree(&tree, None, &mut Rng::new(1)).seats();
    let alone =
        Seat { ring: Vertex(0), predecessor: Vertex(3), successor: Vertex(3), parent: Vertex(0) };
    let only = Seats { leaf: alone, proxy: None, children_ring: None, children: Vec::new() };
    assert_eq!(seats, [(Vertex(3), only)].into());
}

#[test]
fn a_receiver_that_passes_on_is_a_branch_of_itself() {
    // In BCube(2, 1), server 0 reaches server 3 through server 1 or 2.
    let group = Group::of_first(Topology::bcube(2, 1).expect("a topology"), 1..4);
    let tree = group.tree();
    let overlay = Overlay::of_tree(&tree, None, &mut Rng::new(1));
    check(&tree, &overlay, &group.topology);
    let relay = tree.above(tree.above(Vertex(3)).expect("below a switch").vertex);
    let relay = relay.expect("below a server").vertex;
    let ring = &overlay.rings[&relay];
    let members: Vec<(Vertex, Vertex)> =
        ring.members.iter().map(|member| (member.branch, member.proxy)).collect();
    let switch = tree.above(Vertex(3)).expect("below a switch").vertex;
    assert_eq!(members, [(relay, relay), (switch, Vertex(3))]);
    assert_eq!((ring.level, overlay.rings[&Vertex(0)].level), (1, 2));
}

#[test]
fn the_nearest_of_those_in_the_fewest_rings_is_the_proxy() {
    // A server that receives and forwards is nearer to the sender than the servers below it.
    let tree = Group::of_first(Topology::bcube(4, 2).expect("a topology"), 1..64).tree();
    for seed in 0..20 {
        let overlay = Overlay::of_tree(&tree, None, &mut Rng::new(seed));
        for switch in tree.children(Vertex(0)) {
            let members = &overlay.rings[&switch].members;
            assert!(members.iter().all(|member| member.proxy == member.branch), "{members:?}");
        }
    }
}

#[test]
fn overlay_of_a_thousand_receivers_in_bcube_is_within_bounds() {
    let group = Group::a_thousand_in_bcube(5);
    let tree = group.tree();
    check(&tree, &Overlay::of_tree(&tree, None, &mut Rng::new(5)), &group.topology);
}

fn hops_below(overlay: &Overlay, proxy: Vertex, branch: &BTreeSet<Vertex>) -> usize {
    let seats = overlay.seats();
    let (mut reached, mut hops) = (BTreeSet::from([proxy]), 0);
    let (mut last, mut after) = (vec![proxy], 0);
    while !last.is_empty() {
        hops += after * last.len();
        after += 1;
        let both = |receiver: Vertex| {
            let Seats { leaf, proxy, .. } = &seats[&receiver];
            [Some(leaf.successor), proxy.map(|seat| seat.successor)].into_iter().flatten()
        };
        let next = last.into_iter().flat_map(both).filter(|it| branch.contains(it));
        last = next.collect::<BTreeSet<_>>().difference(&reached).copied().collect();
        reached.extend(&last);
    }
    assert_eq!(&reached, branch, "a repair reaches the whole branch");
    hops
}

#[test]
fn arranged_rings_reach_a_branch_in_fewer_hops_than_sorted_ones() {
    let tree = Group::a_thousand_in_bcube(7).tree();
    let arranged = Overlay::of_tree(&tree, None, &mut Rng::new(5));
    let mut plain = arranged.clone();
    for ring in plain.rings.values_mut() {
        ring.members.sort_by_key(|member| member.branch);
    }
    let members: Vec<RingMember> =
        arranged.rings.values().flat_map(|ring| ring.members.clone()).collect();
    let (mut of_arranged, mut of_plain) = (0, 0);
    for member in members.iter().filter(|member| !member.is_leaf) {
        let branch = below(&tree, member.branch);
        of_arranged += hops_below(&arranged, member.proxy, &branch);
        of_plain += hops_below(&plain, member.proxy, &branch);
    }
    assert!(5 * of_arranged < 4 * of_plain, "{of_arranged} and {of_plain} hops");
}
