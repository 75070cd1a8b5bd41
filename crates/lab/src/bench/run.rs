use std::fs;
use std::path::{Path, PathBuf};

use carom_bench::plan::Row;
use carom_netns::{Isolation, isolate};
use carom_terminal::{CliError, Outcome, interrupt, output, plain};

use super::cases;
use super::machine::Machine;
use super::measure::Bench;
use super::page::Page;
use super::scratch;
use crate::net::refused;

/// Measure rows
///
/// Each row has hosts of its own. Its systems are measured in turns, as often as the row has
/// repetitions. A system that fails is reported, and the others continue.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Names of rows or of built-in plans, plan files, or `all`
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Measure all rows
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Common {
    /// Measure only these systems, such as `carom` or `aeron:tuned`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    systems: Vec<String>,
    /// Number of runs of each system [default: that of the row]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Measure short versions of the rows, once: a few seconds for each system
    #[arg(long)]
    quick: bool,
    /// Count system calls by strace, in one more run of each system
    #[arg(long)]
    count_syscalls: bool,
    /// Folder of the peers that were built
    #[arg(long, value_name = "DIR", default_value = "carom-peers")]
    peers: PathBuf,
    /// Directory for the report, the charts and the results (created if missing)
    #[arg(long, value_name = "DIR", default_value = "carom-bench")]
    out: PathBuf,
    /// Print one JSON object; the files are written as well
    #[arg(long)]
    json: bool,
}

pub(super) fn run(names: &[String], common: &Common) -> Result<Outcome, CliError> {
    // A mistake is reported before anything is created.
    let rows = common.rows(names)?;
    let (out, peers) = (absolute(&common.out)?, absolute(&common.peers)?);
    fs::create_dir_all(&out).map_err(|error| {
        let cause = format!("cannot create {}: {}", out.display(), plain(&error));
        CliError::new(cause, "use a writable directory with --out")
    })?;
    match isolate().map_err(|error| refused(&error))? {
        Isolation::Ended(code) => return Ok(Outcome::Code(code)),
        Isolation::Inside(_) => {}
    }
    let program = std::env::current_exe().unwrap_or_default();
    let scratch = scratch::mounted(&[&out, &peers, &program])?;
    let interrupt = interrupt::listen_with(PATIENCE)?;
    let mut page = Page::new(Machine::this());
    let mut bench = Bench::new(&peers, &scratch, interrupt);
    bench.counts_syscalls = common.count_syscalls;
    let finding = bench.measure(&rows, &mut page, &out)?;
    let is_interrupted = interrupt.is_asked();
    match common.json {
        true => output::json(&page.json(is_interrupted))?,
        false => {
            let report = out.join("benchmarks.md");
            output::lines(&format!("{}\nreport: {}", page.sections(), report.display()))?;
        }
    }
    Ok(if is_interrupted { Outcome::INTERRUPTED } else { Outcome::of(finding) })
}

impl Common {
    /// Returns the rows to measure, with the systems that were chosen.
    fn rows(&self, names: &[String]) -> Result<Vec<Row>, CliError> {
        let mut rows = cases::named(names)?;
        if self.quick {
            rows = rows.into_iter().map(cases::quick).collect();
        }
        for row in &mut rows {
            row.repetitions = self.repetitions.unwrap_or(row.repetitions);
            row.systems.retain(|system| self.chooses(system));
        }
        rows.retain(|row| !row.systems.is_empty());
        if rows.is_empty() {
            let cause = format!("no row has a system of '{}'", self.systems.join(","));
            return Err(CliError::new(cause, "see `carom-lab bench list` for the systems"));
        }
        Ok(rows)
    }

    fn chooses(&self, system: &str) -> bool {
        let base = system.split(':').next().unwrap_or(system);
        self.systems.is_empty() || self.systems.iter().any(|it| it == system || it == base)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| CliError::file(&path.display().to_string(), &error))
}

/// Time from Ctrl-C to a forced end. Nodes are killed within it, and their hosts disappear.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

const EXAMPLE: &str = "Examples:
  carom-lab bench run pace-loss-1 --systems carom,raw,cyclone --peers /tmp/peers
  carom-lab bench run ordered --repetitions 5 --out figures
  carom-lab bench run mine.toml --quick --json | jq '.runs[].system'
  carom-lab bench run pace --count-syscalls --systems carom,raw
  carom-lab bench all --peers /tmp/peers --out figures

Exit codes: 0 success, 1 a system failed or Carom did not deliver everything once and in order,
2 usage or environment error, 130 interrupted";
