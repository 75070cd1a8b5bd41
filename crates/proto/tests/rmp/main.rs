//! Token rings of several members, in virtual time.

mod calls;
mod checks;
mod distance;
mod forcing;
mod healing;
mod liveness;
mod locks;
mod looking;
mod nonsense;
mod quorum;
mod random;
mod reforming;
mod resilience;
mod restarts;
mod rig;

use carom_proto::ring::{JoinOptions, Qos, Quorum};
use carom_proto::rmp::Config;
use carom_proto::{Confirmed, NodeId, SeqNo};

use rig::{GROUP, MS, Told, World};

fn payloads(world: &World, number: usize) -> Vec<(NodeId, Vec<u8>)> {
    world.hosts[number].select(|told| match told {
        Told::Message { sender, payload, .. } => Some((*sender, payload.to_vec())),
        _ => None,
    })
}

#[test]
fn nodes_that_join_at_once_are_in_one_ring() {
    for seed in 0..20 {
        let world = World::joined(5, 0, seed);
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
        let mut world = World::joined(4, 0, 3);
        for turn in 0..200 {
            world.send_and_run(turn % 4, qos, 100, MS / 4);
        }
        world.run_for(500 * MS);
        let first = payloads(&world, 0);
        assert_eq!(first.len(), 200, "{qos}");
        (1..4).for_each(|number| assert_eq!(payloads(&world, number), first, "{qos}"));
    }
}

#[test]
fn unreliable_messages_arrive_at_once_and_are_not_repaired() {
    let mut world = World::joined(4, 0, 3);
    for turn in 0..100 {
        world.send(0, Qos::TotallyOrdered, 100);
        world.loss = if turn < 50 { 0.0 } else { 1.0 };
        world.send_unreliable(0, b"now");
        world.loss = 0.0;
        world.run_for(MS / 5);
        let told = Told::Message { sender: NodeId(1), payload: b"now"[..].into(), place: None };
        let heard = |it: usize| world.hosts[it].story.iter().filter(|it| **it == told).count();
        assert_eq!([heard(0), heard(3)], [turn + 1, 50.min(turn + 1)]);
    }
    world.run_for(500 * MS);
    let ordered = |number| {
        payloads(&world, number).into_iter().filter(|(_, payload)| payload.len() == 100).count()
    };
    (0..4).for_each(|number| assert_eq!(ordered(number), 100));
    let nacks = world.sum(|counters| counters.nacks_sent);
    assert_eq!(nacks, 0, "lost messages are not requested");
}

#[test]
fn tokens_go_round_at_once_while_a_message_waits_for_them() {
    for qos in [Qos::Resilient(2), Qos::MajorityResilient, Qos::TotallyResilient] {
        let mut world = World::joined(5, 0, 3);
        world.send(1, qos, 100);
        // Seven hops take at most 0.2 ms each. A token site without work would rest for 50 ms.
        world.run_for(2 * MS);
        (0..5).for_each(|number| assert_eq!(payloads(&world, number).len(), 1, "{qos} {number}"));
    }
}

#[test]
fn one_ack_orders_many_messages_when_no_delivery_waits() {
    let acks = |qos, pause: std::time::Duration| {
        let mut world = World::joined(4, 0, 3);
        let before = world.datagrams_by_kind[&2];
        for _ in 0..100 {
            world.send_and_run(0, qos, 100, pause);
        }
        world.datagrams_by_kind[&2] - before
    };
    assert_eq!(acks(Qos::TotallyOrdered, MS), 100, "each is delivered soon");
    assert!(acks(Qos::SourceOrdered, MS) < 10, "they are delivered on arrival");
    let at_once = acks(Qos::TotallyOrdered, MS / 1000);
    assert!(at_once < 40, "the window admits many at a time: {at_once}");
}

#[test]
fn losses_and_duplicates_change_nothing_but_the_time() {
    for seed in 0..20 {
        let mut world = World::joined(4, 0, seed);
        (world.loss, world.duplicates) = (0.1, 0.05);
        for turn in 0..200 {
            world.send_and_run(turn % 3, Qos::TotallyOrdered, 100 + turn * 37, MS);
        }
        world.loss = 0.0;
        world.run_for(3000 * MS);
        let first = payloads(&world, 0);
        assert_eq!(first.len(), 200, "seed {seed}");
        (1..4).for_each(|number| assert_eq!(payloads(&world, number), first, "seed {seed}"));
    }
}

