//! The experiments: each with its plan, the work it needs, and what it makes of the outcomes.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::plan::{Heading, Plan, PlanError};
use crate::report::Findings;
use crate::work::{Job, Outcome};

mod slingshot_model;

/// An experiment as its plan sets it up.
pub(crate) trait Experiment: fmt::Debug + Send + Sync {
    /// Whether the plan makes sense; what is wrong with it otherwise.
    fn check(&self) -> Result<(), String>;

    /// The work that it needs.
    fn jobs(&self, scale: RunScale) -> Vec<Job>;

    /// What the outcomes show; they are in the order of the jobs.
    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings;
}

/// How long runs are, and from which seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunScale {
    /// Whether the plans' short runs are wanted.
    pub(crate) quick: bool,
    /// The seed of all that is random.
    pub(crate) seed: u64,
}

/// An experiment that there is.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Where its plan is in the source tree.
    pub(crate) file: &'static str,
    pub(crate) plan: &'static str,
    /// The names of its figures.
    figures: &'static [&'static str],
    read: Reader,
}

/// What reads the plan of one kind of experiment.
#[derive(Debug)]
struct Reader(fn(&str, &str) -> Result<Loaded, PlanError>);

/// An experiment with what its plan says of it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) heading: Heading,
    pub(crate) experiment: Box<dyn Experiment>,
}

impl Spec {
    /// Reads a plan of this experiment.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn read(&self, file: &str, text: &str) -> Result<Loaded, PlanError> {
        let Loaded { heading, experiment } = (self.read.0)(file, text)?;
        let refused = |cause: String, fix: String| {
            Err(PlanError { file: file.to_owned(), line: None, cause, fix })
        };
        let unknown = heading
            .reported
            .iter()
            .find(|reported| !self.figures.contains(&reported.figure.as_str()));
        if let Some(reported) = unknown {
            let fix = format!("known figures here: {}", self.figures.join(", "));
            return refused(format!("unknown figure '{}'", reported.figure), fix);
        }
        match experiment.check() {
            Ok(()) => Ok(Loaded { heading, experiment }),
            Err(cause) => refused(cause, "correct the plan".to_owned()),
        }
    }
}

fn read<S>(file: &str, text: &str) -> Result<Loaded, PlanError>
where
    S: Experiment + DeserializeOwned + 'static,
{
    let (heading, setup) = Plan::<S>::read(file, text)?.split();
    Ok(Loaded { heading, experiment: Box::new(setup) })
}

/// All experiments, in the order of the papers.
pub(crate) const ALL: &[Spec] = &[Spec {
    name: "slingshot-model",
    file: "plans/slingshot-model.toml",
    plan: include_str!("../../../../plans/slingshot-model.toml"),
    figures: &["bounds"],
    read: Reader(read::<slingshot_model::SlingshotModel>),
}];
