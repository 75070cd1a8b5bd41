//! Networks of namespaces for programs.

mod clean;
mod lab_args;
mod loss_spec;
mod recording;
mod refusal;
mod run;

use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

pub(crate) use refusal::refused;

/// Run programs on hosts in network namespaces, with losses
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    Run(run::Args),
    Clean(clean::Args),
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        Some(What::Run(args)) => run::run(args),
        Some(What::Clean(args)) => clean::run(args),
        None => Err(CliError::new(
            "`carom-lab net` needs a subcommand",
            "use one of run, clean, or see `carom-lab net --help`",
        )),
    }
}

const EXAMPLE: &str = "Examples:
  carom-lab net run --hosts 4 -- ./my-test.sh     run a script in a lab, which is then removed
  carom-lab net clean                             remove the labs of dead processes";
