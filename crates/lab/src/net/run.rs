use std::process::Command;

use carom_netns::{Isolation, isolate};
use carom_terminal::{CliError, Outcome, plain};

use super::lab_args::LabArgs;
use super::recording::RecordingArgs;
use super::refusal::refused;

/// Run a command beside the hosts of a lab, which is then removed
///
/// The hosts are the network namespaces h1, h2, and so on, and `ip netns exec h1 PROGRAM` runs a
/// program on the first. Each has the interface eth0 and the address 10.77.RACK.POSITION.
/// CAROM_LAB_HOSTS contains the addresses of all hosts, separated by spaces. Everything disappears
/// with the command, including processes that it leaves behind, and also after SIGKILL. Ctrl-C and
/// SIGTERM end it at once. The exit code is that of the command. Root is not needed if the kernel
/// permits user namespaces.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    recording: RecordingArgs,
    /// Command to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    // A mistake is reported before anything is created.
    args.lab.validate()?;
    match isolate().map_err(|error| refused(&error))? {
        Isolation::Ended(code) => return Ok(Outcome::Code(code)),
        Isolation::Inside(_) => {}
    }
    let lab = args.lab.build()?;
    let recording = args.recording.start(&lab)?;
    let addresses: Vec<String> = lab.hosts().iter().map(|it| it.address().to_string()).collect();
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let status = Command::new(program)
        .args(arguments)
        .env("CAROM_LAB_HOSTS", addresses.join(" "))
        .status()
        .map_err(|error| {
            let cause = format!("cannot run {program}: {}", plain(&error));
            CliError::new(cause, "use the name or the path of an installed program")
        })?;
    recording.finish()?;
    Ok(Outcome::Code(carom_netns::exit_code(status)))
}

const EXAMPLE: &str = "Examples:
  carom-lab net run --hosts 4 --loss 1% -- sh -c 'ip netns exec h1 ip -br address'
  carom-lab net run --loss bursts:10ms/990ms --drops losses -- ./test.sh
  carom-lab net run --racks 2 --hosts 8 -- bash   a shell in a lab";
