use carom_figures::significant;

use super::median::{Median, short};
use super::metric::Metric;
use super::ratios::{self, Reference};
use super::results::Report;
use super::run::Order;
use super::runs::Runs;
use crate::account::Account;

/// Returns the table of a row: one line for each system that ran, one column for each metric that
/// any system has. The median over the runs is followed by their spread.
pub(super) fn measured(report: &Report, row: &str) -> String {
    let systems = report.systems(row);
    let has = |metric: &Metric| systems.iter().any(|runs| runs.median(*metric).is_some());
    let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(has).collect();
    let mut columns = COLUMNS.map(str::to_owned).to_vec();
    columns.extend(metrics.iter().map(|metric| match metric.unit() {
        "" => metric.name().to_owned(),
        unit => format!("{}, {unit}", metric.name()),
    }));
    let calls = |runs: &Runs<'_>| report.syscalls(row, runs.system());
    let has_calls = systems.iter().any(|runs| calls(runs).is_some());
    columns.extend(has_calls.then(|| "system calls per message".to_owned()));
    let lines = systems.iter().map(|runs| {
        let mut cells = vec![runs.system().to_owned(), runs.described()];
        cells.extend(counts(&runs.accounts()));
        cells.extend(orders(runs));
        let medians = metrics.iter().map(|metric| runs.median(*metric));
        cells.extend(medians.map(|it| it.map_or_else(String::new, Median::text)));
        cells.extend(has_calls.then(|| calls(runs).map_or_else(String::new, short)));
        cells
    });
    markdown(&columns, lines)
}

/// Returns the ratios of Carom to the best peer and to raw sockets, with their ranges. Returns an
/// empty string if there is nothing to compare with.
pub(super) fn ratios(report: &Report, row: &str) -> String {
    let ratios = ratios::of_row(report, row);
    let mut lines: Vec<Vec<String>> = Vec::new();
    for ratio in &ratios {
        let (name, unit) = (ratio.metric.name(), ratio.metric.unit());
        let own = format!("{} {unit}", short(ratio.ours)).trim_end().to_owned();
        let head = [ratio.system.to_owned(), name.to_owned(), own];
        if lines.last().is_none_or(|line| !line.starts_with(&head)) {
            lines.push([&head[..], &[String::new(), String::new()]].concat());
        }
        let place = match ratio.reference {
            Reference::BestPeer => 3,
            Reference::Raw => 4,
        };
        lines.iter_mut().last().expect("it was added")[place] = ratio.to_string();
    }
    if lines.is_empty() {
        return String::new();
    }
    let columns = ["system", "metric", "value", "ratio to best peer", "ratio to raw sockets"];
    markdown(&columns.map(str::to_owned), lines.into_iter())
}

/// Returns the share of delivered copies, and the numbers of duplicates and of kernel drops.
fn counts(accounts: &[&Account]) -> [String; 3] {
    if accounts.is_empty() {
        return Default::default();
    }
    let sum = |value: fn(&Account) -> u64| accounts.iter().map(|it| value(it)).sum::<u64>();
    let (expected, delivered) = (sum(|it| it.expected), sum(|it| it.delivered));
    let share = match expected {
        0 => String::new(),
        // Rounding must not hide missing copies.
        _ if delivered < expected => {
            let percent = 100.0 * delivered as f64 / expected as f64;
            format!("{} %", significant(percent.min(99.9999)))
        }
        _ => "100 %".to_owned(),
    };
    let kernel_drops: Option<u64> = accounts.iter().map(|it| it.kernel_drops).sum();
    let kernel_drops = kernel_drops.map_or_else(String::new, |drops| drops.to_string());
    [share, sum(|it| it.duplicates).to_string(), kernel_drops]
}

/// Returns the promised order, and the agreement of the receivers' orders.
fn orders(runs: &Runs<'_>) -> [String; 2] {
    let accounts = runs.accounts();
    let are_equal = accounts.iter().all(|it| it.orders_agree);
    let orders = match (are_equal, runs.order()) {
        _ if accounts.is_empty() => "",
        (true, _) => "agree",
        (false, Order::Total) => "**differ**",
        (false, Order::Source | Order::None) => "differ",
    };
    [runs.order().to_string(), orders.to_owned()]
}

fn markdown(columns: &[String], lines: impl Iterator<Item = Vec<String>>) -> String {
    let cell = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(cell).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = vec!["---".to_owned(); columns.len()];
    let mut text = line(columns) + &line(&rule).replace(' ', "");
    lines.for_each(|cells| text += &line(&cells));
    text
}

const COLUMNS: [&str; 7] =
    ["system", "runs", "delivered", "duplicates", "kernel drops", "promised order", "orders"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missing_copy_is_not_rounded_away() {
        let account = Account { expected: 10_000_000, delivered: 9_999_999, ..Account::default() };
        assert_eq!(counts(&[&account])[0], "99.9999 %");
    }

    #[test]
    fn kernel_drops_are_summed_where_they_were_counted() {
        let account = |kernel_drops| Account { kernel_drops, ..Account::default() };
        let (one, two, none) = (account(Some(1)), account(Some(2)), account(None));
        assert_eq!(counts(&[&one, &two])[2], "3");
        assert_eq!(counts(&[&one, &none])[2], "");
    }
}
