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

    /// Returns the charts of all rows as one SVG.
    pub fn svg(&self) -> String {
        carom_figures::draw(&charts::figures(self))
    }

    fn section(&self, row: &str) -> String {
        let mut text = format!("### {row}\n\n{}", table::measured(self, row));
        let ratios = table::ratios(self, row);
        if !ratios.is_empty() {
            text += &format!("\n{ratios}");
            for runs in self.systems(row).iter().filter(|runs| runs.is(Kind::Carom)) {
                let system = runs.system();
                text += &runs.flaw().map_or_else(String::new, |flaw| {
                    format!("\nThe ratios of {system} are those of its measured runs: {flaw}.\n")
                });
            }
        }
        for (metric, system, count) in ratios::not_compared(self, row) {
            let name = metric.name();
            text += &format!("\n{name} is not compared: {system} has {count} values in a run.\n");
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
            goodput_slowest: Some(goodput),
            orders_agree: true,
            ..Account::default()
        };
        let result = RunResult::Measured(Box::new(account));
        let (row, system) = ("fan-out".to_owned(), system.to_owned());
        Run { row, system, kind, order: Order::Total, limit: None, result }
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
            run("carom", Kind::Carom, 120_000, 30e6, 0),
            run("norm", Kind::Peer, 400_000, 10e6, 0),
            skipped,
        ];
        Report { runs, ..Report::default() }
    }

    fn line(report: &Report, system: &str) -> String {
        let (text, start) = (report.markdown(), format!("| {system} |"));
        text.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
    }

    #[test]
    fn table_has_medians_spreads_and_missing_copies() {
        let report = report();
        assert!(line(&report, "carom").contains("| 110 (18 %) |"), "{}", report.markdown());
        let raw = line(&report, "raw");
        assert!(raw.contains("| 90 % |") && raw.contains("| 60 |"), "{raw}");
        let text = report.markdown();
        assert!(text.contains("Not measured: jgroups (no Java)."), "{text}");
    }

    #[test]
    fn failed_runs_are_counted_and_make_a_peer_no_best_peer() {
        let mut report = report();
        let failed = RunResult::Failed("it | broke\ntwice".to_owned());
        let aeron = Run { result: failed.clone(), ..run("aeron", Kind::Peer, 0, 0.0, 0) };
        report.runs.push(aeron);
        report.runs.push(Run { result: failed, ..run("norn", Kind::Peer, 0, 0.0, 0) });
        let skipped = RunResult::Skipped("no Java".to_owned());
        report.runs.push(run("jgroups", Kind::Peer, 1_000, 1e9, 0));
        report.runs.push(Run { result: skipped, ..run("jgroups", Kind::Peer, 0, 0.0, 0) });
        let reason = "| aeron | failed in 1 of 2 runs: it \\| broke twice | 100 % |";
        assert!(line(&report, "aeron").starts_with(reason), "{}", line(&report, "aeron"));
        let reason = "| norn | failed in 1 of 1 runs: it \\| broke twice |  |";
        assert!(line(&report, "norn").starts_with(reason), "{}", line(&report, "norn"));
        let jgroups = line(&report, "jgroups");
        assert!(jgroups.contains("failed in 2 of 3 runs: no Java"), "{jgroups}");
        let text = report.markdown();
        assert!(text.contains("0.275 (norm, 1 run;") && !text.contains("(aeron"), "{text}");
    }

    #[test]
    fn ratios_of_a_flawed_carom_are_marked() {
        let mut report = report();
        assert!(!report.markdown().contains("The ratios of"), "{}", report.markdown());
        let failed = RunResult::Failed("broke".to_owned());
        report.runs.push(Run { result: failed, ..run("carom", Kind::Carom, 0, 0.0, 0) });
        let mark = "The ratios of carom are those of its measured runs: \
                    failed in 1 of 3 runs: broke.";
        assert!(report.markdown().contains(mark), "{}", report.markdown());
    }

    #[test]
    fn peer_that_reached_a_time_limit_is_no_best_peer() {
        let mut report = report();
        let fast = run("pgm", Kind::Peer, 1_000, 1e9, 0);
        report.runs.push(Run { limit: Some(Limit::Sending), ..fast });
        assert!(line(&report, "pgm").contains("time limit reached in 1 of 1 runs"));
        assert!(report.markdown().contains("1.38 (aeron, 1 run;"), "{}", report.markdown());
    }

    #[test]
    fn peer_that_broke_its_promised_order_is_no_best_peer() {
        let with = |order: Order| {
            let mut report = report();
            let mut fast = Run { order, ..run("pgm", Kind::Peer, 1_000, 1e9, 0) };
            if let RunResult::Measured(account) = &mut fast.result {
                account.orders_agree = false;
            }
            report.runs.push(fast);
            report
        };
        let (broken, unordered) = (with(Order::Total), with(Order::None));
        assert!(line(&broken, "pgm").contains("| total | **differ** |"));
        assert!(broken.markdown().contains("1.38 (aeron, 1 run;"));
        assert!(line(&unordered, "pgm").contains("| none | differ |"));
        assert!(unordered.markdown().contains("(pgm, 1 run;"));
    }

    #[test]
    fn ratios_compare_with_the_best_peer_and_raw_sockets() {
        let text = report().markdown();
        let p99 = "| carom | latency p99 | 110 µs | 1.38 (aeron, 1 run; 1.25 to 1.5) | \
             2.2 (raw, 1 run; 2 to 2.4) |";
        let goodput = "| goodput, slowest | 30 MB/s | 1.5 (aeron, 1 run; 1.5 to 1.5) | \
             0.5 (raw, 1 run; 0.5 to 0.5) |";
        assert!(text.contains(p99) && text.contains(goodput), "{text}");
    }

    #[test]
    fn metric_with_too_few_values_of_a_peer_is_not_compared() {
        let mut report = report();
        let mut fast = run("pgm", Kind::Peer, 1_000, 1e6, 0);
        if let RunResult::Measured(account) = &mut fast.result {
            account.latency.count = 72;
        }
        report.runs.push(fast);
        let text = report.markdown();
        assert!(
            text.contains("latency p99 is not compared: pgm has 72 values in a run."),
            "{text}"
        );
        assert!(!text.contains("1.38 (aeron"), "the worse peer is no reference: {text}");
    }

    #[test]
    fn goodput_at_a_set_rate_is_not_compared() {
        let mut report = report();
        for run in &mut report.runs {
            if let RunResult::Measured(account) = &mut run.result {
                account.is_paced = true;
            }
        }
        assert!(!report.markdown().contains("goodput"), "{}", report.markdown());
        assert!(!report.svg().contains("goodput"));
    }

    #[test]
    fn peer_that_misses_copies_is_no_best_peer() {
        let mut report = report();
        report.runs.push(run("pgm", Kind::Peer, 1_000, 1e9, 1));
        assert!(report.markdown().contains("1.38 (aeron, 1 run;"), "{}", report.markdown());
    }

    #[test]
    fn system_calls_have_a_column_where_they_were_counted() {
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
        assert!(text.contains("| system calls per message |"), "{text}");
        assert!(line(&report, "carom").ends_with("| 12.3 |"), "{text}");
        assert!(line(&report, "norm").ends_with("|  |"), "{text}");
        assert!(text.contains("System calls not counted: norm (no strace)."), "{text}");
    }

    #[test]
    fn reports_differ_where_a_ratio_does() {
        let same = Comparison::of(&report(), &report(), 0.2);
        assert_eq!((same.ratios, &*same.differences), (6, &[] as &[String]));
        let mut other = report();
        other.runs[1] = run("aeron", Kind::Peer, 100_000, 20e6, 0);
        let close = Comparison::of(&report(), &other, 0.26);
        assert_eq!(close.differences, [] as [String; 0]);
        let far = Comparison::of(&report(), &other, 0.2);
        let line = "fan-out, carom, latency p99 to best peer: 1.38 (aeron, 1 run; 1.25 to 1.5) \
                    and 1.1 (aeron, 1 run; 1 to 1.2), 25 %";
        assert_eq!((far.ratios, &*far.differences), (6, &[line.to_owned()][..]));
        other.runs.retain(|run| run.kind != Kind::Raw);
        let lacking = Comparison::of(&report(), &other, 0.3);
        assert_eq!((lacking.ratios, lacking.differences.len()), (6, 3));
        assert!(lacking.differences[0].ends_with(") and none"), "{lacking:?}");
        assert_eq!(Comparison::of(&other, &report(), 0.3).differences.len(), 3);
        other.runs.iter_mut().for_each(|run| run.row = "else".to_owned());
        assert_eq!(Comparison::of(&report(), &other, 0.2).ratios, 0);
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
