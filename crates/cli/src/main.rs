//! The command line of Carom.
//!
//! Each subcommand has its own file or folder. Its `run` returns an [`Outcome`] or a [`CliError`].
//! A subcommand that runs a command returns the exit code of that command.

mod bench;
mod call;
mod demo;
mod doctor;
mod frames;
mod lock;
mod loss;
mod members;
mod node;
mod publish;
mod quorum;
mod recv;
mod registry;
mod ring;
mod send;
mod serve;
mod subscribe;
mod transfer;
mod tune;
mod waiting;

use std::process::ExitCode;

use carom_terminal::{CliError, Outcome, Shell, output};
use clap::{Parser, Subcommand};

/// Low-latency reliable multicast: receivers repair each other's losses in milliseconds
#[derive(Parser)]
#[command(name = "carom", version, after_help = EXAMPLE)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Demo(demo::Args),
    Pub(publish::Args),
    Sub(subscribe::Args),
    Send(send::Args),
    Recv(recv::Args),
    Lock(lock::Args),
    Serve(serve::Args),
    Call(call::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Members(members::Args),
    Ring(ring::verb::Args),
    Registry(registry::Args),
    Tune(tune::Args),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS_EXAMPLE)]
    Completions {
        /// Shell for which the script is generated
        shell: Shell,
    },
}

impl Verb {
    fn group(&self) -> Option<&str> {
        match self {
            Self::Pub(args) => Some(&args.group),
            Self::Sub(args) => Some(&args.group),
            Self::Send(args) => Some(&args.group),
            Self::Recv(args) => Some(&args.group),
            Self::Lock(args) => Some(&args.group),
            Self::Serve(args) => Some(&args.group),
            Self::Call(args) => Some(&args.group),
            Self::Bench(args) => Some(args.group()),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    carom_terminal::exit_code(carom_terminal::parse::<Cli>().and_then(|cli| match cli {
        Some(cli) => run(&cli.verb),
        None => Ok(Outcome::Fine),
    }))
}

fn run(verb: &Verb) -> Result<Outcome, CliError> {
    if let Some(hint) = verb.group().and_then(node::wildcard_hint) {
        output::say(format_args!("note: {hint}"));
    }
    match verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Pub(args) => publish::run(args),
        Verb::Sub(args) => subscribe::run(args),
        Verb::Send(args) => send::run(args),
        Verb::Recv(args) => recv::run(args),
        Verb::Lock(args) => lock::run(args),
        Verb::Serve(args) => serve::run(args),
        Verb::Call(args) => call::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Members(args) => members::run(args),
        Verb::Ring(args) => ring::verb::run(args),
        Verb::Registry(args) => registry::run(args),
        Verb::Tune(args) => tune::run(args),
        Verb::Completions { shell } => carom_terminal::print_completions::<Cli>(*shell),
    }
}

const EXAMPLE: &str = "Examples:
  carom demo                                  show loss repair on this machine
  carom sub numbers                           in one terminal
  seq 1 1000 | carom pub numbers              in another one
  carom recv --from images /srv/images        on each receiver
  carom send disk.img --to images             on the sender: one file to all receivers
  carom bench serve                           on each receiver of a benchmark
  carom bench                                 on the sender: latency and throughput
  carom doctor                                check the network settings of this machine

Exit codes: 0 success, 1 data loss or a failed check, 2 usage or environment error";

const COMPLETIONS_EXAMPLE: &str = "Example:
  source <(carom completions bash)";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_valid_and_every_help_has_an_example() {
        carom_terminal::check_help::<Cli>();
    }

    #[test]
    fn help_promises_exclusion_only_with_a_quorum() {
        let mut command = Cli::command();
        for (verb, limit) in [
            ("lock", "Without it, this holds only among members that can reach each other"),
            ("serve", "without it, servers that cannot reach each other"),
            ("pub", "The majority is that of the ring's members or, with --quorum-of"),
        ] {
            let verb = command.find_subcommand_mut(verb).expect("it is a verb");
            let help = verb.render_long_help().to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(help.contains(limit), "{help}");
            assert!(!help.contains("over a cluster"), "{help}");
        }
    }
}
