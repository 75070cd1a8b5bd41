//! Jobs: runs that are independent of each other. Several experiments can share one.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use carom_sim::Media;

/// The environment of a run. Functions that return `true` if the run is to end early are the
/// environments of simulated runs.
pub(crate) trait Environment {
    /// Returns `true` if the run is to end early.
    fn ends(&self) -> bool;

    /// Returns the source of media, or `None` if the network is simulated.
    fn media(&self) -> Option<Arc<dyn Media>> {
        None
    }
}

impl<F: Fn() -> bool> Environment for F {
    fn ends(&self) -> bool {
        self()
    }
}

pub(crate) type Env<'a> = &'a (dyn Environment + 'a);

pub(crate) trait Run: Debug + Display + Send + Sync + 'static {
    type Outcome: Any + Send + Sync;
    /// `true` if no other job may run at the same time, because processor time is measured.
    const IS_ALONE: bool = false;

    /// Performs the run. Returns `None` if it was ended early.
    fn run(&self, env: Env<'_>) -> Option<Self::Outcome>;

    /// Returns the number of hosts if the run uses the medium of its environment, or `None` if its
    /// network is always simulated.
    fn hosts_of_medium(&self) -> Option<u32> {
        None
    }

    /// Estimates the relative duration, as the number of data packets and repairs handled.
    fn cost(&self) -> f64;
}

pub(crate) struct Job {
    /// Key of the run. Equal runs have equal keys.
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) cost: f64,
    pub(crate) is_alone: bool,
    pub(crate) hosts_of_medium: Option<u32>,
    run: Box<dyn Fn(Env<'_>) -> Option<Outcome> + Send + Sync>,
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
            hosts_of_medium: run.hosts_of_medium(),
            run: Box::new(move |env| run.run(env).map(Outcome::new)),
        }
    }

    pub(crate) fn run(&self, env: Env<'_>) -> Option<Outcome> {
        (self.run)(env)
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
