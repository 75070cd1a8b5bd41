use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carom_sim::Media;

use crate::experiments::{self, Loaded, Spec};
use crate::plan::{Heading, PlanError, RunScale, experiment_of};
use crate::report::{Findings, Report};
use crate::runs;
use crate::work::{Environment, Job, Outcome};

/// A set of experiments that run together and share jobs.
#[derive(Debug)]
pub struct Suite {
    entries: Vec<Entry>,
    /// Source of media for all runs, or `None` if the network is simulated.
    media: Option<Arc<dyn Media>>,
}

#[derive(Debug)]
struct Entry {
    spec: &'static Spec,
    loaded: Loaded,
}

/// The options for running a [`Suite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `true` to use the short runs of the plans. Default: `false`.
    pub quick: bool,
    /// Seed of all randomness in the first run of each point. Further runs use the next numbers.
    /// Default: 1.
    pub seed: u64,
    /// Number of runs of each point. Default: `None`, the number in the plan.
    pub runs: Option<NonZeroU32>,
    /// Number of jobs that run at the same time. Default: one per processor.
    pub jobs: NonZeroUsize,
}

/// An observer of a run of a [`Suite`].
pub trait Watch: Sync {
    /// Returns `true` to end the run early. Unfinished experiments are then not reported.
    fn ends(&self) -> bool {
        false
    }

    /// Handles the progress of the run, after each finished job.
    fn on_progress(&self, progress: &Progress) {
        let _ = progress;
    }
}

/// Observes nothing and never ends a run early.
impl Watch for () {}

/// The progress of a run of a [`Suite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of finished jobs.
    pub done: usize,
    /// Total number of jobs.
    pub total: usize,
    /// Description of the job that finished last.
    pub last: String,
}

/// The reason why a suite cannot be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// No experiment has this name.
    #[error("unknown experiment '{0}'")]
    Unknown(String),
    /// The experiment has runs that need the simulated network, or more hosts than there are.
    #[error("{0} cannot run on real sockets")]
    OnlySimulated(String),
}

impl Default for Options {
    /// Returns the options for full runs with seed 1 and one job per processor.
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { quick: false, seed: 1, runs: None, jobs }
    }
}

impl Options {
    /// Returns the scales of all runs of a point, if its plan has `usual` runs.
    fn scales(&self, usual: u32) -> impl Iterator<Item = RunScale> {
        let (quick, seed) = (self.quick, self.seed);
        let runs = self.runs.map_or(usual, NonZeroU32::get);
        (0..runs).map(move |run| RunScale { quick, seed: seed.wrapping_add(run.into()) })
    }
}

impl Suite {
    /// Returns the suite of all experiments, with the built-in plans.
    ///
    /// # Panics
    /// Panics if a built-in plan is invalid. A test reads all of them.
    pub fn all() -> Self {
        let entries = experiments::ALL.iter().map(|spec| {
            let loaded = spec.read(&spec.file(), spec.plan).expect("built-in plans are valid");
            Entry { spec, loaded }
        });
        Self { entries: entries.collect(), media: None }
    }

    /// Returns the suite of the experiments with these names, each once, in the order of
    /// [`Suite::all`].
    ///
    /// # Errors
    /// Returns [`SuiteError::Unknown`] for the first unknown name.
    pub fn named(names: &[impl AsRef<str>]) -> Result<Self, SuiteError> {
        let known = |name: &str| experiments::ALL.iter().any(|spec| spec.name == name);
        if let Some(unknown) = names.iter().find(|name| !known(name.as_ref())) {
            return Err(SuiteError::Unknown(unknown.as_ref().to_owned()));
        }
        let mut suite = Self::all();
        suite.entries.retain(|entry| names.iter().any(|name| name.as_ref() == entry.spec.name));
        Ok(suite)
    }

    /// Returns the suite of the experiments that CI runs. Each family of protocols is represented,
    /// and all relations hold in short runs.
    pub fn ci() -> Self {
        Self::named(CI).expect("the names are known")
    }

    /// Returns the suite of the experiments that can run on real sockets of `hosts` hosts.
    pub fn of_sockets(hosts: u32) -> Self {
        let mut suite = Self::all();
        suite.entries.retain(|entry| entry.hosts_of_media().is_some_and(|count| count <= hosts));
        suite
    }

