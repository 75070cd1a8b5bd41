//! Scenarios of bulk groups (RDCM), run and checked like those of [`fuzz`](crate::fuzz), by the
//! rules of bulk groups.

mod application;
mod forging;
mod healing;
mod hearing;
mod player;
mod scenario;
mod settings;

use std::io::Write;

pub use player::Played;
pub use scenario::{Deed, Kind, Scenario};
pub use settings::{Settings, Shape};

use crate::checkers::bulk;
use crate::fuzz::Outcome;
use crate::fuzz::playing::{Checked, explore};
use player::Player;

/// Runs the scenario of `seed`, and checks it. Every 16th seed is run twice: the same seed must
/// give the same history.
pub fn run_seed(seed: u64) -> Outcome {
    let describe = || Settings::of_seed(seed).to_string();
    explore(&Scenario::of_seed(seed), &describe, &|scenario| {
        let Played { story, history, counters, .. } = play(scenario, None);
        Checked { history, steps: counters.steps, violations: bulk::all(&story) }
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
