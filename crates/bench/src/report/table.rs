use carom_figures::significant;

use super::median::{Median, short};
use super::metric::Metric;
use super::ratios::{self, Ratio, Reference};
use super::results::Report;
use super::run::{Kind, Order};
use super::runs::Runs;
use crate::account::Account;

/// Returns the table of a row: a column for each system that ran, and a line for each metric that
/// any system has. The median over the runs is followed by their spread.
pub(super) fn measured(report: &Report, row: &str) -> String {
    let systems = report.systems(row);
    let line = |name: String, cell: &dyn Fn(&Runs<'_>) -> String| {
        std::iter::once(name).chain(systems.iter().map(cell)).collect::<Vec<String>>()
    };
    let mut lines = vec![line("runs".to_owned(), &|runs| runs.described())];
    for (place, name) in COUNTS.iter().enumerate() {
        lines.push(line((*name).to_owned(), &|runs| counts(&runs.accounts())[place].clone()));
    }
    if systems.iter().any(|runs| link_drops(&runs.accounts()) > Some(0)) {
        lines.push(line("link drops".to_owned(), &|runs| shown(link_drops(&runs.accounts()))));
    }
    lines.push(line("order".to_owned(), &|runs| orders(runs)));
    for metric in Metric::ALL {
        let median = |runs: &Runs<'_>| runs.median(metric).map_or_else(String::new, Median::text);
        lines.push(line(named(metric), &median));
    }
    let calls =
        |runs: &Runs<'_>| report.syscalls(row, runs.system()).map_or_else(String::new, short);
    lines.push(line("system calls per message".to_owned(), &calls));
    lines.retain(|cells| cells[1..].iter().any(|cell| !cell.is_empty()));
    let names = systems.iter().map(|runs| runs.system().to_owned());
    let columns: Vec<String> = std::iter::once(String::new()).chain(names).collect();
    markdown(&columns, lines.into_iter())
}

/// Returns the name of a metric with its unit.
fn named(metric: Metric) -> String {
    match metric.unit() {
        "" => metric.name().to_owned(),
        unit => format!("{}, {unit}", metric.name()),
    }
}

/// Returns the ratios of Carom to the best peer and to raw sockets, with their ranges. Returns an
/// empty string if there is nothing to compare with.
pub(super) fn ratios(report: &Report, row: &str) -> String {
    let mut lines = compared(report, row, &ratios::COMPARED);
    lines.retain(|cells| cells[3..].iter().any(|cell| !cell.is_empty()));
    if lines.is_empty() {
        return String::new();
    }
    markdown(&RATIOS.map(str::to_owned), lines.into_iter())
}

/// Returns the main metrics of Carom in all rows, with their ratios.
pub(super) fn overview(report: &Report) -> String {
    let lines = report.rows().into_iter().flat_map(|row| {
        let lines = compared(report, row, &main_metrics(report, row));
        lines.into_iter().map(move |cells| [&[row.to_owned()], &cells[..]].concat())
    });
    let columns = [&["row"], &RATIOS[..]].concat();
    let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
    markdown(&columns, lines)
}

/// Returns a line for each metric that Carom has in a row.
fn compared(report: &Report, row: &str, metrics: &[Metric]) -> Vec<Vec<String>> {
    let ratios = ratios::of_row(report, row);
    let mut lines = Vec::new();
    for ours in report.systems(row).iter().filter(|runs| runs.is(Kind::Carom)) {
        for metric in metrics.iter().filter(|metric| ours.compares(**metric)) {
            let Some(median) = ours.median(*metric) else { continue };
            let value = format!("{} {}", short(median.value), metric.unit());
            let runs = ours.flaw().map(|_| format!(" ({} runs)", ours.described()));
            let value = value.trim_end().to_owned() + &runs.unwrap_or_default();
            let ratio = |reference: Reference| {
                let mut of_system = ratios.iter().filter(|it| it.system == ours.system());
                let ratio = of_system.find(|it| (it.metric, it.reference) == (*metric, reference));
                ratio.map_or_else(String::new, marked)
            };
            let (peer, raw) = (ratio(Reference::BestPeer), ratio(Reference::Raw));
            lines.push(vec![ours.system().to_owned(), metric.name().to_owned(), value, peer, raw]);
        }
    }
    lines
}

/// Returns the ratio, in bold where a peer is ahead.
fn marked(ratio: &Ratio<'_>) -> String {
    match ratio.reference == Reference::BestPeer && ratio.is_behind() {
        true => format!("**{ratio}**"),
        false => ratio.to_string(),
    }
}

/// Returns the metrics that answer the question of a row: goodput at full speed; at a set rate, the
/// latency of recovered messages, or of all where none are lost; the silence after a kill, and the
/// rate of a background transfer; the processor time; and what idle nodes use.
fn main_metrics(report: &Report, row: &str) -> Vec<Metric> {
    let systems = report.systems(row);
    let has = |metric: &Metric| systems.iter().any(|runs| runs.median(*metric).is_some());
    let speed: &[Metric] = match (has(&Metric::GoodputSlowest), has(&Metric::Recovered)) {
        (true, _) => &[Metric::GoodputSlowest],
        (false, true) => &[Metric::RecoveredP50, Metric::RecoveredP99],
        (false, false) => &[Metric::LatencyP50, Metric::LatencyP99],
    };
    let others =
        [Metric::Silence, Metric::Background, Metric::Cpu, Metric::IdleCpu, Metric::IdlePackets];
    speed.iter().copied().chain(others.into_iter().filter(has)).collect()
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
    let kernel_drops = accounts.iter().map(|it| it.kernel_drops).sum();
    [share, sum(|it| it.duplicates).to_string(), shown(kernel_drops)]
}

/// Returns the drops of links in all runs. Returns `None` if they were not counted.
fn link_drops(accounts: &[&Account]) -> Option<u64> {
    accounts.iter().map(|it| it.link_drops).sum::<Option<u64>>().filter(|_| !accounts.is_empty())
}

fn shown(count: Option<u64>) -> String {
    count.map_or_else(String::new, |count| count.to_string())
}

/// Returns the promised order, and the orders of the receivers. A broken promise is bold.
fn orders(runs: &Runs<'_>) -> String {
    let accounts = runs.accounts();
    if accounts.is_empty() {
        return String::new();
    }
    let are_equal = accounts.iter().all(|it| it.orders_agree);
    let agreement = match (are_equal, runs.order()) {
        (true, _) => "agree",
        (false, Order::Total) => "**differ**",
        (false, Order::Source | Order::None) => "differ",
    };
    let mut text = format!("{}, {agreement}", runs.order());
    let out_of_order: u64 = accounts.iter().map(|it| it.out_of_order).sum();
    if out_of_order > 0 && runs.order() != Order::None {
        text += &format!(", **{out_of_order} copies out of order**");
    }
    text
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

const COUNTS: [&str; 3] = ["delivered", "duplicates", "kernel drops"];
const RATIOS: [&str; 5] =
    ["system", "metric", "value", "ratio to best peer", "ratio to raw sockets"];

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
