use std::fmt;

use carom_proto::lateral::model::Setting;

use crate::lateral::GroupOutcome;
use crate::plan::{Heading, RunScale, Scaled};
use crate::report::Findings;
use crate::work::{Job, Outcome};

pub(crate) trait Experiment: fmt::Debug + Send + Sync {
    fn check(&self) -> Result<(), String>;

    fn figure_names(&self) -> &[&'static str];

    /// Looks up the experiments whose points this one evaluates, by their names.
    fn link(&mut self, _find: fn(&str) -> Option<Loaded>) {}

    fn jobs(&self, scale: RunScale) -> Vec<Job>;

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings;

    /// Returns the points to which Slingshot's analysis applies.
    fn modelled(&self, scale: RunScale, outcomes: &[&Outcome]) -> Vec<Modelled> {
        let _ = (scale, outcomes);
        Vec::new()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Modelled {
    pub(crate) label: String,
    pub(crate) setting: Setting,
    pub(crate) recovered: f64,
    /// Standard deviation of `recovered`.
    pub(crate) sigma: f64,
}

impl Modelled {
    pub(crate) fn new(label: String, setting: Setting, outcome: &GroupOutcome) -> Self {
        // `sigma` is 0 if no packet or every packet was recovered. One packet is the resolution.
        let sigma = outcome.sigma().max(1.0 / outcome.lost.max(1) as f64);
        Self { label, setting, recovered: outcome.recovered_share(), sigma }
    }
}

#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) heading: Heading,
    /// Number of runs of each point, with different seeds.
    pub(crate) runs: Scaled<u32>,
    pub(crate) experiment: Box<dyn Experiment>,
}
