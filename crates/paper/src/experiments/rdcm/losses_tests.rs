use super::*;
use crate::cluster::Footprint;

fn outcome(percent: f64, gigabytes: u64) -> BulkOutcome {
    let footprint = Footprint { data: gigabytes * 1_000_000_000, ..Footprint::default() };
    BulkOutcome { mean_share: percent / 100.0, footprint, ..BulkOutcome::default() }
}

/// Returns one point of each protocol for each of two detection times: SRM, RMTP, LBRM, RDCM.
fn points<'a>(at_once: &'a [BulkOutcome; 4], later: &'a [BulkOutcome; 4]) -> Vec<Point<'a>> {
    let protocols = [Protocol::Srm, Protocol::Rmtp, Protocol::Lbrm, Protocol::Rdcm];
    let of = |ms, outcomes: &'a [BulkOutcome; 4]| {
        protocols.into_iter().zip(outcomes).map(move |(protocol, outcome)| Point {
            protocol,
            loss: 0.01,
            found_after: Duration::from_millis(ms),
            changes: 0,
            outcome,
        })
    };
    of(0, at_once).chain(of(4, later)).collect()
}

fn holding(relations: &[Relation]) -> Vec<bool> {
    relations.iter().map(|relation| relation.holds).collect()
}

#[test]
fn order_is_checked_at_every_delay_and_limits_without_delay() {
    let at_once = [(40.0, 9), (80.0, 3), (70.0, 4), (93.0, 2)].map(|(a, b)| outcome(a, b));
    let later = [(25.0, 9), (50.0, 3), (45.0, 4), (55.0, 2)].map(|(a, b)| outcome(a, b));
    let right = points(&at_once, &later);
    assert_eq!(holding(&throughput(&right, 90.0, 2.0, 0.0)), [true; 6]);
    assert_eq!(holding(&footprint(&right, 0.0)), [true; 4]);
    let worse = [(30.0, 9), (56.0, 1), (29.0, 4), (55.0, 2)].map(|(a, b)| outcome(a, b));
    let wrong = points(&at_once, &worse);
    let relations = throughput(&wrong, 94.0, 2.5, 0.0);
    assert_eq!(holding(&relations), [false, false, false, true, true, false]);
    assert!(relations[2].note.contains("4ms"), "{}", relations[2].note);
    assert_eq!(holding(&footprint(&wrong, 0.0)), [false, true, true, true]);
    assert!(holding(&throughput(&wrong, 94.0, 2.5, 1.5))[2], "RDCM is one point behind RMTP");
    assert_eq!(holding(&footprint(&wrong, 51.0)), [true; 4], "RDCM has twice the bytes of RMTP");
}

#[test]
fn a_protocol_that_was_not_run_holds_nothing() {
    let one = outcome(99.0, 1);
    let alone = [Point {
        protocol: Protocol::Srm,
        loss: 0.01,
        found_after: Duration::ZERO,
        changes: 0,
        outcome: &one,
    }];
    assert!(throughput(&alone, 90.0, 2.0, 0.0).iter().all(|relation| !relation.holds));
    assert!(footprint(&alone, 0.0).iter().all(|relation| !relation.holds));
}

#[test]
fn later_detection_changes_and_the_gap_have_limits_of_their_own() {
    let at_once = [(40.0, 9), (80.0, 3), (70.0, 4), (93.0, 2)].map(|(a, b)| outcome(a, b));
    let later_ones = [(30.0, 9), (50.0, 3), (45.0, 4), (60.0, 2)].map(|(a, b)| outcome(a, b));
    let points = points(&at_once, &later_ones);
    // With one detection time of 4 ms after 8 ms, two thirds of the link are left.
    let lasts = Duration::from_millis(8);
    let share = later(&points, lasts, 89.0).expect("there is a later detection");
    assert!(share.holds && (share.measured - 90.0).abs() < 1e-6, "{share:?}");
    assert!(!later(&points, lasts, 91.0).expect("there is a later detection").holds);
    let slower = outcome(83.7, 2);
    let changed = [Point {
        protocol: Protocol::Rdcm,
        loss: 0.01,
        found_after: Duration::ZERO,
        changes: 5,
        outcome: &slower,
    }];
    let relation = unchanged(&points, &changed, 89.0);
    assert!(relation.holds && (relation.measured - 90.0).abs() < 1e-6, "{relation:?}");
    assert!(!unchanged(&points, &[], 1.0).holds, "runs without changes prove nothing");
    let less = [(40.0, 7), (80.0, 3), (70.0, 4), (93.0, 2)].map(|(a, b)| outcome(a, b));
    let mut both: Vec<Point<'_>> = self::points(&less, &later_ones);
    both.truncate(4);
    both.iter_mut().for_each(|point| point.loss = 0.002);
    both.extend(self::points(&at_once, &later_ones).into_iter().take(4));
    assert!(gap(&both, 1.3).holds && !gap(&both, 1.5).holds, "the gap is 5 and 7 GB");
}
