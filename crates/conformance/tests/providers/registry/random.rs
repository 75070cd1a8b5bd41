//! Tests random histories: joins, leaves, crashes, pauses, changes of owners, failures of the
//! store.

use std::time::Duration;

use carom_proto::membership::service::{CommitFailure, ServerConfig, Unserved};
use carom_proto::{GroupId, JoinError};

use super::{PARTITIONS, Rig, agreed, default, group, ix, millis, seconds};

#[test]
fn any_schedule_ends_with_the_views_that_the_groups_demand() {
    (0..300).for_each(play);
}

#[test]
fn group_left_twice_before_an_answer_stays_left() {
    for delay_us in (0..3000).step_by(100) {
        let mut rig = agreed(1, 2, 1, default(), delay_us);
        rig.leave(0, group(0));
        rig.join_group(0, group(0));
        rig.leave(0, group(0));
        rig.run_for(Duration::from_micros(delay_us));
        rig.kill(0);
        rig.start_process(0);
        assert!(rig.run_until(seconds(15), Rig::has_recovered), "after {delay_us} us");
        rig.check();
    }
}

fn play(seed: u64) {
    let detection_time = if seed.is_multiple_of(3) { millis(200) } else { seconds(3) };
    let config = ServerConfig { detection_time, ..default() };
    let mut rig = Rig::with_registry(2, config, seed);
    (0..6).for_each(|_| assert!(rig.add_node() < 6));
    rig.store().lost_answers = [0.0, 0.2][seed as usize % 2];
    for _ in 0..150 {
        let node = rig.rng.below(6);
        let it = group(rig.rng.below(8));
        let is_up = rig.world.machine(ix(node)).is_some();
        let is_paused = rig.world.is_paused(ix(node));
        match rig.rng.below(30) {
            0 if is_up && rig.rng.chance(0.3) => rig.crash(node),
            1 => rig.pause(node),
            2..=4 => rig.resume(node),
            5 => rig.kill(seed as usize % 2),
            6..=7 => rig.start_process(seed as usize % 2),
            8 => {
                let failures = [None, Some(CommitFailure::Failed), Some(CommitFailure::Unknown)];
                let failing = failures[rig.rng.below(3)];
                rig.store().failing = failing;
            }
            9 => {
                let part = rig.rng.below(PARTITIONS.into()) as u16;
                let process = rig.rng.below(2);
                if rig.running(process).is_some_and(|server| !server.is_owned(part)) {
                    rig.give(part, process);
                }
            }
            _ if !is_up || is_paused => {}
            _ if rig.node(node).views.contains_key(&it) => rig.leave(node, it),
            _ => rig.join_group(node, it),
        }
        let pause = [300, 3_000, 100_000][rig.rng.below(3)];
        rig.run_for(Duration::from_micros(pause));
        rig.check();
    }
    rig.store().failing = None;
    rig.store().lost_answers = 0.0;
    (0..2).for_each(|process| rig.start_process(process));
    (0..6).for_each(|node| rig.resume(node));
    let is_back = |rig: &Rig| rig.live().all(|node| !node.is_away);
    let done = rig.run_until(seconds(25), |rig| rig.has_recovered() && is_back(rig));
    assert!(done, "no agreement, seed {seed}");
    rig.run_for(seconds(10));
    assert!(rig.agrees(), "the agreement does not last, seed {seed}");
    assert!(is_back(&rig), "seed {seed}");
    rig.check();
    let is_explained = |(_, error): &(GroupId, JoinError)| {
        matches!(error, JoinError::Unserved { why: Unserved::StoreFailed })
    };
    assert!(rig.live().all(|node| node.refused.iter().all(is_explained)), "seed {seed}");
}
