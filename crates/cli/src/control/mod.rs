//! `carom control`: the membership service, and queries to a running one.

pub(crate) mod address;
mod detector;
mod run;
mod show;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use carom_control::{DEFAULT_HTTP_PORT, Options};
use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

/// Run the membership service, or query a running one
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
    Status(show::Status),
    /// Run the failure detector of a rack
    #[command(after_help = DETECTOR_EXAMPLE)]
    Detector(detector::Args),
    /// Show the members of a group
    #[command(after_help = MEMBERS_EXAMPLE)]
    Members(show::Members),
}

/// Runs `carom control`.
///
/// # Errors
/// Fails if the service cannot start, or does not answer.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        None => run::run(&args.serve),
        Some(What::Status(status)) => status.run(),
        Some(What::Detector(args)) => detector::run(args),
        Some(What::Members(members)) => members.run(),
    }
}

/// Returns the default address of status and metrics.
fn default_http() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_HTTP_PORT)
}

/// Returns the default listening address, for the help text.
fn default_listen() -> SocketAddr {
    Options::new("").listen
}

/// Rejects detection times below 100 ms.
///
/// # Errors
/// Fails if `time` is too short. `flag` is the flag that set it.
fn check_detection(flag: &str, time: Duration) -> Result<(), CliError> {
    if time >= LEAST_DETECTION {
        return Ok(());
    }
    let cause = format!("{flag}: {time:?} is too short: the minimum is {LEAST_DETECTION:?}");
    Err(CliError::new(cause, format!("give {LEAST_DETECTION:?} or more")))
}

/// Rejects names that do not fit in a frame.
///
/// # Errors
/// Fails if `name` has more than 255 bytes. `flag` is the flag that set it.
fn check_name(flag: &str, name: &str) -> Result<(), CliError> {
    if name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let fix = format!("give a name of at most {LONGEST_NAME} bytes");
    Err(CliError::new(format!("{flag}: the name has {} bytes, which is too long", name.len()), fix))
}

const LEAST_DETECTION: Duration = Duration::from_millis(100);
const LONGEST_NAME: usize = 255;
#[cfg(feature = "etcd")]
const EXAMPLE: &str = "Examples:
  carom control --store /var/lib/carom
  carom control --etcd http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
  carom sub prices --control 10.0.0.5          on another machine
  carom control status
  carom control members prices --json
  carom control detector --rack r7 --control 10.0.0.5
  curl http://127.0.0.1:7403/metrics";
#[cfg(not(feature = "etcd"))]
const EXAMPLE: &str = "Examples:
  carom control --store /var/lib/carom
  carom sub prices --control 10.0.0.5          on another machine
  carom control status
  carom control members prices --json
  carom control detector --rack r7 --control 10.0.0.5
  curl http://127.0.0.1:7403/metrics";
const STATUS_EXAMPLE: &str = "Example:
  carom control status --http 127.0.0.1:7403 --json";
const DETECTOR_EXAMPLE: &str = "Examples:
  carom control detector --rack r7 --control 10.0.0.5
  carom control detector --rack r7 --control 10.0.0.5 --detection 300ms --json";
const MEMBERS_EXAMPLE: &str = "Example:
  carom control members prices";
