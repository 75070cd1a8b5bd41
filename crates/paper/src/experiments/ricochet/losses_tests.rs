use std::time::Duration;

use super::*;
use crate::delays::Delays;

/// Returns the outcome of 100 losses, of which each of the delays in milliseconds is a recovery.
fn outcome(delays: &[u64]) -> GroupOutcome {
    let delays = delays.iter().map(|ms| Duration::from_millis(*ms));
    let (nak, discovery) = (Delays::default(), Delays::default());
    let (expected, lost, missing, overtaken) = (1000, 100, 0, 0);
    let fec = Delays::new(delays);
    GroupOutcome { expected, lost, fec, nak, discovery, missing, overtaken, overhead: None }
}

fn point(fec: &GroupOutcome, overhead_with_naks: f64) -> Point<'_> {
    let nodes = Nodes { variant: Variant::Papers, interval: Span(Duration::from_millis(10)) };
    let model = Model::Burst { length: 100 };
    let place = Place { model, rate: 0.01, stagger: 6, nodes };
    Point { place, fec, with_naks: Some(fec), overhead_with_naks, overhead_by_design: 0.38 }
}

fn holding(holds: &Holds, point: &Point<'_>) -> Vec<bool> {
    holds.relations(&[point], |_| 100.0).iter().map(|relation| relation.holds).collect()
}

#[test]
fn late_repairs_and_additional_datagrams_are_noticed() {
    let holds = Holds::MostlyByFec {
        within_ms: 50.0,
        at_least_percent: 90.0,
        beyond_repairs_at_most_percent: 2.0,
    };
    let (early, late) = (outcome(&[10; 95]), outcome(&[60; 95]));
    assert_eq!(holding(&holds, &point(&early, 0.39)), [true, true]);
    assert_eq!(holding(&holds, &point(&early, 0.41)), [true, false]);
    assert_eq!(holding(&holds, &point(&late, 0.39)), [false, true]);
}

#[test]
fn delay_with_staggering_is_a_part_of_the_filling_time() {
    let holds = Holds::Reached {
        burst: 100,
        stagger: 6,
        recovered_percent: 90.0,
        papers_delay_ms: 50.0,
        delay_of_filling_percent: (35.0, 60.0),
    };
    for (ms, expected) in [(30, [true, false, true]), (50, [true; 3]), (70, [true, true, false])] {
        assert_eq!(holding(&holds, &point(&outcome(&[ms; 95]), 0.39)), expected, "{ms} ms");
    }
    assert_eq!(holding(&holds, &point(&outcome(&[50; 85]), 0.39)), [false, true, true]);
}
