use super::*;
use crate::cluster::{Counts, Footprint};

/// Returns an outcome of 1000 losses among 100 receivers, with 100 nodes that repair. Repairs take
/// `repairs_gb` bytes, and their delays are 1 ms to `repairs_gb` ms.
fn outcome(astray: u64, again: u64, requests: u64, copies: u64, repairs_gb: u64) -> BulkOutcome {
    let counts = Counts {
        lost: 1000,
        repairs: 1000 + astray + again,
        repairs_astray: astray,
        repairs_again: again,
        copies,
        repaired_by_nodes: 100,
        most_copies: copies,
        most_served: copies / 100,
        most_requests: 2 * requests,
        most_requesters: requests,
        most_control: requests,
    };
    let delays = (1..=repairs_gb).map(std::time::Duration::from_millis);
    BulkOutcome {
        receivers: 100,
        counts,
        footprint: Footprint { data: 100, repairs: repairs_gb, control: 1 },
        delays: crate::delays::Delays::new(delays),
        ..BulkOutcome::default()
    }
}

const HOLDS: Holds = Holds {
    rdcm_astray_at_most_percent: 1.0,
    requesters_at_most_percent: 10.0,
    rdcm_requesters_beyond_ports: 2.0,
    again_at_most_percent: 5.0,
    rdcm_served_at_most: 2.0,
    lbrm_served_at_least_times: 2.0,
    srm_again_at_most_percent: Scaled { full: 95.0, quick: 95.0 },
};
const LIMITS: Limits = Limits { rdcm_requesters: 6.0, srm_again_percent: 95.0 };

fn holding(outcomes: &[BulkOutcome; 5]) -> Vec<bool> {
    let protocols = [Protocol::Srm, Protocol::Lbrm, Protocol::Tmtp, Protocol::Rmtp, Protocol::Rdcm];
    let rows = protocols.into_iter().zip(outcomes);
    let rows: Vec<Row<'_>> = rows.map(|(protocol, outcome)| Row { protocol, outcome }).collect();
    relations(&rows, &HOLDS, LIMITS).iter().map(|relation| relation.holds).collect()
}

#[test]
fn counts_agree_with_the_words_of_the_table_or_do_not() {
    let right = [
        outcome(90_000, 900, 9, 100, 90),
        outcome(100, 10, 8, 300, 10),
        outcome(9_000, 20, 7, 100, 30),
        outcome(90, 10, 6, 250, 10),
        outcome(5, 5, 1, 120, 9),
    ];
    assert_eq!(holding(&right), [true; 13]);
    let mut wrong = right.clone();
    wrong[4] = outcome(2_000_000, 1000, 20, 300, 100);
    let failing = |outcomes: &[BulkOutcome; 5]| {
        let holding = holding(outcomes).into_iter().enumerate();
        holding.filter(|(_, holds)| !holds).map(|(place, _)| place).collect::<Vec<_>>()
    };
    assert_eq!(failing(&wrong), [0, 2, 3, 4, 5, 6, 8, 10, 11, 12]);
    wrong = right.clone();
    wrong[1] = outcome(100, 10, 8, 100, 10);
    assert_eq!(failing(&wrong), [10], "LBRM's burden is no higher than RDCM's");
    wrong = right;
    wrong[0] = outcome(90_000, 1000, 9, 200, 90);
    assert_eq!(failing(&wrong), [7, 9], "SRM repairs without suppression");
}
