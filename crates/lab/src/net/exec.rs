use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use carom_terminal::{CliError, Outcome, plain};

use super::state::State;

/// Run a command on a host of a lab of `carom-lab net up`
///
/// The exit code is that of the command. The command ends with the lab.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Name of the lab, if several are running
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Host, such as h1
    #[arg(value_name = "HOST")]
    host: String,
    /// Command to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let state = State::find(args.lab.as_deref())?;
    let host = state.host(&args.host)?;
    let pid = state.owner.pid;
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--target", &pid.to_string(), "--mount", "--net", "--pid"]);
    let user = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
    // A process cannot enter the user namespace in which it is.
    if user("self") != user(&pid.to_string()) {
        nsenter.args(["--user", "--preserve-credentials"]);
    }
    if let Ok(folder) = std::env::current_dir() {
        nsenter.arg(format!("--wdns={}", folder.display()));
    }
    nsenter.args(["--", "ip", "netns", "exec", &host.name]).args(&args.command);
    let status = nsenter.status().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            CliError::new("nsenter is not installed", "apt-get install util-linux")
        }
        _ => CliError::new(
            format!("cannot run nsenter: {}", plain(&error)),
            "check the limits of this machine: processes, memory",
        ),
    })?;
    Ok(Outcome::Code(carom_netns::exit_code(status)))
}

const EXAMPLE: &str = "Examples:
  carom-lab net exec h1 -- ip -br address
  carom-lab net exec h2 -- carom sub numbers";
