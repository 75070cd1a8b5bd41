//! The outcome of one seed of any kind of scenario: checked, repeated and shrunk.

use core::fmt::{self, Debug, Display};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cast::Cast;
use super::scenario::{Kind, Views};
use super::shrink::shrink;
use crate::checkers::Violation;

/// A seed that violates a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Violations in its scenario.
    pub violations: Vec<Violation>,
    /// The protocol's settings.
    pub setup: String,
    /// The smallest scenario found in which the first of the violations still occurs.
    pub scenario: String,
    /// Violations in that scenario.
    pub left: Vec<Violation>,
}

/// The outcome of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of the history, or 0 if the run ended with a panic.
    pub history: u64,
    /// Number of calls of engines.
    pub steps: u64,
    /// The failure, if a rule was violated.
    pub failure: Option<Box<Failure>>,
}

/// A scenario that can be shrunk.
pub(crate) trait Play: Clone + Display {
    /// A step of the scenario.
    type Act: Clone;

    /// Returns its seed.
    fn seed(&self) -> u64;

    /// Returns its steps, in order of time since the start.
    fn acts(&self) -> &[(Duration, Self::Act)];

    /// Returns the scenario with these steps instead of its own.
    fn with_acts(&self, acts: Vec<(Duration, Self::Act)>) -> Self;
}

/// Writes a scenario: its participants, its kinds of faults and its steps, one line each.
pub(crate) fn write_scenario<'a>(
    f: &mut fmt::Formatter<'_>,
    cast: Cast,
    views: Views,
    kinds: &[Kind],
    acts: impl Iterator<Item = (Duration, &'a dyn Debug)>,
) -> fmt::Result {
    let Cast { hosts, groups, loss, keeps_ids, distance } = cast;
    writeln!(f, "{hosts} hosts, {groups} groups, views from {views:?}, loss {loss}")?;
    let ids = if keeps_ids { "kept" } else { "new" };
    writeln!(f, "kinds of faults: {kinds:?}; {ids} ids after restarts")?;
    if !distance.is_zero() {
        writeln!(f, "one-way delay between hosts {distance:?}")?;
    }
    for (at, act) in acts {
        writeln!(f, "  {:>10.3} ms  {act:?}", at.as_secs_f64() * 1e3)?;
    }
    Ok(())
}

/// A run with the results of its checks.
pub(crate) struct Checked {
    pub(crate) history: u64,
    pub(crate) steps: u64,
    pub(crate) violations: Vec<Violation>,
}

/// Runs the scenario, and shrinks it if it fails. That of every 16th seed is run twice: the same
/// seed must give the same history.
pub(crate) fn explore<P: Play>(
    scenario: &P,
    describe: &dyn Fn() -> String,
    play: &dyn Fn(&P) -> Checked,
) -> Outcome {
    let seed = scenario.seed();
    let Checked { history, steps, mut violations } = checked(scenario, play);
    if violations.is_empty() && seed.is_multiple_of(16) {
        let again = checked(scenario, play);
        if again.history != history {
            let what = format!("history {history:016x} became {:016x}", again.history);
            violations.push(Violation::new("same seed, same history", what));
        }
    }
    let Some(rule) = violations.first().map(|violation| violation.rule) else {
        return Outcome { history, steps, failure: None };
    };
    let acts = shrink(scenario.acts(), SHRINKING_RUNS, &mut |acts| {
        let violations = checked(&scenario.with_acts(acts), play).violations;
        violations.iter().any(|violation| violation.rule == rule)
    });
    let small = scenario.with_acts(acts);
    let left = checked(&small, play).violations;
    let (setup, scenario) = (describe(), small.to_string());
    let failure = Failure { seed, violations, setup, scenario, left };
    Outcome { history, steps, failure: Some(Box::new(failure)) }
}

/// Runs the scenario. A panic counts as a violation of the engine's invariants.
fn checked<P: Play>(scenario: &P, play: &dyn Fn(&P) -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(|| play(scenario))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let what = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        let violations = vec![Violation::new("invariants", what.to_owned())];
        Checked { history: 0, steps: 0, violations }
    })
}

/// Maximum number of runs for shrinking one failure.
const SHRINKING_RUNS: u32 = 300;
