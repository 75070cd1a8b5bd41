//! Liveness of rings under lock storms, over long round trips, in mass joins, and of two members.

use std::time::Duration;

use carom_proto::ring::{LockChange, LockName, LockNews, Qos, Quorum};
use carom_proto::rmp::Config;
use carom_proto::rmp::packet::Packet;

use crate::payloads;
use crate::rig::{GROUP, MS, Told, World};

fn reformations(world: &World) -> u64 {
    world.sum(|counters| counters.reformations_begun)
}

fn grants(world: &World, number: usize) -> usize {
    let is_grant = |told: &&Told| {
        matches!(told, Told::Lock { news: LockNews { change: LockChange::Granted { .. }, .. } })
    };
    world.hosts[number].story.iter().filter(is_grant).count()
}

/// Runs for `ms` milliseconds. The first `lockers` hosts acquire and release one lock as fast as
/// they can, and host 5 always has more to send.
fn storm(world: &mut World, lockers: usize, ms: u32) {
    let name = LockName::of_name("cycled");
    let end = world.now + ms * MS;
    while world.now < end {
        for number in 0..lockers {
            if world.holders(name).contains(&number) {
                world.unlock(number, name);
            }
            world.lock(number, name, true);
        }
        // Messages that do not fit in the queue are refused.
        (0..20).for_each(|_| world.send(5, Qos::TotallyOrdered, 1000));
        world.run_for(MS / 10);
    }
}

fn seven_of(hosts: usize) -> World {
    let config = Config { window_bytes: 16 << 10, queue_bytes: 32 << 10, ..Config::default() };
    let mut world = World::with_config(hosts, Quorum::Majority, 7, config);
    (0..7).for_each(|number| world.join(number));
    world.run_for(2000 * MS);
    world
}

fn delivered_in_five_seconds(lockers: usize) -> (usize, World) {
    let mut world = seven_of(7);
    world.check_every = 11;
    let before = reformations(&world);
    storm(&mut world, lockers, 5000);
    assert_eq!(reformations(&world), before, "{lockers} lockers");
    (payloads(&world, 6).len(), world)
}

#[test]
fn lock_storm_leaves_a_sender_its_throughput() {
    let (without, _) = delivered_in_five_seconds(0);
    let (with, world) = delivered_in_five_seconds(5);
    let granted: Vec<usize> = (0..5).map(|number| grants(&world, number)).collect();
    assert!(with * 10 >= without * 8, "{with} of {without}");
    assert!(granted.iter().all(|count| *count > 100), "{granted:?}");
    let least = granted.iter().min().expect("five");
    assert!(granted.iter().all(|count| *count <= 2 * least), "not fair: {granted:?}");
}

#[test]
fn members_come_and_go_in_a_lock_storm() {
    let mut world = seven_of(10);
    let before = reformations(&world);
    storm(&mut world, 5, 100);
    (7..10).for_each(|number| world.join(number));
    world.leave(6);
    storm(&mut world, 5, 100);
    for number in [0, 5, 7, 8, 9] {
        let ring = world.ring(number).unwrap_or_default();
        assert_eq!(ring.len(), 9, "{number}: {ring:?}");
    }
    assert_eq!(reformations(&world), before);
}

/// The ring of two is idle. A message with a stronger guarantee than total order is delivered to
/// its sender after one round trip, whether the sender holds the token or not. The other member
/// delivers it at most half a round trip later.
#[test]
fn idle_ring_of_two_is_resilient_in_one_round_trip() {
    for qos in [Qos::Resilient(1), Qos::MajorityResilient, Qos::TotallyResilient] {
        for sender in 0..2 {
            for seed in 0..8 {
                let mut world = World::joined(2, 0, seed);
                world.delay = (MS, MS);
                world.run_for(500 * MS);
                world.send(sender, qos, 100);
                let delivered = |world: &World| {
                    [sender, 1 - sender].map(|number| payloads(world, number).len())
                };
                world.run_for(2 * MS);
                assert_eq!(delivered(&world)[0], 1, "{qos} of {sender}, seed {seed}");
                world.run_for(MS);
                assert_eq!(delivered(&world), [1, 1], "{qos} of {sender}, seed {seed}");
            }
        }
    }
}

fn mass_join(hosts: usize, seed: u64, limit: Duration) -> u64 {
    let mut world = World::new(hosts, Quorum::Majority, seed);
    world.check_every = if hosts > 40 { 101 } else { 1 };
    (0..hosts).for_each(|number| world.join(number));
    let is_whole = |world: &World| {
        let whole = |number: usize| world.hosts[number].engine.view(GROUP).map_or(0, |it| it.len());
        (0..hosts).all(|number| whole(number) == hosts)
    };
    world.run_until(10 * MS, limit, is_whole);
    assert!(is_whole(&world), "{hosts} hosts, seed {seed}: not whole within {limit:?}");
    world.datagrams_sent()
}

#[test]
fn simultaneous_joiners_are_whole_in_linear_time() {
    let joins = [(20, 0..5, 1000 * MS), (40, 1..2, 2000 * MS), (100, 1..2, 5000 * MS)];
    for (hosts, seeds, limit) in joins {
        for seed in seeds {
            let sent = mass_join(hosts, seed, limit);
            assert!(sent < (hosts * hosts * 2) as u64, "{sent} datagrams of {hosts} hosts");
        }
    }
}

#[test]
fn one_of_the_last_two_leaves_whatever_is_lost() {
    for seed in 0..300 {
        let mut world = World::joined(2, 0, seed);
        world.loss = 0.2;
        let leaver = seed as usize % 2;
        for turn in 0..seed as usize % 7 {
            world.send(turn % 2, Qos::TotallyOrdered, 100);
        }
        world.leave(leaver);
        world.run_until(10 * MS, 20_000 * MS, |world| {
            world.ring(1 - leaver).is_none_or(|ring| ring.len() <= 1)
        });
        let ring = world.ring(1 - leaver).expect("it is in a ring");
        assert_eq!(ring.len(), 1, "seed {seed}: the ring still waits for the member that left");
    }
}

/// The only two members that have a message crash right after it got its place.
#[test]
fn large_ring_gives_up_a_message_soon_that_nobody_has() {
    const MEMBERS: usize = 100;
    let mut world = World::new(MEMBERS, Quorum::Majority, 5);
    world.check_every = 1009;
    (0..MEMBERS).for_each(|number| world.join(number));
    world.run_for(3000 * MS);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(MEMBERS));
    let token = world.hosts[0].engine.token(GROUP).expect("it is in a ring");
    let is_site = |number: &usize| world.process(*number) == Some(token);
    let site = (0..MEMBERS).find(is_site).expect("it is a member");
    let (source, other) = ((site + 1) % MEMBERS, (site + 2) % MEMBERS);
    world.held_back = Some(Vec::new());
    world.send(source, Qos::TotallyOrdered, 100);
    world.hand_over(source, site, |packet| matches!(packet, Packet::Data(_)));
    world.time_out_until(site, |packet| matches!(packet, Packet::Ack { .. }));
    world.hand_over(site, other, |packet| matches!(packet, Packet::Ack { .. }));
    world.crash(site);
    world.crash(source);
    world.held_back = None;
    let before = reformations(&world);
    world.run_for(2000 * MS);
    assert!(reformations(&world) > before, "no reformation occurred");
    world.run_for(3000 * MS);
    assert_eq!(world.ring(other).map(|ring| ring.len()), Some(MEMBERS - 2));
}
