//! The command `carom-lab`: research tools for Carom's protocols.
//!
//! It reproduces the evaluations of the papers, tests the engines in random scenarios, runs
//! programs in networks of namespaces, and measures Carom beside other systems there.

#[cfg(target_os = "linux")]
mod bench;
mod medium;
#[cfg(target_os = "linux")]
mod net;
#[cfg(target_os = "linux")]
mod nodes;
mod paper;
mod sim;

use std::process::ExitCode;

use carom_terminal::{CliError, Outcome, Shell};
use clap::{Parser, Subcommand};

/// Evaluations of the papers behind Carom, random tests, networks of namespaces, and benchmarks
#[derive(Parser)]
#[command(name = "carom-lab", version, after_help = EXAMPLE)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[cfg(target_os = "linux")]
    Bench(bench::Args),
    #[cfg(target_os = "linux")]
    Net(net::Args),
    Paper(paper::Args),
    Sim(sim::Args),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS_EXAMPLE)]
    Completions {
        /// Shell for which the script is generated
        shell: Shell,
    },
}

fn main() -> ExitCode {
    carom_terminal::exit_code(carom_terminal::parse::<Cli>().and_then(|cli| match cli {
        Some(cli) => run(&cli.verb),
        None => Ok(Outcome::Fine),
    }))
}

fn run(verb: &Verb) -> Result<Outcome, CliError> {
    match verb {
        #[cfg(target_os = "linux")]
        Verb::Bench(args) => bench::run(args),
        #[cfg(target_os = "linux")]
        Verb::Net(args) => net::run(args),
        Verb::Paper(args) => paper::run(args),
        Verb::Sim(args) => sim::run(args),
        Verb::Completions { shell } => carom_terminal::print_completions::<Cli>(*shell),
    }
}

const EXAMPLE: &str = "Examples:
  carom-lab paper all                         reproduce the evaluations of the papers
  carom-lab sim fuzz --seeds 1000             search for a seed under which an engine fails
  carom-lab net run --hosts 4 -- ./test.sh    run a script beside hosts in network namespaces
  carom-lab bench run pace --systems carom    measure the latency of Carom on such hosts

Exit codes: 0 success, 1 a relation does not hold or a run fails, 2 usage or environment error";

const COMPLETIONS_EXAMPLE: &str = "Example:
  source <(carom-lab completions bash)";

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_valid_and_every_help_has_an_example() {
        carom_terminal::check_help::<super::Cli>();
    }
}
