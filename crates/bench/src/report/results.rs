use serde::{Deserialize, Serialize};

use super::median::Median;
use super::run::{Run, Syscalls};
use super::runs::{Runs, distinct};
use crate::account::Account;

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

    /// Returns the median of a value over the measured runs of a system. Returns `None` if a run
    /// has no such value, or none was measured.
    pub fn median_of(
        &self,
        row: &str,
        system: &str,
        value: impl Fn(&Account) -> Option<f64>,
    ) -> Option<f64> {
        let of_system = |run: &&Run| run.row == row && run.system == system;
        let runs = Runs::new(self.runs.iter().filter(of_system).collect());
        Median::of(runs.accounts().into_iter().map(value)).map(|median| median.value)
    }
}
