use carom_netns::remove_stale;
use carom_terminal::{CliError, Outcome, output};

use super::refusal::refused;

/// Remove the namespaces of labs whose process has ended
///
/// Only a test that was killed while it had a lab outside of `carom-lab net run` leaves namespaces
/// behind. Their names contain the process id and the start time of their owner. Those of running
/// processes and of other programs stay, and no process is ended.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let removed = remove_stale().map_err(|error| refused(&error))?;
    match args.json {
        true => output::json(&serde_json::json!({ "removed": removed }))?,
        false if removed.is_empty() => output::lines("nothing to remove")?,
        false => output::lines(&format!("removed {}", removed.join(", ")))?,
    }
    Ok(Outcome::Fine)
}

const EXAMPLE: &str = "Example:
  carom-lab net clean --json";
