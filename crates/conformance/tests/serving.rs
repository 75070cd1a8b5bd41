//! Tests lateral engines whose views come from a registry, in random scenarios with all kinds of
//! faults, including faults of the registry.

use std::time::Duration;

use carom_conformance::Views;
use carom_conformance::lateral::{EngineSuite, Setup, scenario};
use carom_proto::lateral::{Config, Lateral};
use carom_proto::{Origin, Profile, RateOfFire, Rng};
use carom_sim::scenario::Suite as _;

const BY_DEFAULT: EngineSuite = EngineSuite { name: "lateral", set_up };

fn set_up(_rng: &mut Rng) -> Setup {
    let config = Config::default();
    let limit_bytes = config.buffer_bytes + config.pending_repairs * config.max_datagram_bytes();
    let profile = Profile::TimeCritical(RateOfFire::new(4, 2));
    let engine = |origin: Origin, seed| Lateral::new(origin, Config::default(), seed);
    let patience = config.patience + Duration::from_millis(500);
    Setup { patience, ..Setup::new("defaults".to_owned(), profile, engine, limit_bytes) }
}

fn served(from: u64) -> impl Iterator<Item = u64> {
    let is_served = |seed: &u64| matches!(scenario(*seed).participants.views, Views::Service(_));
    (from..).filter(is_served)
}

fn failure(seed: u64) -> Option<String> {
    let failure = BY_DEFAULT.run_seed(seed).failure?;
    let violations: Vec<String> = failure.left.iter().map(ToString::to_string).collect();
    Some(format!("seed {seed}: {violations:#?}\n{}", failure.scenario))
}

/// Runs random scenarios. For more, run `SEEDS=0..6000 cargo test -p carom-conformance --test
/// serving`.
#[test]
fn all_holds_with_a_membership_service_whatever_fails() {
    let range = std::env::var("SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let (from, to) = range.split_once("..").expect("FROM..TO");
    let [from, to] = [from, to].map(|it| it.parse::<u64>().expect("a number"));
    let failures = served(from).take_while(|seed| *seed < to).filter_map(failure);
    let failures: Vec<String> = failures.take(3).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn same_seed_gives_the_same_history_with_troubled_links() {
    let mut seen = carom_sim::Counters::default();
    for seed in served(0).take(12) {
        let scenario = scenario(seed);
        let [one, two] = [(); 2].map(|()| BY_DEFAULT.play(&scenario, None));
        assert_eq!((one.history, one.counters), (two.history, two.counters), "seed {seed}");
        seen.links_opened += one.counters.links_opened;
        seen.links_refused += one.counters.links_refused;
        seen.links_broken += one.counters.links_broken;
        seen.link_stalls += one.counters.link_stalls;
    }
    let seen = [seen.links_opened, seen.links_refused, seen.links_broken, seen.link_stalls];
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

const SEEDS: &str = "0..200";
