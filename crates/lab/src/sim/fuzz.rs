use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, IsTerminal as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carom_sim::scenario::{AnySuite, Failure, Outcome as Run};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output};
use serde::Serialize;

use super::suites;
use crate::medium::{Closing, LabMedia};

/// Search for a seed under which an engine breaks a guarantee
///
/// Each seed is a scenario in which 5 to 20 hosts join, leave, send, crash, restart, pause, are
/// partitioned, and lose, reorder, duplicate, and damage datagrams. Then the faults stop, and the
/// system must recover. In a quarter of the scenarios, a registry provides the views, and
/// its processes and store fail as well. A scenario of token rings (rmp) has 3 to 9 hosts and
/// messages of all levels. A scenario of bulk groups (rdcm) has 2 to 16 hosts of a data center,
/// whose links fail. The exit code is 1 if a seed fails.
///
/// With --lab, the same scenarios and checkers run in real time on sockets. A seed then takes about
/// a minute, differs from run to run, and is neither shrunk nor repeated. Failures of links affect
/// only connections there.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Number of seeds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// Protocol to test
    #[arg(long, default_value = "lateral", value_name = "NAME")]
    protocol: String,
    /// Number of scenarios that run at the same time [default: one per core, or 1 with --lab]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Write every packet of the first seed to FILE as pcapng, for Wireshark
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Run on real sockets, in network namespaces of this machine
    #[arg(long, conflicts_with = "trace")]
    lab: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    protocol: &'static str,
    from: u64,
    seeds: u64,
    steps: u64,
    /// Hash of the histories of all seeds, in the order of the seeds. None in real time.
    history: Option<String>,
    /// Drops and lag in a lab. None in a simulated network.
    lab: Option<Closing>,
    seconds: f64,
    failures: Vec<Failed>,
}

#[derive(Serialize)]
struct Failed {
    seed: u64,
    violations: Vec<String>,
    setup: String,
    scenario: String,
    violations_left: Vec<String>,
    replay: String,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let suite = suites::named(&args.protocol).map_err(|names| {
        let cause = format!("unknown protocol '{}'", args.protocol);
        CliError::new(cause, format!("use one of {}", names.join(", ")))
    })?;
    if args.from.checked_add(args.seeds).is_none() {
        return Err(CliError::new(
            "--from plus --seeds exceeds 64 bits",
            "use a smaller --from or --seeds",
        ));
    }
    let lab = match args.lab.then(|| LabMedia::enter(HOSTS)).transpose()? {
        Some(Err(code)) => return Ok(Outcome::Code(code)),
        Some(Ok(lab)) => Some(Arc::new(lab)),
        None => None,
    };
    let interrupt = interrupt::listen()?;
    // A panic of an engine is a finding, which its own output would hide.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(path) = &args.trace {
        trace(&*suite, args.from, path)?;
    }
    let start = Instant::now();
    let runs = play_all(&*suite, args, lab.as_ref(), interrupt);
    let _ = std::panic::take_hook();
    let lab = lab.map(|lab| lab.close()).transpose()?;
    let report = Report::new(args, suite.name(), runs, lab, start.elapsed());
    if args.json {
        output::json(&report)?;
    } else {
        output::lines(&report.text())?;
    }
    Ok(Outcome::of(!report.failures.is_empty()))
}

fn trace(suite: &dyn AnySuite, seed: u64, path: &PathBuf) -> Result<(), CliError> {
    let tried = format!("--trace {}", path.display());
    let not_written = |error: std::io::Error| {
        let cause = format!("cannot write {tried}: {}", carom_terminal::plain(&error));
        CliError::new(cause, "use a writable file")
    };
    let file = BufWriter::new(File::create(path).map_err(not_written)?);
    let play = || suite.trace(seed, Box::new(file));
    // A panic is among the findings. Dropping the writer has flushed the packets up to it.
    catch_unwind(AssertUnwindSafe(play)).unwrap_or(Ok(())).map_err(not_written)
}

