//! `ricochet-8`: two groups with different rates-of-fire, and a growing number of nodes in both.

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{GroupOutcome, LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetOverlap {
    bed: Bed,
    group_a: Fire,
    group_b: Fire,
    in_both: Scaled<Vec<u32>>,
    /// Maximum variation of a group's overhead, in points.
    overhead_within_points: f64,
    /// Range of the overhead of each group, in percent.
    overhead_percent: [(f64, f64); 2],
    /// Maximum variation of the share recovered in each group, in points.
    recovered_within_points: [f64; 2],
    /// Share recovered in group A at every overlap, as the paper reports it, in percent.
    papers_recovered_percent: f64,
}

const NAMES: [&str; 2] = ["A", "B"];

struct Point<'a> {
    both: f64,
    groups: &'a [GroupOutcome],
}

impl Point<'_> {
    fn recovered_percent(&self, group: usize) -> f64 {
        self.groups[group].recovered_percent()
    }

    fn overhead_percent(&self, group: usize) -> f64 {
        100.0 * self.groups[group].overhead.unwrap_or(f64::NAN)
    }

    fn delay_ms(&self, group: usize) -> f64 {
        self.groups[group].fec.mean_ms()
    }

    fn mean_delay_ms(&self) -> f64 {
        let weighed = |group: &GroupOutcome| group.fec.mean_ms() * group.fec.len() as f64;
        let count: usize = self.groups.iter().map(|group| group.fec.len()).sum();
        self.groups.iter().map(weighed).sum::<f64>() / count as f64
    }
}

/// Returns the smallest and the largest value, or NaN if a point has none.
fn ends(points: &[Point<'_>], value: impl Fn(&Point<'_>) -> f64) -> (f64, f64) {
    let low = lowest(points.iter().map(|point| (value(point), ()))).0;
    (low, highest(points.iter().map(|point| (value(point), ()))).0)
}

impl RicochetOverlap {
    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let mut relations: Vec<Relation> = (0..2)
            .map(|group| {
                let (low, high) = ends(points, |point| point.overhead_percent(group));
                let claim = format!("variation of the overhead of group {}", NAMES[group]);
                Relation::at_most(claim, high - low, self.overhead_within_points, "points")
                    .noted(format!("{low:.2} to {high:.2} %"))
            })
            .collect();
        for (group, name) in NAMES.iter().enumerate() {
            let (low, high) = ends(points, |point| point.overhead_percent(group));
            let claim = format!("overhead of group {name} at every overlap");
            let (least, most) = self.overhead_percent[group];
            relations.push(Relation::at_least(claim.clone(), low, least, "%"));
            relations.push(Relation::at_most(claim, high, most, "%"));
            let (low, high) = ends(points, |point| point.recovered_percent(group));
            let claim = format!("variation of the share recovered in group {name}");
            let limit = self.recovered_within_points[group];
            let note = format!("{low:.2} to {high:.2} %");
            relations.push(Relation::at_most(claim, high - low, limit, "points").noted(note));
        }
        let (low, _) = ends(points, |point| point.recovered_percent(0));
        let claim = "share recovered in group A at every overlap";
        relations.push(Relation::at_least(claim, low, self.papers_recovered_percent, "%"));
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            let (few, many) = (first.both, last.both);
            let claim = format!("mean delay with {many} nodes in both, limited by that with {few}");
            let (without, with) = (first.mean_delay_ms(), last.mean_delay_ms());
            relations.push(Relation::at_most(claim, with, without, "ms"));
        }
        relations
    }

    fn figures(points: &[Point<'_>]) -> Vec<Figure> {
        let line = |value: &dyn Fn(&Point<'_>) -> f64| {
            points.iter().map(|point| (point.both, value(point))).collect::<Vec<_>>()
        };
        let x = || Axis::linear("nodes in both groups");
        let y = Axis::linear("%").spanning(0.0, 105.0);
        let title = "Share recovered by repairs, and overhead";
        let mut ratios = Figure::new("ratios", title, x(), y);
        let y = Axis::linear("mean recovery delay, ms");
        let title = "Delay from the multicast to the recovery";
        let mut delays = Figure::new("delay", title, x(), y);
        for (group, name) in NAMES.iter().enumerate() {
            ratios = ratios
                .ours(format!("{name}: recovered"), line(&|point| point.recovered_percent(group)))
                .ours(format!("{name}: overhead"), line(&|point| point.overhead_percent(group)));
            let label = format!("{name}: delay");
            delays = delays.ours(label, line(&|point| point.delay_ms(group)));
        }
        vec![ratios, delays]
    }
}

impl Experiment for RicochetOverlap {
    fn figure_names(&self) -> &[&'static str] {
        &["ratios", "delay"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        let (hosts, a, b) = (self.bed.network.hosts(), self.group_a.0, self.group_b.0);
        if a.r != b.r {
            return Err(format!("group_a {a} and group_b {b} have different r: expected equal r"));
        }
        for quick in [false, true] {
            let in_both = self.in_both.at(quick);
            check_list("in_both", in_both, 0, hosts)?;
            if in_both.iter().any(|both| (hosts - both) % 2 == 1) {
                return Err(format!(
                    "in_both {in_both:?} is invalid: an even number of the {hosts} nodes must be \
                     in only one group"
                ));
            }
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (a, b) = (self.group_a.0, self.group_b.0);
        let run =
            |both: &u32| Job::new(self.bed.run(scale, Membership::TwoGroups { both: *both, a, b }));
        self.in_both.at(scale.quick).iter().map(run).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let swept = self.in_both.at(scale.quick).iter().zip(outcomes);
        let points = swept.map(|(both, outcome)| Point {
            both: f64::from(*both),
            groups: &outcome.of::<LateralOutcome>().groups,
        });
        let points: Vec<Point<'_>> = points.collect();
        let rows: Vec<(usize, &Point<'_>)> =
            points.iter().flat_map(|point| [(0, point), (1, point)]).collect();
        let table = Rows(&rows).table(
            2,
            &[
                ("nodes_in_both", |(_, it)| it.both.into()),
                ("group", |(group, _)| NAMES[*group].into()),
                ("losses", |(group, it)| it.groups[*group].lost.into()),
                ("recovered_percent", |(group, it)| it.recovered_percent(*group).into()),
                ("overhead_percent", |(group, it)| it.overhead_percent(*group).into()),
                ("mean_delay_ms", |(group, it)| it.delay_ms(*group).into()),
                ("p99_delay_ms", |(group, it)| it.groups[*group].fec.quantile_ms(0.99).into()),
            ],
        );
        let papers = self.papers_recovered_percent;
        let better = points.first().and_then(|point| {
            let ours = point.recovered_percent(0);
            Better::if_higher("share recovered in group A, no node in both", ours, papers, "%")
        });
        Findings {
            table,
            figures: Self::figures(&points),
            relations: self.relations(&points),
            better: better.into_iter().collect(),
            ..Findings::default()
        }
    }
}
