mod baselines;
mod fuzz;
mod suites;

use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

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

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        Some(What::Fuzz(args)) => fuzz::run(args),
        None => Err(CliError::new(
            "`carom-lab sim` needs a subcommand",
            "use `carom-lab sim fuzz`, or see `carom-lab sim --help`",
        )),
    }
}

const EXAMPLE: &str = "Example:
  carom-lab sim fuzz --seeds 1000                 search for a seed under which an engine fails";
