mod args;
mod figures;
mod ledger;
mod plan;
mod report;
mod run;
mod table;
mod world;

pub(crate) use args::Args;
use carom_terminal::{CliError, Outcome, interrupt, output};

use carom::PathChoice;

use run::Run;
use world::World;

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen()?;
    let plan = plan::Plan::new(args)?;
    if !args.json {
        output::say(format_args!("{}", plan.describe(args)));
    }
    let world = World::start(args, &plan, interrupt)?;
    tell_path(args, world.path());
    let payload = world.payload_bytes(args)?;
    let mut run = Run::new(args, &plan, &world, payload, interrupt);
    run.until_the_end();
    let report = run.report();
    if args.json {
        output::json(&report)?;
    } else {
        output::lines(&report.for_people())?;
    }
    world.close();
    Ok(Outcome::of(report.lost > 0 || report.duplicates > 0 || report.corrupted > 0))
}

/// Prints a note if multicast does not work. On a busy machine, members may confirm it late.
fn tell_path(args: &Args, path: &str) {
    if args.path() != PathChoice::Unicast && path != "multicast" {
        let interface = &args.interface;
        if path == "mixed" {
            output::say(format_args!(
                "note: some members have not confirmed multicast yet: they get unicast copies"
            ));
            return;
        }
        output::say(format_args!(
            "note: no multicast on {interface}: all members get unicast copies"
        ));
        output::say(format_args!("fix: run `carom doctor --interface {interface}`"));
    }
}
