pub(crate) mod address;
mod detector;
mod limits;
mod link;
mod run;
mod show;

use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

/// Run the registry, or query a running one
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
    /// Show a running service: partitions, nodes, failure detectors, counters
    #[command(after_help = STATUS_EXAMPLE)]
    Status(show::Service),
    /// Run the failure detector of a rack
    #[command(after_help = DETECTOR_EXAMPLE)]
    Detector(detector::Args),
    /// Show the members of a group
    #[command(after_help = MEMBERS_EXAMPLE)]
    Members(show::Members),
    /// Report a dead or repaired link of the network to the multicast manager
    #[command(after_help = LINK_EXAMPLE)]
    Link(link::Report),
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        None => run::run(&args.serve),
        Some(What::Status(status)) => status.run(),
        Some(What::Detector(args)) => detector::run(args),
        Some(What::Members(members)) => members.run(),
        Some(What::Link(report)) => report.run(),
    }
}

#[cfg(feature = "etcd")]
const EXAMPLE: &str = "Examples:
  carom registry --store /var/lib/carom
  carom registry --etcd http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
  carom sub prices --registry 10.0.0.5          on another machine
  carom registry status
  carom registry members prices --json
  carom registry link down 'leaf a' 'spine 1'
  carom registry detector --rack r7 --registry 10.0.0.5
  curl http://127.0.0.1:7403/metrics";
#[cfg(not(feature = "etcd"))]
const EXAMPLE: &str = "Examples:
  carom registry --store /var/lib/carom
  carom sub prices --registry 10.0.0.5          on another machine
  carom registry status
  carom registry members prices --json
  carom registry link down 'leaf a' 'spine 1'
  carom registry detector --rack r7 --registry 10.0.0.5
  curl http://127.0.0.1:7403/metrics";
const STATUS_EXAMPLE: &str = "Example:
  carom registry status --http 127.0.0.1:7403 --json";
const DETECTOR_EXAMPLE: &str = "Examples:
  carom registry detector --rack r7 --registry 10.0.0.5
  carom registry detector --rack r7 --registry 10.0.0.5 --detection 300ms --json";
const MEMBERS_EXAMPLE: &str = "Example:
  carom registry members prices";
const LINK_EXAMPLE: &str = "Examples:
  carom registry link down 'leaf a' 'spine 1'
  carom registry link up 'leaf a' 'spine 1' --http 10.0.0.5:7403";
