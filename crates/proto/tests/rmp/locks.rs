//! Locks of a group: one holder at a time, in the order of the requests, under all faults.

use carom_proto::ring::{LockChange, LockError, LockName, LockNews, Quorum};
use carom_proto::rmp::Config;
use carom_proto::{Rng, SeqNo};

use crate::rig::{GROUP, MS, Told, World};

const LEADER: LockName = LockName(77);

fn lock_in_turn(world: &mut World, members: impl IntoIterator<Item = usize>) {
    for number in members {
        world.lock_and_run(number, LEADER, 50 * MS);
    }
}

fn last_news(world: &World, number: usize) -> Option<LockChange> {
    world.hosts[number].story.iter().rev().find_map(|told| match told {
        Told::Lock { news: LockNews { change, .. } } => Some(*change),
        _ => None,
    })
}

#[test]
fn waiting_members_get_a_lock_in_the_order_of_requests() {
    let mut world = World::joined(4, 0, 1);
    lock_in_turn(&mut world, [2, 0, 3]);
    for number in [2, 0, 3] {
        assert_eq!(world.holders(LEADER), [number]);
        world.unlock(number, LEADER);
        world.run_for(50 * MS);
        assert_eq!(last_news(&world, number), Some(LockChange::Released));
    }
    assert_eq!(world.holders(LEADER), []);
}

#[test]
fn locks_are_granted_when_the_numbers_of_requests_wrap() {
    let config = Config { first_number: SeqNo(u32::MAX - 4), ..Config::default() };
    let mut world = World::with_config(3, Quorum::Majority, 1, config);
    (0..3).for_each(|number| world.join(number));
    world.run_for(2000 * MS);
    for _ in 0..8 {
        for number in 0..3 {
            world.lock_and_run(number, LEADER, 50 * MS);
            assert_eq!(world.holders(LEADER), [number]);
            world.unlock(number, LEADER);
            world.run_for(50 * MS);
            assert_eq!(last_news(&world, number), Some(LockChange::Released));
        }
    }
}

#[test]
fn refused_request_names_the_holder_of_the_lock() {
    let mut world = World::joined(3, 0, 1);
    world.lock_and_run(1, LEADER, 50 * MS);
    world.lock(2, LEADER, false);
    world.run_for(50 * MS);
    let holder = world.process(1);
    assert_eq!(last_news(&world, 2), Some(LockChange::Refused { holder }));
    assert_eq!(world.hosts[2].engine.counters().locks_refused, 1);
    world.unlock(1, LEADER);
    world.lock(2, LEADER, false);
    world.run_for(50 * MS);
    assert!(matches!(last_news(&world, 2), Some(LockChange::Granted { .. })));
}

#[test]
fn withdrawn_lock_request_is_skipped() {
    let mut world = World::joined(3, 0, 1);
    lock_in_turn(&mut world, 0..3);
    world.unlock(1, LEADER);
    world.unlock(0, LEADER);
    world.run_for(100 * MS);
    assert_eq!(world.holders(LEADER), [2]);
}

#[test]
fn lock_of_a_dead_holder_goes_to_the_next_waiter() {
    for seed in 0..20 {
        let mut world = World::joined(4, 0, seed);
        lock_in_turn(&mut world, 0..3);
        world.crash(0);
        world.run_for(1500 * MS);
        assert_eq!(world.holders(LEADER), [1], "seed {seed}");
    }
}

#[test]
fn removed_holder_learns_that_its_lock_is_lost() {
    let mut world = World::joined(5, 0, 2);
    world.lock_and_run(4, LEADER, 50 * MS);
    world.part[4] = 1;
    world.run_for(1000 * MS);
    world.lock_and_run(0, LEADER, 1000 * MS);
    assert_eq!(world.holders(LEADER), [0, 4], "it knows only that it is in a minority");
    assert!(world.hosts[4].story.contains(&Told::Minority));
    world.part[4] = 0;
    world.run_for(3000 * MS);
    assert_eq!(world.holders(LEADER), [0]);
    assert_eq!(last_news(&world, 4), Some(LockChange::Lost));
    assert_eq!(world.ring(4).map(|ring| ring.len()), Some(5), "it has come back");
}

