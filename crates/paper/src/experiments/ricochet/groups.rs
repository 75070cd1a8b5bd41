//! `ricochet-9`, `-10`, `-11` and `-14`: evaluations of one sweep over the groups per node.

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{GroupOutcome, LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetGroups {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    looks_at: LooksAt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "what", rename_all = "snake_case")]
enum LooksAt {
    Recovered {
        at_least_percent: f64,
        spread_points: f64,
        /// Range of the mean number of repairs with a packet, which is c by design.
        copies: (f64, f64),
        papers_percent: f64,
    },
    Delay {
        /// Limit at every d and of the mean over d.
        at_most_ms: f64,
        /// Range of the growth with each doubling of d, as the slope of the fitted line.
        growth_ms: (f64, f64),
        /// Maximum distance of a point from the line fitted over log d.
        off_the_line_ms: f64,
    },
    /// Histogram of all recovery delays, with bars of this width.
    Histogram { p99_at_most_ms: f64, bar_ms: f64 },
    Xors {
        at_most: f64,
        /// Number of groups from which on nearly every repair has a target of its own, so that the
        /// XORs must come close to c.
        reached_from: u32,
        at_least: f64,
    },
}

struct Point<'a> {
    d: u32,
    outcome: &'a LateralOutcome,
    all: &'a GroupOutcome,
}

