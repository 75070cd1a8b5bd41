use std::fs;
use std::io::IsTerminal as _;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_paper::{Options, PlanError, Progress, Relation, Report, Suite, SuiteError, Watch, html};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output};
use comfy_table::{Table, presets};
use serde_json::json;

use crate::medium::{LabMedia, MAX_HOSTS};

/// Reproduce the evaluations of the Slingshot, Ricochet, RMP, and RDCM papers, and report which
/// relations hold
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Names of experiments, `all`, or `ci` for those that CI runs
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Show the names of the experiments
    #[arg(long)]
    list: bool,
    /// Directory for the CSV files, figures, and report (created if missing) [default: carom-paper,
    /// or carom-paper-lab with --lab]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run shorter versions: same trends, lower confidence
    #[arg(long)]
    quick: bool,
    /// Seed of all random choices in the first run of each point; the same seed gives the same
    /// points
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    seed: u64,
    /// Number of runs of each point, with consecutive seeds [default: as in the plan, usually 10,
    /// or 3 with --quick]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    runs: Option<NonZeroU32>,
    /// Number of runs at the same time [default: one per CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    jobs: Option<NonZeroUsize>,
    /// Run on real sockets, in network namespaces of this machine: in real time, one run at a time,
    /// and only experiments whose network has no special links
    #[arg(long)]
    lab: bool,
    /// Replace the built-in plan of the experiment that FILE names; may be repeated
    #[arg(long, value_name = "FILE")]
    plan: Vec<PathBuf>,
    /// Print the built-in plans without running them
    #[arg(long)]
    show_plan: bool,
    /// Print one JSON object; the files are written as well
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    if args.list {
        return list(&Suite::all(), args.json);
    }
    let mut suite = choose(&args.names, args.lab)?;
    if args.show_plan {
        return show_plans(&suite);
    }
    for file in &args.plan {
        use_plan(&mut suite, file)?;
    }
    let by_default = if args.lab { "carom-paper-lab" } else { "carom-paper" };
    let out = args.out.as_deref().unwrap_or(Path::new(by_default));
    make_folder(out)?;
    let lab = match args.lab.then(|| enter_lab(&mut suite)).transpose()? {
        Some(Err(code)) => return Ok(Outcome::Code(code)),
        Some(Ok(lab)) => Some(lab),
        None => None,
    };
    let interrupt = match lab {
        Some(_) => interrupt::listen_with(PATIENCE_ON_SOCKETS)?,
        None => interrupt::listen()?,
    };
    let jobs = args.jobs.unwrap_or_else(|| Options::default().jobs);
    let options = Options { quick: args.quick, seed: args.seed, runs: args.runs, jobs };
    let watcher = Watcher::new(interrupt, lab.clone());
    let reports = suite.run(&options, &watcher);
    watcher.end();
    let closing = lab.map(|lab| lab.close()).transpose()?;
    write(out, &reports)?;
    let interrupted = interrupt.is_asked();
    if args.json {
        let experiments: Vec<_> = reports.iter().map(Report::json).collect();
        let holds = reports.iter().all(Report::holds);
        output::json(&json!({
            "experiments": experiments, "holds": holds, "seed": args.seed, "quick": args.quick,
            "interrupted": interrupted, "lab": closing,
        }))?;
    } else {
        output::lines(&for_people(&reports, suite.plans().count(), out))?;
        if let Some(closing) = closing {
            output::lines(&closing.to_string())?;
        }
    }
    Ok(Outcome::of(!reports.iter().all(Report::holds)))
}

fn choose(names: &[String], on_sockets: bool) -> Result<Suite, CliError> {
    if names.is_empty() {
        let fix = "use a name from `carom-lab paper --list`, or all";
        return Err(CliError::new("no experiment given", fix));
    }
    if names.iter().any(|name| name == "all") {
        return Ok(if on_sockets { Suite::of_sockets(MAX_HOSTS) } else { Suite::all() });
    }
    if names == ["ci"] {
        return Ok(Suite::ci());
    }
    Suite::named(names).map_err(|error| {
        let SuiteError::Unknown(name) = &error else {
            return CliError::new(error.to_string(), ONLY_SIMULATED);
        };
        let all = Suite::all();
        let known = all.plans().map(|plan| plan.experiment.as_str());
        let family = name.split('-').next().unwrap_or_default();
        let near: Vec<&str> = known.filter(|known| known.starts_with(family)).collect();
        let fix = if near.is_empty() || family.is_empty() {
            "see `carom-lab paper --list` for the names, or use all".to_owned()
        } else {
            format!("use one of {}, or all", near.join(", "))
        };
        CliError::new(error.to_string(), fix)
    })
}

/// Runs this program again in a lab, and lets the suite use it. Outside, returns the exit code.
fn enter_lab(suite: &mut Suite) -> Result<Result<Arc<LabMedia>, u8>, CliError> {
    let hosts = suite.hosts_of_media();
    let hosts = hosts.map_err(|error| CliError::new(error.to_string(), ONLY_SIMULATED))?;
    if hosts > MAX_HOSTS {
        let cause = format!("{hosts} hosts do not fit into a lab: expected at most {MAX_HOSTS}");
        return Err(CliError::new(cause, ONLY_SIMULATED));
    }
    let media = LabMedia::enter(hosts)?.map(Arc::new);
    if let Ok(media) = &media {
        suite.use_media(Arc::<LabMedia>::clone(media));
    }
    Ok(media)
}

