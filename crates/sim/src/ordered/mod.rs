//! Scenarios of token rings (RMP), run and checked like those of [`fuzz`](crate::fuzz), by the
//! rules of ordered groups.

mod forging;
mod player;
mod scenario;
mod settings;

use std::io::Write;

pub use player::Played;
pub use scenario::{Deed, Scenario};
pub use settings::Settings;

use crate::checkers::{Violation, ordered};
use crate::fuzz::Outcome;
use crate::fuzz::playing::{Checked, explore};
use player::Player;

/// Runs the scenario of `seed`, and checks it. Every 16th seed is run twice: the same seed must
/// give the same history.
pub fn run_seed(seed: u64) -> Outcome {
    let scenario = Scenario::of_seed(seed);
    let describe = || Settings::of_seed(seed, scenario.hosts).to_string();
    explore(&scenario, &describe, &|scenario| {
        let Played { story, history, counters, .. } = play(scenario, None);
        let mut violations = ordered::all(&story);
        if scenario.is_deceived() {
            violations.retain(Violation::concerns_memory);
        }
        Checked { history, steps: counters.steps, violations }
    })
}

/// Runs `scenario`. Captures every packet into `trace`, if given.
pub fn play(scenario: &Scenario, trace: Option<Box<dyn Write + Send>>) -> Played {
    let mut player = Player::new(scenario);
    if let Some(out) = trace {
        player.trace_to(out);
    }
    player.play()
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::rmp::Partition;

    #[test]
    fn electorates_hold_whatever_happens() {
        let has_electorate = |seed: &u64| {
            let hosts = Scenario::of_seed(*seed).hosts;
            matches!(Settings::of_seed(*seed, hosts).partition, Partition::QuorumOf(_))
        };
        let seeds: Vec<u64> = (0..400).filter(has_electorate).take(60).collect();
        assert_eq!(seeds.len(), 60);
        for seed in seeds {
            let outcome = run_seed(seed);
            let found = outcome.failure.map(|failure| failure.violations);
            assert!(found.is_none(), "seed {seed}: {found:#?}");
        }
    }
}