    /// Returns the number of hosts that the experiments need on real sockets.
    ///
    /// # Errors
    /// Returns an error for the first experiment that cannot run there.
    pub fn hosts_of_media(&self) -> Result<u32, SuiteError> {
        let mut hosts = self.entries.iter().map(|entry| {
            let name = || SuiteError::OnlySimulated(entry.spec.name.to_owned());
            entry.hosts_of_media().ok_or_else(name)
        });
        hosts.try_fold(0, |most, hosts| Ok(most.max(hosts?)))
    }

    /// Runs all experiments over media of this source, in real time and one run at a time.
    pub fn use_media(&mut self, media: Arc<dyn Media>) {
        self.media = Some(media);
    }

    /// Returns the headings of the plans, in the order of the experiments.
    pub fn plans(&self) -> impl Iterator<Item = &Heading> {
        self.entries.iter().map(|entry| &entry.loaded.heading)
    }

    /// Returns the built-in plan of the experiment `name`.
    pub fn built_in_plan(name: &str) -> Option<&'static str> {
        experiments::ALL.iter().find(|spec| spec.name == name).map(|spec| spec.plan)
    }

    /// Replaces the plan of the experiment that `text` names. `file` is used in error messages.
    ///
    /// # Errors
    /// Returns an error if the plan is invalid, or if its experiment is not in this suite.
    pub fn use_plan(&mut self, file: &str, text: &str) -> Result<(), PlanError> {
        let name = experiment_of(file, text)?;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.spec.name == name) else {
            let fix = format!("add {name} to the experiments, or change `experiment` in the plan");
            let cause = format!("the plan is for experiment '{name}', which is not selected");
            return Err(PlanError { file: file.to_owned(), line: None, cause, fix });
        };
        entry.loaded = entry.spec.read(file, text)?;
        Ok(())
    }

    /// Runs all experiments, and returns the reports of those whose jobs are all done.
    pub fn run(&self, options: &Options, watch: &impl Watch) -> Vec<Report> {
        let mut work = Shared::default();
        let mut wanted: Vec<Vec<(RunScale, Vec<usize>)>> = Vec::new();
        for Entry { loaded, .. } in &self.entries {
            let scales = options.scales(*loaded.runs.at(options.quick));
            let places = scales.map(|scale| (scale, work.add(loaded.experiment.jobs(scale))));
            wanted.push(places.collect());
        }
        let jobs = if self.media.is_some() { NonZeroUsize::MIN } else { options.jobs };
        let outcomes = in_parallel(&work.jobs, jobs, &Watched { watch, media: &self.media });
        let reports = self.entries.iter().zip(wanted).filter_map(|(Entry { loaded, .. }, runs)| {
            let (first, count) = (runs.first()?.0, runs.len() as u32);
            let findings = runs.iter().map(|(scale, places)| {
                let outcomes = places.iter().map(|place| outcomes[*place].as_ref());
                let outcomes: Option<Vec<&Outcome>> = outcomes.collect();
                Some(loaded.experiment.evaluate(*scale, &outcomes?))
            });
            let findings: Option<Vec<Findings>> = findings.collect();
            let mut findings = runs::combine(findings?);
            if self.media.is_some() {
                findings.notes.push(ON_SOCKETS.to_owned());
            }
            Some(Report::new(loaded.heading.clone(), first, count, findings))
        });
        reports.collect()
    }
}

impl Entry {
    /// Returns the number of hosts of the largest run, or `None` if one must be simulated.
    fn hosts_of_media(&self) -> Option<u32> {
        let scale = RunScale { quick: false, seed: 1 };
        let jobs = self.loaded.experiment.jobs(scale);
        let hosts: Option<Vec<u32>> = jobs.iter().map(|job| job.hosts_of_medium).collect();
        hosts?.into_iter().max()
    }
}

/// The environment of the runs of a suite.
struct Watched<'a, W> {
    watch: &'a W,
    media: &'a Option<Arc<dyn Media>>,
}

impl<W: Watch> Environment for Watched<'_, W> {
    fn ends(&self) -> bool {
        self.watch.ends()
    }

    fn media(&self) -> Option<Arc<dyn Media>> {
        self.media.clone()
    }
}

