use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_registry::{Detector, DetectorOptions, DetectorStatus};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, output, units};

use super::address;
use super::limits::{check_detection, check_name};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Rack whose nodes are watched, as given to the nodes with `--rack`
    #[arg(long, value_name = "NAME")]
    rack: String,
    /// Address of a registry, HOST or HOST:PORT; separate several with commas, or repeat the flag
    #[arg(long = "registry", value_name = "ADDR", value_delimiter = ',', required = true)]
    registries: Vec<String>,
    /// Cluster name that the registry must have
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    cluster: String,
    /// UDP address that sends and answers pings [default: any address, a free port]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Address at which other detectors ping this one [default: the source address of its
    /// connections to the service]
    #[arg(long, value_name = "ADDR:PORT")]
    advertise: Option<SocketAddr>,
    /// Report a node that answers no ping for this time [default: --detection of the service]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    detection: Option<Duration>,
    /// Print one JSON object at the start and at each change
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    check_name("--rack", &args.rack)?;
    check_name("--cluster", &args.cluster)?;
    args.detection.map_or(Ok(()), |time| check_detection("--detection", time))?;
    let mut options = DetectorOptions::new(&args.rack, address::resolve(&args.registries)?);
    options.cluster.clone_from(&args.cluster);
    options.listen = args.listen.unwrap_or(options.listen);
    options.advertise = args.advertise;
    options.detection_time = args.detection;
    let interrupt = interrupt::listen()?;
    let failed =
        |error: carom_registry::RegistryError| CliError::new(error.to_string(), error.fix());
    let detector = Detector::start(options).map_err(failed)?;
    let watched = watch(&detector, args, interrupt);
    detector.stop().map_err(failed)?;
    watched.map(|()| Outcome::Fine)
}

fn watch(detector: &Detector, args: &Args, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut shown = unshown(detector.status());
    if !args.json {
        let DetectorStatus { detector, rack, address, .. } = &shown;
        output::say(format_args!(
            "failure detector {detector} of rack {rack:?}, UDP {address}; press Ctrl-C to stop"
        ));
    }
    let begun = Instant::now();
    let (mut is_new, mut was_in, mut is_away_told) = (true, false, false);
    while !interrupt.wait(LOOK_EVERY) && !detector.has_ended() {
        let status = detector.status();
        let is_in = status.processes.iter().any(|process| process.linked);
        was_in |= is_in;
        if let Some(why) = status.refused.as_ref().filter(|_| !was_in) {
            let fix = "pass the --cluster of the service and use its version, or try again later";
            return Err(CliError::new(why.clone(), fix));
        }
        if !was_in && !is_away_told && begun.elapsed() >= SAY_AFTER {
            is_away_told = true;
            let registries = args.registries.join(", ");
            output::say(format_args!("note: no registry answers at {registries} yet: retrying"));
        }
        if args.json {
            if is_new || is_other(&shown, &status) {
                output::json(&status)?;
            }
        } else {
            changes(&shown, &status).iter().for_each(output::say);
        }
        (is_new, shown) = (false, status);
    }
    Ok(())
}

/// Returns `true` if the status has a change to print. Of the counters, only `reports_made` counts.
fn is_other(before: &DetectorStatus, now: &DetectorStatus) -> bool {
    (&before.processes, &before.watched, &before.refused)
        != (&now.processes, &now.watched, &now.refused)
        || reports(before) != reports(now)
}

fn changes(before: &DetectorStatus, now: &DetectorStatus) -> Vec<String> {
    let mut lines = Vec::new();
    for process in &now.processes {
        let was_linked = before.processes.iter().any(|it| it.linked && it == process);
        if process.linked && !was_linked {
            lines.push(format!("linked to {}", process.address));
        }
    }
    for process in before.processes.iter().filter(|process| process.linked) {
        if !now.processes.contains(process) {
            lines.push(format!("link to {} lost", process.address));
        }
    }
    if before.watched != now.watched {
        lines.push(format!("watching {}: {}", now.watched.len(), now.watched.join(" ")));
    }
    if reports(before) != reports(now) {
        lines.push(format!("reports made: {}", reports(now)));
    }
    lines
}

/// Returns the status without the parts that the first line does not show. Links made before the
/// first status is read are then reported as changes.
fn unshown(status: DetectorStatus) -> DetectorStatus {
    let (processes, watched) = (Vec::new(), Vec::new());
    DetectorStatus { processes, watched, counters: BTreeMap::new(), ..status }
}

fn reports(status: &DetectorStatus) -> u64 {
    status.counters.get("reports_made").copied().unwrap_or_default()
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
const SAY_AFTER: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use carom_registry::ProcessStatus;

    #[test]
    fn link_made_before_the_first_status_is_shown() {
        let status = DetectorStatus {
            detector: "7".into(),
            rack: "r1".into(),
            address: "10.0.0.5:7000".into(),
            processes: vec![ProcessStatus { address: "10.0.0.1:7402".into(), linked: true }],
            watched: vec!["8".into()],
            refused: None,
            counters: BTreeMap::from([("reports_made".into(), 1)]),
        };
        let lines = changes(&unshown(status.clone()), &status);
        assert_eq!(lines, ["linked to 10.0.0.1:7402", "watching 1: 8", "reports made: 1"]);
        assert!(changes(&status, &status).is_empty());
    }
}
