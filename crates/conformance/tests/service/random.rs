//! Random histories: joins, leaves, crashes, pauses, changes of owners, failures of the store.

use std::time::Duration;

use carom_proto::membership::service::{CommitFailure, ServerConfig, Unserved};
use carom_proto::{GroupId, JoinError};

use super::rig::{self, PARTITIONS, Rig, group};
use super::{all_settled, default, millis, seconds};

#[test]
fn any_schedule_ends_with_the_views_that_the_groups_demand() {
    // 3563: a group was left, joined and left again before the first answer, and then the
    // connection broke.
    for seed in (0..300).chain([3563]) {
        play(seed);
    }
}

/// Runs joins, leaves, crashes, pauses, restarts of processes and failures of the store, at random,
/// and then waits for recovery.
fn play(seed: u64) {
    let detection_time = if seed.is_multiple_of(3) { millis(200) } else { seconds(3) };
    let mut rig = Rig::new(2, ServerConfig { detection_time, ..default() }, seed);
    (0..6).for_each(|_| assert!(rig.add_node() < 6));
    rig.store.lost_answers = [0.0, 0.2][seed as usize % 2];
    for _ in 0..150 {
        let node = rig.rng.below(6);
        let it = group(rig.rng.below(8));
        let host = &rig.nodes[node];
        match rig.rng.below(30) {
            0 if !host.is_crashed && rig.rng.chance(0.3) => rig.nodes[node].is_crashed = true,
            1 if !host.is_crashed => rig.nodes[node].is_paused = true,
            2..=4 if !host.is_crashed => rig.resume(node),
            5 => rig.kill(seed as usize % 2),
            6 => {
                let process = seed as usize % 2;
                if rig.processes[process].server.is_none() {
                    rig.start_process(process);
                }
                rig.share_partitions();
            }
            7 => rig.share_partitions(),
            8 => {
                let failures = [None, Some(CommitFailure::Failed), Some(CommitFailure::Unknown)];
                rig.store.failing = failures[rig.rng.below(3)];
            }
            9 => {
                let part = rig.rng.below(PARTITIONS.into()) as u16;
                let process = rig.rng.below(2);
                let is_alive = rig.processes[process].server.as_ref();
                if is_alive.is_some_and(|server| !server.is_owned(part)) {
                    rig.give(part, process);
                }
            }
            _ if host.is_crashed || host.is_paused => {}
            _ if host.groups.contains(&it) => rig.leave(node, it),
            _ => rig.join(node, it),
        }
        let pause = [300, 3_000, 100_000][rig.rng.below(3)];
        rig.run_for(Duration::from_micros(pause));
        rig.check();
    }
    rig.store.failing = None;
    rig.store.lost_answers = 0.0;
    for process in 0..2 {
        if rig.processes[process].server.is_none() {
            rig.start_process(process);
        }
    }
    rig.share_partitions();
    (0..6).for_each(|node| rig.resume(node));
    let is_back = |host: &rig::Host| host.is_crashed || !host.is_away;
    let done = rig.run_until(seconds(25), |rig| {
        rig.agrees() && all_settled(rig) && rig.nodes.iter().all(is_back)
    });
    assert!(done, "no agreement, seed {seed}");
    rig.run_for(seconds(10));
    assert!(rig.agrees(), "what was agreed does not stay, seed {seed}");
    assert!(rig.nodes.iter().all(is_back), "seed {seed}");
    rig.check();
    let is_explained = |(_, error): &(GroupId, JoinError)| {
        matches!(error, JoinError::Unserved { why: Unserved::StoreFailed })
    };
    assert!(rig.nodes.iter().all(|host| host.refused.iter().all(is_explained)), "seed {seed}");
}
