//! Token rings of several members, in virtual time.

mod calls;
mod checks;
mod locks;
mod random;
mod resilience;
mod rig;

use carom_proto::NodeId;
use carom_proto::rmp::{JoinOptions, Partition, Qos};

use rig::{MS, Told, World};

fn joined(hosts: usize, seed: u64) -> World {
    let mut world = World::new(hosts, Partition::Majority, seed);
    (0..hosts).for_each(|number| world.join(number));
    world.run_for(2000 * MS);
    world
}

fn payloads(world: &World, number: usize) -> Vec<(NodeId, Vec<u8>)> {
    let messages = world.hosts[number].story.iter().filter_map(|told| match told {
        Told::Message { sender, payload } => Some((*sender, payload.to_vec())),
        _ => None,
    });
    messages.collect()
}

#[test]
fn nodes_that_join_at_once_are_in_one_ring() {
    for seed in 0..20 {
        let world = joined(5, seed);
        let first = world.ring(0).expect("it is in a ring");
        assert_eq!(first.len(), 5, "seed {seed}: {first:?}");
        (1..5).for_each(|number| assert_eq!(world.ring(number).as_ref(), Some(&first)));
    }
}

#[test]
fn all_members_deliver_the_same_messages_in_the_same_order() {
    for qos in
        [Qos::TotallyOrdered, Qos::Resilient(2), Qos::MajorityResilient, Qos::TotallyResilient]
    {
        let mut world = joined(4, 3);
        for turn in 0..200 {
            world.send(turn % 4, qos, 100);
            world.run_for(MS / 4);
        }
        world.run_for(500 * MS);
        let first = payloads(&world, 0);
        assert_eq!(first.len(), 200, "{qos}");
        (1..4).for_each(|number| assert_eq!(payloads(&world, number), first, "{qos}"));
    }
}

#[test]
fn unreliable_messages_come_at_once_and_nobody_misses_those_that_do_not() {
    let mut world = joined(4, 3);
    for turn in 0..100 {
        world.send(0, Qos::TotallyOrdered, 100);
        world.loss = if turn < 50 { 0.0 } else { 1.0 };
        world.send_unreliable(0, b"now");
        world.loss = 0.0;
        world.run_for(MS / 5);
        let told = Told::Message { sender: NodeId(1), payload: b"now"[..].into() };
        let heard = |it: usize| world.hosts[it].story.iter().filter(|it| **it == told).count();
        assert_eq!([heard(0), heard(3)], [turn + 1, 50.min(turn + 1)]);
    }
    world.run_for(500 * MS);
    let ordered = |number| {
        payloads(&world, number).into_iter().filter(|(_, payload)| payload.len() == 100).count()
    };
    (0..4).for_each(|number| assert_eq!(ordered(number), 100));
    let nacks: u64 = world.hosts.iter().map(|host| host.engine.counters().nacks_sent).sum();
    assert_eq!(nacks, 0, "what was lost is not asked for");
}

#[test]
fn losses_and_duplicates_change_nothing_but_the_time() {
    for seed in 0..20 {
        let mut world = joined(4, seed);
        (world.loss, world.duplicates) = (0.1, 0.05);
        for turn in 0..200 {
            world.send(turn % 3, Qos::TotallyOrdered, 100 + turn * 37);
            world.run_for(MS);
        }
        world.loss = 0.0;
        world.run_for(3000 * MS);
        let first = payloads(&world, 0);
        assert_eq!(first.len(), 200, "seed {seed}");
        (1..4).for_each(|number| assert_eq!(payloads(&world, number), first, "seed {seed}"));
    }
}

#[test]
fn a_crashed_member_is_removed_and_the_others_go_on() {
    for seed in 0..20 {
        let mut world = joined(5, seed);
        for turn in 0..100 {
            world.send(turn % 5, Qos::TotallyOrdered, 100);
            if turn == 50 {
                world.crash(seed as usize % 5);
            }
            world.run_for(MS);
        }
        world.run_for(2000 * MS);
        let alive: Vec<usize> = (0..5).filter(|it| world.hosts[*it].is_alive).collect();
        let first = payloads(&world, alive[0]);
        assert!(first.len() >= 90, "seed {seed}: {}", first.len());
        for number in alive {
            assert_eq!(world.ring(number).map(|ring| ring.len()), Some(4), "seed {seed}");
            assert_eq!(payloads(&world, number), first, "seed {seed}");
        }
    }
}

#[test]
fn a_minority_stops_and_comes_back() {
    let mut world = joined(5, 1);
    world.part = vec![0, 0, 0, 1, 1];
    for turn in 0..100 {
        world.send(turn % 5, Qos::MajorityResilient, 50);
        world.run_for(10 * MS);
    }
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3));
    assert!(world.hosts[3].story.contains(&Told::Minority));
    world.part = vec![0; 5];
    world.run_for(5000 * MS);
    for number in 0..5 {
        assert_eq!(world.ring(number).map(|ring| ring.len()), Some(5), "host {number}");
    }
}

#[test]
fn who_does_not_want_to_come_back_is_out_when_it_was_removed() {
    let mut world = World::new(4, Partition::Majority, 1);
    (0..3).for_each(|number| world.join(number));
    world.join_with(3, JoinOptions { rejoin: false });
    world.run_for(2000 * MS);
    world.part[3] = 1;
    world.send(0, Qos::TotallyOrdered, 50);
    world.run_for(2000 * MS);
    world.part[3] = 0;
    world.send(0, Qos::TotallyOrdered, 50);
    world.run_for(3000 * MS);
    assert!(world.hosts[3].story.contains(&Told::Removed));
    assert_eq!(world.ring(3), None);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3));
}

#[test]
fn a_member_that_leaves_is_out_and_nothing_is_lost() {
    let mut world = joined(4, 5);
    for turn in 0..100 {
        if turn == 30 {
            world.leave(2);
        }
        world.send(turn % 2, Qos::TotallyOrdered, 100);
        world.run_for(MS);
    }
    world.run_for(500 * MS);
    let first = payloads(&world, 0);
    assert_eq!(first.len(), 100);
    assert_eq!(payloads(&world, 1), first);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3));
    assert_eq!(world.ring(2), None);
}

#[test]
fn a_ring_without_work_goes_quiet() {
    let mut world = joined(4, 9);
    world.send(0, Qos::TotallyOrdered, 10);
    world.run_for(2000 * MS);
    let before: u64 = world.datagrams_by_kind.values().sum();
    world.run_for(10_000 * MS);
    let after: u64 = world.datagrams_by_kind.values().sum();
    assert_eq!(after, before, "{:?}", world.datagrams_by_kind);
}
