//! `carom control`: the membership service, and what it knows.

mod run;
mod show;

use std::net::{Ipv4Addr, SocketAddr};

use carom_control::{DEFAULT_HTTP_PORT, Options};
use clap::Subcommand;

use crate::error::{CliError, Outcome};

/// Run the membership service, or show what it knows
#[derive(clap::Args)]
#[command(after_help = EXAMPLE, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    serve: run::Serve,
}

#[derive(Subcommand)]
enum What {
    /// Show a running service: partitions, nodes, counters
    #[command(after_help = STATUS_EXAMPLE)]
    Status(show::Status),
    /// Show who is in a group
    #[command(after_help = MEMBERS_EXAMPLE)]
    Members(show::Members),
}

/// Runs the verb.
///
/// # Errors
/// If the service cannot start or is not there.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        None => run::run(&args.serve),
        Some(What::Status(status)) => status.run(),
        Some(What::Members(members)) => members.run(),
    }
}

/// Where status and metrics are served unless told otherwise.
fn default_http() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_HTTP_PORT)
}

/// The listening address that is the default, as the help has it.
fn default_listen() -> SocketAddr {
    Options::new("").listen
}

const EXAMPLE: &str = "Examples:
  carom control --store /var/lib/carom
  carom sub prices --control 10.0.0.5          on another machine
  carom control status
  carom control members prices --json
  curl http://127.0.0.1:7403/metrics";
const STATUS_EXAMPLE: &str = "Example:
  carom control status --http 127.0.0.1:7403 --json";
const MEMBERS_EXAMPLE: &str = "Example:
  carom control members prices";
