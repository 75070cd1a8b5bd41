use std::sync::Arc;
use std::time::Duration;

use carom_netns::{Isolation, isolate};
use carom_terminal::{CliError, Outcome, interrupt, output};

use super::control;
use super::lab_args::LabArgs;
use super::list;
use super::recording::RecordingArgs;
use super::refusal::refused;
use super::state::State;

/// Run a lab for other terminals until Ctrl-C
///
/// `carom-lab net exec HOST -- COMMAND` runs programs on its hosts. The commands cut, heal, loss,
/// rate and outage change it. The lab disappears with this command, together with all programs on
/// its hosts, and also after SIGKILL.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    recording: RecordingArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    // A mistake is reported before anything is created.
    args.lab.validate()?;
    let owner = match isolate().map_err(|error| refused(&error))? {
        Isolation::Ended(code) => return Ok(Outcome::Code(code)),
        Isolation::Inside(owner) => owner,
    };
    let interrupt = interrupt::listen_with(PATIENCE)?;
    let lab = Arc::new(args.lab.build()?);
    let recording = args.recording.start(&lab)?;
    let state = State::new(owner, &lab);
    let (published, listener) = state.publish()?;
    control::serve(listener, lab)?;
    match args.json {
        true => output::json(&state)?,
        false => output::lines(&list::table(&[state]))?,
    }
    while !interrupt.wait(TURN) {}
    drop(published);
    recording.finish()?;
    Ok(Outcome::Fine)
}

const TURN: Duration = Duration::from_secs(3600);
/// Time for the removal of the lab and the ends of its records.
const PATIENCE: Duration = Duration::from_secs(20);

const EXAMPLE: &str = "Examples:
  carom-lab net up --hosts 4 --loss 1%
  carom-lab net up --racks 2 --hosts 8 --json";
