//! Members that are killed and come back under the same id, with another incarnation.

use carom_proto::ring::{Process, Qos, Quorum};
use carom_proto::{Incarnation, NodeId};

use crate::payloads;
use crate::rig::{GROUP, MS, Told, World};

fn members(world: &World, number: usize) -> Vec<Process> {
    let view = world.hosts[number].engine.view(GROUP).expect("it is in a ring");
    let mut members: Vec<Process> = view.processes().collect();
    members.sort_unstable();
    members
}

/// Creates a ring in which node 1 is killed after it has sent and received messages, and comes back
/// at once. The others are not notified.
fn restarted(seed: u64, former: Incarnation, later: Incarnation) -> (World, usize) {
    let mut world = World::new(1, Quorum::Majority, seed);
    let first = world.restart(0, former);
    (1..4).for_each(|_| assert!(world.add() > first));
    (first..5).for_each(|number| world.join(number));
    world.run_for(2000 * MS);
    for turn in 0..20 {
        world.send_and_run(first + turn % 4, Qos::TotallyOrdered, 100, MS);
    }
    let again = world.restart(first, later);
    world.join(again);
    (world, again)
}

#[test]
fn restarted_node_is_let_in_and_its_messages_are_delivered() {
    let incarnations = [1_u64 << 63, 1 << 60].map(Incarnation);
    for seed in 0..10 {
        for (former, later) in [(0, 1), (1, 0)] {
            let (former, later) = (incarnations[former], incarnations[later]);
            let (mut world, again) = restarted(seed, former, later);
            let before = payloads(&world, 2).len();
            world.run_for(5000 * MS);
            let ring = members(&world, 2);
            let of_node: Vec<&Process> = ring.iter().filter(|it| it.node == NodeId(1)).collect();
            let process = world.process(again).expect("it is in a ring");
            assert_eq!((ring.len(), of_node), (4, vec![&process]), "seed {seed}");
            assert!((2..=again).all(|number| members(&world, number) == ring), "seed {seed}");
            for _ in 0..5 {
                world.send(again, Qos::MajorityResilient, 100);
                world.send_and_run(2, Qos::TotallyOrdered, 100, 10 * MS);
            }
            world.run_for(1000 * MS);
            let heard = |number| payloads(&world, number);
            let own = heard(again);
            assert_eq!(own.len(), 10, "seed {seed}: the messages sent since it was admitted");
            assert_eq!(own.iter().filter(|(sender, _)| *sender == NodeId(1)).count(), 5);
            for number in 2..again {
                let all = heard(number);
                assert!(all[before..].ends_with(&own), "seed {seed}, host {number}");
                let removed = world.hosts[number].story.contains(&Told::Removed);
                assert!(!removed, "seed {seed}, host {number}");
            }
        }
    }
}

#[test]
fn late_packets_of_the_former_start_change_nothing() {
    let (mut world, again) = restarted(3, Incarnation(1 << 63), Incarnation(1 << 60));
    world.run_for(5000 * MS);
    let (ring, heard) = (members(&world, 2), payloads(&world, 2).len());
    // The former incarnation still runs, as if it had never been killed.
    world.hosts[1].is_alive = true;
    world.run_for(20 * MS);
    world.send_and_run(1, Qos::TotallyOrdered, 100, 50 * MS);
    world.crash(1);
    world.run_for(5000 * MS);
    assert_eq!(members(&world, 2), ring);
    assert_eq!(payloads(&world, 2).len(), heard);
    assert!(!world.hosts[again].story.contains(&Told::Removed));
}
