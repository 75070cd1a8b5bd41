//! Plan files: TOML with units. An unknown key is rejected with its line and the known keys.

use std::time::Duration;

use carom_proto::RateOfFire;
use carom_terminal::units;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// A plan file. `S` is the type of the settings that are specific to the experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan<S> {
    pub(crate) experiment: String,
    title: String,
    source: String,
    reports: String,
    #[serde(default)]
    differs: Vec<String>,
    #[serde(default)]
    reported: Vec<Reported>,
    /// Number of runs of each point, with different seeds.
    #[serde(default = "usual_runs")]
    runs: Scaled<u32>,
    pub(crate) setup: S,
}

/// The part of a plan that all experiments have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Heading {
    /// Name of the experiment.
    pub experiment: String,
    /// Title of the experiment, in a few words.
    pub title: String,
    /// Paper and figure that the experiment reproduces.
    pub source: String,
    /// Result that the paper reports, in words.
    pub reports: String,
    /// Differences from the paper's setting, with reasons.
    pub differs: Vec<String>,
    /// Points that the paper reports.
    pub reported: Vec<Reported>,
}

/// The points that the paper reports, drawn in one figure with Carom's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Name of the figure in which the points are drawn.
    pub figure: String,
    /// Label of the points in the legend.
    pub label: String,
    /// Coordinates (x, y) of the points.
    pub points: Vec<(f64, f64)>,
}

/// The reason why a plan is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {cause}", line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct PlanError {
    /// Name of the plan file.
    pub file: String,
    /// Line number, from 1, or `None` if the error does not concern a line.
    pub line: Option<usize>,
    /// Description of the error.
    pub cause: String,
    /// Suggestion for correcting the plan.
    pub fix: String,
}

impl<S: DeserializeOwned> Plan<S> {
    pub(crate) fn read(file: &str, text: &str) -> Result<Self, PlanError> {
        toml::from_str(text).map_err(|error| refused(file, text, &error))
    }
}

impl<S> Plan<S> {
    pub(crate) fn split(self) -> (Heading, Scaled<u32>, S) {
        let Self { experiment, title, source, reports, differs, reported, runs, setup } = self;
        (Heading { experiment, title, source, reports, differs, reported }, runs, setup)
    }
}

/// Ricochet's evaluation has ten runs of each point.
fn usual_runs() -> Scaled<u32> {
    Scaled { full: 10, quick: 3 }
}

/// Returns the name of the experiment of a plan, without checking the plan itself.
pub(crate) fn experiment_of(file: &str, text: &str) -> Result<String, PlanError> {
    #[derive(Deserialize)]
    struct Named {
        experiment: String,
    }
    let named: Named = toml::from_str(text).map_err(|error| refused(file, text, &error))?;
    Ok(named.experiment)
}

/// Converts an error from the TOML reader, and adds the file, the line and a fix.
fn refused(file: &str, text: &str, error: &toml::de::Error) -> PlanError {
    let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    let file = file.to_owned();
    let Some(rest) = message.strip_prefix("unknown field `") else {
        let fix = "compare with the built-in plan: `carom-lab paper NAME --show-plan`".to_owned();
        return PlanError { file, line, cause: message, fix };
    };
    let (key, expected) = rest.split_once('`').unwrap_or((rest, ""));
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let cause = format!("unknown key '{key}'");
    PlanError { file, line, cause, fix: format!("known keys here: {}", known.join(", ")) }
}

/// A value for full runs, and another one for `--quick`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scaled<T> {
    pub(crate) full: T,
    pub(crate) quick: T,
}

impl<T> Scaled<T> {
    pub(crate) fn at(&self, quick: bool) -> &T {
        if quick { &self.quick } else { &self.full }
    }
}

/// A duration, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Span(#[serde(deserialize_with = "duration")] pub(crate) Duration);

/// A share, written as `1%` or `0.01`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Share(#[serde(deserialize_with = "share")] pub(crate) f64);

/// A number of bytes, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Size(#[serde(deserialize_with = "bytes")] pub(crate) usize);

/// A rate-of-fire, written as `8,5`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Fire(#[serde(deserialize_with = "rate_of_fire")] pub(crate) RateOfFire);

fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
    units::duration(&String::deserialize(value)?).map_err(D::Error::custom)
}

fn share<'de, D: Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    units::share(&String::deserialize(value)?).map_err(D::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(value: D) -> Result<usize, D::Error> {
    units::bytes(&String::deserialize(value)?).map_err(D::Error::custom)
}

fn rate_of_fire<'de, D: Deserializer<'de>>(value: D) -> Result<RateOfFire, D::Error> {
    units::rate_of_fire(&String::deserialize(value)?).map_err(D::Error::custom)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunScale {
    pub(crate) quick: bool,
    pub(crate) seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Setup {
        span: Scaled<Span>,
        loss: Share,
        fire: Fire,
    }

    const PLAN: &str = r#"
experiment = "x"
title = "t"
source = "s"
reports = "r"

[setup]
span = { full = "8s", quick = "10ms" }
loss = "1%"
fire = "8,5"
"#;

    #[test]
    fn a_plan_is_read_with_its_units() {
        let plan: Plan<Setup> = Plan::read("x.toml", PLAN).expect("a valid plan");
        let (heading, runs, setup) = plan.split();
        assert_eq!((*runs.at(false), *runs.at(true)), (10, 3));
        assert_eq!(heading.title, "t");
        assert_eq!(setup.span.at(true).0, Duration::from_millis(10));
        assert_eq!(setup.span.at(false).0, Duration::from_secs(8));
        assert_eq!((setup.loss.0, setup.fire.0), (0.01, RateOfFire::new(8, 5)));
        assert_eq!(experiment_of("x.toml", PLAN).as_deref(), Ok("x"));
    }

    #[test]
    fn unknown_key_is_refused_with_its_line_and_the_known_keys() {
        let wrong = PLAN.replace("loss =", "los =");
        let error = Plan::<Setup>::read("x.toml", &wrong).expect_err("los is no key");
        assert_eq!(error.to_string(), "x.toml:9: unknown key 'los'");
        assert_eq!(error.fix, "known keys here: span, loss, fire");
        let wrong = PLAN.replace("quick = ", "fast = ");
        let error = Plan::<Setup>::read("x.toml", &wrong).expect_err("fast is no key");
        assert_eq!((error.line, error.fix.as_str()), (Some(8), "known keys here: full, quick"));
    }

    #[test]
    fn a_value_without_its_unit_is_refused_with_its_line() {
        let wrong = PLAN.replace("\"10ms\"", "\"10\"");
        let error = Plan::<Setup>::read("x.toml", &wrong).expect_err("10 has no unit");
        assert_eq!(error.line, Some(8));
        assert!(error.cause.contains("'10' has no unit"), "{error}");
        let error = experiment_of("x.toml", "title = 1").expect_err("no experiment is named");
        assert!(error.cause.contains("experiment"), "{error}");
    }
}