fn play_all(
    suite: &dyn AnySuite,
    args: &Args,
    lab: Option<&Arc<LabMedia>>,
    interrupt: &Interrupt,
) -> BTreeMap<u64, Run> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (end, next) = (args.from + args.seeds, AtomicU64::new(args.from));
    let runs = Mutex::new(BTreeMap::new());
    let failures = AtomicU64::new(0);
    let work = || {
        while failures.load(Ordering::Relaxed) < MAX_FAILURES && !interrupt.is_asked() {
            if lab.is_some_and(|lab| lab.has_failed()) {
                break;
            }
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let run = match lab {
                Some(lab) => suite.run_over(seed, Arc::<LabMedia>::clone(lab)),
                None => suite.run_seed(seed),
            };
            failures.fetch_add(u64::from(run.failure.is_some()), Ordering::Relaxed);
            runs.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, run);
        }
    };
    let count = || runs.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
    std::thread::scope(|scope| {
        let jobs = args.jobs.unwrap_or(if lab.is_some() { 1 } else { cores }).min(args.seeds);
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let shows = !args.json && std::io::stderr().is_terminal();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(TICK);
            if shows {
                let (done, all) = (count(), args.seeds);
                output::draw(format_args!("\r{done} of {all} seeds, {failures:?} failing "));
            }
        }
        if shows {
            output::say("");
        }
    });
    runs.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Report {
    fn new(
        args: &Args,
        protocol: &'static str,
        runs: BTreeMap<u64, Run>,
        lab: Option<Closing>,
        elapsed: Duration,
    ) -> Self {
        let mut history = 0_u64;
        for run in runs.values() {
            history = history.rotate_left(7).wrapping_add(run.history);
        }
        Self {
            protocol,
            from: args.from,
            seeds: runs.len() as u64,
            steps: runs.values().map(|run| run.steps).sum(),
            history: lab.is_none().then(|| format!("{history:016x}")),
            lab,
            seconds: elapsed.as_secs_f64(),
            failures: runs
                .into_values()
                .filter_map(|run| run.failure)
                .map(|failure| Failed::new(protocol, lab.is_some(), &failure))
                .collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for failed in &self.failures {
            text += &format!("seed {} fails:\n", failed.seed);
            for violation in failed.violations.iter().take(MAX_SHOWN) {
                text += &format!("  {violation}\n");
            }
            if failed.violations.len() > MAX_SHOWN {
                text += &format!("  and {} more\n", failed.violations.len() - MAX_SHOWN);
            }
            text += &format!("settings: {}\n", failed.setup);
            let which = if self.history.is_some() {
                "smallest scenario that still fails"
            } else {
                "scenario"
            };
            text += &format!("{which}: {}", failed.scenario);
            for violation in failed.violations_left.iter().take(MAX_SHOWN) {
                text += &format!("  {violation}\n");
            }
            text += &format!("replay: {}\n\n", failed.replay);
        }
        let Self { protocol, seeds, from, steps, seconds, failures, .. } = self;
        let (seeds, steps) = (counted(seeds, "seed"), counted(steps, "engine call"));
        let verdict = verdict(failures.len());
        text += &format!("{protocol}: {verdict} in {seeds} from {from}, {steps}, {seconds:.1} s");
        if let Some(history) = &self.history {
            text += &format!(", history {history}");
        }
        if let Some(lab) = &self.lab {
            text += &format!("\n{lab}");
        }
        text
    }
}

fn verdict(failures: usize) -> String {
    match failures {
        0 => "no failures".to_owned(),
        1 => "1 seed fails".to_owned(),
        count => format!("{count} seeds fail"),
    }
}

impl Failed {
    fn new(protocol: &str, is_real: bool, failure: &Failure) -> Self {
        let lab = if is_real { " --lab" } else { "" };
        let Failure { seed, violations, setup, scenario, left } = failure;
        Self {
            seed: *seed,
            violations: violations.iter().map(ToString::to_string).collect(),
            setup: setup.clone(),
            scenario: scenario.clone(),
            violations_left: left.iter().map(ToString::to_string).collect(),
            replay: format!(
                "carom-lab sim fuzz --protocol {protocol} --from {seed} --seeds 1{lab}"
            ),
        }
    }
}

/// Number of failing seeds after which the search stops.
const MAX_FAILURES: u64 = 3;
const MAX_SHOWN: usize = 5;
/// Number of hosts in a lab, more than any scenario has.
const HOSTS: u32 = 64;
const TICK: Duration = Duration::from_millis(50);
const EXAMPLE: &str = "Examples:
  carom-lab sim fuzz --seeds 10000                the long run
  carom-lab sim fuzz --protocol rmp               token rings
  carom-lab sim fuzz --protocol rdcm              bulk groups
  carom-lab sim fuzz --from 4711 --seeds 1        replay one seed
  carom-lab sim fuzz --lab --seeds 4 --jobs 4     on real sockets
  carom-lab sim fuzz --from 4711 --seeds 1 --trace 4711.pcapng";

#[cfg(test)]
mod tests {
    use super::*;
    use carom_conformance::lateral::{EngineSuite, LATERAL, Setup};
    use carom_proto::Rng;

    fn broken(rng: &mut Rng) -> Setup {
        let setup = (LATERAL.set_up)(rng);
        Setup { broken_promise: Box::new(|_| panic!("an invariant is broken")), ..setup }
    }

    #[test]
    fn the_verdict_counts_seeds_that_fail() {
        assert_eq!([0, 1, 2].map(verdict), ["no failures", "1 seed fails", "2 seeds fail"]);
    }

    #[test]
    fn the_capture_of_a_seed_that_panics_holds_what_led_to_it() {
        let path = std::env::temp_dir().join(format!("carom-broken-{}", std::process::id()));
        let suite = EngineSuite { name: "broken", set_up: broken };
        assert!(trace(&suite, 7, &path).is_ok(), "it can be written");
        let bytes = std::fs::read(&path).expect("it was written");
        std::fs::remove_file(&path).expect("the test created it");
        assert!(bytes.len() > 10_000, "{} bytes", bytes.len());
    }
}