#[test]
fn crashed_member_is_removed_and_the_others_continue() {
    for seed in 0..20 {
        let mut world = World::joined(5, 0, seed);
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
    let mut world = World::joined(5, 0, 1);
    world.part = vec![0, 0, 0, 1, 1];
    for turn in 0..100 {
        world.send_and_run(turn % 5, Qos::MajorityResilient, 50, 10 * MS);
    }
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3));
    assert!(world.hosts[3].story.contains(&Told::Minority));
    world.part = vec![0; 5];
    world.run_for(5000 * MS);
    world.assert_ring_sizes(0..5, 5);
}

fn rejoined_after_a_cut(partition: Quorum, seed: u64) -> World {
    let mut world = World::ring_of(partition, 4, 0, seed, 2000 * MS);
    world.part[3] = 1;
    for _ in 0..40 {
        world.send_and_run(0, Qos::TotallyOrdered, 50, 50 * MS);
    }
    assert_eq!(payloads(&world, 3), []);
    world.heal(5000 * MS);
    world.send_and_run(0, Qos::TotallyOrdered, 50, 500 * MS);
    assert_eq!((payloads(&world, 3).len(), payloads(&world, 0).len()), (1, 41), "seed {seed}");
    let others = (0..3).flat_map(|number| &world.hosts[number].story);
    assert!(!others.into_iter().any(|told| matches!(told, Told::Rejoined { .. })));
    world
}

fn told_missed(world: &World) -> Vec<Option<u64>> {
    world.hosts[3].select(|told| match told {
        Told::Rejoined { missed } => Some(*missed),
        _ => None,
    })
}

/// Returns the number of places between the last one that host 3 knew of when it was removed, and
/// the view by which the others admitted it again.
fn places_missed(world: &World) -> u64 {
    let story = &world.hosts[3].story;
    let back = story.iter().position(|told| matches!(told, Told::Rejoined { .. }));
    let before = story[..back.expect("it is back")].iter().filter_map(|told| match told {
        Told::Message { place, .. } => *place,
        Told::View { place, .. } | Told::Stable { up_to: place } => Some(*place),
        _ => None,
    });
    let last = before.map(|place| place.at.0).max().expect("it was in the ring");
    let process = world.process(3).expect("it is in the ring");
    let at_another = world.hosts[0].story.iter().find_map(|told| match told {
        Told::View { view, place } if view.contains(process) => Some(place.at.0),
        _ => None,
    });
    at_another.expect("it was admitted") - last - 1
}

#[test]
fn rejoining_member_learns_how_many_places_it_missed() {
    for seed in 0..10 {
        let world = rejoined_after_a_cut(Quorum::Majority, seed);
        let missed = places_missed(&world);
        // Each message takes a place, and so do the ACKs and views with which they were ordered.
        assert!(missed > 40, "{missed}");
        assert_eq!(told_missed(&world), [Some(missed)], "seed {seed}");
        // Each part has its own order, so the number of missed places is unknown.
        let world = rejoined_after_a_cut(Quorum::AtLeast(1), seed);
        assert_eq!(told_missed(&world), [None], "seed {seed}");
    }
}

#[test]
fn removed_member_without_rejoin_stays_out() {
    let mut world = World::new(4, Quorum::Majority, 1);
    (0..3).for_each(|number| world.join(number));
    world.join_with(3, JoinOptions { rejoin: false, ..JoinOptions::default() });
    world.run_for(2000 * MS);
    world.part[3] = 1;
    world.send_and_run(0, Qos::TotallyOrdered, 50, 2000 * MS);
    world.part[3] = 0;
    world.send_and_run(0, Qos::TotallyOrdered, 50, 3000 * MS);
    assert!(world.hosts[3].story.contains(&Told::Removed));
    assert_eq!(world.ring(3), None);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3));
}

#[test]
fn unaware_joiner_begins_a_new_life_in_a_ring_of_its_own() {
    let mut world = World::ring_of(Quorum::Majority, 1, 1, 1, 1000 * MS);
    world.join(1);
    // Its request is in flight. No reply arrives.
    world.part[1] = 1;
    world.run_for(2000 * MS);
    let own = world.process(1).expect("it has a ring of its own");
    assert!(own.life > 1, "the other ring admitted its first life, which must not be in two rings");
    // The first ring does not wait for a member from which it has never received anything.
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(1));
}

#[test]
fn a_member_that_leaves_is_out_and_nothing_is_lost() {
    let mut world = World::joined(4, 0, 5);
    for turn in 0..100 {
        if turn == 30 {
            world.leave(2);
        }
        world.send_and_run(turn % 2, Qos::TotallyOrdered, 100, MS);
    }
    world.run_for(500 * MS);
    let first = payloads(&world, 0);
    assert_eq!(first.len(), 100);
    assert_eq!(payloads(&world, 1), first);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3));
    assert_eq!(world.ring(2), None);
}

