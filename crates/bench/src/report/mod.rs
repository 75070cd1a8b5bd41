//! Tables and charts of the results of many runs.

mod charts;
mod median;
mod metric;
mod results;
mod table;

use results::distinct;
pub use results::{Kind, Report, Run, RunResult};

impl Report {
    /// Returns a section in Markdown for each row: its table, the ratios of Carom, and skipped
    /// systems with their reasons.
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
        }
        let skipped = self.runs.iter().filter(|run| run.row == row);
        let reasons = distinct(skipped.filter_map(|run| match &run.result {
            RunResult::Skipped(reason) => Some((&*run.system, &**reason)),
            RunResult::Measured(_) => None,
        }));
        for (system, reason) in reasons {
            text += &format!("\nNot measured: {system} ({reason}).\n");
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
        Run { row: "fan-out".to_owned(), system: system.to_owned(), kind, result }
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
        Report { runs }
    }

    #[test]
    fn table_has_medians_spreads_and_missing_copies() {
        let text = report().markdown();
        let row = |system: &str| {
            let start = format!("| {system} |");
            text.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
        };
        assert!(row("carom").contains("| 110 (18 %) |"), "{text}");
        assert!(row("raw").contains("| 90 % |") && row("raw").contains("| 60 |"), "{text}");
        assert!(text.contains("Not measured: jgroups (no Java)."), "{text}");
    }

    #[test]
    fn ratios_compare_with_the_best_peer_and_raw_sockets() {
        let text = report().markdown();
        let p99 = "| carom | latency p99 | 110 µs | 1.38 (aeron) | 2.2 |";
        let goodput = "| carom | goodput, slowest | 30 MB/s | 1.5 (aeron) | 0.5 |";
        assert!(text.contains(p99) && text.contains(goodput), "{text}");
    }

    #[test]
    fn peer_that_misses_copies_is_no_best_peer() {
        let mut report = report();
        report.runs.push(run("pgm", Kind::Peer, 1_000, 1e9, 1));
        assert!(report.markdown().contains("1.38 (aeron)"), "{}", report.markdown());
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
