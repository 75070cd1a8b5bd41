use std::collections::BTreeSet;

use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_assume, proptest};

use super::{LinkId, MulticastTree, Topology, Vertex, distances};
use crate::Rng;
use crate::rdcm::manager::group_tests::{Group, any_group};

fn check(tree: &MulticastTree, group: &Group, dead: &BTreeSet<LinkId>) {
    for vertex in tree.upwards() {
        let is_leaf = tree.children(vertex).len() == 0;
        assert!(!is_leaf || vertex == tree.sender() || tree.receivers().contains(&vertex));
        let Some(above) = tree.above(vertex) else { continue };
        assert!(group.topology.neighbours(vertex).contains(&(above.vertex, above.link)));
        assert!(!dead.contains(&above.link));
        let passes = above.vertex == tree.sender() || group.topology.forwards(above.vertex);
        assert!(passes, "{} does not pass on", above.vertex);
    }
    assert_eq!(tree.upwards().len(), tree.links().len() + 1);
}

proptest! {
    #[test]
    fn every_receiver_is_reached_by_a_shortest_way_or_there_is_none(
        group in any_group(), share_of_dead in 0.0..0.3, seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let links = 0..group.topology.links().len() as u32;
        let dead = links.filter(|_| rng.chance(share_of_dead)).map(LinkId).collect();
        let (tree, unreached) =
            MulticastTree::shortest(&group.topology, &dead, group.sender, &group.receivers);
        check(&tree, &group, &dead);
        let distance = distances(&group.topology, &dead, group.sender);
        for receiver in &group.receivers {
            let steps = distance[receiver.0 as usize];
            prop_assert_eq!(unreached.contains(receiver), steps.is_none());
            prop_assert_eq!(tree.receivers().contains(receiver), steps.is_some());
            if let Some(steps) = steps {
                prop_assert_eq!(tree.depth(*receiver), steps as usize);
            }
        }
    }

    #[test]
    fn who_comes_and_goes_leaves_no_trace(group in any_group(), seed in any::<u64>()) {
        let dead = BTreeSet::new();
        let before = group.tree();
        let hosts = (0..group.topology.hosts()).map(Vertex);
        let others: Vec<Vertex> = hosts.filter(|host| {
            *host != group.sender && !group.receivers.contains(host)
        }).collect();
        prop_assume!(!others.is_empty());
        let guest = others[Rng::new(seed).below(others.len())];
        let mut tree = before.clone();
        prop_assert!(tree.graft(&group.topology, &dead, guest));
        check(&tree, &group, &dead);
        prop_assert!(tree.receivers().contains(&guest));
        for vertex in before.upwards() {
            prop_assert_eq!(tree.above(vertex), before.above(vertex));
        }
        prop_assert!(tree.prune(guest));
        prop_assert_eq!(tree, before);
    }
}

#[test]
fn receivers_of_a_rack_share_the_way_to_it() {
    let group = Group::of_first(Topology::racks(&[1, 3, 4]).expect("a topology"), 1..8);
    let tree = group.tree();
    assert_eq!(tree.links().len(), group.topology.links().len());
    assert_eq!(tree.depth(Vertex(7)), 4);
}

#[test]
fn a_thousand_receivers_in_bcube_share_most_of_their_ways() {
    let group = Group::a_thousand_in_bcube(5);
    let tree = group.tree();
    let alone: usize = group.receivers.iter().map(|receiver| tree.depth(*receiver)).sum();
    // Separate paths would need about 7000 links, and fewer than 1000 are impossible.
    assert!(alone > 6500 && tree.links().len() < 2100, "{alone} {}", tree.links().len());
}

#[test]
fn a_dead_link_is_gone_round_where_there_is_a_way() {
    let group = Group::of_first(Topology::bcube(4, 1).expect("a topology"), 1..16);
    let Group { topology, sender, receivers } = &group;
    for link in group.tree().links() {
        let dead = [link].into();
        let (other, unreached) = MulticastTree::shortest(topology, &dead, *sender, receivers);
        assert!(unreached.is_empty());
        assert!(other.links().all(|used| used != link));
    }
    let racks = Topology::racks(&[2, 2]).expect("a topology");
    let own_link = racks.neighbours(Vertex(3))[0].1;
    let receivers = [Vertex(1), Vertex(3)].into();
    let (tree, unreached) =
        MulticastTree::shortest(&racks, &[own_link].into(), Vertex(0), &receivers);
    assert_eq!(unreached, [Vertex(3)].into());
    assert_eq!(tree.receivers(), &[Vertex(1)].into());
}
