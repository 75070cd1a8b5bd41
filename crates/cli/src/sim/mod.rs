//! `carom sim`: the simulator on the command line.

mod baselines;
mod fuzz;
mod subjects;

use clap::Subcommand;

use crate::error::{CliError, Outcome};

/// Run the engines in a simulated network
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    Fuzz(fuzz::Args),
}

/// Runs `carom sim`.
///
/// # Errors
/// Fails if the arguments are invalid, or a file cannot be written.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        Some(What::Fuzz(args)) => fuzz::run(args),
        None => Err(CliError::new(
            "`carom sim` needs a subcommand",
            "use `carom sim fuzz`, or see `carom sim --help`",
        )),
    }
}

const EXAMPLE: &str = "Example:
  carom sim fuzz --seeds 1000                 search for a seed under which an engine fails";
