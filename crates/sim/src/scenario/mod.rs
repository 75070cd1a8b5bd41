//! Random scenarios, each drawn from a seed. Faults occur first; then the faults end, and the group
//! must recover.
//!
//! A [`Suite`] draws the scenario of a seed, runs it, and checks its record. A failing scenario is
//! shrunk before it is reported.

mod shrink;

use core::fmt::{self, Display};
use core::time::Duration;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use carom_proto::Time;

use self::shrink::shrink;
use crate::{Counters, Machine, Media, World};

/// A run, drawn from a seed: its participants and its steps.
#[derive(Clone, Debug)]
pub struct Scenario<P, S> {
    /// Seed of all other randomness of the run.
    pub seed: u64,
    /// Participants and their environment.
    pub participants: P,
    /// Steps of the run in order of time, each with its time since the start.
    pub steps: Vec<(Duration, S)>,
}

impl<P: Display, S: Display> Display for Scenario<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.participants)?;
        for (at, step) in &self.steps {
            writeln!(f, "  {:>10.3} ms  {step}", at.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

/// A family of scenarios, with the rules that every run must obey.
pub trait Suite {
    /// Participants of a scenario.
    type Participants: Clone + Display;
    /// Steps of a scenario.
    type Step: Clone + Display;
    /// Runner of a scenario.
    type Runner: Runner<Step = Self::Step>;

    /// Returns the name of the suite on the command line.
    fn name(&self) -> &'static str;

    /// Draws the scenario of `seed`.
    fn scenario(&self, seed: u64) -> Scenario<Self::Participants, Self::Step>;

    /// Returns the settings of the engines in the scenario of `seed`, for the report of a failure.
    fn describe(&self, seed: u64) -> String;

    /// Creates the world of a scenario, before its first step. It is simulated without `media`.
    fn start(
        &self,
        scenario: &Scenario<Self::Participants, Self::Step>,
        media: Option<Arc<dyn Media>>,
    ) -> Self::Runner;

    /// Runs `scenario` in a simulated network. Writes a capture of every packet to `trace`, if
    /// given.
    fn play(
        &self,
        scenario: &Scenario<Self::Participants, Self::Step>,
        trace: Option<Box<dyn Write + Send>>,
    ) -> Run<<Self::Runner as Runner>::Record> {
        self.play_over(scenario, None, trace)
    }

    /// Runs `scenario` like [`Suite::play`], but in real time if there are `media`.
    fn play_over(
        &self,
        scenario: &Scenario<Self::Participants, Self::Step>,
        media: Option<Arc<dyn Media>>,
        trace: Option<Box<dyn Write + Send>>,
    ) -> Run<<Self::Runner as Runner>::Record> {
        let mut runner = self.start(scenario, media);
        let start = runner.world().now();
        if let Some(out) = trace {
            runner.world().trace_to(out);
        }
        for (at, step) in &scenario.steps {
            runner.run_until(start + *at);
            runner.execute(step);
        }
        runner.recover();
        let world = runner.world();
        let (trace, history, counters) = (world.end_trace(), world.history(), *world.counters());
        let (record, violations) = runner.finish();
        Run { record, violations, history, counters, trace }
    }

    /// Runs the scenario of `seed`, checks it, and shrinks it if it fails. Every 16th seed is run
    /// twice unless it fails, because the same seed must give the same history.
    fn run_seed(&self, seed: u64) -> Outcome {
        let scenario = self.scenario(seed);
        let Checked { history, steps, mut violations } = checked(self, &scenario, None);
        if violations.is_empty() && seed.is_multiple_of(16) {
            let again = checked(self, &scenario, None);
            if again.history != history {
                let what = format!("history {history:016x} became {:016x}", again.history);
                violations.push(Violation { rule: "same seed, same history", what });
            }
        }
        let Some(rule) = violations.first().map(|violation| violation.rule) else {
            return Outcome { history, steps, failure: None };
        };
        let mut small = scenario.clone();
        small.steps = shrink(&scenario.steps, SHRINKING_RUNS, &mut |steps| {
            let scenario = Scenario { steps, ..scenario.clone() };
            let violations = checked(self, &scenario, None).violations;
            violations.iter().any(|violation| violation.rule == rule)
        });
        let left = checked(self, &small, None).violations;
        let (setup, scenario) = (self.describe(seed), small.to_string());
        let failure = Failure { seed, violations, setup, scenario, left };
        Outcome { history, steps, failure: Some(Box::new(failure)) }
    }
}

/// A scenario in progress.
pub trait Runner {
    /// Steps of the scenario.
    type Step;
    /// Record of the run, for the checkers.
    type Record;
    /// Machines on the hosts.
    type Machine: Machine;

    /// Returns the world.
    fn world(&mut self) -> &mut World<Self::Machine>;

    /// Advances time to `end`.
    fn run_until(&mut self, end: Time);

    /// Executes a step.
    fn execute(&mut self, step: &Self::Step);

    /// Ends the faults, and lets the participants recover.
    fn recover(&mut self);

    /// Returns the record of the completed run, and the violations in it.
    fn finish(self) -> (Self::Record, Vec<Violation>);

    /// Advances time by `span`.
    fn run_for(&mut self, span: Duration) {
        let end = self.world().now() + span;
        self.run_until(end);
    }

    /// Advances time in steps of 200 ms until `is_well` returns `true` or `most` has passed.
    fn wait(&mut self, most: Duration, is_well: impl Fn(&mut Self) -> bool) {
        let end = self.world().now() + most;
        while !is_well(self) && self.world().now() < end {
            self.run_for(BETWEEN_CHECKS);
        }
    }
}

/// The results of a run.
pub struct Run<R> {
    /// The record for the checkers.
    pub record: R,
    /// Violated rules.
    pub violations: Vec<Violation>,
    /// Hash of the run's history.
    pub history: u64,
    /// Counters of the network.
    pub counters: Counters,
    /// Result of writing the capture.
    pub trace: io::Result<()>,
}

/// A [`Suite`] with its types erased, so that suites can be stored in one list.
pub trait AnySuite: Sync {
    /// Returns [`Suite::name`].
    fn name(&self) -> &'static str;

    /// Calls [`Suite::run_seed`].
    fn run_seed(&self, seed: u64) -> Outcome;

    /// Runs the scenario of `seed` once over a medium, in real time, and checks it. A failing
    /// scenario is not shrunk.
    fn run_over(&self, seed: u64, media: Arc<dyn Media>) -> Outcome;

    /// Runs the scenario of `seed`, and captures every packet.
    ///
    /// # Errors
    /// Returns an error if the capture cannot be written completely.
    fn trace(&self, seed: u64, out: Box<dyn Write + Send>) -> io::Result<()>;
}

impl<S: Suite + Sync> AnySuite for S {
    fn name(&self) -> &'static str {
        Suite::name(self)
    }

    fn run_seed(&self, seed: u64) -> Outcome {
        Suite::run_seed(self, seed)
    }

    fn run_over(&self, seed: u64, media: Arc<dyn Media>) -> Outcome {
        let scenario = self.scenario(seed);
        let Checked { steps, violations, .. } = checked(self, &scenario, Some(media));
        let failure = (!violations.is_empty()).then(|| {
            let (setup, scenario) = (self.describe(seed), scenario.to_string());
            Box::new(Failure { seed, left: Vec::new(), violations, setup, scenario })
        });
        Outcome { history: 0, steps, failure }
    }

    fn trace(&self, seed: u64, out: Box<dyn Write + Send>) -> io::Result<()> {
        self.play(&self.scenario(seed), Some(out)).trace
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: &'static str,
    /// Description of the violation.
    pub what: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// The outcome of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of the history, or 0 if the run ended with a panic or was in real time.
    pub history: u64,
    /// Number of calls to machines, or 0 if the run ended with a panic.
    pub steps: u64,
    /// The failure, if a rule was violated.
    pub failure: Option<Box<Failure>>,
}

/// The failure of a seed that violates a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Violations in the original scenario.
    pub violations: Vec<Violation>,
    /// The protocol's settings.
    pub setup: String,
    /// The smallest scenario found in which the first of the violations still occurs, or the whole
    /// one of a run in real time.
    pub scenario: String,
    /// Violations that remain in the shrunk scenario. None in real time.
    pub left: Vec<Violation>,
}

struct Checked {
    history: u64,
    steps: u64,
    violations: Vec<Violation>,
}

/// Runs the scenario. A panic counts as a violation of the engine's invariants.
fn checked<S: Suite + ?Sized>(
    suite: &S,
    scenario: &Scenario<S::Participants, S::Step>,
    media: Option<Arc<dyn Media>>,
) -> Checked {
    let play = || {
        let Run { violations, history, counters, .. } = suite.play_over(scenario, media, None);
        Checked { history, steps: counters.steps, violations }
    };
    catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let what = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        let violation = Violation { rule: "invariants", what: what.to_owned() };
        Checked { history: 0, steps: 0, violations: vec![violation] }
    })
}

const BETWEEN_CHECKS: Duration = Duration::from_millis(200);
const SHRINKING_RUNS: u32 = 300;
