//! `ricochet-9`, `-10`, `-11` and `-14`: four evaluations of one sweep over the number of groups
//! per node.

use serde::Deserialize;

use super::bed::{Bed, check_list};
use super::experiment::Experiment;
use crate::figure::{Axis, Figure, Shape};
use crate::lateral::{LateralOutcome, Membership};
use crate::plan::{Fire, RunScale, Scaled};
use crate::relation::{Better, Relation, greatest_last, least_first};
use crate::report::Findings;
use crate::table::Table;
use crate::work::{Job, Outcome};

/// Settings in the plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetGroups {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    looks_at: LooksAt,
}

/// Evaluated quantity, with the limits of its relations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "what", rename_all = "snake_case")]
enum LooksAt {
    /// Share of losses recovered from repairs.
    Recovered { at_least_percent: f64, spread_points: f64, papers_percent: f64 },
    /// Mean recovery delay.
    Delay { at_most_ms: f64 },
    /// Histogram of all recovery delays, with bars of this width.
    Histogram { p99_at_most_ms: f64, bar_ms: f64 },
    /// Number of XORs per data packet received.
    Xors { at_most: f64 },
}

struct Point<'a> {
    d: u32,
    outcome: &'a LateralOutcome,
}

impl Point<'_> {
    fn recovered_percent(&self) -> f64 {
        100.0 * self.outcome.all().recovered_share()
    }

    fn delay_ms(&self) -> f64 {
        self.outcome.all().fec.mean_ms()
    }
}

