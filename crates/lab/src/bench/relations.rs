//! Relations between rows and between systems, which a plan demands of the report.

use carom_bench::account::Account;
use carom_bench::plan::Row;
use carom_bench::report::Report;
use carom_figures::{Axis, Figure, draw, significant};

type Value = fn(&Account) -> Option<f64>;

/// Returns the relations of a row in Markdown. Returns an empty string if its plan demands none, or
/// too little was measured.
pub(super) fn text(report: &Report, row: &Row) -> String {
    let beside = row.baseline.iter().map(|baseline| beside_baseline(report, row, baseline));
    let points = row.cpu_points.iter().map(|points| beside_raw(report, row, *points));
    beside.chain(points).collect()
}

/// Returns the CPU of senders and receivers by the rate of the messages, over all rows that compare
/// it with that of `raw`, as SVG. Returns an empty string without such rows.
pub(super) fn figure(report: &Report, rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.cpu_points.is_some()).collect();
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in &rows {
        for system in &row.systems {
            for (role, value) in CPU {
                let Some(cpu) = report.median_of(&row.name, system, value) else { continue };
                let label = format!("{system}, {role}, MTU {}", row.mtu);
                let point = (mbit(row), cpu);
                match series.iter_mut().find(|(known, _)| *known == label) {
                    Some((_, points)) => points.push(point),
                    None => series.push((label, vec![point])),
                }
            }
        }
    }
    let axes = (Axis::linear("rate in Mbit/s"), Axis::linear("% of one processor"));
    let figure = Figure::new("cpu-by-rate", "CPU at set rates", axes.0, axes.1);
    let is_empty = series.is_empty();
    let figure =
        series.into_iter().fold(figure, |figure, (label, points)| figure.ours(label, points));
    if is_empty { String::new() } else { draw(&[figure]) }
}

fn beside_baseline(report: &Report, row: &Row, baseline: &str) -> String {
    let mut lines = String::new();
    for system in &row.systems {
        for (name, value) in LATENCIES {
            let here = report.median_of(&row.name, system, value);
            let there = report.median_of(baseline, system, value);
            let Some((here, there)) = here.zip(there).filter(|(_, there)| *there > 0.0) else {
                continue;
            };
            let ratio = rounded(here / there);
            lines += &format!("| {system} | {name} | {} | {ratio} |\n", rounded(here));
        }
    }
    if lines.is_empty() {
        return lines;
    }
    format!("\n| system | metric | µs | ratio to `{baseline}` |\n|---|---|---|---|\n{lines}")
}

fn beside_raw(report: &Report, row: &Row, most: f64) -> String {
    let rate = row.rate * row.size as f64;
    let mut text = String::new();
    let mut others = row.systems.iter().filter(|system| *system != RAW);
    let reached = |system: &str| report.median_of(&row.name, system, |it| it.goodput_slowest);
    let late = row.systems.iter().find(|it| reached(it).is_some_and(|it| it < rate * ON_RATE));
    if let Some(system) = late {
        let reached = rounded(reached(system).unwrap_or_default() / 1e6);
        let rate = rounded(rate / 1e6);
        return format!(
            "\nCPU is not compared: {system} reached {reached} of {rate} MB/s on this machine.\n"
        );
    }
    for (system, (role, value)) in others.by_ref().flat_map(|it| CPU.map(|cpu| (it, cpu))) {
        let own = report.median_of(&row.name, system, value);
        let raw = report.median_of(&row.name, RAW, value);
        let Some((own, raw)) = own.zip(raw) else { continue };
        let holds = if own - raw <= most { "holds" } else { "DOES NOT HOLD" };
        let (own, raw, more) = (rounded(own), rounded(raw), rounded(own - raw));
        text += &format!(
            "\nCPU of a {role}: {system} {own} %, {RAW} {raw} %: {more} points more. \
             At most {most} points more: {holds}.\n"
        );
    }
    text
}

/// Returns the rate of a row's messages in megabits per second.
fn mbit(row: &Row) -> f64 {
    row.rate * row.size as f64 * 8.0 / 1e6
}

