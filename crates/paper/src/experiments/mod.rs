//! The experiments: their plans, the jobs that they need, and the evaluation of the outcomes.

use serde::de::DeserializeOwned;

use crate::plan::{Plan, PlanError};

mod bed;
mod churn;
mod experiment;
mod prelude;
mod rdcm;
mod ricochet;
mod rmp;
mod slingshot;

use churn::UnderChurn;
use experiment::Experiment;
pub(crate) use experiment::Loaded;
use rdcm::failures::RdcmFailures;
use rdcm::losses::RdcmLosses;
use rdcm::rate::RdcmRate;
use rdcm::table::RdcmTable;
use ricochet::cost::RicochetCost;
use ricochet::defaults::Defaults;
use ricochet::discovery::Discovery;
use ricochet::groups::RicochetGroups;
use ricochet::losses::RicochetLosses;
use ricochet::model::RicochetModel;
use ricochet::overlap::RicochetOverlap;
use ricochet::scope::RicochetScope;
use ricochet::srm::RicochetSrm;
use ricochet::windows::RicochetWindows;
use rmp::latency::RmpLatency;
use rmp::throughput::RmpThroughput;
use slingshot::fire::SlingshotFire;
use slingshot::model::SlingshotModel;
use slingshot::size::SlingshotSize;
use slingshot::srm::SlingshotSrm;

#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) plan: &'static str,
    read: fn(&str, &str) -> Result<Loaded, PlanError>,
}

impl Spec {
    pub(crate) fn file(&self) -> String {
        format!("plans/{}.toml", self.name)
    }

    /// Reads a plan of this experiment, or returns the first error in `file`.
    pub(crate) fn read(&self, file: &str, text: &str) -> Result<Loaded, PlanError> {
        let Loaded { heading, runs, experiment } = (self.read)(file, text)?;
        let refused = |cause: String, fix: String| {
            Err(PlanError { file: file.to_owned(), line: None, cause, fix })
        };
        let unknown = heading
            .reported
            .iter()
            .find(|reported| !experiment.figure_names().contains(&reported.figure.as_str()));
        if let Some(reported) = unknown {
            let fix = format!("known figures here: {}", experiment.figure_names().join(", "));
            return refused(format!("unknown figure '{}'", reported.figure), fix);
        }
        match runs.check_value("runs", 1, 1000).and_then(|()| experiment.check()) {
            Ok(()) => Ok(Loaded { heading, runs, experiment }),
            Err(cause) => refused(cause, "correct the plan".to_owned()),
        }
    }
}

fn read<S>(file: &str, text: &str) -> Result<Loaded, PlanError>
where
    S: Experiment + DeserializeOwned + 'static,
{
    let (heading, runs, mut setup) = Plan::<S>::read(file, text)?.split();
    setup.link(built_in);
    Ok(Loaded { heading, runs, experiment: Box::new(setup) })
}

fn built_in(name: &str) -> Option<Loaded> {
    let spec = ALL.iter().find(|spec| spec.name == name)?;
    (spec.read)(&spec.file(), spec.plan).ok()
}

const fn spec<S>(name: &'static str, plan: &'static str) -> Spec
where
    S: Experiment + DeserializeOwned + 'static,
{
    Spec { name, plan, read: read::<S> }
}

/// All experiments, in the order of the papers, followed by those that are not from a paper.
pub(crate) const ALL: &[Spec] = &[
    spec::<SlingshotFire>("slingshot-2a", include_str!("../../plans/slingshot-2a.toml")),
    spec::<SlingshotFire>("slingshot-2b", include_str!("../../plans/slingshot-2b.toml")),
    spec::<SlingshotSrm>("slingshot-3", include_str!("../../plans/slingshot-3.toml")),
    spec::<SlingshotSize>("slingshot-4", include_str!("../../plans/slingshot-4.toml")),
    spec::<SlingshotSize>("slingshot-5", include_str!("../../plans/slingshot-5.toml")),
    spec::<SlingshotModel>("slingshot-model", include_str!("../../plans/slingshot-model.toml")),
    spec::<RicochetScope>("ricochet-4", include_str!("../../plans/ricochet-4.toml")),
    spec::<RicochetOverlap>("ricochet-8", include_str!("../../plans/ricochet-8.toml")),
    spec::<RicochetGroups>("ricochet-9", include_str!("../../plans/ricochet-9.toml")),
    spec::<RicochetGroups>("ricochet-10", include_str!("../../plans/ricochet-10.toml")),
    spec::<RicochetGroups>("ricochet-11", include_str!("../../plans/ricochet-11.toml")),
    spec::<RicochetSrm>("ricochet-12", include_str!("../../plans/ricochet-12.toml")),
    spec::<RicochetCost>("ricochet-13", include_str!("../../plans/ricochet-13.toml")),
    spec::<RicochetGroups>("ricochet-14", include_str!("../../plans/ricochet-14.toml")),
    spec::<RicochetWindows>("ricochet-15", include_str!("../../plans/ricochet-15.toml")),
    spec::<RicochetLosses>("ricochet-latency", include_str!("../../plans/ricochet-latency.toml")),
    spec::<RicochetLosses>("ricochet-burst", include_str!("../../plans/ricochet-burst.toml")),
    spec::<RicochetLosses>("ricochet-stagger", include_str!("../../plans/ricochet-stagger.toml")),
    spec::<RicochetLosses>("ricochet-loss", include_str!("../../plans/ricochet-loss.toml")),
    spec::<RicochetModel>("ricochet-model", include_str!("../../plans/ricochet-model.toml")),
    spec::<Discovery>("discovery", include_str!("../../plans/discovery.toml")),
    spec::<Defaults>("defaults", include_str!("../../plans/defaults.toml")),
    spec::<RmpThroughput>("rmp-5.1", include_str!("../../plans/rmp-5.1.toml")),
    spec::<RmpThroughput>("rmp-5.2", include_str!("../../plans/rmp-5.2.toml")),
    spec::<RmpLatency>("rmp-5.3", include_str!("../../plans/rmp-5.3.toml")),
    spec::<RmpThroughput>("rmp-loss", include_str!("../../plans/rmp-loss.toml")),
    spec::<RdcmLosses>("rdcm-10", include_str!("../../plans/rdcm-10.toml")),
    spec::<RdcmLosses>("rdcm-11", include_str!("../../plans/rdcm-11.toml")),
    spec::<RdcmRate>("rdcm-12", include_str!("../../plans/rdcm-12.toml")),
    spec::<RdcmFailures>("rdcm-15", include_str!("../../plans/rdcm-15.toml")),
    spec::<RdcmTable>("rdcm-table1", include_str!("../../plans/rdcm-table1.toml")),
    spec::<UnderChurn>("churn", include_str!("../../plans/churn.toml")),
];
