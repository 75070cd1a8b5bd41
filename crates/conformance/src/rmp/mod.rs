//! Scenarios of token rings (RMP).

pub mod checkers;
mod forgery;
mod history;
mod runner;
mod scenario;
mod settings;

use std::sync::Arc;

use carom_sim::Media;
use carom_sim::scenario::{Scenario, Suite};

pub use self::history::{FinalState, History, Sent};
use self::runner::RingRunner;
pub(crate) use self::scenario::Action;
pub use self::scenario::scenario;
pub(crate) use self::settings::Settings;
use crate::participants::Participants;
use crate::step::Step;

/// The suite of scenarios of token rings.
pub struct RingSuite;

impl Suite for RingSuite {
    type Participants = Participants;
    type Step = Step<Action>;
    type Runner = RingRunner;

    fn name(&self) -> &'static str {
        "rmp"
    }

    fn scenario(&self, seed: u64) -> Scenario<Participants, Step<Action>> {
        scenario(seed)
    }

    fn describe(&self, seed: u64) -> String {
        Settings::of_seed(seed, scenario(seed).participants.hosts).to_string()
    }

    fn start(
        &self,
        scenario: &Scenario<Participants, Step<Action>>,
        media: Option<Arc<dyn Media>>,
    ) -> RingRunner {
        RingRunner::new(scenario, media)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::ring::Quorum;

    #[test]
    fn electorates_hold_whatever_happens() {
        let has_electorate = |seed: &u64| {
            let hosts = scenario(*seed).participants.hosts;
            matches!(Settings::of_seed(*seed, hosts).quorum, Quorum::QuorumOf(_))
        };
        let seeds: Vec<u64> = (0..400).filter(has_electorate).take(60).collect();
        assert_eq!(seeds.len(), 60);
        for seed in seeds {
            let outcome = RingSuite.run_seed(seed);
            let found = outcome.failure.map(|failure| failure.violations);
            assert!(found.is_none(), "seed {seed}: {found:#?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_history_with_token_rings() {
        for seed in 0..8 {
            let scenario = scenario(seed);
            let [one, two] = [(); 2].map(|()| RingSuite.play(&scenario, None));
            assert_eq!((one.history, one.counters), (two.history, two.counters), "{seed}");
            assert_ne!(one.history, 0, "{seed}");
        }
    }
}
