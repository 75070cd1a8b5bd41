use super::median::Median;
use super::metric::Metric;
use super::run::{Kind, Order, Run, RunResult};
use crate::account::Account;

/// The runs of one system in one row.
pub(super) struct Runs<'a>(Vec<&'a Run>);

impl<'a> Runs<'a> {
    pub(super) fn new(runs: Vec<&'a Run>) -> Self {
        Self(runs)
    }

    /// Returns `true` if the system ran, with or without success.
    pub(super) fn is_available(&self) -> bool {
        self.0.iter().any(|run| !matches!(run.result, RunResult::Skipped(_)))
    }

    /// Returns the name of the system.
    pub(super) fn system(&self) -> &'a str {
        self.0.first().map_or("", |run| &run.system)
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.0.iter().any(|run| run.kind == kind)
    }

    pub(super) fn order(&self) -> Order {
        self.0.first().map(|run| run.order).unwrap_or_default()
    }

    pub(super) fn accounts(&self) -> Vec<&'a Account> {
        let accounts = self.0.iter().filter_map(|run| match &run.result {
            RunResult::Measured(account) => Some(&**account),
            RunResult::Failed(_) | RunResult::Skipped(_) => None,
        });
        accounts.collect()
    }

    /// Returns the smallest number of recorded times in a run that has too few for the metric.
    pub(super) fn too_few(&self, metric: Metric) -> Option<u64> {
        self.accounts().into_iter().filter_map(|account| metric.too_few(account)).min()
    }

    /// Returns the median over the measured runs.
    pub(super) fn median(&self, metric: Metric) -> Option<Median> {
        Median::of(self.accounts().into_iter().map(|account| metric.value(account)))
    }

    /// Returns the value of each turn in which the system was measured. A turn of a peer counts
    /// only if it is flawless.
    pub(super) fn turns(&self, metric: Metric) -> impl Iterator<Item = (u32, f64)> {
        let counts = |run: &&&Run| run.kind != Kind::Peer || is_flawless(run);
        self.0.iter().filter(counts).filter_map(move |run| match &run.result {
            RunResult::Measured(account) => Some((run.turn, metric.value(account)?)),
            RunResult::Failed(_) | RunResult::Skipped(_) => None,
        })
    }

    /// Returns the number of turns in which the system ran.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of runs, and of those that were measured to their end if some were not.
    pub(super) fn described(&self) -> String {
        let is_whole =
            |run: &&&Run| matches!(run.result, RunResult::Measured(_)) && run.limit.is_none();
        match (self.0.iter().filter(is_whole).count(), self.0.len()) {
            (whole, total) if whole == total => total.to_string(),
            (whole, total) => format!("{whole} of {total}"),
        }
    }

    /// Returns the runs without results or that reached a time limit, with the reasons. `None` if
    /// there are none.
    pub(super) fn flaw(&self) -> Option<String> {
        let total = self.0.len();
        let failures = self.0.iter().filter_map(|run| match &run.result {
            RunResult::Failed(reason) | RunResult::Skipped(reason) => Some(&**reason),
            RunResult::Measured(_) => None,
        });
        let failures: Vec<&str> = failures.collect();
        let late = self.0.iter().filter(|run| run.limit.is_some()).count();
        let mut flaws = Vec::new();
        if !failures.is_empty() {
            let count = failures.len();
            let reasons = distinct(failures.into_iter()).join("; ").replace('\n', " ");
            flaws.push(format!("failed in {count} of {total} runs: {reasons}"));
        }
        if late > 0 {
            flaws.push(format!("time limit reached in {late} of {total} runs"));
        }
        (!flaws.is_empty()).then(|| flaws.join("; "))
    }

    pub(super) fn misses_copies(&self) -> bool {
        self.accounts().iter().any(|account| account.missing > 0)
    }

    /// Returns `true` if the metric compares Carom with other systems. A latency does not at full
    /// speed, where it is that of full queues, nor in a bulk group. A 99.9th percentile needs ten
    /// times beyond it, so that a single pause of the machine does not decide it.
    pub(super) fn compares(&self, metric: Metric) -> bool {
        let all = |holds: fn(&Account) -> bool| self.accounts().into_iter().all(holds);
        let is_paced = || all(|account| account.is_paced);
        let has_tail = || all(|account| account.latency.count >= 10_000);
        let is_result = || self.system() != BULK && is_paced();
        (metric != Metric::LatencyP999 || has_tail()) && (!metric.is_latency() || is_result())
    }

    /// Returns `true` if all runs were measured to their end, nothing is missing, and the promised
    /// order was kept.
    pub(super) fn may_be_best(&self) -> bool {
        self.0.iter().all(|run| is_flawless(run))
    }
}

fn is_flawless(run: &Run) -> bool {
    match &run.result {
        RunResult::Measured(it) => run.limit.is_none() && it.missing == 0 && run.order.is_kept(it),
        RunResult::Failed(_) | RunResult::Skipped(_) => false,
    }
}

/// The system of Carom that makes no promise about latency.
const BULK: &str = "carom:bulk";

/// Returns the items without repetitions, in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}
