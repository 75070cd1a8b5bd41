use std::collections::BTreeMap;
use std::time::Duration;

use carom::NodeId;
use carom_bench::Latencies;
use carom_terminal::counted;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::args::Profile;
use super::control::Report;

/// The results of all runs of a benchmark.
pub(super) struct Results {
    group: String,
    profile: Profile,
    size: usize,
    pub(super) phases: Vec<Phase>,
    pub(super) is_interrupted: bool,
}

/// The results of one run.
pub(super) struct Phase {
    pub(super) rate: Option<f64>,
    pub(super) sent: u64,
    pub(super) took: Duration,
    pub(super) receivers: BTreeMap<NodeId, Arrived>,
}

/// The results at one receiver.
#[derive(Default)]
pub(super) struct Arrived {
    /// `None` if the receiver did not report in time.
    pub(super) report: Option<Report>,
    pub(super) latencies: Latencies,
}

impl Results {
    pub(super) fn new(group: String, profile: Profile, size: usize) -> Self {
        Self { group, profile, size, phases: Vec::new(), is_interrupted: false }
    }

    /// Returns `true` if every receiver has reported every message once.
    pub(super) fn is_complete(&self) -> bool {
        let is_whole = |phase: &Phase, report: &Report| {
            report.delivered == phase.sent && report.duplicates == 0 && report.corrupted == 0
        };
        self.phases.iter().all(|phase| {
            let mut receivers = phase.receivers.values();
            receivers.all(|it| it.report.as_ref().is_some_and(|report| is_whole(phase, report)))
        })
    }

    pub(super) fn text(&self, has_histogram: bool) -> String {
        let phases: Vec<String> =
            self.phases.iter().map(|phase| phase.text(self, has_histogram)).collect();
        phases.join("\n\n")
    }

    pub(super) fn json(&self, has_histogram: bool) -> Value {
        let runs: Vec<Value> =
            self.phases.iter().map(|phase| phase.json(self.size, has_histogram)).collect();
        json!({
            "group": self.group,
            "profile": self.profile.name(),
            "size": self.size,
            "interrupted": self.is_interrupted,
            "runs": runs,
        })
    }
}

impl Phase {
    fn text(&self, results: &Results, has_histogram: bool) -> String {
        let rate =
            self.rate.map_or("as fast as possible".to_owned(), |rate| format!("at {rate}/s"));
        let messages = counted(self.sent, "message");
        let head = format!(
            "{messages} of {} bytes {rate}, profile {}, in {:.2} s",
            results.size,
            results.profile.name(),
            self.took.as_secs_f64()
        );
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "receiver",
            "delivered",
            "missing",
            "duplicates",
            "rate/s",
            "MB/s",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "method",
        ]);
        for (node, receiver) in &self.receivers {
            table.add_row(receiver.cells(&node.to_string(), self.sent, results.size));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{head}\n{table}\n{METHODS}");
        if has_histogram {
            for (node, receiver) in &self.receivers {
                text += &format!("\n\nlatency at {node}\n{}", bars(&receiver.latencies));
            }
        }
        text
    }

    fn json(&self, size: usize, has_histogram: bool) -> Value {
        let receivers = self.receivers.iter().map(|(node, receiver)| {
            let report = receiver.report.clone().unwrap_or_default();
            let quantiles = receiver.latencies.quantiles();
            let mut object = json!({
                "node": node.to_string(),
                "reported": receiver.report.is_some(),
                "delivered": report.delivered,
                "missing": self.sent.saturating_sub(report.delivered),
                "duplicates": report.duplicates,
                "corrupted": report.corrupted,
                "rate": report.rate(),
                "bytes_per_s": report.rate() * size as f64,
                "method": receiver.method(),
                "latency_ms": {
                    "count": quantiles.count,
                    "mean": quantiles.mean / 1e6,
                    "p50": ms(quantiles.p50),
                    "p90": ms(quantiles.p90),
                    "p99": ms(quantiles.p99),
                    "p999": ms(quantiles.p999),
                    "max": ms(quantiles.max),
                },
            });
            if has_histogram {
                let buckets =
                    receiver.latencies.buckets().map(|(ns, count)| json!([ms(ns), count]));
                object["histogram"] = buckets.collect();
            }
            object
        });
        json!({
            "rate": self.rate,
            "messages": self.sent,
            "seconds": self.took.as_secs_f64(),
            "receivers": receivers.collect::<Vec<_>>(),
        })
    }
}