impl RicochetGroups {
    fn points<'a>(&self, scale: RunScale, outcomes: &[&'a Outcome]) -> Vec<Point<'a>> {
        let swept = self.groups_per_node.at(scale.quick).iter().zip(outcomes);
        swept.map(|(d, outcome)| Point { d: *d, outcome: outcome.lateral() }).collect()
    }

    fn figure(&self, points: &[Point<'_>]) -> Figure {
        let line = |value: &dyn Fn(&Point<'_>) -> f64| {
            points.iter().map(|point| (f64::from(point.d), value(point))).collect::<Vec<_>>()
        };
        let d = || Axis::log("groups per node", 2.0);
        match self.looks_at {
            LooksAt::Recovered { .. } => {
                let y = Axis::linear("lost packets recovered by FEC, %").spanning(90.0, 100.0);
                Figure::new("recovered", "Recovered by repairs", d(), y)
                    .ours("Carom", line(&|point| point.recovered_percent()))
            }
            LooksAt::Delay { .. } => {
                let y = Axis::linear("mean recovery delay, ms").spanning(0.0, 50.0);
                Figure::new("delay", "Delay from the multicast to the recovery", d(), y)
                    .ours("Carom", line(&|point| point.delay_ms()))
            }
            LooksAt::Xors { at_most } => {
                let y = Axis::linear("XORs per data packet").spanning(0.0, at_most + 1.0);
                Figure::new("xors", "XORs per data packet received", d(), y)
                    .ours("Carom", line(&|point| point.outcome.xors_per_packet))
            }
            LooksAt::Histogram { bar_ms, .. } => histogram(points, bar_ms),
        }
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let worst = |value: &dyn Fn(&Point<'_>) -> f64| {
            let values = points.iter().map(|point| (value(point), point.d));
            values.max_by(|a, b| greatest_last(&a.0, &b.0)).unwrap_or((f64::NAN, 0))
        };
        match self.looks_at {
            LooksAt::Recovered { at_least_percent, spread_points, .. } => {
                let shares = points.iter().map(|point| (point.recovered_percent(), point.d));
                let low = shares.min_by(|a, b| least_first(&a.0, &b.0));
                let (low, at) = low.unwrap_or((f64::NAN, 0));
                let (high, _) = worst(&|point| point.recovered_percent());
                let claim = "share recovered by FEC at every d";
                vec![
                    Relation::at_least(claim, low, at_least_percent, "%")
                        .noted(format!("minimum at d = {at}")),
                    Relation::at_most(
                        "difference between the largest and the smallest share",
                        high - low,
                        spread_points,
                        "points",
                    ),
                ]
            }
            LooksAt::Delay { at_most_ms } => {
                let (delay, at) = worst(&|point| point.delay_ms());
                vec![
                    Relation::at_most("mean recovery delay at every d", delay, at_most_ms, "ms")
                        .noted(format!("maximum at d = {at}")),
                ]
            }
            LooksAt::Histogram { p99_at_most_ms, .. } => {
                let (p99, at) = worst(&|point| point.outcome.all().fec.quantile_ms(0.99));
                let claim = "99th percentile of recovery delays";
                vec![Relation::at_most(claim, p99, p99_at_most_ms, "ms").noted(format!("d = {at}"))]
            }
            LooksAt::Xors { at_most } => {
                let (xors, at) = worst(&|point| point.outcome.xors_per_packet);
                let claim = "XORs per data packet at every d";
                vec![
                    Relation::at_most(claim, xors, at_most, "")
                        .noted(format!("maximum at d = {at}")),
                ]
            }
        }
    }

    fn better(&self, points: &[Point<'_>]) -> Option<Better> {
        let last = points.last()?;
        let d = last.d;
        match self.looks_at {
            LooksAt::Recovered { papers_percent, .. } => {
                let what = format!("share recovered by FEC at d = {d}");
                Better::if_higher(what, last.recovered_percent(), papers_percent, "%")
            }
            LooksAt::Delay { at_most_ms } => {
                let what = format!("mean recovery delay at d = {d}");
                Better::if_lower(what, last.delay_ms(), at_most_ms, "ms")
            }
            LooksAt::Histogram { p99_at_most_ms, .. } => {
                let longest = last.outcome.all().fec.quantile_ms(1.0);
                Better::if_lower("maximum recovery delay", longest, p99_at_most_ms, "ms")
            }
            LooksAt::Xors { .. } => None,
        }
    }
}

fn histogram(points: &[Point<'_>], bar_ms: f64) -> Figure {
    let mut figure = Figure::new(
        "histogram",
        "Recovery delays",
        Axis::linear("ms from the multicast to the recovery"),
        Axis::linear("recovered packets, %"),
    );
    for point in points {
        let delays = &point.outcome.all().fec;
        let bars = (delays.quantile_ms(1.0) / bar_ms).ceil().max(0.0) as usize;
        let share = |bar: usize| {
            let (from, to) = (bar as f64 * bar_ms, (bar + 1) as f64 * bar_ms);
            let count = delays.up_to_ms(to) - delays.up_to_ms(from);
            (from, 100.0 * count as f64 / delays.len() as f64)
        };
        let label = format!("Carom, d = {}", point.d);
        let bars = (0..bars).map(share).collect();
        figure = figure.with(label, crate::figure::Kind::Ours, Shape::Bars(bar_ms), bars);
    }
    figure
}

impl Experiment for RicochetGroups {
    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        for quick in [false, true] {
            check_list("groups_per_node", self.groups_per_node.at(quick), 1, 1 << 14)?;
        }
        check_list("mean_size", &[self.mean_size], 2, self.bed.network.hosts())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
        let run = |d: &u32| {
            let membership = Membership::Random { groups_per_node: *d, mean_size, rate };
            Job::Lateral(self.bed.run(scale, membership))
        };
        self.groups_per_node.at(scale.quick).iter().map(run).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.points(scale, outcomes);
        let mut table = Table::new(&[
            "groups_per_node",
            "losses",
            "recovered_percent",
            "mean_delay_ms",
            "p50_delay_ms",
            "p90_delay_ms",
            "p99_delay_ms",
            "max_delay_ms",
            "overhead_percent",
            "xors_per_packet",
            "bins_per_node",
        ]);
        for point in &points {
            let all = point.outcome.all();
            table.push(vec![
                u64::from(point.d).into(),
                all.lost.into(),
                point.recovered_percent().into(),
                point.delay_ms().into(),
                all.fec.quantile_ms(0.5).into(),
                all.fec.quantile_ms(0.9).into(),
                all.fec.quantile_ms(0.99).into(),
                all.fec.quantile_ms(1.0).into(),
                (100.0 * point.outcome.overhead).into(),
                point.outcome.xors_per_packet.into(),
                point.outcome.bins.into(),
            ]);
        }
        Findings {
            table,
            figures: vec![self.figure(&points)],
            relations: self.relations(&points),
            better: self.better(&points).into_iter().collect(),
            ..Findings::default()
        }
    }
}
