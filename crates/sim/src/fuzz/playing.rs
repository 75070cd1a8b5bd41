//! What one seed comes to, whatever is played: checked, played again, made smaller.

use core::fmt::{self, Debug, Display};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cast::Cast;
use super::scenario::{Kind, Views};
use super::shrink::shrink;
use crate::checkers::Violation;

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
    pub scenario: String,
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

/// A scenario that can be made smaller.
pub(crate) trait Play: Clone + Display {
    /// What happens in it.
    type Act: Clone;

    /// Where it comes from.
    fn seed(&self) -> u64;

    /// What happens, in order of time since the start.
    fn acts(&self) -> &[(Duration, Self::Act)];

    /// The same, but this happens.
    fn with_acts(&self, acts: Vec<(Duration, Self::Act)>) -> Self;
}

/// Writes a scenario: who is in it, what can go wrong, and what happens, a line each.
pub(crate) fn write_scenario<'a>(
    f: &mut fmt::Formatter<'_>,
    cast: Cast,
    views: Views,
    kinds: &[Kind],
    acts: impl Iterator<Item = (Duration, &'a dyn Debug)>,
) -> fmt::Result {
    let Cast { hosts, groups, loss, keeps_ids, distance } = cast;
    writeln!(f, "{hosts} hosts, {groups} groups, views by {views:?}, loss {loss}")?;
    let ids = if keeps_ids { "kept" } else { "new" };
    writeln!(f, "kinds of faults: {kinds:?}; ids of starts: {ids}")?;
    if !distance.is_zero() {
        writeln!(f, "hosts {distance:?} apart")?;
    }
    for (at, act) in acts {
        writeln!(f, "  {:>10.3} ms  {act:?}", at.as_secs_f64() * 1e3)?;
    }
    Ok(())
}

/// A run, checked.
pub(crate) struct Checked {
    pub(crate) history: u64,
    pub(crate) steps: u64,
    pub(crate) violations: Vec<Violation>,
}

/// Plays the scenario, and makes it smaller if it fails. That of every 16th seed is played twice:
/// the same seed must give the same history.
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
            let what = format!("{history:016x} became {:016x}", again.history);
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

/// A panic is a violation like any other: an invariant of the engine's own.
fn checked<P: Play>(scenario: &P, play: &dyn Fn(&P) -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(|| play(scenario))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let what = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        let violations = vec![Violation::new("invariants", what.to_owned())];
        Checked { history: 0, steps: 0, violations }
    })
}

/// Runs spent on making one failure smaller.
const SHRINKING_RUNS: u32 = 300;
