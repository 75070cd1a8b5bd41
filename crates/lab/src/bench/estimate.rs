//! The expected length of rows, from measured means on 2 processors.

use std::path::Path;
use std::time::Duration;

use carom_bench::plan::Row;
use carom_bench::report::Kind;

use super::system::System;
use super::trial::QUIET;

/// Returns the expected length of a row with the systems that can be measured.
pub(super) fn length(row: &Row, peers: &Path) -> Duration {
    let systems = row.systems.iter().filter_map(|name| System::find(name, row, peers).ok());
    let runs = systems.map(|system| run(row, &system).saturating_mul(row.runs_of(&system.name)));
    runs.fold(LAB, Duration::saturating_add)
}

/// Returns the expected length of one run.
fn run(row: &Row, system: &System) -> Duration {
    let transfer = match (row.file_mib, row.rate) {
        (Some(mib), _) => FILE_START + MIB.saturating_mul(mib),
        (None, rate) if rate > 0.0 => {
            let seconds = f64::from(row.messages) / rate;
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        }
        (None, _) => FULL_SPEED,
    };
    let wait = match (system.kind, row.kill, row.loss.share > 0.0) {
        (_, Some(_), _) => SURVIVORS,
        (Kind::Raw, None, true) => RAW,
        _ => Duration::ZERO,
    };
    let idle =
        row.idle_s.map_or(Duration::ZERO, |seconds| QUIET + Duration::from_secs(seconds.into()));
    let parts = [transfer, wait, idle, Duration::from_secs_f64(system.start_s), ENDS];
    parts.into_iter().fold(Duration::ZERO, Duration::saturating_add)
}

/// Construction and removal of a lab of 9 hosts.
const LAB: Duration = Duration::from_millis(700);
/// Start, losses, files of the nodes, and their accounting.
const ENDS: Duration = Duration::from_millis(700);
const FULL_SPEED: Duration = Duration::from_millis(3_500);
const FILE_START: Duration = Duration::from_secs(2);
/// Mean of all senders of files: 20 MB/s.
const MIB: Duration = Duration::from_millis(50);
const SURVIVORS: Duration = Duration::from_secs(10);
const RAW: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases;

    fn peers() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers"))
    }

    fn row(name: &str) -> Row {
        let rows = cases::built_in();
        rows.into_iter().find(|row| row.name == name).expect("it is built in")
    }

    #[test]
    fn length_of_a_paced_row_follows_from_the_plan() {
        let own = ["carom", "raw"].map(str::to_owned).to_vec();
        let row = Row { systems: own, once: vec!["raw".to_owned()], ..row("pace") };
        let seconds = |row: &Row| length(row, peers()).as_secs_f64();
        let runs = |messages| seconds(&Row { messages, repetitions: 3, ..row.clone() });
        let difference = runs(9_000) - runs(5_000);
        assert!((difference - 16.0).abs() < 1e-9, "3 runs of carom and 1 of raw: {difference}");
        let missing = Row { systems: vec!["dds".to_owned()], once: Vec::new(), ..row.clone() };
        assert!(length(&missing, peers()) < seconds_of_a_run(&row), "it is skipped");
    }

    fn seconds_of_a_run(row: &Row) -> Duration {
        Duration::from_secs_f64(f64::from(row.messages) / row.rate)
    }

    #[test]
    fn all_rows_with_all_systems_end_within_55_minutes() {
        let lengths = cases::built_in().into_iter().map(|row| length(&row, peers()));
        let minutes = lengths.sum::<Duration>().as_secs_f64() / 60.0;
        assert!(minutes <= 55.0, "{minutes} minutes");
    }
}
