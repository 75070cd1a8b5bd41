use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::rdcm::manager::group_tests::{Group, any_group};

const GROUP: GroupId = GroupId(7);
const NOW: Time = Time(1_000_000_000);
const TIMING: LinkTiming =
    LinkTiming { retry_after: Duration::from_secs(60), settle: Duration::from_secs(1) };

fn manager_of(group: &Group, seed: u64) -> TreeManager {
    let mut manager = TreeManager::new(group.topology.clone(), TIMING, seed);
    manager.open(GROUP, group.sender, 0).expect("a host");
    for receiver in &group.receivers {
        manager.join(GROUP, &[*receiver]).expect("there is a way");
    }
    manager
}

fn tell(manager: &mut TreeManager, known: &mut BTreeMap<Vertex, Seats>) -> usize {
    let mut told = 0;
    while let Some(placement) = manager.poll_change() {
        told += 1;
        match placement.seats {
            Some(seats) => known.insert(placement.receiver, seats),
            None => known.remove(&placement.receiver),
        };
    }
    told
}

fn report_of(manager: &TreeManager, dead: LinkId) -> Option<LinkReport> {
    let tree = manager.tree(GROUP)?;
    let below =
        tree.upwards().into_iter().find(|it| tree.above(*it).is_some_and(|up| up.link == dead))?;
    let above = |vertex: &Vertex| tree.above(*vertex).map(|above| above.vertex);
    let way: Vec<Vertex> = core::iter::successors(Some(below), above).collect();
    for pair in way.windows(2) {
        let ring = manager.overlay(GROUP)?.rings.get(&pair[1]);
        if let Some(successor) = ring.and_then(|ring| ring.proxy_of(pair[0])) {
            return Some(LinkReport { group: GROUP, ring: pair[1], successor });
        }
    }
    None
}

proptest! {
    #[test]
    fn a_dead_link_is_among_those_that_its_report_takes_out(
        group in any_group(), seed in any::<u64>(),
    ) {
        let mut manager = manager_of(&group, seed);
        let links: Vec<LinkId> = manager.tree(GROUP).expect("a group").links().collect();
        let dead = links[Rng::new(seed).below(links.len())];
        // The sender itself detects a loss above the highest branching vertex.
        if let Some(report) = report_of(&manager, dead) {
            let suspects = manager.report(NOW, report);
            prop_assert!(suspects.contains(&dead));
            prop_assert_eq!(manager.dead_links(), suspects.iter().copied().collect());
            prop_assert!(manager.report(NOW, report).is_empty(), "of a former tree");
            let tree = manager.tree(GROUP).expect("a group");
            prop_assert_eq!(tree.receivers(), &group.receivers);
            if group.topology.forwards(Vertex(0)) {
                prop_assert!(!tree.links().any(|link| link == dead), "BCube has other ways");
            }
        }
        manager.handle_timeout(NOW + TIMING.retry_after);
        prop_assert!(manager.dead_links().is_empty() && manager.poll_timeout().is_none());
    }

    #[test]
    fn receivers_know_the_overlay_by_the_places_that_they_are_told(
        group in any_group(), seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut manager = manager_of(&group, seed);
        let mut known = BTreeMap::new();
        for _ in 0..20 {
            tell(&mut manager, &mut known);
            prop_assert_eq!(&known, &manager.overlay(GROUP).expect("a group").seats());
            let host = Vertex(rng.below(group.topology.hosts() as usize) as u32);
            if !manager.leave(GROUP, host) && host != group.sender {
                manager.join(GROUP, &[host]).expect("there is a way");
            }
        }
    }
}

#[test]
fn one_more_receiver_among_a_thousand_concerns_few() {
    let topology = Topology::bcube(8, 3).expect("a topology");
    let mut hosts: Vec<Vertex> = (0..topology.hosts()).map(Vertex).collect();
    Rng::new(5).choose_to_front(&mut hosts, 1101);
    let receivers = hosts[1..1001].iter().copied().collect();
    let mut manager = manager_of(&Group { topology, sender: hosts[0], receivers }, 5);
    let mut known = BTreeMap::new();
    tell(&mut manager, &mut known);
    for guest in &hosts[1001..1101] {
        manager.join(GROUP, &[*guest]).expect("there is a way");
        let told = tell(&mut manager, &mut known);
        assert!(told <= 24, "{told} receivers were given another place");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let topology = Topology::racks(&[2, 2]).expect("a topology");
    let mut manager = TreeManager::new(topology, TIMING, 1);
    assert_eq!(manager.join(GROUP, &[Vertex(1)]), Err(ManagerError::NoGroup));
    assert_eq!(manager.open(GROUP, Vertex(4), 0), Err(ManagerError::NoHost(Vertex(4))));
    manager.open(GROUP, Vertex(0), 0).expect("a host");
    assert_eq!(manager.open(GROUP, Vertex(1), 0), Err(ManagerError::HasSender(Vertex(0))));
    assert_eq!(manager.join(GROUP, &[Vertex(0)]), Err(ManagerError::IsSender(Vertex(0))));
    assert_eq!(manager.join(GROUP, &[Vertex(4)]), Err(ManagerError::NoHost(Vertex(4))));
    assert!(!manager.leave(GROUP, Vertex(1)));
    let report = LinkReport { group: GROUP, ring: Vertex(9), successor: Vertex(1) };
    assert!(manager.report(NOW, report).is_empty());
    manager.close(GROUP);
    assert_eq!(manager.poll_change(), None);
}

#[test]
fn the_only_way_stays_in_use_although_it_is_suspect() {
    let topology = Topology::racks(&[1, 1, 2]).expect("a topology");
    let receivers = (1..4).map(Vertex).collect();
    let mut manager = manager_of(&Group { topology, sender: Vertex(0), receivers }, 3);
    let own_link = manager.topology().neighbours(Vertex(1))[0].1;
    let report = report_of(&manager, own_link).expect("it is below a branching");
    assert_eq!(report.successor, Vertex(1));
    let suspects = manager.report(NOW, report);
    assert_eq!(suspects.len(), 2, "the rack's link and the receiver's own");
    let tree = manager.tree(GROUP).expect("a group");
    assert!(suspects.iter().all(|suspect| tree.links().any(|link| link == *suspect)));
}
