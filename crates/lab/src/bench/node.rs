use carom_bench::node::{Assignment, System};
use carom_terminal::{CliError, Outcome};

/// Run one node of Carom or of plain UDP multicast for a bench
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// System of the node
    #[arg(long)]
    system: System,
    #[command(flatten)]
    work: Assignment,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let ended = carom_bench::node::run(args.system, &args.work);
    ended.map(|()| Outcome::Fine).map_err(|error| {
        CliError::new(error.to_string(), "start nodes by `carom-lab bench run`, not by hand")
    })
}

const EXAMPLE: &str = "Example:
  carom-lab bench run pace-loss-1";
