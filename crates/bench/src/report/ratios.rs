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
    /// Median of the ratios of the turns in which both were measured.
    turns: Median,
    /// `true` if Carom was measured in several turns and the other system in one.
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
    let systems = report.systems(row);
    let mut ratios = Vec::new();
    for ours in systems.iter().filter(|runs| runs.is(Kind::Carom)) {
        for metric in COMPARED.into_iter().filter(|metric| ours.median(*metric).is_some()) {
            for reference in [Reference::BestPeer, Reference::Raw] {
                let Some(theirs) = best(&systems, metric, reference) else { continue };
                let Some(turns) = by_turn(ours, theirs, metric) else { continue };
                ratios.push(Ratio {
                    row,
                    system: ours.system(),
                    metric,
                    reference,
                    other: theirs.system(),
                    turns,
                    is_unrepeated: ours.count() > 1 && theirs.count() == 1,
                });
            }
        }
    }
    ratios
}

/// Returns the median of the ratios of the turns in which both systems were measured, so that what
/// disturbs the machine during one turn is in both results of a ratio.
fn by_turn(ours: &Runs<'_>, theirs: &Runs<'_>, metric: Metric) -> Option<Median> {
    let ratios = ours.turns(metric).filter_map(|(turn, own)| {
        let (_, other) = theirs.turns(metric).find(|(there, _)| *there == turn)?;
        Some(own / other)
    });
    // A result of 0 has no ratio.
    Median::of(ratios.map(|ratio| (ratio > 0.0 && ratio.is_finite()).then_some(ratio)))
}

/// Returns the system with which a row compares.
fn best<'a, 'b>(
    systems: &'b [Runs<'a>],
    metric: Metric,
    reference: Reference,
) -> Option<&'b Runs<'a>> {
    // Without its value, a worse peer would be the best one.
    if lacking(systems, metric, reference).is_some() {
        return None;
    }
    let wanted = systems.iter().filter(|runs| is_wanted(runs, reference));
    let medians = wanted.filter_map(|runs| Some((runs, runs.median(metric)?.value)));
    let best = medians.min_by(|(_, a), (_, b)| match metric.is_better_if_higher() {
        true => b.total_cmp(a),
        false => a.total_cmp(b),
    });
    best.map(|(runs, _)| runs)
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
        // Sockets with settings do more than plain ones.
        Reference::Raw => {
            runs.is(Kind::Raw) && !runs.system().contains(':') && runs.flaw().is_none()
        }
    }
}

impl Ratio<'_> {
    /// Returns `true` if both compare the same things, though perhaps with another best peer.
    pub(super) fn is_same(&self, other: &Ratio<'_>) -> bool {
        let key = |it: &Ratio<'_>| (it.metric, it.reference);
        (self.row, self.system) == (other.row, other.system) && key(self) == key(other)
    }

    /// Returns `true` if the turns agree within the tolerance, so that their median is a result.
    pub(super) fn is_steady(&self) -> bool {
        self.turns.most <= self.turns.least * (1.0 + TOLERANCE)
    }

    /// Returns `true` if the other system has the better result.
    pub(super) fn is_behind(&self) -> bool {
        match self.metric.is_better_if_higher() {
            true => self.turns.value < 1.0,
            false => self.turns.value > 1.0,
        }
    }

    /// Returns by which share two ratios differ: the larger one exceeds the smaller one. The range
    /// of an unsteady ratio counts from its nearer end.
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

pub(super) const COMPARED: [Metric; 8] = [
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::LatencyP999,
    Metric::RecoveredP50,
    Metric::RecoveredP99,
    Metric::Cpu,
    Metric::Packets,
    Metric::GoodputSlowest,
];
