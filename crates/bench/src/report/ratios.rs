use std::fmt;

use super::median::{Median, short};
use super::metric::Metric;
use super::results::Report;
use super::run::Kind;
use super::runs::{Runs, distinct};

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
    /// Median of the ratios of the turns in which both were measured.
    turns: Median,
    /// `true` if there is only one such turn, although one of the two was run in several.
    pub(super) is_unrepeated: bool,
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
    let (ratios, _) = compared(report, row);
    ratios
}

/// Returns the ratio to the same peer in another report, where another one may be the best. Returns
/// `None` if the ratio is not to a peer, or both systems have no turn in common there.
pub(super) fn to_same_peer<'a>(report: &'a Report, ratio: &Ratio<'a>) -> Option<Ratio<'a>> {
    if ratio.reference != Reference::BestPeer {
        return None;
    }
    let systems = report.systems(ratio.row);
    let named = |name: &str| systems.iter().find(|runs| runs.system() == name);
    let (ours, theirs) = (named(ratio.system)?, named(ratio.other)?);
    Ratio::of(ratio.row, ours, theirs, ratio.metric, ratio.reference)
}

/// Returns the metrics of a row that are not compared, with the reason.
pub(super) fn not_compared(report: &Report, row: &str) -> Vec<(Metric, String)> {
    let (_, reasons) = compared(report, row);
    distinct(reasons.into_iter())
}

/// Returns the ratios of a row, and the reasons for which a metric of Carom has none.
fn compared<'a>(report: &'a Report, row: &'a str) -> (Vec<Ratio<'a>>, Vec<(Metric, String)>) {
    let systems = report.systems(row);
    let (mut ratios, mut reasons) = (Vec::new(), Vec::new());
    for ours in systems.iter().filter(|runs| runs.is(Kind::Carom)) {
        let has = |metric: &Metric| ours.median(*metric).is_some() && ours.compares(*metric);
        for metric in COMPARED.into_iter().filter(has) {
            for reference in [Reference::BestPeer, Reference::Raw] {
                match best(&systems, metric, reference) {
                    Err(reason) => reasons.push((metric, reason)),
                    Ok(None) => {}
                    Ok(Some(theirs)) => match Ratio::of(row, ours, theirs, metric, reference) {
                        Some(ratio) => ratios.push(ratio),
                        None => reasons.push((metric, no_turn_in_common(ours, theirs))),
                    },
                }
            }
        }
    }
    (ratios, reasons)
}

fn no_turn_in_common(ours: &Runs<'_>, theirs: &Runs<'_>) -> String {
    format!("no turn has a value other than 0 of both {} and {}", ours.system(), theirs.system())
}

/// Returns the system with which a row compares. Returns the reason if one of the systems that
/// could be it lacks a value: without it, a worse one would be the best.
fn best<'a, 'b>(
    systems: &'b [Runs<'a>],
    metric: Metric,
    reference: Reference,
) -> Result<Option<&'b Runs<'a>>, String> {
    let wanted = || systems.iter().filter(|runs| is_wanted(runs, reference));
    // Plain sockets have no recovery: their latencies lack the slowest copies.
    if reference == Reference::Raw && metric.is_latency() && wanted().any(Runs::misses_copies) {
        return Ok(None);
    }
    for runs in wanted() {
        let system = runs.system();
        if let Some(count) = runs.too_few(metric) {
            return Err(format!("{system} has {count} values in a run"));
        }
        if runs.median(metric).is_none() {
            return match reference {
                Reference::BestPeer => Err(format!("{system} has none in a run")),
                // Plain sockets recover nothing.
                Reference::Raw => Ok(None),
            };
        }
    }
    let value = |runs: &Runs<'_>| runs.median(metric).map_or(f64::NAN, |median| median.value);
    Ok(wanted().min_by(|a, b| match metric.is_better_if_higher() {
        true => value(b).total_cmp(&value(a)),
        false => value(a).total_cmp(&value(b)),
    }))
}

