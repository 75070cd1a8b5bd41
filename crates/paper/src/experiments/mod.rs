//! The experiments: their plans, the jobs that they need, and the evaluation of the outcomes.

use serde::de::DeserializeOwned;

use crate::plan::{Plan, PlanError};

mod bed;
mod churn;
mod experiment;
mod rdcm_bed;
mod rdcm_failures;
mod rdcm_losses;
mod rdcm_rate;
mod rdcm_table;
mod ricochet_cost;
mod ricochet_groups;
mod ricochet_losses;
mod ricochet_model;
mod ricochet_overlap;
mod ricochet_srm;
mod ricochet_windows;
mod rmp_bed;
mod rmp_latency;
mod rmp_throughput;
mod slingshot_fire;
mod slingshot_model;
mod slingshot_size;
mod slingshot_srm;

use experiment::Experiment;
pub(crate) use experiment::Loaded;

/// Entry of the table of experiments.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Path of its plan in the source tree.
    pub(crate) file: &'static str,
    pub(crate) plan: &'static str,
    /// Names of its figures.
    figures: &'static [&'static str],
    read: Reader,
}

/// Function that reads the plan of an experiment.
#[derive(Debug)]
struct Reader(fn(&str, &str) -> Result<Loaded, PlanError>);

impl Spec {
    /// Reads a plan of this experiment. `file` is used in error messages.
    ///
    /// # Errors
    /// Returns the first error.
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

/// Reads the plan of an experiment that evaluates the points of others.
fn read_model(file: &str, text: &str) -> Result<Loaded, PlanError> {
    let (heading, setup) = Plan::<slingshot_model::SlingshotModel>::read(file, text)?.split();
    Ok(Loaded { heading, experiment: Box::new(setup.with_experiments(built_in)) })
}

/// Returns the experiment `name` with its built-in plan.
fn built_in(name: &str) -> Option<Loaded> {
    let spec = ALL.iter().find(|spec| spec.name == name)?;
    (spec.read.0)(spec.file, spec.plan).ok()
}

/// All experiments, in the order of the papers, followed by those that are not from a paper.
pub(crate) const ALL: &[Spec] = &[
    Spec {
        name: "slingshot-2a",
        file: "plans/slingshot-2a.toml",
        plan: include_str!("../../plans/slingshot-2a.toml"),
        figures: &["recovered", "delay", "overhead"],
        read: Reader(read::<slingshot_fire::SlingshotFire>),
    },
    Spec {
        name: "slingshot-2b",
        file: "plans/slingshot-2b.toml",
        plan: include_str!("../../plans/slingshot-2b.toml"),
        figures: &["recovered", "delay", "overhead"],
        read: Reader(read::<slingshot_fire::SlingshotFire>),
    },
    Spec {
        name: "slingshot-3",
        file: "plans/slingshot-3.toml",
        plan: include_str!("../../plans/slingshot-3.toml"),
        figures: &["distribution"],
        read: Reader(read::<slingshot_srm::SlingshotSrm>),
    },
    Spec {
        name: "slingshot-4",
        file: "plans/slingshot-4.toml",
        plan: include_str!("../../plans/slingshot-4.toml"),
        figures: &["recovered"],
        read: Reader(read::<slingshot_size::SlingshotSize>),
    },
    Spec {
        name: "slingshot-5",
        file: "plans/slingshot-5.toml",
        plan: include_str!("../../plans/slingshot-5.toml"),
        figures: &["recovered"],
        read: Reader(read::<slingshot_size::SlingshotSize>),
    },
    Spec {
        name: "slingshot-model",
        file: "plans/slingshot-model.toml",
        plan: include_str!("../../plans/slingshot-model.toml"),
        figures: &["bounds"],
        read: Reader(read_model),
    },
    Spec {
        name: "ricochet-8",
        file: "plans/ricochet-8.toml",
        plan: include_str!("../../plans/ricochet-8.toml"),
        figures: &["ratios", "delay"],
        read: Reader(read::<ricochet_overlap::RicochetOverlap>),
    },
    Spec {
        name: "ricochet-9",
        file: "plans/ricochet-9.toml",
        plan: include_str!("../../plans/ricochet-9.toml"),
        figures: &["recovered"],
        read: Reader(read::<ricochet_groups::RicochetGroups>),
    },
    Spec {
        name: "ricochet-10",
        file: "plans/ricochet-10.toml",
        plan: include_str!("../../plans/ricochet-10.toml"),
        figures: &["delay"],
        read: Reader(read::<ricochet_groups::RicochetGroups>),
    },
    Spec {
        name: "ricochet-11",
        file: "plans/ricochet-11.toml",
        plan: include_str!("../../plans/ricochet-11.toml"),
        figures: &["histogram"],
        read: Reader(read::<ricochet_groups::RicochetGroups>),
    },
    Spec {
        name: "ricochet-12",
        file: "plans/ricochet-12.toml",
        plan: include_str!("../../plans/ricochet-12.toml"),
        figures: &["delay"],
        read: Reader(read::<ricochet_srm::RicochetSrm>),
    },
    Spec {
        name: "ricochet-13",
        file: "plans/ricochet-13.toml",
        plan: include_str!("../../plans/ricochet-13.toml"),
        figures: &["cost"],
        read: Reader(read::<ricochet_cost::RicochetCost>),
    },
    Spec {
        name: "ricochet-14",
        file: "plans/ricochet-14.toml",
        plan: include_str!("../../plans/ricochet-14.toml"),
        figures: &["xors"],
        read: Reader(read::<ricochet_groups::RicochetGroups>),
    },
    Spec {
        name: "ricochet-15",
        file: "plans/ricochet-15.toml",
        plan: include_str!("../../plans/ricochet-15.toml"),
        figures: &["windows"],
        read: Reader(read::<ricochet_windows::RicochetWindows>),
    },
    Spec {
        name: "ricochet-latency",
        file: "plans/ricochet-latency.toml",
        plan: include_str!("../../plans/ricochet-latency.toml"),
        figures: &["recovered", "delay", "distribution"],
        read: Reader(read::<ricochet_losses::RicochetLosses>),
    },
    Spec {
        name: "ricochet-burst",
        file: "plans/ricochet-burst.toml",
        plan: include_str!("../../plans/ricochet-burst.toml"),
        figures: &["recovered", "delay"],
        read: Reader(read::<ricochet_losses::RicochetLosses>),
    },
    Spec {
        name: "ricochet-stagger",
        file: "plans/ricochet-stagger.toml",
        plan: include_str!("../../plans/ricochet-stagger.toml"),
        figures: &["recovered", "delay"],
        read: Reader(read::<ricochet_losses::RicochetLosses>),
    },
    Spec {
        name: "ricochet-loss",
        file: "plans/ricochet-loss.toml",
        plan: include_str!("../../plans/ricochet-loss.toml"),
        figures: &["recovered", "delay"],
        read: Reader(read::<ricochet_losses::RicochetLosses>),
    },
    Spec {
        name: "ricochet-model",
        file: "plans/ricochet-model.toml",
        plan: include_str!("../../plans/ricochet-model.toml"),
        figures: &["delay"],
        read: Reader(read::<ricochet_model::RicochetModel>),
    },
    Spec {
        name: "rmp-5.1",
        file: "plans/rmp-5.1.toml",
        plan: include_str!("../../plans/rmp-5.1.toml"),
        figures: &["aggregate", "each"],
        read: Reader(read::<rmp_throughput::RmpThroughput>),
    },
    Spec {
        name: "rmp-5.2",
        file: "plans/rmp-5.2.toml",
        plan: include_str!("../../plans/rmp-5.2.toml"),
        figures: &["aggregate", "each"],
        read: Reader(read::<rmp_throughput::RmpThroughput>),
    },
    Spec {
        name: "rmp-5.3",
        file: "plans/rmp-5.3.toml",
        plan: include_str!("../../plans/rmp-5.3.toml"),
        figures: &["latency", "resilience"],
        read: Reader(read::<rmp_latency::RmpLatency>),
    },
    Spec {
        name: "rdcm-10",
        file: "plans/rdcm-10.toml",
        plan: include_str!("../../plans/rdcm-10.toml"),
        figures: &["found_at_once", "found_later", "found_much_later"],
        read: Reader(read::<rdcm_losses::RdcmLosses>),
    },
    Spec {
        name: "rdcm-11",
        file: "plans/rdcm-11.toml",
        plan: include_str!("../../plans/rdcm-11.toml"),
        figures: &["found_at_once", "found_later", "found_much_later"],
        read: Reader(read::<rdcm_losses::RdcmLosses>),
    },
    Spec {
        name: "rdcm-12",
        file: "plans/rdcm-12.toml",
        plan: include_str!("../../plans/rdcm-12.toml"),
        figures: &["rate"],
        read: Reader(read::<rdcm_rate::RdcmRate>),
    },
    Spec {
        name: "rdcm-15",
        file: "plans/rdcm-15.toml",
        plan: include_str!("../../plans/rdcm-15.toml"),
        figures: &["rates", "one"],
        read: Reader(read::<rdcm_failures::RdcmFailures>),
    },
    Spec {
        name: "rdcm-table1",
        file: "plans/rdcm-table1.toml",
        plan: include_str!("../../plans/rdcm-table1.toml"),
        figures: &["latency"],
        read: Reader(read::<rdcm_table::RdcmTable>),
    },
    Spec {
        name: "churn",
        file: "plans/churn.toml",
        plan: include_str!("../../plans/churn.toml"),
        figures: &["recovered", "delay"],
        read: Reader(read::<churn::UnderChurn>),
    },
];
