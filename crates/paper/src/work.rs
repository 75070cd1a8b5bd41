//! Pieces of work: what can be done apart from everything else, and may be wanted by several
//! experiments.

use std::fmt;

use crate::lateral::{LateralOutcome, LateralRun};

/// Whether the work is to end early.
pub(crate) type Ends<'a> = &'a (dyn Fn() -> bool + 'a);

/// A piece of work. Two that say the same are one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Job {
    /// The lateral engine in one setting.
    Lateral(LateralRun),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Of [`Job::Lateral`].
    Lateral(LateralOutcome),
}

impl Job {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<Outcome> {
        match self {
            Self::Lateral(run) => run.run(ends).map(Outcome::Lateral),
        }
    }

    /// How long it takes, roughly, beside others: data packets and repairs that are handled.
    pub(crate) fn cost(&self) -> f64 {
        match self {
            Self::Lateral(run) => run.deliveries(),
        }
    }
}

impl Outcome {
    /// The outcome of a run of the lateral engine.
    ///
    /// # Panics
    /// If it is that of other work: experiments get the outcomes of their own jobs.
    pub(crate) fn lateral(&self) -> &LateralOutcome {
        match self {
            Self::Lateral(outcome) => outcome,
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lateral(run) => run.fmt(f),
        }
    }
}