impl Arrived {
    fn method(&self) -> &'static str {
        match &self.report {
            None => "none",
            Some(report) if report.has_clock => "one clock",
            Some(_) => "echo",
        }
    }

    fn cells(&self, node: &str, sent: u64, size: usize) -> Vec<String> {
        let Some(report) = &self.report else {
            return vec![node.to_owned(), "no report".to_owned()];
        };
        let quantiles = self.latencies.quantiles();
        let mut cells = vec![
            node.to_owned(),
            report.delivered.to_string(),
            sent.saturating_sub(report.delivered).to_string(),
            report.duplicates.to_string(),
            format!("{:.0}", report.rate()),
            format!("{:.1}", report.rate() * size as f64 / 1e6),
        ];
        let times = [quantiles.p50, quantiles.p90, quantiles.p99, quantiles.p999, quantiles.max];
        cells.extend(times.map(|ns| match quantiles.count {
            0 => "-".to_owned(),
            _ => format!("{:.3}", ms(ns)),
        }));
        cells.push(self.method().to_owned());
        cells
    }
}

impl Report {
    /// Returns the messages per second from the first to the last delivery.
    fn rate(&self) -> f64 {
        match self.span_ns {
            0 => 0.0,
            span => self.delivered.saturating_sub(1) as f64 * 1e9 / span as f64,
        }
    }
}

/// Returns a line for each factor of two: its upper end, the number of times, and a bar.
fn bars(latencies: &Latencies) -> String {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (ns, count) in latencies.buckets() {
        *counts.entry(ns.max(1).next_power_of_two()).or_default() += count;
    }
    let most = counts.values().copied().max().unwrap_or(1);
    let lines = counts.iter().map(|(ns, count)| {
        let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
        format!("up to {:>11.3} ms {count:>9} {bar}", ms(*ns))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

const BAR: u64 = 40;
const METHODS: &str = "latency from publish to delivery: by one clock on the sender's host, \
                       otherwise half of the round trip of an echo";

#[cfg(test)]
mod tests {
    use super::*;

    fn results(delivered: u64) -> Results {
        let mut latencies = Latencies::default();
        latencies.record_many(1_000_000, 3);
        latencies.record(70_000_000);
        let span_ns = 1_000_000_000;
        let report = Report { delivered, span_ns, has_clock: true, ..Report::default() };
        let receivers = BTreeMap::from([(NodeId(7), Arrived { report: Some(report), latencies })]);
        let phase = Phase { rate: None, sent: 101, took: Duration::from_secs(1), receivers };
        let mut results = Results::new("g".to_owned(), Profile::Bulk, 1_000);
        results.phases.push(phase);
        results
    }

    #[test]
    fn missing_messages_make_a_result_incomplete() {
        assert!(results(101).is_complete());
        assert!(!results(100).is_complete());
        let mut silent = results(101);
        silent.phases[0].receivers.insert(NodeId(8), Arrived::default());
        assert!(!silent.is_complete());
        assert!(silent.text(false).contains("no report"), "{}", silent.text(false));
    }

    #[test]
    fn text_and_json_have_the_same_numbers() {
        let text = results(101).text(true);
        for part in ["101 messages of 1000 bytes as fast as possible, profile bulk", "one clock"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.contains("0.1") && text.contains("up to") && text.contains("###"), "{text}");
        let run = &results(101).json(true)["runs"][0];
        let receiver = &run["receivers"][0];
        assert_eq!((&receiver["rate"], &receiver["bytes_per_s"]), (&100.0.into(), &1e5.into()));
        assert_eq!(receiver["histogram"].as_array().map(Vec::len), Some(2));
        assert!(run["rate"].is_null());
    }
}
