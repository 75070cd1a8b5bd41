use super::*;

fn degrees(topology: &Topology) -> Vec<usize> {
    (0..topology.len() as u32).map(|it| topology.neighbours(Vertex(it)).len()).collect()
}

#[test]
fn the_figures_of_the_paper_connect_16_servers() {
    let bcube = Topology::bcube(4, 1).expect("a topology");
    assert_eq!((bcube.hosts(), bcube.len(), bcube.links().len()), (16, 24, 32));
    assert_eq!(degrees(&bcube), [[2; 16].as_slice(), &[4; 8]].concat());
    let fat_tree = Topology::fat_tree(4).expect("a topology");
    assert_eq!((fat_tree.hosts(), fat_tree.len()), (16, 36));
    assert_eq!(degrees(&fat_tree), [[1; 16].as_slice(), &[4; 20]].concat());
    let vl2 = Topology::vl2(4, 4, 4).expect("a topology");
    assert_eq!((vl2.hosts(), vl2.len()), (16, 26));
    assert_eq!(degrees(&vl2), [[1; 16].as_slice(), &[6; 4], &[4; 4], &[4; 2]].concat());
}

#[test]
fn bcube_switch_connects_servers_that_differ_in_its_level() {
    let bcube = Topology::bcube(8, 3).expect("a topology");
    assert_eq!((bcube.hosts(), bcube.len(), bcube.links().len()), (4096, 6144, 16384));
    for switch in 4096..6144 {
        let level = (switch - 4096) / 512;
        let servers: Vec<u32> = bcube.neighbours(Vertex(switch)).iter().map(|it| it.0.0).collect();
        let expected: Vec<u32> = (0..8).map(|it| servers[0] + it * 8_u32.pow(level)).collect();
        assert_eq!(servers, expected);
        assert_eq!(servers[0] / 8_u32.pow(level) % 8, 0);
    }
    assert_eq!(bcube.name(Vertex(4095)), "server 7.7.7.7");
    assert_eq!(bcube.name(Vertex(4096 + 512)), "switch 1:0.0.0");
}

#[test]
fn a_tree_and_racks_have_one_way_between_any_two() {
    for topology in [Topology::tree(&[3, 2, 5]), Topology::racks(&[4, 1, 0, 7])] {
        let topology = topology.expect("a topology");
        assert_eq!(topology.links().len() + 1, topology.len());
        let mut reached = vec![false; topology.len()];
        let mut next = vec![Vertex(0)];
        while let Some(vertex) = next.pop() {
            if !core::mem::replace(&mut reached[vertex.0 as usize], true) {
                next.extend(topology.neighbours(vertex).iter().map(|(neighbour, _)| *neighbour));
            }
        }
        assert!(reached.iter().all(|reached| *reached));
        assert!((0..topology.hosts()).all(|host| topology.neighbours(Vertex(host)).len() == 1));
    }
}

#[test]
fn numbers_that_make_no_topology_are_refused() {
    let odd = Topology::fat_tree(5).expect_err("odd");
    assert_eq!(
        odd.to_string(),
        "the number of ports of a switch must be even and at least 2, not 5"
    );
    assert!(matches!(Topology::bcube(1, 1), Err(TopologyError::Shape { given: 1, .. })));
    assert!(matches!(Topology::vl2(4, 4, 0), Err(TopologyError::Shape { .. })));
    assert!(matches!(Topology::tree(&[]), Err(TopologyError::Shape { .. })));
    for too_large in [
        Topology::bcube(2, 40),
        Topology::bcube(u32::MAX, 0),
        Topology::bcube(2, u32::MAX),
        Topology::fat_tree(u32::MAX - 1),
        Topology::vl2(u32::MAX - 1, u32::MAX - 1, u32::MAX),
        Topology::tree(&[u32::MAX, u32::MAX, u32::MAX]),
        Topology::racks(&[u32::MAX, u32::MAX]),
    ] {
        assert_eq!(too_large.err(), Some(TopologyError::TooLarge));
    }
    let mut two = Topology::racks(&[1]).expect("a topology");
    assert_eq!(two.link(Vertex(0), Vertex(0)), Err(TopologyError::Link(Vertex(0), Vertex(0))));
    assert_eq!(two.link(Vertex(0), Vertex(9)), Err(TopologyError::Link(Vertex(0), Vertex(9))));
}

#[test]
fn visitors_enter_at_the_top_and_renumber_no_other_vertex() {
    for (known, top) in [
        (Topology::racks(&[2, 3]), "core"),
        (Topology::fat_tree(4), "core 0.0"),
        (Topology::vl2(4, 4, 2), "intermediate 0"),
        (Topology::bcube(2, 1), "switch 0:0"),
    ] {
        let known = known.expect("a topology");
        let topology = known.clone().with_visitors().expect("it has switches");
        assert_eq!(topology.hosts(), known.hosts());
        assert_eq!(topology.links()[..known.links().len()], *known.links());
        let entry = topology.links()[known.links().len()];
        assert_eq!(topology.name(entry[0]), top);
        let visitors: Vec<Vertex> = topology.visitors().map(Vertex).collect();
        assert_eq!(visitors.len(), 63 * 32);
        assert!(visitors.iter().all(|it| topology.is_host(*it) && !known.is_host(*it)));
        let widest = visitors[0].0..topology.len() as u32;
        let widest = widest.map(|it| topology.neighbours(Vertex(it)).len()).max();
        assert_eq!(widest, Some(64), "so that places fit the narrowest path");
    }
    let alone = Topology::new(vec!["a".into()], Vec::new(), true).expect("a host");
    assert_eq!(alone.with_visitors(), Err(TopologyError::NoSwitch));
}

#[test]
fn links_between_switches_of_vl2_are_ten_times_as_fast() {
    let speeds = |topology: &Topology| -> Vec<(bool, u64)> {
        let has_host = |link: usize| topology.links()[link].iter().any(|it| topology.is_host(*it));
        let gigabits = |link: usize| {
            let speed = topology.speed(LinkId(link as u32)).expect("a link");
            speed.bits_per_second() / 1_000_000_000
        };
        let links = 0..topology.links().len();
        let mut speeds: Vec<_> = links.map(|link| (has_host(link), gigabits(link))).collect();
        speeds.sort_unstable();
        speeds.dedup();
        speeds
    };
    let vl2 = Topology::vl2(4, 4, 4).expect("a topology");
    assert_eq!(speeds(&vl2), [(false, 10), (true, 1)]);
    assert_eq!(vl2.slowest(), Some(LinkSpeed::GIGABIT));
    assert_eq!(LinkSpeed::TEN_GIGABIT.scaled(LinkSpeed::GIGABIT, 300), 3000);
    let fat_tree = Topology::fat_tree(4).expect("a topology");
    assert_eq!(speeds(&fat_tree), [(false, 1), (true, 1)]);
    assert_eq!(fat_tree.speed(LinkId(1000)), None);
}

#[test]
fn links_are_found_by_the_names_of_their_ends() {
    let mut topology = Topology::racks(&[1, 1]).expect("a topology");
    let second = topology.link(Vertex(2), Vertex(4)).expect("a link");
    let found = topology.links_between("core", "rack 0").expect("both exist");
    assert_eq!((found.len(), found.contains(&second)), (2, true));
    assert_eq!(topology.links_between("rack 0", "rack 1"), Ok(Vec::new()));
    let unknown = topology.links_between("rack 0", "rack 9");
    assert_eq!(unknown, Err(UnknownName("rack 9".into())));
}
