//! Measurements of Carom and other systems on hosts in network namespaces.

mod cases;
mod compare;
mod costs;
mod estimate;
mod failure;
mod faults;
mod files;
mod leftovers;
mod limits;
mod list;
mod losses;
mod machine;
mod manifest;
mod measure;
mod node;
mod page;
mod processes;
mod relations;
mod run;
mod scratch;
mod syscalls;
mod system;
mod trial;

use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

/// Measure Carom beside other systems, on hosts in network namespaces
///
/// All systems have the same messages, losses and accounting. The hosts, the processes and their
/// files disappear with the command, even after SIGKILL. Root is not needed if the kernel permits
/// user namespaces.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    List(list::Args),
    Run(run::Args),
    All(run::Common),
    Compare(compare::Args),
    #[command(hide = true)]
    Node(node::Args),
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        Some(What::List(args)) => list::run(args),
        Some(What::Run(args)) => run::run(&args.names, &args.common),
        Some(What::All(common)) => run::run(&["all".to_owned()], common),
        Some(What::Compare(args)) => compare::run(args),
        Some(What::Node(args)) => node::run(args),
        None => Err(CliError::new(
            "`carom-lab bench` needs a subcommand",
            "use one of list, run, all, compare, or see `carom-lab bench --help`",
        )),
    }
}

const EXAMPLE: &str = "Examples:
  carom-lab bench list                                    the rows and the systems
  carom-lab bench run pace-loss-1 --systems carom,raw     one row
  carom-lab bench all --peers /tmp/peers --out figures    everything, in about 54 minutes";
