//! `carom sim`: the simulator from the command line.

mod baselines;
mod fuzz;
mod subjects;

use clap::Subcommand;

use crate::error::{CliError, Outcome};

/// Run the engines in a simulated world
#[derive(clap::Args)]
#[command(after_help = EXAMPLE, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Fuzz(fuzz::Args),
}

/// Runs the verb.
///
/// # Errors
/// If its arguments make no sense, or a file cannot be written.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        What::Fuzz(args) => fuzz::run(args),
    }
}

const EXAMPLE: &str = "Example:
  carom sim fuzz --seeds 1000                 look for a seed under which an engine fails";
