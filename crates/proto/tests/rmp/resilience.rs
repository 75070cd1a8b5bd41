//! Guarantees of resilience when members crash simultaneously, at any instant.

use carom_proto::Rng;
use carom_proto::ring::{Qos, Quorum};

use crate::checks::{self, Sent};
use crate::rig::{GROUP, MS, Told, World};

/// Runs five members that send messages of this level, and kills `deaths` of them at one instant.
/// Asserts that the messages that each dead member received are the first ones that a survivor
/// received.
fn kill_at_once(qos: Qos, deaths: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut world = World::ring_of(Quorum::AtLeast(1), 5, 0, seed, 1500 * MS);
    world.loss = [0.0, 0.02, 0.1][rng.below(3)];
    for _ in 0..20 + rng.below(40) {
        world.send_and_run(rng.below(5), qos, 10 + rng.below(3000), MS / 10 * rng.below(20) as u32);
    }
    let mut victims = [0, 1, 2, 3, 4];
    rng.choose_to_front(&mut victims, deaths);
    victims[..deaths].iter().for_each(|number| world.crash(*number));
    world.run_for(3000 * MS);
    let told = |number: usize| -> Vec<Sent> {
        let lives = checks::lives(&world.hosts[number]);
        lives.into_iter().flatten().flat_map(|chapter| chapter.messages).collect()
    };
    let survivor = told(victims[deaths]);
    assert!(!survivor.is_empty(), "seed {seed}: nothing was delivered");
    for victim in &victims[..deaths] {
        let known = told(*victim);
        let common = survivor.iter().take(known.len());
        assert!(
            known.iter().eq(common),
            "{qos}, seed {seed}: {victim} received messages that {} did not, or in another order",
            victims[deaths]
        );
    }
    checks::check_safety(&world);
}

#[test]
fn one_resilient_messages_survive_any_one_death() {
    crate::random::seeds().for_each(|seed| kill_at_once(Qos::Resilient(1), 1, seed));
}

#[test]
fn two_resilient_messages_survive_any_two_deaths() {
    crate::random::seeds().for_each(|seed| kill_at_once(Qos::Resilient(2), 2, seed));
}

#[test]
fn totally_resilient_messages_survive_all_deaths_but_one() {
    crate::random::seeds().for_each(|seed| kill_at_once(Qos::TotallyResilient, 4, seed));
}

/// A member requests to leave, and is cut off at some instant. If the others see it leave, it holds
/// everything that was delivered to them before.
#[test]
fn who_leaves_holds_what_the_others_were_told_before() {
    let mut left = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut world = World::ring_of(Quorum::AtLeast(1), 3, 0, seed, 1500 * MS);
        for _ in 0..10 {
            world.send_and_run(
                rng.below(2),
                Qos::TotallyResilient,
                10 + rng.below(3000),
                MS / 100 * rng.below(40) as u32,
            );
        }
        world.leave(2);
        world.run_for(MS / 100 * rng.below(100) as u32);
        world.part[2] = 1;
        let Some(reached) = world.hosts[2].engine.reached(GROUP) else { continue };
        world.run_for(100 * MS);
        let leaver = world.hosts[2].id;
        let is_left = |told: &Told| match told {
            Told::View { view, .. } => view.len() == 2 && view.process_of(leaver).is_none(),
            _ => false,
        };
        for host in &world.hosts[..2] {
            // The first such view is from before the third member was admitted.
            let Some(at) = host.story.iter().rposition(is_left).filter(|at| *at > 3) else {
                continue;
            };
            let Told::View { view, .. } = &host.story[at] else { unreachable!("it is a view") };
            if view.epoch != reached.ring {
                continue;
            }
            left += 1;
            for told in &host.story[..at] {
                if let Told::Message { place: Some(place), .. } = told {
                    assert!(*place <= reached, "seed {seed}: {leaver} has {reached:?}, {told:?}");
                }
            }
        }
    }
    assert!(left > 40, "{left} times the others saw it leave");
}