impl RicochetGroups {
    fn points<'a>(&self, scale: RunScale, outcomes: &[&'a Outcome]) -> Vec<Point<'a>> {
        let swept = self.groups_per_node.at(scale.quick).iter().zip(outcomes);
        let point = |(d, outcome): (&u32, &&'a Outcome)| {
            let outcome: &LateralOutcome = outcome.of();
            Point { d: *d, outcome, all: outcome.all() }
        };
        swept.map(point).collect()
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
                    .ours("Carom", line(&|point| point.all.recovered_percent()))
            }
            LooksAt::Delay { .. } => {
                let y = Axis::linear("mean recovery delay, ms").spanning(0.0, 50.0);
                Figure::new("delay", "Delay from the multicast to the recovery", d(), y)
                    .ours("Carom", line(&|point| point.all.fec.mean_ms()))
            }
            LooksAt::Xors { at_most, .. } => {
                let y = Axis::linear("XORs per data packet").spanning(0.0, at_most + 1.0);
                Figure::new("xors", "XORs per data packet received", d(), y)
                    .ours("Carom", line(&|point| point.outcome.xors_per_packet))
            }
            LooksAt::Histogram { bar_ms, .. } => histogram(points, bar_ms),
        }
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let worst = |value: &dyn Fn(&Point<'_>) -> f64| {
            highest(points.iter().map(|point| (value(point), point.d)))
        };
        match self.looks_at {
            LooksAt::Recovered { at_least_percent, spread_points, copies, .. } => {
                let (low, at) = lowest(points.iter().map(|it| (it.all.recovered_percent(), it.d)));
                let (high, _) = worst(&|point| point.all.recovered_percent());
                let claim = "share recovered by FEC at every d";
                let mut relations = vec![
                    Relation::at_least(claim, low, at_least_percent, "%")
                        .noted(format!("minimum at d = {at}")),
                    Relation::at_most(
                        "difference between the largest and the smallest share",
                        high - low,
                        spread_points,
                        "points",
                    ),
                ];
                let fewest = lowest(points.iter().map(|it| (it.outcome.copies_per_packet, it.d)));
                let most = worst(&|point| point.outcome.copies_per_packet);
                let claim = "repairs sent with each packet at every d";
                relations.extend(Relation::all_within(claim, fewest, most, copies, ""));
                relations
            }
            LooksAt::Delay { at_most_ms, growth_ms, off_the_line_ms } => {
                let (delay, at) = worst(&|point| point.all.fec.mean_ms());
                let line = Line::through(
                    points
                        .iter()
                        .map(|point| (libm::log2(f64::from(point.d)), point.all.fec.mean_ms())),
                );
                let claim = "growth of the mean delay with each doubling of d";
                let mut relations = vec![
                    Relation::at_most("mean recovery delay at every d", delay, at_most_ms, "ms")
                        .noted(format!("maximum at d = {at}")),
                ];
                relations.extend(Relation::within(claim, line.slope, growth_ms, "ms"));
                let claim = "distance of a mean delay from a straight line over log d";
                relations.push(Relation::at_most(claim, line.off, off_the_line_ms, "ms"));
                relations
            }
            LooksAt::Histogram { p99_at_most_ms, .. } => {
                let (p99, at) = worst(&|point| point.all.fec.quantile_ms(0.99));
                let claim = "99th percentile of recovery delays";
                vec![Relation::at_most(claim, p99, p99_at_most_ms, "ms").noted(format!("d = {at}"))]
            }
            LooksAt::Xors { at_most, reached_from, at_least } => {
                let (xors, at) = worst(&|point| point.outcome.xors_per_packet);
                let many = points.iter().filter(|point| point.d >= reached_from);
                let (fewest, at_fewest) =
                    lowest(many.map(|point| (point.outcome.xors_per_packet, point.d)));
                let claim = "XORs per data packet at every d";
                vec![
                    Relation::at_most(claim, xors, at_most, "")
                        .noted(format!("maximum at d = {at}")),
                    Relation::at_least(
                        format!("XORs per data packet from d = {reached_from} on"),
                        fewest,
                        at_least,
                        "",
                    )
                    .noted(format!("minimum at d = {at_fewest}")),
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
                Better::if_higher(what, last.all.recovered_percent(), papers_percent, "%")
            }
            LooksAt::Delay { at_most_ms, .. } => {
                let what = format!("mean recovery delay at d = {d}");
                Better::if_lower(what, last.all.fec.mean_ms(), at_most_ms, "ms")
            }
            LooksAt::Histogram { p99_at_most_ms, .. } => {
                let longest = last.all.fec.quantile_ms(1.0);
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
        let delays = &point.all.fec;
        let label = format!("Carom, d = {}", point.d);
        let bars = delays.bars(bar_ms, delays.len() as u64).collect();
        figure = figure.with(label, Kind::Ours, Shape::Bars(bar_ms), bars);
    }
    figure
}

impl Experiment for RicochetGroups {
    fn figure_names(&self) -> &[&'static str] {
        match self.looks_at {
            LooksAt::Recovered { .. } => &["recovered"],
            LooksAt::Delay { .. } => &["delay"],
            LooksAt::Histogram { .. } => &["histogram"],
            LooksAt::Xors { .. } => &["xors"],
        }
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.groups_per_node.check("groups_per_node", 1, 1 << 14)?;
        check_list("mean_size", &[self.mean_size], 2, self.bed.network.hosts())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
        let run = |d: &u32| {
            let membership = Membership::Random { groups_per_node: *d, mean_size, rate };
            Job::new(self.bed.run(scale, membership))
        };
        self.groups_per_node.at(scale.quick).iter().map(run).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.points(scale, outcomes);
        let table = Rows(&points).table(
            1,
            &[
                ("groups_per_node", |it| it.d.into()),
                ("losses", |it| it.all.lost.into()),
                ("recovered_percent", |it| it.all.recovered_percent().into()),
                ("mean_delay_ms", |it| it.all.fec.mean_ms().into()),
                ("p50_delay_ms", |it| it.all.fec.quantile_ms(0.5).into()),
                ("p90_delay_ms", |it| it.all.fec.quantile_ms(0.9).into()),
                ("p99_delay_ms", |it| it.all.fec.quantile_ms(0.99).into()),
                ("max_delay_ms", |it| it.all.fec.quantile_ms(1.0).into()),
                ("overhead_percent", |it| (100.0 * it.outcome.overhead).into()),
                ("copies_per_packet", |it| it.outcome.copies_per_packet.into()),
                ("xors_per_packet", |it| it.outcome.xors_per_packet.into()),
                ("bins_per_node", |it| it.outcome.bins.into()),
            ],
        );
        Findings {
            table,
            figures: vec![self.figure(&points)],
            relations: self.relations(&points),
            better: self.better(&points).into_iter().collect(),
            ..Findings::default()
        }
    }
}
