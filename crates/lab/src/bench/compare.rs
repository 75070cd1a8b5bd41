use std::fs;
use std::path::{Path, PathBuf};

use carom_bench::report::{Comparison, Report, Run};
use carom_terminal::{CliError, Outcome, output, plain};
use serde::Deserialize;
use serde_json::json;

/// Compare the ratios of two benches
///
/// Prints each ratio of Carom to the best peer or to raw sockets that differs by more than 20 %
/// between two results of the same rows, or that one of them lacks. The ratio to a best peer is
/// compared with the ratio to the same peer in the other result. Ratios of a single turn of several
/// are left out.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// The `benchmarks.json` of a bench
    #[arg(value_name = "A.json")]
    first: PathBuf,
    /// The `benchmarks.json` of another bench
    #[arg(value_name = "B.json")]
    second: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let comparison = Comparison::of(&read(&args.first)?, &read(&args.second)?);
    let Comparison { ratios, unsteady, left_out, differences } = &comparison;
    if *ratios + *left_out == 0 {
        let (first, second) = (args.first.display(), args.second.display());
        let cause = format!("{first} and {second} have no row with a ratio in common");
        return Err(CliError::new(cause, "use results of the same rows, with Carom and a peer"));
    }
    match args.json {
        true => {
            output::json(&json!({
                "ratios": ratios,
                "unsteady": unsteady,
                "left_out": left_out,
                "differences": differences,
            }))?;
        }
        false => {
            let percent = Comparison::TOLERANCE * 100.0;
            let summary = format!(
                "{ratios} ratios, of which {unsteady} are ranges: {} differences of more than \
                 {percent} %; {left_out} ratios of one turn left out",
                differences.len()
            );
            let lines = differences.iter().map(String::as_str).chain([&*summary]);
            output::lines(&lines.collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(Outcome::of(!differences.is_empty()))
}

fn read(path: &Path) -> Result<Report, CliError> {
    /// The part of a `benchmarks.json` that has ratios.
    #[derive(Deserialize)]
    struct Results {
        runs: Vec<Run>,
        interrupted: bool,
    }
    let name = path.display();
    let fix = "use a benchmarks.json that this version of `carom-lab bench` has written";
    let text = fs::read_to_string(path)
        .map_err(|error| CliError::new(format!("cannot read {name}: {}", plain(&error)), fix))?;
    let results: Results = serde_json::from_str(&text)
        .map_err(|error| CliError::new(format!("{name} is no result of a bench: {error}"), fix))?;
    if results.interrupted {
        let cause = format!("{name} lacks rows: its bench was interrupted or still runs");
        return Err(CliError::new(cause, "use the results of a bench that measured all its rows"));
    }
    Ok(Report { runs: results.runs, ..Report::default() })
}

const EXAMPLE: &str = "Example:
  carom-lab bench compare first/benchmarks.json second/benchmarks.json

Exit codes: 0 all ratios agree, 1 a ratio differs, 2 usage error";
