use serde::{Deserialize, Serialize};

use super::median::Median;
use super::metric::Metric;
use crate::account::Account;

/// The results of a set of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The runs, in any order.
    pub runs: Vec<Run>,
}

/// One run of one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Name of the row in the plan.
    pub row: String,
    /// Name of the system.
    pub system: String,
    /// Origin of the system's results, which selects the comparisons.
    pub kind: Kind,
    /// Results, or why there are none.
    pub result: RunResult,
}

/// The kind of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Carom, with any settings.
    Carom,
    /// Another system.
    Peer,
    /// Plain sockets, without recovery.
    Raw,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunResult {
    /// The run was measured.
    Measured(Box<Account>),
    /// The run did not take place, for this reason.
    Skipped(String),
}

impl Report {
    /// Returns the rows in the order of their first run.
    pub(super) fn rows(&self) -> Vec<&str> {
        distinct(self.runs.iter().map(|run| &*run.row))
    }

    /// Returns the systems that a row has measured, in the order of their first run.
    pub(super) fn systems(&self, row: &str) -> Vec<(&str, Kind)> {
        let measured = |run: &&Run| matches!(run.result, RunResult::Measured(_)) && run.row == row;
        let mut runs: Vec<&Run> = self.runs.iter().filter(measured).collect();
        let names = distinct(runs.iter().map(|run| &*run.system));
        runs.reverse();
        let kind = |name| runs.iter().find(|run| run.system == name).map(|run| run.kind);
        names.into_iter().filter_map(|name| Some((name, kind(name)?))).collect()
    }

    /// Returns the median of a value over the measured runs of a system. Returns `None` if a run
    /// has no such value, or none was measured.
    pub fn median_of(
        &self,
        row: &str,
        system: &str,
        value: impl Fn(&Account) -> Option<f64>,
    ) -> Option<f64> {
        let values = self.accounts(row, system).into_iter().map(value);
        Median::of(values).map(|median| median.value)
    }

    pub(super) fn accounts(&self, row: &str, system: &str) -> Vec<&Account> {
        let runs = self.runs.iter().filter(|run| run.row == row && run.system == system);
        let accounts = runs.filter_map(|run| match &run.result {
            RunResult::Measured(account) => Some(&**account),
            RunResult::Skipped(_) => None,
        });
        accounts.collect()
    }

    pub(super) fn median(&self, row: &str, system: &str, metric: Metric) -> Option<Median> {
        let accounts = self.accounts(row, system);
        Median::of(accounts.into_iter().map(|account| metric.value(account)))
    }
}

/// Returns the items without repetitions, in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}