fn rounded(number: f64) -> String {
    significant((number * 100.0).round() / 100.0)
}

fn ns(count: u64, ns: u64) -> Option<f64> {
    (count > 0).then_some(ns as f64 / 1e3)
}

const RAW: &str = "raw";
/// A system that delivers this part of the set rate keeps it.
const ON_RATE: f64 = 0.95;
const CPU: [(&str, Value); 2] = [
    ("sender", |account| account.cpu_percent_sender),
    ("receiver", |account| account.cpu_percent_receivers),
];
const LATENCIES: [(&str, Value); 3] = [
    ("latency p50", |account| ns(account.latency.count, account.latency.p50)),
    ("latency p99", |account| ns(account.latency.count, account.latency.p99)),
    ("latency p99.9", |account| ns(account.latency.count, account.latency.p999)),
];

#[cfg(test)]
mod tests {
    use carom_bench::Quantiles;
    use carom_bench::plan::Plan;
    use carom_bench::report::{Kind, Order, Run, RunResult};

    use super::*;

    fn row(name: &str, more: &str) -> Row {
        let text = format!(
            "[[row]]\nname = \"{name}\"\nsystems = [\"carom:bulk\", \"raw\"]\nnodes = 3\n\
             messages = 10\nrate = 1000\nsize = 1000\n{more}\n"
        );
        Plan::parse(&text).expect("it is valid").rows.remove(0)
    }

    fn run(row: &str, system: &str, p99: u64, cpu: f64, goodput: f64) -> Run {
        let account = Account {
            latency: Quantiles { count: 1_000, p50: 1_000, p99, p999: p99, ..Quantiles::default() },
            cpu_percent_sender: Some(cpu),
            cpu_percent_receivers: Some(5.0),
            goodput_slowest: Some(goodput),
            ..Account::default()
        };
        let result = RunResult::Measured(Box::new(account));
        let (row, system) = (row.to_owned(), system.to_owned());
        Run { row, system, turn: 1, kind: Kind::Carom, order: Order::None, limit: None, result }
    }

    #[test]
    fn row_with_a_baseline_shows_the_ratio_of_latencies() {
        let runs =
            vec![run("quiet", "raw", 50_000, 1.0, 1e6), run("busy", "raw", 100_000, 1.0, 1e6)];
        let (report, row) =
            (Report { runs, ..Report::default() }, row("busy", "baseline = \"quiet\""));
        let text = text(&report, &row);
        assert!(text.contains("| raw | latency p99 | 100 | 2 |"), "{text}");
        assert!(!text.contains("carom:bulk"), "it was not measured: {text}");
    }

    #[test]
    fn cpu_relation_is_judged_only_at_the_set_rate() {
        let row = row("rate", "cpu_points = 10.0");
        let of = |cpu, goodput| Report {
            runs: vec![
                run("rate", "carom:bulk", 1, cpu, 1e6),
                run("rate", "raw", 1, 20.0, goodput),
            ],
            ..Report::default()
        };
        let judged = |report: Report| text(&report, &row);
        let near = judged(of(29.0, 1e6));
        assert!(near.contains("9 points more. At most 10 points more: holds."), "{near}");
        assert!(judged(of(31.0, 1e6)).contains("DOES NOT HOLD"));
        let late = judged(of(31.0, 0.5e6));
        assert!(late.contains("not compared: raw reached 0.5 of 1 MB/s"), "{late}");
    }

    #[test]
    fn figure_has_a_line_for_each_system_role_and_mtu() {
        let row = row("rate", "cpu_points = 10.0");
        let runs = vec![run("rate", "carom:bulk", 1, 1.0, 1e6), run("rate", "raw", 1, 1.0, 1e6)];
        let report = Report { runs, ..Report::default() };
        let svg = figure(&report, std::slice::from_ref(&row));
        assert!(svg.contains("carom:bulk, sender, MTU 1500"), "{svg}");
        assert!(svg.contains("raw, receiver, MTU 1500"), "{svg}");
        assert_eq!(figure(&Report::default(), &[row]), "");
    }
}