#[test]
fn confirmation_comes_when_all_members_have_everything() {
    let mut world = World::joined(4, 0, 9);
    for _ in 0..50 {
        world.send(1, Qos::SourceOrdered, 5000);
    }
    world.confirm(1);
    world.run_for(MS);
    let safe = |world: &World| {
        world.hosts[1].select(|told| match told {
            Told::Confirmed { safe } => Some(safe.clone()),
            _ => None,
        })
    };
    assert_eq!(safe(&world), [], "they cannot have it yet");
    world.run_for(2000 * MS);
    let (up_to, incomplete) = (SeqNo(50), Vec::new());
    assert_eq!(safe(&world), [Confirmed { group: GROUP, up_to, members: 3, incomplete }]);
    (0..4).for_each(|number| assert_eq!(payloads(&world, number).len(), 50));
    world.confirm(1);
    world.run_for(MS);
    assert_eq!(safe(&world).len(), 2, "nothing was sent since");
}

#[test]
fn hosts_without_multicast_join_send_and_call() {
    for seed in 0..20 {
        let mut world = World::ring_of(Quorum::Majority, 2, 4, seed, 1000 * MS);
        let via = Some(world.hosts[0].id);
        for number in 2..4 {
            world.hosts[number].is_without_multicast = true;
            let options = JoinOptions { is_multicast: false, via, ..JoinOptions::default() };
            world.join_with(number, options);
        }
        world.loss = [0.0, 0.02][seed as usize % 2];
        world.run_for(2000 * MS);
        for turn in 0..40 {
            world.send_and_run(turn % 4, Qos::TotallyOrdered, 50 + turn * 100, 5 * MS);
        }
        world.run_for(2000 * MS);
        let first = payloads(&world, 0);
        assert_eq!(first.len(), 40, "seed {seed}");
        for number in 1..4 {
            assert_eq!(world.ring(number).map(|ring| ring.len()), Some(4), "seed {seed}");
            assert_eq!(payloads(&world, number), first, "seed {seed}: host {number}");
        }
        let forwarded = world.sum(|counters| counters.forwarded);
        assert!(forwarded > 0, "their packets were forwarded");
        world.hosts[4].is_without_multicast = true;
        world.call_via(4, via);
        world.run_for(2000 * MS);
        let is_told = |told: &Told| matches!(told, Told::Answer { .. });
        assert_eq!(world.hosts[4].story.iter().filter(|told| is_told(told)).count(), 1);
    }
}

/// A host joins while a long message is in flight, and all members that have its beginning crash.
#[test]
fn message_held_by_no_member_is_given_up() {
    let mut given_up = 0;
    for seed in 0..60 {
        let mut world = World::ring_of(Quorum::AtLeast(1), 2, 1, seed, 1000 * MS);
        world.send_and_run(0, Qos::TotallyOrdered, 2_000_000, MS * (seed % 5) as u32);
        world.join(2);
        while world.hosts[2].engine.view(GROUP).is_none() {
            world.run_for(MS / 20);
        }
        (0..2).for_each(|number| world.crash(number));
        world.run_for(5000 * MS);
        assert_eq!(world.ring(2), Some(vec![NodeId(3)]), "seed {seed}");
        world.send_and_run(2, Qos::TotallyOrdered, 50, 100 * MS);
        let own = payloads(&world, 2);
        assert_eq!(own.last().map(|(sender, _)| *sender), Some(NodeId(3)), "seed {seed}");
        given_up += world.hosts[2].engine.counters().messages_given_up;
    }
    assert!(given_up > 0, "no member lacked anything");
}

#[test]
fn a_ring_without_work_goes_quiet() {
    let mut world = World::joined(4, 0, 9);
    world.send_and_run(0, Qos::TotallyOrdered, 10, 2000 * MS);
    let before = world.datagrams_sent();
    world.run_for(10_000 * MS);
    assert_eq!(world.datagrams_sent(), before, "{:?}", world.datagrams_by_kind);
}

#[test]
fn an_empty_queue_takes_a_message_that_is_larger_than_the_queue() {
    let config = Config { queue_bytes: 1000, ..Config::default() };
    let mut world = World::with_config(2, Quorum::Majority, 1, config);
    (0..2).for_each(|number| world.join(number));
    world.run_for(1000 * MS);
    for _ in 0..2 {
        world.send_and_run(0, Qos::TotallyOrdered, 50_000, 1000 * MS);
    }
    assert_eq!(payloads(&world, 1).len(), 2);
}
