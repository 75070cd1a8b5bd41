use carom_conformance::lateral::LATERAL;
use carom_conformance::rdcm::BulkSuite;
use carom_conformance::rmp::RingSuite;
use carom_sim::scenario::AnySuite;

use super::baselines;

pub(super) fn named(name: &str) -> Result<Box<dyn AnySuite>, Vec<&'static str>> {
    let all = all();
    let names = all.iter().map(|suite| suite.name()).collect();
    all.into_iter().find(|suite| suite.name() == name).ok_or(names)
}

fn all() -> Vec<Box<dyn AnySuite>> {
    let mut all: Vec<Box<dyn AnySuite>> =
        vec![Box::new(LATERAL), Box::new(RingSuite), Box::new(BulkSuite)];
    all.extend(baselines::all().map(|suite| Box::new(suite) as Box<dyn AnySuite>));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_conformance::Kind;
    use carom_conformance::lateral::{EngineSuite, scenario};
    use carom_sim::scenario::Suite as _;

    #[test]
    fn same_seed_gives_same_history_for_every_engine_and_fault() {
        // Scenarios in which all kinds of faults can happen, with either source of views.
        let has_all = |seed: &u64| scenario(*seed).participants.kinds.len() == Kind::ALL.len();
        let seeds: Vec<u64> = (0..).filter(has_all).take(8).collect();
        for suite in baselines::all().into_iter().chain([LATERAL]) {
            assert_repeats(suite, &seeds);
        }
    }

    fn assert_repeats(suite: EngineSuite, seeds: &[u64]) {
        let mut seen = carom_sim::Counters::default();
        for seed in seeds {
            let scenario = scenario(*seed);
            let [one, two] = [(); 2].map(|()| suite.play(&scenario, None));
            let which = format!("{} {seed}", suite.name);
            assert_eq!((one.history, one.counters), (two.history, two.counters), "{which}");
            assert_ne!(one.history, 0, "{which}");
            seen.lost_at_host += one.counters.lost_at_host;
            seen.cut_off += one.counters.cut_off;
            seen.duplicated += one.counters.duplicated;
            seen.corrupted += one.counters.corrupted;
            seen.reordered += one.counters.reordered;
            seen.nobody_there += one.counters.nobody_there;
        }
        let faults = [seen.lost_at_host, seen.cut_off, seen.duplicated, seen.corrupted];
        let others = [seen.reordered, seen.nobody_there];
        assert!(faults.into_iter().chain(others).all(|count| count > 0), "{seen:?}");
    }
}
