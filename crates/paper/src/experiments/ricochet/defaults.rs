//! `defaults`: the product's defaults, compared with the papers' settings at different rates.

use crate::delays::Delays;
use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{LateralOutcome, LateralRun, Membership, Variant};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Defaults {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: u32,
    /// Intervals between two messages of a node.
    intervals: Vec<Span>,
    /// Delay after which a lost packet is late.
    deadline: Span,
    holds: Vec<Holds>,
}

/// Limits for the product's defaults at one interval.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    interval: Span,
    /// Lower limit of the share of lost packets that arrive before the deadline, in percent.
    on_time_at_least_percent: f64,
    /// Number of points by which this share must exceed that of the papers' settings.
    ahead_by_points: f64,
    p99_at_most_ms: f64,
    /// Upper limit of the share of repairs, retransmissions and control datagrams among all
    /// datagrams that arrive, in percent.
    overhead_at_most_percent: f64,
}

const VARIANTS: [Variant; 2] = [Variant::Papers, Variant::Defaults];

struct Point<'a> {
    interval: Span,
    variant: Variant,
    outcome: &'a LateralOutcome,
    delays: Delays,
    on_time_percent: f64,
}

impl Point<'_> {
    fn is_at(&self, variant: Variant, interval: Span) -> bool {
        (self.variant, self.interval) == (variant, interval)
    }
}

impl Defaults {
    fn places(&self) -> impl Iterator<Item = (Span, Variant)> {
        self.intervals.iter().flat_map(|interval| VARIANTS.map(|variant| (*interval, variant)))
    }

    fn points<'a>(&self, outcomes: &[&'a Outcome]) -> Vec<Point<'a>> {
        let point = |((interval, variant), outcome): ((Span, Variant), &&'a Outcome)| {
            let outcome: &LateralOutcome = outcome.of();
            let all = outcome.all();
            let delays = all.fec.with(&all.nak);
            let on_time = delays.up_to_ms(1e3 * self.deadline.0.as_secs_f64());
            let on_time_percent = 100.0 * on_time as f64 / all.lost as f64;
            Point { interval, variant, outcome, delays, on_time_percent }
        };
        self.places().zip(outcomes).map(point).collect()
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let mut relations = Vec::new();
        for holds in &self.holds {
            let at = |variant| points.iter().find(|it| it.is_at(variant, holds.interval));
            let (Some(papers), Some(ours)) = (at(Variant::Papers), at(Variant::Defaults)) else {
                continue;
            };
            let claim = |what: &str| format!("a message every {:?}: {what}", holds.interval.0);
            let on_time = claim("lost packets on time");
            let limit = holds.on_time_at_least_percent;
            let note = format!("papers' settings {:.2} %", papers.on_time_percent);
            let p99 = ours.delays.quantile_ms(0.99);
            let p99_note = format!("papers' settings {:.0} ms", papers.delays.quantile_ms(0.99));
            let overhead = 100.0 * ours.outcome.whole_overhead;
            let overhead_note =
                format!("papers' settings {:.1} %", 100.0 * papers.outcome.whole_overhead);
            let ahead = ours.on_time_percent - papers.on_time_percent;
            relations.extend([
                Relation::at_least(
                    claim("lost packets on time, compared with the papers' settings"),
                    ahead,
                    holds.ahead_by_points,
                    "points",
                ),
                Relation::at_least(on_time, ours.on_time_percent, limit, "%").noted(note),
                Relation::at_most(
                    claim("99th percentile of delays"),
                    p99,
                    holds.p99_at_most_ms,
                    "ms",
                )
                .noted(p99_note),
                Relation::at_most(
                    claim("repairs and control datagrams among all"),
                    overhead,
                    holds.overhead_at_most_percent,
                    "%",
                )
                .noted(overhead_note),
            ]);
        }
        let ours = points.iter().filter(|point| point.variant == Variant::Defaults);
        let missing: u64 = ours.map(|point| point.outcome.all().missing).sum();
        let claim = "packets not delivered with the defaults";
        relations.push(Relation::at_most(claim, missing as f64, 0.0, "packets"));
        relations
    }

    fn figures(points: &[Point<'_>]) -> Vec<Figure> {
        let x = || Axis::log("ms between two messages of a node", 10.0);
        let figure = |name, title, y, value: &dyn Fn(&Point<'_>) -> f64| {
            VARIANTS.into_iter().fold(Figure::new(name, title, x(), y), |figure, variant| {
                let line = points.iter().filter(|point| point.variant == variant);
                let ms = |point: &Point<'_>| 1e3 * point.interval.0.as_secs_f64();
                let line = line.map(|point| (ms(point), value(point)));
                figure.ours(variant.name(), line.collect())
            })
        };
        let percent = |label| Axis::linear(label).spanning(0.0, 105.0);
        let on_time = percent("lost packets delivered before the deadline, %");
        let overhead = percent("repairs and control datagrams among all, %");
        vec![
            figure("on_time", "Recovered on time", on_time, &|it| it.on_time_percent),
            figure("overhead", "Overhead", overhead, &|it| 100.0 * it.outcome.whole_overhead),
        ]
    }
}

impl Experiment for Defaults {
    fn figure_names(&self) -> &[&'static str] {
        &["on_time", "overhead"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        check_list("groups_per_node", &[self.groups_per_node], 1, 1 << 12)?;
        check_list("mean_size", &[self.mean_size], 2, self.bed.network.hosts())?;
        let unknown = self.holds.iter().find(|it| !self.intervals.contains(&it.interval));
        unknown.map_or(Ok(()), |holds| {
            Err(format!("interval {:?} is not one of intervals", holds.interval.0))
        })
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (groups_per_node, mean_size) = (self.groups_per_node, self.mean_size);
        let rate = self.rate_of_fire.0;
        let run = |(interval, variant): (Span, Variant)| {
            let membership = Membership::Random { groups_per_node, mean_size, rate };
            let base = self.bed.run(scale, membership);
            Job::new(LateralRun { interval: interval.0, variant, nak: true, ..base })
        };
        self.places().map(run).collect()
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.points(outcomes);
        let table = Rows(&points).table(
            2,
            &[
                ("interval_ms", |it| (1e3 * it.interval.0.as_secs_f64()).into()),
                ("nodes", |it| it.variant.name().into()),
                ("losses", |it| it.outcome.all().lost.into()),
                ("on_time_percent", |it| it.on_time_percent.into()),
                ("fec_percent", |it| it.outcome.all().recovered_percent().into()),
                ("p50_delay_ms", |it| it.delays.quantile_ms(0.5).into()),
                ("p99_delay_ms", |it| it.delays.quantile_ms(0.99).into()),
                ("not_delivered", |it| it.outcome.all().missing.into()),
                ("repairs_overhead_percent", |it| (100.0 * it.outcome.overhead).into()),
                ("whole_overhead_percent", |it| (100.0 * it.outcome.whole_overhead).into()),
            ],
        );
        let figures = Self::figures(&points);
        Findings { table, figures, relations: self.relations(&points), ..Findings::default() }
    }
}
