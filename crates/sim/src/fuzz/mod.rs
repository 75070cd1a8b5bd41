//! Scenarios from seeds, played and checked: faults first, then a healed world in which all must
//! come right. A failure is made smaller before it is told.

mod player;
mod scenario;
mod serving;
mod shrink;
mod subject;
mod troubles;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use player::Played;
pub use scenario::{Act, Kind, Scenario, Views};
pub use subject::{OwedFrom, Setup, Subject};
pub use troubles::{Service, Watch};

use crate::checkers::{self, Violation};
use player::Player;

/// A seed under which something does not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What does not hold.
    pub violations: Vec<Violation>,
    /// The protocol's settings.
    pub setup: String,
    /// A scenario as small as it was possible to make it in which the first of them still fails.
    pub scenario: Scenario,
    /// What does not hold there.
    pub left: Vec<Violation>,
}

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The hash of the history; 0 if the run ended with a panic.
    pub history: u64,
    /// Calls of engines.
    pub steps: u64,
    /// If something does not hold.
    pub failure: Option<Box<Failure>>,
}

/// Plays the scenario of `seed` with engines of `subject`, and checks it. Every 16th seed is
/// played twice: the same seed must give the same history.
pub fn run_seed(subject: &dyn Subject, seed: u64) -> Outcome {
    let scenario = Scenario::of_seed(seed);
    let Checked { history, steps, mut violations } = check(subject, &scenario);
    if violations.is_empty() && seed.is_multiple_of(16) {
        let again = check(subject, &scenario);
        if again.history != history {
            let what = format!("{history:016x} became {:016x}", again.history);
            violations.push(Violation::new("same seed, same history", what));
        }
    }
    if violations.is_empty() {
        return Outcome { history, steps, failure: None };
    }
    let rule = violations[0].rule;
    let small = shrink::shrink(&scenario, SHRINKING_RUNS, &mut |candidate| {
        check(subject, candidate).violations.iter().any(|violation| violation.rule == rule)
    });
    let setup = subject.set_up(&mut player::setup_rng(seed)).describe();
    let left = check(subject, &small).violations;
    let failure = Failure { seed, violations, setup, scenario: small, left };
    Outcome { history, steps, failure: Some(Box::new(failure)) }
}

/// Plays `scenario` with engines of `subject`; captures every packet into `trace`, if there is one.
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

struct Checked {
    history: u64,
    steps: u64,
    violations: Vec<Violation>,
}

/// A panic is a violation like any other: an invariant of the engine's own.
fn check(subject: &dyn Subject, scenario: &Scenario) -> Checked {
    match catch_unwind(AssertUnwindSafe(|| play(subject, scenario, None))) {
        Ok(Played { ledger, history, counters, .. }) => {
            Checked { history, steps: counters.steps, violations: checkers::all(&ledger) }
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let what = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            let violations = vec![Violation::new("invariants", what.to_owned())];
            Checked { history: 0, steps: 0, violations }
        }
    }
}

/// Runs spent on making one failure smaller.
const SHRINKING_RUNS: u32 = 300;
