//! Scenarios from seeds, run and checked: first with faults, then in a healed world in which the
//! group must recover. A failing scenario is shrunk before it is reported.

pub(crate) mod attacker;
pub(crate) mod cast;
pub(crate) mod draws;
mod hearsay;
pub(crate) mod naming;
mod player;
pub(crate) mod playing;
mod scenario;
mod serving;
mod shrink;
pub(crate) mod stage;
mod subject;
mod troubles;

use std::io::Write;

pub use attacker::Forgery;
pub use player::Played;
pub use playing::{Failure, Outcome};
pub use scenario::{Act, Kind, Scenario, Views};
pub use subject::{OwedFrom, Setup, Subject};
pub use troubles::{Service, Watch};

use crate::checkers::{self, Violation};
use player::Player;
use playing::{Checked, explore};

/// Runs the scenario of `seed` with engines of `subject`, and checks it. Every 16th seed is run
/// twice: the same seed must give the same history.
pub fn run_seed(subject: &dyn Subject, seed: u64) -> Outcome {
    let describe = || subject.set_up(&mut player::setup_rng(seed)).describe();
    explore(&Scenario::of_seed(seed), &describe, &|scenario| {
        let Played { ledger, history, counters, .. } = play(subject, scenario, None);
        let mut violations = checkers::all(&ledger);
        if scenario.is_deceived() {
            violations.retain(Violation::concerns_memory);
        }
        Checked { history, steps: counters.steps, violations }
    })
}

/// Runs `scenario` with engines of `subject`. Captures every packet into `trace`, if given.
pub fn play(
    subject: &dyn Subject,
    scenario: &Scenario,
    trace: Option<Box<dyn Write + Send>>,
) -> Played {
    let mut player = Player::new(subject, scenario);
    if let Some(out) = trace {
        player.trace_to(out);
    }
    player.play()
}
