use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

use super::force;

/// Repair the ring of an ordered group
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    ForceQuorum(force::Args),
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.action {
        Action::ForceQuorum(args) => args.run(),
    }
}

const EXAMPLE: &str = "Example:
  carom ring force-quorum accounts    show the lost voters, and the command that forces the quorum";
