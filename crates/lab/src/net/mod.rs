//! Networks of namespaces for programs.

mod clean;
mod exec;
mod lab_args;
mod list;
mod loss_spec;
mod recording;
mod refusal;
mod run;
mod state;
mod up;

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
    Up(up::Args),
    List(list::Args),
    Exec(exec::Args),
    Clean(clean::Args),
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        Some(What::Run(args)) => run::run(args),
        Some(What::Up(args)) => up::run(args),
        Some(What::List(args)) => list::run(args),
        Some(What::Exec(args)) => exec::run(args),
        Some(What::Clean(args)) => clean::run(args),
        None => Err(CliError::new(
            "`carom-lab net` needs a subcommand",
            "use one of run, up, list, exec, clean, or see `carom-lab net --help`",
        )),
    }
}

const EXAMPLE: &str = "Examples:
  carom-lab net run --hosts 4 -- ./my-test.sh     run a script in a lab, which is then removed
  carom-lab net up --hosts 4                      keep a lab until Ctrl-C
  carom-lab net exec h1 -- ip address             run a program in it from another terminal
  carom-lab net clean                             remove the labs of dead processes";
