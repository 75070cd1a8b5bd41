//! Tables and charts of the results of many runs.

mod charts;
mod compare;
mod median;
mod metric;
mod ratios;
mod results;
mod run;
mod runs;
mod table;

pub use compare::Comparison;
pub use results::Report;
pub use run::{Kind, Limit, Order, Run, RunResult, Syscalls};
use runs::distinct;

impl Report {
    /// Returns a section in Markdown for each row: its table, the ratios of Carom, and systems that
    /// are not available with their reasons.
    pub fn markdown(&self) -> String {
        let sections: Vec<String> = self.rows().iter().map(|row| self.section(row)).collect();
        sections.join("\n")
    }

    /// Returns a table in Markdown of the main metrics of Carom in each row, with their ratios to
    /// the best peer and to raw sockets.
    pub fn overview(&self) -> String {
        table::overview(self)
    }

    /// Returns the charts of all rows as one SVG.
    pub fn svg(&self) -> String {
        carom_figures::draw(&charts::figures(self))
    }

    fn section(&self, row: &str) -> String {
        let mut text = format!("### {row}\n\n{}", table::measured(self, row));
        let ratios = table::ratios(self, row);
        if !ratios.is_empty() {
            text += &format!("\n{ratios}");
        }
        for runs in self.systems(row) {
            if let Some(flaw) = runs.flaw() {
                text += &format!("\n{}: {flaw}.\n", runs.system());
            }
        }
        for (metric, reason) in ratios::not_compared(self, row) {
            text += &format!("\n{} is not compared: {reason}.\n", metric.name());
        }
        let skipped = self.runs.iter().filter(|run| run.row == row);
        let reasons = distinct(skipped.filter_map(|run| match &run.result {
            RunResult::Skipped(reason) => Some((&*run.system, &**reason)),
            RunResult::Measured(_) | RunResult::Failed(_) => None,
        }));
        for (system, reason) in reasons {
            text += &format!("\nNot measured: {system} ({reason}).\n");
        }
        for Syscalls { system, reason, .. } in self.syscalls.iter().filter(|it| it.row == row) {
            if let Some(reason) = reason {
                text += &format!("\nSystem calls not counted: {system} ({reason}).\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::latencies::Quantiles;

    fn run(system: &str, kind: Kind, p99: u64, goodput: f64, missing: u64) -> Run {
        let latency = Quantiles { count: 1000, p50: 50_000, p99, max: p99, ..Quantiles::default() };
        let (expected, delivered) = (100, 100 - missing);
        let account = Account {
            expected,
            delivered,
            missing,
            latency,
            cpu_us_per_copy: Some(p99 as f64 / 1e3),
            goodput_slowest: Some(goodput),
            orders_agree: true,
            ..Account::default()
        };
        let result = RunResult::Measured(Box::new(account));
        let (row, system) = ("fan-out".to_owned(), system.to_owned());
        Run { row, system, turn: 1, kind, order: Order::Total, limit: None, result }
    }

    /// Changes the results of a run that was measured.
    fn edit(run: &mut Run, change: impl FnOnce(&mut Account)) {
        if let RunResult::Measured(account) = &mut run.result {
            change(account);
        }
    }

    fn second(run: Run) -> Run {
        Run { turn: 2, ..run }
    }

    fn report() -> Report {
        let skipped = Run {
            result: RunResult::Skipped("no Java".to_owned()),
            ..run("jgroups", Kind::Peer, 0, 0.0, 0)
        };
        let runs = vec![
            run("carom", Kind::Carom, 100_000, 30e6, 0),
            run("aeron", Kind::Peer, 80_000, 20e6, 0),
            run("raw", Kind::Raw, 50_000, 60e6, 10),
            run("norm", Kind::Peer, 400_000, 10e6, 0),
            second(run("carom", Kind::Carom, 120_000, 30e6, 0)),
            second(run("aeron", Kind::Peer, 90_000, 15e6, 0)),
            skipped,
        ];
        Report { runs, ..Report::default() }
    }

    /// Returns the same report of messages that were sent at a set rate.
    fn paced() -> Report {
        let mut report = report();
        let paced = |account: &mut Account| account.is_paced = true;
        report.runs.iter_mut().for_each(|run| edit(run, paced));
        report
    }

    /// Returns the cells of a system in the table of the row: those of the runs, of `name`, ...
    fn cell(report: &Report, system: &str, name: &str) -> String {
        let text = report.markdown();
        let cells = |line: &str| -> Vec<String> {
            line.replace("\\|", "/").split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut lines = text.lines().skip(2);
        let column = cells(lines.next().unwrap_or_default()).iter().position(|it| it == system);
        let line = lines.map(cells).find(|cells| cells.get(1).is_some_and(|it| it == name));
        line.zip(column).map_or_else(String::new, |(cells, column)| cells[column].clone())
    }

    #[test]
    fn table_has_medians_spreads_and_missing_copies() {
        let report = report();
        assert_eq!(cell(&report, "carom", "latency p99, µs"), "110 (18 %)");
        assert_eq!(cell(&report, "raw", "delivered"), "90 %");
        assert_eq!(cell(&report, "raw", "goodput, slowest, MB/s"), "60");
        assert_eq!(cell(&report, "norm", "order"), "total, agree");
        assert_eq!(cell(&report, "jgroups", "runs"), "", "it has no column");
        let text = report.markdown();
        assert!(text.contains("Not measured: jgroups (no Java)."), "{text}");
        assert!(!text.contains("recovered"), "no system has such values: {text}");
    }

    #[test]
    fn failed_runs_are_counted_and_make_a_peer_no_best_peer() {
        let mut report = report();
        let failed = RunResult::Failed("it | broke\ntwice".to_owned());
        report.runs.push(Run { result: failed.clone(), ..run("aeron", Kind::Peer, 0, 0.0, 0) });
        report.runs.push(Run { result: failed, ..run("norn", Kind::Peer, 0, 0.0, 0) });
        let skipped = RunResult::Skipped("no Java".to_owned());
        report.runs.push(run("jgroups", Kind::Peer, 1_000, 1e9, 0));
        report.runs.push(Run { result: skipped, ..run("jgroups", Kind::Peer, 0, 0.0, 0) });
        let text = report.markdown();
        assert_eq!(cell(&report, "aeron", "runs"), "2 of 3");
        assert!(text.contains("\naeron: failed in 1 of 3 runs: it | broke twice.\n"), "{text}");
        assert_eq!(cell(&report, "norn", "runs"), "0 of 1");
        assert_eq!(cell(&report, "norn", "delivered"), "");
        assert!(text.contains("\njgroups: failed in 2 of 3 runs: no Java.\n"), "{text}");
        assert!(text.contains("0.25 (norm, 1 turn)") && !text.contains("(aeron"), "{text}");
    }

    #[test]
    fn values_of_a_flawed_carom_are_marked() {
        let mut report = report();
        let failed = RunResult::Failed("broke".to_owned());
        report.runs.push(Run { result: failed, ..run("carom", Kind::Carom, 0, 0.0, 0) });
        let mark = "| CPU per copy | 110 µs (2 of 3 runs) | **1.29 (aeron;";
        assert!(report.markdown().contains(mark), "{}", report.markdown());
        assert!(report.markdown().contains("\ncarom: failed in 1 of 3 runs: broke.\n"));
    }

    #[test]
    fn peer_that_reached_a_time_limit_is_no_best_peer() {
        let mut report = report();
        let fast = run("pgm", Kind::Peer, 1_000, 1e9, 0);
        report.runs.push(Run { limit: Some(Limit::Sending), ..fast });
        let text = report.markdown();
        assert_eq!(cell(&report, "pgm", "runs"), "0 of 1");
        assert!(text.contains("pgm: time limit reached in 1 of 1 runs."), "{text}");
        assert!(text.contains("1.29 (aeron;"), "{text}");
    }

    #[test]
    fn peer_that_broke_its_promised_order_is_no_best_peer() {
        let with = |order: Order, orders_agree: bool, out_of_order: u64| {
            let mut report = report();
            let mut fast = Run { order, ..run("pgm", Kind::Peer, 1_000, 1e9, 0) };
            edit(&mut fast, |account| {
                account.orders_agree = orders_agree;
                account.out_of_order = out_of_order;
            });
            report.runs.push(fast);
            report
        };
        let (broken, unordered) = (with(Order::Total, false, 0), with(Order::None, false, 3));
        assert_eq!(cell(&broken, "pgm", "order"), "total, **differ**");
        assert!(broken.markdown().contains("1.29 (aeron;"));
        for order in [Order::Source, Order::Total] {
            let broken = with(order, true, 3);
            let shown = format!("{order}, agree, **3 copies out of order**");
            assert_eq!(cell(&broken, "pgm", "order"), shown);
            assert!(broken.markdown().contains("1.29 (aeron;"));
        }
        assert!(with(Order::Source, false, 0).markdown().contains("(pgm, 1 turn)"));
        assert_eq!(cell(&unordered, "pgm", "order"), "none, differ");
        assert!(unordered.markdown().contains("(pgm, 1 turn)"));
    }

    #[test]
    fn ratios_are_those_of_the_turns() {
        let text = report().markdown();
        let cpu = "| carom | CPU per copy | 110 µs | **1.29 (aeron; 1.25 to 1.33)** | \
                   2 (raw, 1 turn) |";
        let goodput = "| goodput, slowest | 30 MB/s | 1.5 to 2 (aeron) | 0.5 (raw, 1 turn) |";
        assert!(text.contains(cpu), "{text}");
        assert!(text.contains(goodput), "the turns differ by 33 %: {text}");
        let behind = "**0.75 to 1.5 (aeron)**";
        let mut report = report();
        report.runs[1] = run("aeron", Kind::Peer, 80_000, 40e6, 0);
        report.runs[5] = second(run("aeron", Kind::Peer, 90_000, 20e6, 0));
        assert!(report.markdown().contains(behind), "a peer was ahead: {}", report.markdown());
    }

    #[test]
    fn systems_without_a_turn_in_common_are_not_compared() {
        let mut report = report();
        report.runs[0].result = RunResult::Failed("broke".to_owned());
        let text = report.markdown();
        let reason = "CPU per copy is not compared: no turn has a value other than 0 of both \
                      carom and raw.";
        assert!(text.contains(reason), "{text}");
        assert!(text.contains("**1.33 (aeron, 1 turn)**"), "{text}");
        let whole = self::report();
        assert_eq!(Comparison::of(&whole, &report).differences.len(), 2, "raw is missing");
    }

    #[test]
    fn overview_has_the_main_metrics_of_each_row() {
        let text = report().overview();
        let line = "| fan-out | carom | goodput, slowest | 30 MB/s | 1.5 to 2 (aeron) | \
                    0.5 (raw, 1 turn) |";
        assert!(text.contains(line) && !text.contains("latency"), "{text}");
        let mut paced = paced();
        for run in &mut paced.runs {
            edit(run, |account| {
                account.datagrams_dropped = 1;
            });
        }
        assert!(!paced.overview().contains("recovered"), "nothing was recovered");
        for run in &mut paced.runs {
            edit(run, |account| {
                account.latency_recovered = account.latency;
            });
        }
        assert!(paced.overview().contains("| fan-out | carom | recovered p99 | 110 µs |"));
    }

    #[test]
    fn plain_sockets_with_settings_are_no_reference() {
        let mut report = report();
        report.runs.push(run("raw:stamped", Kind::Raw, 1_000, 1e9, 0));
        assert!(report.markdown().contains("| 2 (raw, 1 turn) |"), "{}", report.markdown());
    }

    #[test]
    fn link_drops_have_a_column_where_there_are_some() {
        let with = |drops| {
            let mut report = report();
            let mut limited = run("pgm", Kind::Peer, 1_000, 1e9, 0);
            edit(&mut limited, |account| {
                account.link_drops = drops;
            });
            report.runs.push(limited);
            report
        };
        assert!(!with(None).markdown().contains("link drops"));
        assert!(!with(Some(0)).markdown().contains("link drops"));
        assert_eq!(cell(&with(Some(7)), "pgm", "link drops"), "7");
        assert_eq!(cell(&with(Some(7)), "carom", "link drops"), "");
    }

    #[test]
    fn metric_with_too_few_values_of_a_peer_is_not_compared() {
        let mut report = paced();
        let mut fast = run("pgm", Kind::Peer, 1_000, 1e6, 0);
        edit(&mut fast, |account| {
            account.is_paced = true;
            account.latency.count = 72;
        });
        report.runs.push(fast);
        let text = report.markdown();
        assert!(
            text.contains("latency p99 is not compared: pgm has 72 values in a run."),
            "{text}"
        );
        assert!(!text.contains("latency p99 | 110 µs"), "the worse peer is no reference: {text}");
    }

    #[test]
    fn goodput_at_a_set_rate_is_not_compared() {
        let report = paced();
        assert!(!report.markdown().contains("goodput"), "{}", report.markdown());
        assert!(!report.svg().contains("goodput"));
    }

    #[test]
    fn latency_is_compared_at_a_set_rate_and_not_for_bulk() {
        let line = "| carom | latency p99 | 110 µs | **1.29 (aeron; 1.25 to 1.33)** |";
        let at_full_speed = report();
        assert_eq!(cell(&at_full_speed, "carom", "latency p99, µs"), "110 (18 %)");
        assert!(!at_full_speed.markdown().contains(line), "{}", at_full_speed.markdown());
        let mut report = paced();
        assert!(report.markdown().contains(line), "{}", report.markdown());
        let ours = report.runs.iter_mut().filter(|run| run.kind == Kind::Carom);
        ours.for_each(|run| run.system = "carom:bulk".to_owned());
        let text = report.markdown();
        assert!(!text.contains("| latency p99 | 110 µs |"), "{text}");
        assert!(text.contains("| carom:bulk | CPU per copy | 110 µs |"), "{text}");
    }

    #[test]
    fn tail_is_compared_if_one_pause_does_not_decide_it() {
        let with = |count: u64| {
            let mut report = paced();
            let tail = |account: &mut Account| {
                account.latency.count = count;
                account.latency.p999 = account.latency.p99;
            };
            report.runs.iter_mut().for_each(|run| edit(run, tail));
            report.markdown()
        };
        let line = "| carom | latency p99.9 | 110 µs | **1.29 (aeron; 1.25 to 1.33)** |";
        assert!(!with(9_999).contains(line), "{}", with(9_999));
        assert!(with(10_000).contains(line), "{}", with(10_000));
    }

    #[test]
    fn latency_of_plain_sockets_that_miss_copies_is_not_compared() {
        let with = |missing: u64| {
            let mut report = paced();
            edit(&mut report.runs[2], |account| account.missing = missing);
            report.markdown()
        };
        let latency = "| latency p99 | 110 µs | **1.29 (aeron; 1.25 to 1.33)** |";
        assert!(with(0).contains(&format!("{latency} 2 (raw, 1 turn) |")), "{}", with(0));
        let text = with(10);
        assert!(text.contains(&format!("{latency}  |")), "{text}");
        let cpu = "| CPU per copy | 110 µs | **1.29 (aeron; 1.25 to 1.33)** | 2 (raw, 1 turn) |";
        assert!(text.contains(cpu), "{text}");
    }

    #[test]
    fn peer_that_misses_copies_is_no_best_peer() {
        let mut report = report();
        report.runs.push(run("pgm", Kind::Peer, 1_000, 1e9, 1));
        assert!(report.markdown().contains("1.29 (aeron;"), "{}", report.markdown());
    }

    #[test]
    fn system_calls_have_a_line_where_they_were_counted() {
        let mut report = report();
        assert!(!report.markdown().contains("system calls"));
        let mut add = |system: &str, per_message, reason: Option<&str>| {
            let (row, system) = ("fan-out".to_owned(), system.to_owned());
            let reason = reason.map(str::to_owned);
            report.syscalls.push(Syscalls { row, system, per_message, reason });
        };
        add("carom", Some(12.34), None);
        add("norm", None, Some("no strace"));
        let text = report.markdown();
        assert_eq!(cell(&report, "carom", "system calls per message"), "12.3");
        assert_eq!(cell(&report, "norm", "system calls per message"), "");
        assert!(text.contains("System calls not counted: norm (no strace)."), "{text}");
    }

    /// Returns a report whose two results of the best peer are these.
    fn with_aeron(p99: u64, goodput: f64) -> Report {
        let mut report = report();
        report.runs[1] = run("aeron", Kind::Peer, p99, goodput, 0);
        report.runs[5] = second(run("aeron", Kind::Peer, p99 * 9 / 8, goodput, 0));
        report
    }

    #[test]
    fn reports_differ_where_a_ratio_does() {
        let same = Comparison::of(&report(), &report());
        assert_eq!((same.ratios, same.unsteady, &*same.differences), (2, 1, &[] as &[String]));
        assert_eq!(same.left_out, 2, "raw was measured once");
        let close = Comparison::of(&report(), &with_aeron(70_000, 15e6));
        assert_eq!(close.differences, [] as [String; 0], "14 %, and within the range");
        let far = Comparison::of(&report(), &with_aeron(64_000, 12e6));
        let lines = [
            "fan-out, carom, CPU per copy to best peer: 1.29 (aeron; 1.25 to 1.33) and \
             1.61 (aeron; 1.56 to 1.67), 25 %",
            "fan-out, carom, goodput, slowest to best peer: 1.5 to 2 (aeron) and 2.5 (aeron), 25 %",
        ];
        assert_eq!((far.ratios, &*far.differences), (2, &lines.map(str::to_owned)[..]));
    }

    #[test]
    fn reports_differ_where_one_lacks_a_ratio_or_a_row() {
        let mut other = report();
        other.runs.retain(|run| run.kind != Kind::Peer);
        let lacking = Comparison::of(&report(), &other);
        assert_eq!((lacking.ratios, lacking.differences.len()), (2, 2));
        assert!(lacking.differences[0].ends_with(") and none"), "{lacking:?}");
        let reverse = Comparison::of(&other, &report());
        assert!(reverse.differences[0].contains(": none and 1.29 (aeron"), "{reverse:?}");
        other.runs.iter_mut().for_each(|run| run.row = "else".to_owned());
        let rows = Comparison::of(&report(), &other);
        let lines = ["fan-out: not in the second report", "else: not in the first report"];
        assert_eq!((rows.ratios, &*rows.differences), (0, &lines.map(str::to_owned)[..]));
    }

    #[test]
    fn ratio_to_a_best_peer_is_compared_with_that_to_the_same_peer() {
        let third = |run: Run| Run { turn: 3, ..run };
        // In the third turn, pgm has another result, and may miss copies.
        let with_pgm = |cpu: u64, third_cpu: u64, missing: u64| {
            let mut report = report();
            let pgm = |cpu, missing| run("pgm", Kind::Peer, cpu, 15e6, missing);
            report.runs.extend([
                third(run("carom", Kind::Carom, 110_000, 30e6, 0)),
                third(run("aeron", Kind::Peer, 85_000, 15e6, 0)),
                pgm(cpu, 0),
                second(pgm(cpu * 9 / 8, 0)),
                third(pgm(third_cpu, missing)),
            ]);
            report
        };
        let (first, second) = (with_pgm(82_000, 87_000, 0), with_pgm(75_000, 80_000, 0));
        assert!(first.markdown().contains("(aeron; "), "{}", first.markdown());
        assert!(second.markdown().contains("(pgm; "), "{}", second.markdown());
        let same = Comparison::of(&first, &second);
        assert_eq!((same.ratios, &*same.differences), (3, &[] as &[String]));
        let flawed = with_pgm(75_000, 1_000, 1);
        assert_eq!(Comparison::of(&second, &flawed).differences, [] as [String; 0]);
        let mut once = second.clone();
        once.runs.retain(|run| run.system != "pgm" || run.turn == 3);
        once.runs.retain(|run| run.system != "aeron");
        let lacking = Comparison::of(&once, &with_pgm(75_000, 1_000, 1));
        assert_eq!(lacking.differences.len(), 2, "{lacking:?}");
        assert!(lacking.differences.iter().all(|line| line.contains("(aeron")), "{lacking:?}");
        let far = Comparison::of(&second, &with_pgm(55_000, 60_000, 1));
        assert_eq!(far.differences.len(), 1, "{far:?}");
        assert!(far.differences[0].contains("CPU per copy to best peer: 1.38 (pgm; "), "{far:?}");
    }

    #[test]
    fn charts_show_every_measured_system() {
        let svg = report().svg();
        for text in ["carom", "aeron", "raw", "norm", "latency p99", "fan-out"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("jgroups"));
        assert_eq!(Report::default().svg(), "");
    }

    #[test]
    fn report_is_read_as_it_was_written() {
        let text = serde_json::to_string(&report()).expect("it can be written");
        let read: Report = serde_json::from_str(&text).expect("it was written");
        assert_eq!(read, report());
    }
}
