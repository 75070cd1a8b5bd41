//! Tests token rings of several members in a world with all kinds of faults.

use std::ops::Range;

use carom_conformance::rmp::{RingSuite, scenario};
use carom_sim::scenario::Suite as _;

/// Returns the seeds to run. For more, run `SEEDS=0..2000 cargo test -p carom-conformance --test
/// rmp`.
fn seeds() -> Range<u64> {
    let given = std::env::var("SEEDS").ok();
    let range = given.as_deref().and_then(|text| text.split_once(".."));
    let bounds = range.map(|(from, to)| [from, to].map(|it| it.parse().expect("a number")));
    bounds.map_or(0..48, |[from, to]| from..to)
}

#[test]
fn all_that_a_ring_promises_holds_whatever_happens_to_it() {
    let failures: Vec<String> = seeds()
        .chain(FOUND)
        .chain(ATTACKED)
        .filter_map(|seed| RingSuite.run_seed(seed).failure)
        .map(|failure| {
            let text = format!("seed {}: {:#?}\n", failure.seed, failure.violations);
            text + &format!("{}\n{}left: {:#?}", failure.setup, failure.scenario, failure.left)
        })
        .take(3)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn scenarios_reach_what_they_are_for() {
    let (mut reached, mut unstable, mut forged) = (std::collections::BTreeMap::new(), 0, 0);
    for seed in (0..40).chain(ATTACKED) {
        let scenario = scenario(seed);
        forged += u64::from(scenario.to_string().contains("Crafted"));
        let run = RingSuite.play(&scenario, None);
        unstable += u64::from(run.counters.cut_off > 0);
        for (name, count) in run.record.totals {
            *reached.entry(name).or_insert(0) += count;
        }
    }
    assert!(unstable > 0, "no partition");
    assert!(forged > 0, "no forged packet");
    for name in ["rounds_resent", "data_resent", "reformations_done", "reformations_aborted"] {
        assert!(reached[name] > 0, "{name}: {reached:?}");
    }
    for name in ["nacks_answered", "minorities", "removals", "delivered", "data_duplicate"] {
        assert!(reached[name] > 0, "{name}: {reached:?}");
    }
}

/// Seeds that also have attackers, crowds and storms of lock requests.
const ATTACKED: Range<u64> = 1_000_000_000..1_000_000_024;

const FOUND: [u64; 32] = [
    1693,
    5162,
    5706,
    6013,
    6313,
    7029,
    10646,
    14877,
    15161,
    // A ring without a quorum whose token site left without being heard.
    790_000_263,
    // Two halves of an electorate continued, and a leaver got messages that one had ordered.
    790_000_189,
    // A leaver of a ring without a quorum received views beyond a message that it did not receive.
    850_001_115,
    // Voters that are held in a ring that cannot continue form no quorum with others.
    850_000_709,
    // Many members wait for a ring that cannot continue, and query it often or rarely.
    850_001_990,
    // Joiners in line were too slow, waiting clients counted as voters, and founders of rings 250
    // ms apart requested rings that were gone.
    1_010_001_877,
    1_000_001_361,
    1_010_003_083,
    // A stranger aborted a ballot with the largest version.
    1_000_000_136,
    // The initiator of a list died between its acceptance and its commit.
    1_050_013_941,
    // Members left their ring for an earlier one that a paused member considered to be working.
    1_050_011_047,
    // A corrupted request named an oldest request far ahead of itself.
    1_200_002_017,
    // The last messages of a life replaced without a reformation reached only some members.
    1_500_004_119,
    // A ring counted members that were already in the other ring, which left for the first.
    1_800_007_357,
    // A member that continued alone did not know a third member that had joined before.
    2_120_022_038,
    // Each joiner answered after a lone distant member had given it up.
    2_230_009_949,
    // A ring lacked a member that was held in a later ring, whose other member was gone.
    2_240_011_101,
    // A member whose turns the others always took was not notified that they are too few.
    2_310_032_732,
    // Two starts of a node whose incarnations begin with the same bits.
    2_330_001_715,
    // A voter waited for a ring that could not continue, and another ring lacked only this voter.
    2_340_008_760,
    // In each reformation, a joiner counted its messages, but the founder did not.
    2_361_033_842,
    // The checker missed a life removed from one ring while its next life joined a later ring.
    2_363_042_663,
    // Members of a ring with too few voters waited, one after another, for a voter that had left.
    2_363_039_097,
];
