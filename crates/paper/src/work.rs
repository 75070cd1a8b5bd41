//! Pieces of work: what can be done apart from everything else, and may be wanted by several
//! experiments.

use std::fmt;

use carom_proto::lateral::model::{Bounds, Setting};

/// A piece of work. Two that say the same are one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Job {
    /// The bounds of Slingshot's analysis.
    Bounds(Setting),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Of [`Job::Bounds`]; plans are checked before they are run.
    Bounds(Bounds),
}

impl Job {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, _ends: &dyn Fn() -> bool) -> Option<Outcome> {
        match self {
            Self::Bounds(setting) => setting.recovered().ok().map(Outcome::Bounds),
        }
    }

    /// How long it takes, roughly, beside others.
    pub(crate) fn cost(&self) -> f64 {
        match self {
            Self::Bounds(_) => 0.0,
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounds(setting) => write!(f, "bounds at {}", setting.rate),
        }
    }
}