fn list(suite: &Suite, as_json: bool) -> Result<Outcome, CliError> {
    if as_json {
        let plans = suite.plans().map(
            |plan| json!({ "name": plan.experiment, "title": plan.title, "source": plan.source }),
        );
        output::json(&json!({ "experiments": plans.collect::<Vec<_>>() }))?;
        return Ok(Outcome::Fine);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for plan in suite.plans() {
        table.add_row([&plan.experiment, &plan.source, &plan.title]);
    }
    output::lines(&table.trim_fmt()).map(|()| Outcome::Fine)
}

fn show_plans(suite: &Suite) -> Result<Outcome, CliError> {
    let plans = suite.plans().filter_map(|plan| Suite::built_in_plan(&plan.experiment));
    let text = plans.collect::<Vec<_>>().join("\n");
    output::lines(text.trim_end()).map(|()| Outcome::Fine)
}

fn use_plan(suite: &mut Suite, file: &Path) -> Result<(), CliError> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| {
        let cause = format!("cannot read {name}: {}", carom_terminal::plain(&error));
        CliError::new(
            cause,
            "use a plan file, such as the output of `carom-lab paper NAME --show-plan`",
        )
    })?;
    suite.use_plan(&name, &text).map_err(|error: PlanError| {
        let cause = error.to_string();
        CliError::new(cause, error.fix)
    })
}

fn make_folder(out: &Path) -> Result<(), CliError> {
    fs::create_dir_all(out).map_err(|error| not_written(out, &error))
}

fn write(out: &Path, reports: &[Report]) -> Result<(), CliError> {
    let put = |name: String, text: &str| {
        let file = out.join(name);
        fs::write(&file, text).map_err(|error| not_written(&file, &error))
    };
    for report in reports {
        put(format!("{}.csv", report.name()), &report.csv())?;
        put(format!("{}.svg", report.name()), &report.svg())?;
        if let Some(measured) = report.measured_csv() {
            put(format!("{}-measured.csv", report.name()), &measured)?;
        }
    }
    if reports.is_empty() {
        return Ok(());
    }
    put(REPORT.to_owned(), &html::page(reports))
}

fn not_written(path: &Path, error: &std::io::Error) -> CliError {
    let cause = format!("cannot write {}: {}", path.display(), carom_terminal::plain(error));
    CliError::new(cause, "use a writable directory with --out")
}

fn for_people(reports: &[Report], asked_for: usize, out: &Path) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for report in reports {
        let name = report.name();
        if report.relations.is_empty() {
            table.add_row([name, "shown", report.heading.title.as_str(), "", ""]);
        }
        for relation in &report.relations {
            let verdict = if relation.holds { "holds" } else { "DOES NOT HOLD" };
            table.add_row([
                name,
                verdict,
                relation.claim.as_str(),
                &figures(relation),
                relation.note.as_str(),
            ]);
        }
    }
    let mut text = table.trim_fmt();
    if reports.len() < asked_for {
        let missing = asked_for - reports.len();
        let all = counted(asked_for, "experiment");
        text += &format!("\nended early: {missing} of {all} not reported");
    }
    if !reports.is_empty() {
        text += &format!("\nreport: {}", out.join(REPORT).display());
    }
    text.trim_start().to_owned()
}

/// Formats a measurement, such as `98.3 % (98.1 to 98.6; margin 1.3)`.
fn figures(relation: &Relation) -> String {
    let Relation { measured, min, max, margin, unit, .. } = relation;
    let number = |value: f64| carom_figures::significant((value * 1e4).round() / 1e4);
    let range = match min < max {
        true => format!("{} to {}; ", number(*min), number(*max)),
        false => String::new(),
    };
    format!("{} {unit} ({range}margin {})", number(*measured), number(*margin))
}

/// A reporter of progress on standard error: one line that is redrawn on a terminal, otherwise one
/// line per run.
struct Watcher {
    interrupt: &'static Interrupt,
    lab: Option<Arc<LabMedia>>,
    started: Instant,
    is_terminal: bool,
}

impl Watcher {
    fn new(interrupt: &'static Interrupt, lab: Option<Arc<LabMedia>>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { interrupt, lab, started: Instant::now(), is_terminal }
    }

    fn end(&self) {
        if self.is_terminal {
            output::draw(CLEAR_LINE);
        }
    }
}

impl Watch for Watcher {
    fn ends(&self) -> bool {
        self.interrupt.is_asked() || self.lab.as_ref().is_some_and(|lab| lab.has_failed())
    }

    fn on_progress(&self, progress: &Progress) {
        let Progress { done, total, last } = progress;
        let seconds = self.started.elapsed().as_secs();
        let (start, end) = if self.is_terminal { (CLEAR_LINE, "") } else { ("", "\n") };
        output::draw(format_args!("{start}{done} of {total} runs, {seconds} s: {last}{end}"));
    }
}

/// A world waits for its switches at the start, and a token ring for its members.
const PATIENCE_ON_SOCKETS: Duration = Duration::from_secs(15);
const ONLY_SIMULATED: &str = "omit --lab, or use `all --lab` for those that can";
const CLEAR_LINE: &str = "\r\x1b[2K";
const REPORT: &str = "report.html";

const EXAMPLE: &str = "Examples:
  carom-lab paper --list
  carom-lab paper ricochet-9 --quick --out figures
  carom-lab paper ci --quick
  carom-lab paper ricochet-9 --lab --runs 3
  carom-lab paper all --json | jq '.experiments[] | [.name, .holds]'
  carom-lab paper slingshot-2a --show-plan > mine.toml
  carom-lab paper slingshot-2a --plan mine.toml

Exit codes: 0 all relations hold, 1 a relation does not hold, 2 usage or environment error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_end_tells_how_many_experiments_are_missing() {
        let told = |asked_for| for_people(&[], asked_for, Path::new("."));
        assert_eq!(told(1), "ended early: 1 of 1 experiment not reported");
        assert_eq!(told(2), "ended early: 2 of 2 experiments not reported");
    }
}
