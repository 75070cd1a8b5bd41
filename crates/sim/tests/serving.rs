//! Lateral engines whose views come from a membership service, in scenarios from seeds with all
//! kinds of faults, including those of the service.

use std::time::Duration;

use carom_proto::lateral::{Config, Lateral};
use carom_proto::{Engine, GroupSettings, Origin, Profile, RateOfFire, Rng};
use carom_sim::fuzz::{OwedFrom, Scenario, Setup, Subject, Views, play, run_seed};

/// Lateral engines with default settings.
struct ByDefault;

impl Subject for ByDefault {
    fn name(&self) -> &'static str {
        "lateral"
    }

    fn set_up(&self, _rng: &mut Rng) -> Box<dyn Setup> {
        Box::new(Self)
    }
}

impl Setup for ByDefault {
    fn describe(&self) -> String {
        "defaults".to_owned()
    }

    fn group(&self, name: &str) -> GroupSettings {
        GroupSettings::new(name, Profile::TimeCritical(RateOfFire::new(4, 2)))
    }

    fn engine(&self, origin: Origin, seed: u64) -> Box<dyn Engine> {
        Box::new(Lateral::new(origin, Config::default(), seed))
    }

    fn limit_bytes(&self) -> usize {
        let config = Config::default();
        config.buffer_bytes + config.pending_repairs * config.max_datagram_bytes()
    }

    fn owed_from(&self) -> OwedFrom {
        OwedFrom::View
    }

    fn delivers_all(&self) -> bool {
        true
    }

    fn patience(&self) -> Duration {
        Config::default().patience + Duration::from_millis(500)
    }

    fn broken_promise(&self, _counters: &[(&'static str, u64)]) -> Option<String> {
        None
    }

    fn confirms(&self) -> bool {
        true
    }
}

/// Returns the seeds from `from` on whose scenarios have a membership service.
fn served(from: u64) -> impl Iterator<Item = u64> {
    let is_served = |seed: &u64| matches!(Scenario::of_seed(*seed).views, Views::Service(_));
    (from..).filter(is_served)
}

/// Returns the violations under this seed, with the smallest scenario in which they occur.
fn failure(seed: u64) -> Option<String> {
    let failure = run_seed(&ByDefault, seed).failure?;
    let violations: Vec<String> = failure.left.iter().map(ToString::to_string).collect();
    Some(format!("seed {seed}: {violations:#?}\n{}", failure.scenario))
}

/// `SEEDS=0..6000 cargo test -p carom-sim --test serving` runs more.
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
        let scenario = Scenario::of_seed(seed);
        let [one, two] = [(); 2].map(|()| play(&ByDefault, &scenario, None));
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
