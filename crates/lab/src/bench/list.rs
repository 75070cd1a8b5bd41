use std::path::{Path, PathBuf};
use std::time::Duration;

use carom_bench::plan::Row;
use carom_terminal::{CliError, Outcome, output};
use comfy_table::{Table, presets};
use serde_json::json;

use super::cases;
use super::estimate;
use super::manifest::Manifest;
use super::system::PEERS;

/// Show the rows and the systems, and why a system cannot be measured here
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Folder of the peers that were built
    #[arg(long, value_name = "DIR", default_value = "carom-peers")]
    peers: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let rows = cases::built_in();
    let own = ["carom", "raw"].map(|name| (name, None));
    let peers = PEERS.map(|name| (name, Manifest::read(&args.peers, name).err()));
    let systems: Vec<(&str, Option<String>)> = own.into_iter().chain(peers).collect();
    match args.json {
        true => output::json(&for_programs(&rows, &systems, &args.peers))?,
        false => output::lines(&for_people(&rows, &systems, &args.peers))?,
    }
    Ok(Outcome::Fine)
}

fn for_programs(
    rows: &[Row],
    systems: &[(&str, Option<String>)],
    peers: &Path,
) -> serde_json::Value {
    let rows = rows.iter().map(|row| {
        json!({
            "name": row.name,
            "description": cases::described(row),
            "systems": row.systems,
            "expected_s": estimate::length(row, peers).as_secs(),
        })
    });
    let systems = systems.iter().map(|(name, missing)| json!({ "name": name, "missing": missing }));
    json!({ "rows": rows.collect::<Vec<_>>(), "systems": systems.collect::<Vec<_>>() })
}

fn for_people(rows: &[Row], systems: &[(&str, Option<String>)], peers: &Path) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut all = Duration::ZERO;
    for row in rows {
        let length = estimate::length(row, peers);
        all += length;
        table.add_row([&*row.name, &cases::described(row)]);
        table.add_row(["", &format!("{}; about {} s", row.systems.join(", "), length.as_secs())]);
    }
    let minutes = all.as_secs().div_ceil(60);
    table.add_row(["all", &format!("about {minutes} minutes with the systems available here")]);
    let mut text = table.trim_fmt() + "\n\n";
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, missing) in systems {
        table.add_row([name, missing.as_deref().unwrap_or("available")]);
    }
    text += &table.trim_fmt();
    text
}

const EXAMPLE: &str = "Examples:
  carom-lab bench list
  carom-lab bench list --peers /tmp/peers --json";
