//! Networks of namespaces for programs.

mod change;
mod clean;
mod control;
mod exec;
mod figure_15;
mod lab_args;
mod list;
mod loss_spec;
mod recording;
mod refusal;
mod request;
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
    Cut(change::Cut),
    Heal(change::Heal),
    Loss(change::Loss),
    Rate(change::Rate),
    Outage(change::Outage),
    Clean(clean::Args),
    #[command(name = "figure-15")]
    Figure15(figure_15::Args),
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        Some(What::Run(args)) => run::run(args),
        Some(What::Up(args)) => up::run(args),
        Some(What::List(args)) => list::run(args),
        Some(What::Exec(args)) => exec::run(args),
        Some(What::Cut(cut)) => cut.run(),
        Some(What::Heal(heal)) => heal.run(),
        Some(What::Loss(loss)) => loss.run(),
        Some(What::Rate(rate)) => rate.run(),
        Some(What::Outage(outage)) => outage.run(),
        Some(What::Clean(args)) => clean::run(args),
        Some(What::Figure15(args)) => figure_15::run(args),
        None => Err(CliError::new(
            "`carom-lab net` needs a subcommand",
            "use one of run, up, list, exec, cut, heal, loss, rate, outage, clean, \
                figure-15, or see `carom-lab net --help`",
        )),
    }
}

const EXAMPLE: &str = "Examples:
  carom-lab net run --hosts 4 -- ./my-test.sh     run a script in a lab, which is then removed
  carom-lab net up --hosts 4                      keep a lab until Ctrl-C
  carom-lab net exec h1 -- ip address             run a program in it from another terminal
  carom-lab net loss h2 1%                        change it from another terminal
  carom-lab net clean                             remove the labs of dead processes
  carom-lab net figure-15 --carom target/release/carom    faults in a BCube, as in the RDCM paper";