fn is_wanted(runs: &Runs<'_>, reference: Reference) -> bool {
    match reference {
        Reference::BestPeer => runs.is(Kind::Peer) && runs.may_be_best(),
        // Sockets with settings do more than plain ones.
        Reference::Raw => {
            runs.is(Kind::Raw) && !runs.system().contains(':') && runs.flaw().is_none()
        }
    }
}

impl<'a> Ratio<'a> {
    /// Divides the results of the turns in which both systems were measured, so that a disturbance
    /// of the machine affects both. Returns `None` if there is no such turn, or a result is 0.
    fn of(
        row: &'a str,
        ours: &Runs<'a>,
        theirs: &Runs<'a>,
        metric: Metric,
        reference: Reference,
    ) -> Option<Self> {
        let ratios: Vec<f64> = ours
            .turns(metric)
            .filter_map(|(turn, own)| {
                let (_, other) = theirs.turns(metric).find(|(there, _)| *there == turn)?;
                Some(own / other)
            })
            .collect();
        let is_unrepeated = ratios.len() == 1 && (ours.count() > 1 || theirs.count() > 1);
        let is_ratio = |ratio: &f64| *ratio > 0.0 && ratio.is_finite();
        let turns = Median::of(ratios.into_iter().map(|it| Some(it).filter(is_ratio)))?;
        let (system, other) = (ours.system(), theirs.system());
        Some(Self { row, system, metric, reference, other, turns, is_unrepeated })
    }

    /// Returns `true` if both compare the same metric of the same systems.
    pub(super) fn is_same(&self, other: &Ratio<'_>) -> bool {
        let systems = (self.system, self.other) == (other.system, other.other);
        let metric = (self.metric, self.reference) == (other.metric, other.reference);
        self.row == other.row && systems && metric
    }

    /// Returns `true` if the turns agree within the tolerance, so that their median is a result.
    pub(super) fn is_steady(&self) -> bool {
        self.turns.most <= self.turns.least * (1.0 + TOLERANCE)
    }

    /// Returns `true` if the other system has the better result: in any turn, if they disagree.
    pub(super) fn is_behind(&self) -> bool {
        let Median { value, least, most, .. } = self.turns;
        match (self.metric.is_better_if_higher(), self.is_steady()) {
            (true, true) => value < 1.0,
            (true, false) => least < 1.0,
            (false, true) => value > 1.0,
            (false, false) => most > 1.0,
        }
    }

    /// Returns the relative difference of two ratios: the part of the smaller one by which the
    /// larger one exceeds it. The range of an unsteady ratio counts from its nearer end.
    pub(super) fn difference(&self, other: &Ratio<'_>) -> f64 {
        let (first, second) = (&self.turns, &other.turns);
        let excess = match self.is_steady() && other.is_steady() {
            true => first.value.max(second.value) / first.value.min(second.value),
            false => first.least.max(second.least) / first.most.min(second.most),
        };
        (excess - 1.0).max(0.0)
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
    /// Writes the ratio, the other system, and the range over the turns. An unsteady ratio has only
    /// its range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Median { value, least, most, .. } = self.turns;
        let range = format!("{} to {}", short(least), short(most));
        match (self.is_unrepeated, self.is_steady()) {
            (true, _) => write!(f, "{} ({}, 1 turn)", short(value), self.other),
            (false, true) if least < most => {
                write!(f, "{} ({}; {range})", short(value), self.other)
            }
            (false, true) => write!(f, "{} ({})", short(value), self.other),
            (false, false) => write!(f, "{range} ({})", self.other),
        }
    }
}

/// Largest difference of two ratios that counts as noise of the machine, as a share.
pub(super) const TOLERANCE: f64 = 0.2;

pub(super) const COMPARED: [Metric; 12] = [
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::LatencyP999,
    Metric::RecoveredP50,
    Metric::RecoveredP99,
    Metric::Silence,
    Metric::Cpu,
    Metric::Packets,
    Metric::GoodputSlowest,
    Metric::Background,
    Metric::IdleCpu,
    Metric::IdlePackets,
];
