use carom_netns::remove_stale;
use carom_terminal::{CliError, Outcome, output};

use super::refusal::refused;
use super::state;

/// Remove what labs have left whose process was killed
///
/// After SIGKILL, `carom-lab net up` leaves a folder in the temporary directory. Only a test that
/// was killed while it had a lab outside of `carom-lab net` leaves namespaces behind. The names of
/// both contain the process id and the start time of their owner. Those of running processes and of
/// other programs stay, and no process is ended.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let mut removed = remove_stale().map_err(|error| refused(&error))?;
    removed.extend(state::remove_stale());
    match args.json {
        true => output::json(&serde_json::json!({ "removed": removed }))?,
        false if removed.is_empty() => output::lines("nothing to remove")?,
        false => output::lines(&format!("removed {}", removed.join(", ")))?,
    }
    Ok(Outcome::Fine)
}

const EXAMPLE: &str = "Example:
  carom-lab net clean --json";
