use carom_terminal::{CliError, Outcome, output};
use comfy_table::{Table, presets};

use super::state::State;

/// List the running labs and their hosts
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let labs = State::all();
    match args.json {
        true => output::json(&serde_json::json!({ "labs": labs }))?,
        false if labs.is_empty() => output::lines("no lab is running")?,
        false => output::lines(&table(&labs))?,
    }
    Ok(Outcome::Fine)
}

/// Returns a line per host: the lab, the name, the rack and the address.
pub(super) fn table(labs: &[State]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for lab in labs {
        for host in &lab.hosts {
            let rack = format!("rack{}", host.rack);
            table.add_row([lab.name.as_str(), &host.name, &rack, &host.address]);
        }
    }
    table.trim_fmt()
}

const EXAMPLE: &str = "Example:
  carom-lab net list --json | jq -r '.labs[].hosts[].address'";
