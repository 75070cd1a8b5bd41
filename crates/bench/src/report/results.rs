use serde::{Deserialize, Serialize};

use super::run::{Run, Syscalls};
use super::runs::{Runs, distinct};

/// The results of a set of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The runs, in any order.
    pub runs: Vec<Run>,
    /// Counts of system calls, from runs of their own.
    #[serde(default)]
    pub syscalls: Vec<Syscalls>,
}

impl Report {
    /// Returns the rows in the order of their first run.
    pub(super) fn rows(&self) -> Vec<&str> {
        distinct(self.runs.iter().map(|run| &*run.row))
    }

    /// Returns the system calls per message of a system, if they were counted.
    pub(super) fn syscalls(&self, row: &str, system: &str) -> Option<f64> {
        let mut of_row = self.syscalls.iter().filter(|it| it.row == row);
        of_row.find(|it| it.system == system)?.per_message
    }

    /// Returns the systems of a row that ran, in the order of their first run.
    pub(super) fn systems(&self, row: &str) -> Vec<Runs<'_>> {
        let runs: Vec<&Run> = self.runs.iter().filter(|run| run.row == row).collect();
        let names = distinct(runs.iter().map(|run| &*run.system));
        let systems = names
            .into_iter()
            .map(|name| Runs::new(runs.iter().copied().filter(|run| run.system == name).collect()));
        systems.filter(Runs::is_available).collect()
    }
}