#[test]
fn lock_is_requested_once_and_released_once() {
    let mut world = World::joined(2, 0, 2);
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    assert_eq!(engine.unlock(now, GROUP, LEADER), Err(LockError::NotAsked));
    assert_eq!(engine.lock(now, GROUP, LEADER), Ok(()));
    assert_eq!(engine.lock(now, GROUP, LEADER), Err(LockError::AlreadyAsked));
    assert_eq!(engine.unlock(now, GROUP, LEADER), Ok(()));
    assert_eq!(engine.unlock(now, GROUP, LEADER), Err(LockError::NotAsked));
    assert_eq!(engine.lock(now, GROUP, LEADER), Ok(()), "again, before any answer");
    assert_eq!(engine.lock(now, carom_proto::GroupId(8), LEADER), Err(LockError::NotJoined));
}

/// A member that withdrew a lock request and repeated it is not notified of the first grant.
#[test]
fn late_grant_is_not_taken_for_that_of_a_later_request() {
    let mut world = World::joined(3, 0, 3);
    lock_in_turn(&mut world, [1, 2]);
    world.part[2] = 1;
    // The others have learned that host 2 gets the lock. It learns of it when reachable again.
    world.unlock(1, LEADER);
    world.run_for(50 * MS);
    world.lock(0, LEADER, true);
    world.unlock(2, LEADER);
    world.lock_and_run(2, LEADER, 50 * MS);
    world.part[2] = 0;
    for _ in 0..500 {
        world.run_for(MS);
        assert!(!world.hosts[2].held.contains(&LEADER), "another has it, or will have it before");
    }
    assert_eq!(world.holders(LEADER), [0]);
    world.unlock(0, LEADER);
    world.run_for(100 * MS);
    assert_eq!(world.holders(LEADER), [2]);
    let told = world.hosts[2].story.iter().filter(|told| matches!(told, Told::Lock { .. }));
    assert_eq!(told.count(), 1, "the end of the withdrawn request is not reported either");
    assert_eq!(world.hosts[2].engine.counters().locks_granted, 1);
}

/// If no member is cut off, no two members ever use a lock at the same instant.
#[test]
fn no_two_members_use_a_lock_at_once() {
    crate::random::seeds().for_each(lock_at_random);
}

/// These seeds failed once. A member that had released a lock and requested it again mistook the
/// late grant of its first request for that of the second, while another member held the lock.
#[test]
fn no_two_members_used_a_lock_at_once_in_these_histories() {
    let seeds = [
        1237, 4314, 5412, 8750, 8764, 11_271, 15_991, 17_865, 22_060, 24_425, 25_378, 26_141,
        28_124,
    ];
    seeds.into_iter().for_each(lock_at_random);
}

fn lock_at_random(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut world = World::joined(2 + rng.below(4), 0, seed);
    (world.loss, world.duplicates) = ([0.0, 0.05][rng.below(2)], [0.0, 0.05][rng.below(2)]);
    for _ in 0..40 {
        let number = rng.below(world.hosts.len());
        let name = LockName(rng.below(2) as u64);
        match rng.below(12) {
            0 if world.hosts[number].is_alive && world.hosts.len() > 3 => world.crash(number),
            _ if !world.hosts[number].is_alive => {}
            1..=6 => world.lock(number, name, rng.chance(0.8)),
            _ => world.unlock(number, name),
        }
        for _ in 0..10 {
            world.run_for(MS);
            let holders = world.holders(name);
            assert!(holders.len() <= 1, "seed {seed}: {holders:?}");
        }
    }
    crate::checks::check_safety(&world);
    crate::checks::check_one_lineage(&world);
}

fn ask_for_too_many(world: &mut World, number: usize) {
    (1000..1080).for_each(|name| world.lock(number, LockName(name), true));
    let refused = world.hosts[number].engine.lock(world.now, GROUP, LockName(2000));
    assert_eq!(refused, Err(LockError::TooMany { asked: 64 }));
}

#[test]
fn a_lock_is_given_back_however_many_requests_wait() {
    let mut world = World::joined(3, 0, 4);
    lock_in_turn(&mut world, [1, 0]);
    assert_eq!(world.holders(LEADER), [1]);
    ask_for_too_many(&mut world, 1);
    world.unlock(1, LEADER);
    assert_eq!(world.holders(LEADER), []);
    world.run_for(3000 * MS);
    assert_eq!(world.holders(LEADER), [0]);
}

#[test]
fn a_ring_is_left_however_many_requests_wait() {
    let mut world = World::joined(3, 0, 5);
    ask_for_too_many(&mut world, 1);
    world.leave(1);
    world.run_for(1500 * MS);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(2));
    let reformations = world.sum(|counters| counters.reformations_begun);
    assert_eq!(reformations, 0, "no reformation was necessary");
}