const ON_SOCKETS: &str = "This run was in real time, on sockets: processing takes time, and links \
                          have the rates and delays of this machine instead of those of the plan.";

/// The experiments of [`Suite::ci`].
const CI: &[&str] = &[
    "slingshot-2a",
    "ricochet-4",
    "ricochet-8",
    "ricochet-9",
    "ricochet-14",
    "ricochet-model",
    "rmp-5.2",
    "rdcm-15",
];

#[derive(Default)]
struct Shared {
    jobs: Vec<Job>,
    /// Index of each job, by its key.
    places: BTreeMap<String, usize>,
}

impl Shared {
    fn add(&mut self, jobs: Vec<Job>) -> Vec<usize> {
        let mut place_of = |job: Job| {
            let next = self.jobs.len();
            let place = *self.places.entry(job.key.clone()).or_insert(next);
            if place == next {
                self.jobs.push(job);
            }
            place
        };
        jobs.into_iter().map(&mut place_of).collect()
    }
}

/// Runs the jobs, the longest first, so that no thread is left alone with a long job. Jobs that
/// need the whole machine run afterwards. A job that the observer ended early has no outcome.
fn in_parallel<W: Watch>(
    jobs: &[Job],
    threads: NonZeroUsize,
    env: &Watched<'_, W>,
) -> Vec<Option<Outcome>> {
    let watch = env.watch;
    let (mut together, alone): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|place| !jobs[*place].is_alone);
    together.sort_by(|a, b| jobs[*b].cost.total_cmp(&jobs[*a].cost));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(0));
    let results: Vec<Mutex<Option<Outcome>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let do_one = |place: usize| {
        let outcome = jobs[place].run(env)?;
        *results[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        let last = jobs[place].name.clone();
        watch.on_progress(&Progress { done: *done, total: jobs.len(), last });
        Some(())
    };
    let work = || {
        while !watch.ends() {
            let Some(place) = together.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if do_one(*place).is_none() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(together.len()) {
            scope.spawn(work);
        }
        work();
    });
    for place in alone {
        if watch.ends() || do_one(place).is_none() {
            break;
        }
    }
    let taken = |result: Mutex<_>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_plan_can_be_read_and_names_its_file() {
        let suite = Suite::all();
        assert_eq!(suite.entries.len(), experiments::ALL.len());
        for entry in &suite.entries {
            assert_eq!(entry.loaded.heading.experiment, entry.spec.name);
        }
    }

    #[test]
    fn a_suite_has_the_experiments_that_were_named_each_once() {
        let names = ["slingshot-model", "slingshot-model"];
        let suite = Suite::named(&names).expect("a known experiment");
        assert_eq!(suite.plans().count(), 1);
        assert_eq!(Suite::ci().plans().count(), CI.len());
        let unknown = Suite::named(&["slingshot-99"]).expect_err("an unknown experiment");
        assert_eq!(unknown, SuiteError::Unknown("slingshot-99".to_owned()));
    }

    #[test]
    fn another_plan_takes_the_place_of_the_one_that_is_built_in() {
        let mut suite = Suite::named(&["slingshot-model"]).expect("a known experiment");
        let plan = Suite::built_in_plan("slingshot-model").expect("a known experiment");
        let other = plan.replace("title = \"", "title = \"Again: ");
        suite.use_plan("my.toml", &other).expect("a valid plan");
        assert!(suite.plans().all(|heading| heading.title.starts_with("Again: ")));
        let elsewhere = plan.replace("\"slingshot-model\"", "\"slingshot-99\"");
        let error =
            suite.use_plan("my.toml", &elsewhere).expect_err("the experiment is not selected");
        assert!(error.cause.contains("slingshot-99"), "{error}");
    }

    #[test]
    fn a_run_that_is_ended_reports_nothing_that_it_has_not_done() {
        struct Ended;
        impl Watch for Ended {
            fn ends(&self) -> bool {
                true
            }
        }
        let suite = Suite::named(&["slingshot-2a"]).expect("a known experiment");
        assert_eq!(suite.run(&Options::default(), &Ended), []);
    }
}
