//! Random joins, leaves, crashes, partitions, pauses and losses, with all QoS levels mixed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use carom_proto::Rng;
use carom_proto::ring::{LockName, Outcome, Qos, Quorum, RequestId};

use crate::checks;
use crate::rig::{GROUP, Host, MS, Told, World};

pub(crate) const LEVELS: [Qos; 7] = [
    Qos::Unordered,
    Qos::SourceOrdered,
    Qos::TotallyOrdered,
    Qos::Resilient(1),
    Qos::Resilient(2),
    Qos::MajorityResilient,
    Qos::TotallyResilient,
];

fn random_history(partition: Quorum, seed: u64) -> World {
    let mut rng = Rng::new(seed);
    let count = 3 + rng.below(5);
    let mut world = World::new(count, partition, seed);
    world.loss = [0.0, 0.01, 0.1][rng.below(3)];
    world.duplicates = [0.0, 0.05][rng.below(2)];
    world.delay.1 = [MS / 5, MS, 5 * MS, 30 * MS][rng.below(4)];
    (0..count).for_each(|number| world.join(number));
    // Two guests only make requests.
    (0..2).for_each(|_| _ = world.add());
    world.run_for(Duration::from_millis(rng.below(1500) as u64));
    let acts = 20 + rng.below(60);
    for _ in 0..acts {
        act(&mut world, &mut rng, partition);
        world.run_for(Duration::from_micros(rng.below(40_000) as u64));
    }
    world
}

fn act(world: &mut World, rng: &mut Rng, partition: Quorum) {
    let number = rng.below(world.hosts.len());
    let host = &world.hosts[number];
    let is_up = host.is_alive && host.is_joined;
    match rng.below(20) {
        0 if is_up => world.crash(number),
        1 if is_up => world.leave(number),
        2 if world.hosts.len() < 14 => {
            let number = world.add();
            world.join(number);
        }
        3 => {
            let parts = 1 + rng.below(2);
            world.part.iter_mut().for_each(|part| *part = rng.below(parts) as u8);
        }
        8 | 9 if host.is_alive => {
            let level = [2, 3, 6, 1, 0][rng.below(5)];
            let handler = [None, Some(0), Some(1)][rng.below(3)];
            world.call(number, handler, level, 6 + rng.below(2000));
        }
        4 => world.hosts[number].is_paused = rng.chance(0.5),
        5 | 6 if is_up => world.lock(number, LockName(rng.below(3) as u64), rng.chance(0.7)),
        7 if is_up => world.unlock(number, LockName(rng.below(3) as u64)),
        _ if is_up => {
            for _ in 0..=rng.below(8) {
                let level = rng.below(LEVELS.len());
                let is_allowed = partition == Quorum::Majority || level != 5;
                let level = if is_allowed { level } else { 2 };
                let most = if rng.chance(0.1) { 8000 } else { 200 };
                let bytes = 6 + rng.below(most);
                world.send_level(number, level as u8, bytes);
            }
        }
        _ => {}
    }
}

fn settle(world: &mut World) {
    (world.loss, world.duplicates) = (0.0, 0.0);
    world.part.iter_mut().for_each(|part| *part = 0);
    world.hosts.iter_mut().for_each(|host| host.is_paused = false);
    world.run_for(Duration::from_secs(2));
    world.tell_views();
    for number in 0..world.hosts.len() {
        if world.hosts[number].is_alive && world.hosts[number].is_joined {
            (0..2).for_each(|handler| world.lock(number, LockName(handler), true));
        }
    }
    world.run_for(Duration::from_secs(20));
}

/// Asserts that all live members are in one complete ring, or that each waits for lost members.
fn check_liveness(world: &World, seed: u64) {
    let up = |number: &usize| world.hosts[*number].is_alive && world.hosts[*number].is_joined;
    let left: Vec<usize> = (0..world.hosts.len()).filter(up).collect();
    let rings: Vec<_> = left.iter().map(|number| world.ring(*number)).collect();
    let is_one = rings.windows(2).all(|pair| pair[0] == pair[1])
        && rings
            .first()
            .is_none_or(|ring| ring.as_ref().is_some_and(|ring| ring.len() == left.len()));
    if is_one {
        check_locks(world, seed);
        check_all_answered(world, &left, seed);
        return check_all_delivered(world, &left, seed);
    }
    for number in &left {
        let Some(view) = world.hosts[*number].engine.view(GROUP) else { continue };
        // A node that has given up its life in this ring does not return to it.
        let alive = view
            .processes()
            .filter(|process| left.iter().any(|it| world.process(*it) == Some(*process)));
        let is_stuck = world.hosts[*number].story.contains(&Told::Minority);
        let alive = alive.count();
        assert!(
            is_stuck && alive < view.len(),
            "seed {seed}: host {number} has {alive} of {:?}; rings {rings:?}",
            view
        );
    }
}

fn check_locks(world: &World, seed: u64) {
    for name in (0..3).map(LockName) {
        let wants = |host: &Host| host.is_alive && host.wanted.contains(&name);
        let is_wanted = world.hosts.iter().any(wants);
        let holders = world.holders(name);
        assert_eq!(holders.len(), usize::from(is_wanted), "seed {seed}, {name}: {holders:?}");
    }
}

fn check_all_answered(world: &World, left: &[usize], seed: u64) {
    if left.is_empty() {
        return;
    }
    for host in world.hosts.iter().filter(|host| host.is_alive && !host.has_left) {
        let answers = host.story.iter().filter_map(|told| match told {
            Told::Answer { answer } => Some((answer.id, &answer.outcome)),
            _ => None,
        });
        let answers: BTreeMap<RequestId, &Outcome> = answers.collect();
        for id in host.calls.keys() {
            let outcome = answers.get(id);
            let is_answered = outcome.is_some_and(|it| **it != Outcome::Unanswered);
            assert!(is_answered, "seed {seed}: {:?}: {id:?}: {outcome:?}", host.id);
        }
    }
}

fn check_all_delivered(world: &World, left: &[usize], seed: u64) {
    for number in left {
        let host = &world.hosts[*number];
        if host.story.contains(&Told::Removed) {
            continue;
        }
        let own = host
            .story
            .iter()
            .filter(|told| matches!(told, Told::Message { sender, .. } if *sender == host.id));
        assert_eq!(own.count() as u32, host.sent, "seed {seed}: host {number} waits for its own");
    }
}

fn run(partition: Quorum, seed: u64) {
    let mut world = random_history(partition, seed);
    settle(&mut world);
    checks::check_safety(&world);
    if partition == Quorum::Majority {
        checks::check_one_lineage(&world);
    }
    check_liveness(&world, seed);
}

/// Returns the seeds to try. `SEEDS=0..6000 cargo test -p carom-proto --test rmp` tries more.
pub(crate) fn seeds() -> Range<u64> {
    let given = std::env::var("SEEDS").ok();
    let range = given.as_deref().and_then(|text| text.split_once(".."));
    let bounds = range.map(|(from, to)| [from, to].map(|it| it.parse().expect("a number")));
    bounds.map_or(0..300, |[from, to]| from..to)
}

#[test]
fn random_histories_of_groups_in_which_a_majority_goes_on() {
    seeds().for_each(|seed| run(Quorum::Majority, seed));
}

#[test]
fn random_histories_of_groups_in_which_every_partition_goes_on() {
    seeds().for_each(|seed| run(Quorum::AtLeast(1), seed));
}
