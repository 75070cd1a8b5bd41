//! Tests guarantees of gossip membership about crashes, losses and stalls, in an observed cluster.

#![allow(missing_docs)]

#[path = "../benches/detection/field.rs"]
mod field;

use core::time::Duration;

use carom_proto::membership::gossip::Config;
use field::{Outcome, Setting, Stalls, play};

fn setting(loss: f64, seed: u64) -> Setting {
    Setting {
        nodes: 24,
        loss,
        stalls: None,
        messages_per_second: [0, 10][seed as usize % 2],
        gossip: Config::default(),
        span: Duration::from_secs(30),
        crash_every: Duration::from_secs(3),
        seed,
    }
}

fn stalls(longest: Duration) -> Option<Stalls> {
    Some(Stalls { share: 0.2, shortest: longest / 5, longest })
}

#[test]
fn crashes_are_detected_within_three_seconds_and_nothing_else() {
    for loss in [0.01, 0.05, 0.2] {
        for seed in 0..8 {
            let outcome = play(&setting(loss, seed));
            let Outcome { detections, unseen, false_failures, .. } = &outcome;
            assert!(detections.len() >= 8, "loss {loss}, seed {seed}: {outcome:?}");
            assert_eq!(*unseen, 0, "loss {loss}, seed {seed}: {outcome:?}");
            let slowest = outcome.quantile(1.0);
            assert!(slowest <= Duration::from_secs(3), "loss {loss}, seed {seed}: {outcome:?}");
            assert_eq!(*false_failures, 0, "loss {loss}, seed {seed}: {outcome:?}");
        }
    }
}

#[test]
fn detection_in_a_tenth_of_a_second_holds_at_a_fifth_lost_too() {
    for loss in [0.01, 0.05, 0.2] {
        let gossip = Config { detection_time: Duration::from_millis(100), ..Config::default() };
        let crash_every = Duration::from_secs(1);
        let span = Duration::from_secs(10);
        let outcome = play(&Setting { gossip, crash_every, span, ..setting(loss, 3) });
        assert!(outcome.detections.len() >= 9, "loss {loss}: {outcome:?}");
        assert_eq!(outcome.unseen, 0, "loss {loss}: {outcome:?}");
        let slowest = outcome.quantile(1.0);
        assert!(slowest <= Duration::from_millis(100), "loss {loss}: {outcome:?}");
    }
}

#[test]
fn nodes_paused_for_a_third_of_detection_time_stay_in_views() {
    for loss in [0.01, 0.05, 0.2] {
        for seed in 0..8 {
            let stalls = stalls(Duration::from_secs(1));
            let outcome = play(&Setting { stalls, ..setting(loss, seed) });
            assert_eq!(outcome.false_failures, 0, "loss {loss}, seed {seed}: {outcome:?}");
            assert_eq!(outcome.unseen, 0, "loss {loss}, seed {seed}: {outcome:?}");
            assert!(outcome.detections.len() >= 7, "loss {loss}, seed {seed}: {outcome:?}");
        }
    }
}

#[test]
fn nodes_paused_beyond_the_detection_time_leave_the_views() {
    let outcome = play(&Setting { stalls: stalls(Duration::from_secs(5)), ..setting(0.01, 1) });
    assert!(outcome.false_failures > 0, "the faults are too weak for the other tests: {outcome:?}");
}
