mod args;
mod control;
mod result;
mod run;
mod serve;
mod session;

use carom_terminal::{CliError, Outcome};
use clap::Subcommand;

/// Measure throughput and latency from this host to all hosts that run `carom bench serve`
#[derive(clap::Args)]
#[command(after_help = EXAMPLE, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    run: run::Sending,
}

#[derive(Subcommand)]
enum What {
    /// Receive messages and report how they arrived, until Ctrl-C
    #[command(after_help = SERVE_EXAMPLE)]
    Serve(serve::Args),
}

impl Args {
    pub(crate) fn group(&self) -> &str {
        match &self.what {
            None => &self.run.common.group,
            Some(What::Serve(serve)) => &serve.common.group,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    match &args.what {
        None => run::run(&args.run),
        Some(What::Serve(args)) => serve::run(args),
    }
}

const EXAMPLE: &str = "Examples:
  carom bench serve                            on each receiver
  carom bench                                  on the sender: latency at 1000/s, then throughput
  carom bench --rate 20k/s --size 1KiB --messages 100000 --histogram

Exit codes: 0 every message was delivered once, 1 messages are missing or a receiver did not
report, 2 usage or environment error, 130 interrupted before the end";
const SERVE_EXAMPLE: &str = "Examples:
  carom bench serve
  carom bench serve lab --profile bulk";
