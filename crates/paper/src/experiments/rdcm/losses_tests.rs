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
    let later = [(30.0, 9), (50.0, 3), (45.0, 4), (55.0, 2)].map(|(a, b)| outcome(a, b));
    let right = points(&at_once, &later);
    assert_eq!(holding(&throughput(&right, 90.0, 2.0)), [true; 6]);
    assert_eq!(holding(&footprint(&right)), [true; 4]);
    let worse = [(30.0, 9), (56.0, 1), (29.0, 4), (55.0, 2)].map(|(a, b)| outcome(a, b));
    let wrong = points(&at_once, &worse);
    let relations = throughput(&wrong, 94.0, 2.5);
    assert_eq!(holding(&relations), [false, false, false, true, true, false]);
    assert!(relations[2].note.contains("4ms"), "{}", relations[2].note);
    assert_eq!(holding(&footprint(&wrong)), [false, true, true, true]);
}

#[test]
fn a_protocol_that_was_not_run_holds_nothing() {
    let one = outcome(99.0, 1);
    let alone =
        [Point { protocol: Protocol::Srm, loss: 0.01, found_after: Duration::ZERO, outcome: &one }];
    assert!(throughput(&alone, 90.0, 2.0).iter().all(|relation| !relation.holds));
    assert!(footprint(&alone).iter().all(|relation| !relation.holds));
}
