use std::fmt;

use super::median::{Median, short};
use super::metric::Metric;
use super::results::Report;
use super::run::Kind;
use super::runs::Runs;

/// A result of Carom divided by that of another system in the same row.
#[derive(Clone, Debug)]
pub(super) struct Ratio<'a> {
    pub(super) row: &'a str,
    /// Name of Carom, with its settings unless they are the default.
    pub(super) system: &'a str,
    pub(super) metric: Metric,
    pub(super) reference: Reference,
    /// Name of the other system.
    other: &'a str,
    /// Median of Carom.
    pub(super) ours: f64,
    /// Ratio of the medians.
    pub(super) value: f64,
    /// Smallest and largest ratio of one run of each system. `None` if each has a single run.
    range: Option<(f64, f64)>,
    /// `true` if Carom was measured repeatedly and the other system once.
    is_unrepeated: bool,
}

/// The meaning of the system with which Carom is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The peer with the best median, among those that failed in no run and missed nothing.
    BestPeer,
    /// Plain sockets.
    Raw,
}

/// Returns all ratios, in the order of rows, systems of Carom, and metrics.
pub(super) fn all(report: &Report) -> Vec<Ratio<'_>> {
    report.rows().into_iter().flat_map(|row| of_row(report, row)).collect()
}

pub(super) fn of_row<'a>(report: &'a Report, row: &'a str) -> Vec<Ratio<'a>> {
    let systems = report.systems(row);
    let mut ratios = Vec::new();
    for runs in systems.iter().filter(|runs| runs.is(Kind::Carom)) {
        for metric in COMPARED {
            let Some(ours) = runs.median(metric) else { continue };
            for reference in [Reference::BestPeer, Reference::Raw] {
                let Some((other, theirs)) = best(&systems, metric, reference) else { continue };
                let value = ours.value / theirs.value;
                // A result of 0 has no ratio.
                if value > 0.0 && value.is_finite() {
                    let range = ours.ratios_to(&theirs);
                    let is_unrepeated = ours.runs > 1 && theirs.runs == 1;
                    let (system, ours) = (runs.system(), ours.value);
                    ratios.push(Ratio {
                        row,
                        system,
                        metric,
                        reference,
                        other,
                        ours,
                        value,
                        range,
                        is_unrepeated,
                    });
                }
            }
        }
    }
    ratios
}

/// Returns the name and the result of the system with which a row compares.
fn best<'a>(
    systems: &[Runs<'a>],
    metric: Metric,
    reference: Reference,
) -> Option<(&'a str, Median)> {
    // Without its value, a worse peer would be the best one.
    if lacking(systems, metric, reference).is_some() {
        return None;
    }
    let wanted = systems.iter().filter(|runs| is_wanted(runs, reference));
    let medians = wanted.filter_map(|runs| Some((runs.system(), runs.median(metric)?)));
    medians.min_by(|(_, a), (_, b)| match metric.is_better_if_higher() {
        true => b.value.total_cmp(&a.value),
        false => a.value.total_cmp(&b.value),
    })
}

/// Returns the metrics of a row that are not compared with the best peer, because a peer has too
/// few values of them, with its name and their number.
pub(super) fn not_compared<'a>(report: &'a Report, row: &str) -> Vec<(Metric, &'a str, u64)> {
    let systems = report.systems(row);
    let is_ours = |metric| {
        let mut ours = systems.iter().filter(|runs| runs.is(Kind::Carom));
        ours.any(|runs| runs.median(metric).is_some())
    };
    let metrics = COMPARED.into_iter().filter(|metric| is_ours(*metric));
    let lacking = metrics.filter_map(|metric| {
        let (system, count) = lacking(&systems, metric, Reference::BestPeer)?;
        Some((metric, system, count))
    });
    lacking.collect()
}

/// Returns the first system that may be the reference and has too few values, with their number.
fn lacking<'a>(
    systems: &[Runs<'a>],
    metric: Metric,
    reference: Reference,
) -> Option<(&'a str, u64)> {
    let mut wanted = systems.iter().filter(|runs| is_wanted(runs, reference));
    wanted.find_map(|runs| Some((runs.system(), runs.too_few(metric)?)))
}

fn is_wanted(runs: &Runs<'_>, reference: Reference) -> bool {
    match reference {
        Reference::BestPeer => runs.is(Kind::Peer) && runs.may_be_best(),
        Reference::Raw => runs.is(Kind::Raw) && runs.flaw().is_none(),
    }
}

impl Ratio<'_> {
    /// Returns `true` if both compare the same things, though perhaps with another best peer.
    pub(super) fn is_same(&self, other: &Ratio<'_>) -> bool {
        let key = |it: &Ratio<'_>| (it.metric, it.reference);
        (self.row, self.system) == (other.row, other.system) && key(self) == key(other)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestPeer => "best peer",
            Self::Raw => "raw sockets",
        })
    }
}

impl fmt::Display for Ratio<'_> {
    /// Writes the ratio, the other system, and the range over the runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let once = if self.is_unrepeated { ", 1 run" } else { "" };
        write!(f, "{} ({}{once}", short(self.value), self.other)?;
        if let Some((least, most)) = self.range {
            write!(f, "; {} to {}", short(least), short(most))?;
        }
        f.write_str(")")
    }
}

const COMPARED: [Metric; 8] = [
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::LatencyP999,
    Metric::RecoveredP50,
    Metric::RecoveredP99,
    Metric::Cpu,
    Metric::Packets,
    Metric::GoodputSlowest,
];
