//! Jobs: runs that are independent of each other. Several experiments can share one.

use std::any::Any;
use std::fmt::{Debug, Display};

/// A function that returns `true` if the run is to end early.
pub(crate) type Ends<'a> = &'a (dyn Fn() -> bool + 'a);

pub(crate) trait Run: Debug + Display + Send + Sync + 'static {
    type Outcome: Any + Send + Sync;
    /// `true` if no other job may run at the same time, because processor time is measured.
    const IS_ALONE: bool = false;

    /// Performs the run. Returns `None` if it was ended early.
    fn run(&self, ends: Ends<'_>) -> Option<Self::Outcome>;

    /// Estimates the relative duration, as the number of data packets and repairs handled.
    fn cost(&self) -> f64;
}

pub(crate) struct Job {
    /// Key of the run. Equal runs have equal keys.
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) cost: f64,
    pub(crate) is_alone: bool,
    run: Box<dyn Fn(Ends<'_>) -> Option<Outcome> + Send + Sync>,
}

#[derive(Debug)]
pub(crate) struct Outcome(Box<dyn Any + Send + Sync>);

impl Job {
    pub(crate) fn new<R: Run>(run: R) -> Self {
        Self {
            key: format!("{run:?}"),
            name: run.to_string(),
            cost: run.cost(),
            is_alone: R::IS_ALONE,
            run: Box::new(move |ends| run.run(ends).map(Outcome::new)),
        }
    }

    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<Outcome> {
        (self.run)(ends)
    }
}

impl Outcome {
    pub(crate) fn new(outcome: impl Any + Send + Sync) -> Self {
        Self(Box::new(outcome))
    }

    pub(crate) fn of<T: Any>(&self) -> &T {
        self.0.downcast_ref().expect("experiments get the outcomes of their own jobs")
    }
}
