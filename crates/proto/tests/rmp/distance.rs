//! Rings of distant members: timers follow the measured round trip.

use std::time::Duration;

use carom_proto::ring::{Qos, Quorum};
use carom_proto::rmp::Config;

use crate::payloads;
use crate::rig::{GROUP, MS, World};

const DELAYS: [u32; 6] = [1, 15, 25, 100, 250, 500];
const RATE: u64 = 1_000_000;
const MESSAGE_BYTES: usize = 10_000;
const MESSAGES: usize = 100;

fn reformations(world: &World) -> u64 {
    world.sum(|counters| counters.reformations_begun)
}

/// Returns the minimum time to order a megabyte: the time to send it, and one round trip until the
/// last place is known.
fn shortest_time(delay: Duration) -> Duration {
    Duration::from_secs_f64((MESSAGES * MESSAGE_BYTES) as f64 / RATE as f64) + 2 * delay
}

fn ring_over(delay: Duration, seed: u64) -> World {
    let mut world = World::new(4, Quorum::Majority, seed);
    (world.delay, world.rate) = ((delay, delay + delay / 50), Some(RATE));
    (0..4).for_each(|number| world.join(number));
    world.tell_views();
    let is_whole = |world: &World| {
        (0..4).all(|number| world.hosts[number].engine.view(GROUP).is_some_and(|it| it.len() == 4))
    };
    // Members beyond a founder's waiting time begin their own rings, which must merge.
    let limit = if delay > 250 * MS { 60_000 * MS } else { 20 * delay + 1000 * MS };
    world.run_until(10 * MS, limit, is_whole);
    assert!(is_whole(&world), "not whole within {limit:?} over {delay:?}, seed {seed}");
    world.run_for(40 * delay);
    world
}

#[test]
fn megabyte_takes_three_times_the_shortest_time_at_most() {
    for delay in DELAYS[..5].iter().map(|ms| *ms * MS) {
        for seed in 0..12 {
            let mut world = ring_over(delay, seed);
            let before = reformations(&world);
            (0..MESSAGES).for_each(|_| world.send(0, Qos::TotallyOrdered, MESSAGE_BYTES));
            let delivered = |world: &World, it: usize| world.hosts[it].engine.counters().delivered;
            let is_done = |world: &World| (0..4).all(|it| delivered(world, it) == MESSAGES as u64);
            let least = shortest_time(delay);
            let took = world.run_until(MS, 9 * least, is_done);
            assert!(took <= 3 * least, "{delay:?}, seed {seed}: {took:?}, at least {least:?}");
            assert_eq!(reformations(&world), before, "{delay:?}, seed {seed}");
        }
    }
}

/// All replies arrive after the member has stopped waiting for them, and is alone again.
#[test]
fn few_tries_let_in_those_that_are_far_away() {
    for seed in 0..12 {
        let config =
            Config { tries: 2, largest_timeout: 100 * MS, recovery_tries: 2, ..Config::default() };
        let mut world = World::with_config(4, Quorum::Majority, seed, config);
        world.delay = (250 * MS, 255 * MS);
        world.join(0);
        world.run_for(5000 * MS);
        (1..4).for_each(|number| world.join(number));
        world.tell_views();
        world.run_for(30_000 * MS);
        world.assert_ring_sizes(0..4, 4);
    }
}

#[test]
fn dead_member_is_removed_at_any_distance() {
    for delay in DELAYS.map(|ms| ms * MS) {
        for seed in 0..12 {
            let mut world = ring_over(delay, seed);
            let victim = seed as usize % 4;
            let others: Vec<usize> = (0..4).filter(|number| *number != victim).collect();
            world.crash(victim);
            others.iter().for_each(|number| world.send(*number, Qos::TotallyOrdered, 100));
            let is_done = |world: &World| {
                let is_done = |number: &usize| {
                    let view = world.hosts[*number].engine.view(GROUP);
                    view.is_some_and(|it| it.len() == 3) && payloads(world, *number).len() == 3
                };
                others.iter().all(is_done)
            };
            let limit = 120 * delay + 2000 * MS;
            world.run_until(MS, limit, is_done);
            assert!(is_done(&world), "{delay:?}, seed {seed}: not removed within {limit:?}");
            let first = payloads(&world, others[0]);
            others.iter().for_each(|number| assert_eq!(payloads(&world, *number), first));
        }
    }
}

/// The timers of the ring suit the short path until the round trip is measured again.
#[test]
fn ring_lives_on_when_its_path_becomes_longer() {
    for seed in 0..10 {
        let mut world = World::joined(4, 0, seed);
        for ms in [5, 15, 30] {
            world.delay = (ms * MS, ms * MS);
            for turn in 0..100 {
                world.send_and_run(turn % 4, Qos::TotallyOrdered, 100, 5 * MS);
            }
        }
        world.run_for(2000 * MS);
        assert_eq!(payloads(&world, 0).len(), 300, "seed {seed}");
        (1..4).for_each(|it| assert_eq!(payloads(&world, it), payloads(&world, 0)));
    }
}
