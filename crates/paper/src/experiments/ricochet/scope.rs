//! `ricochet-4`: repairs of all groups that two nodes share, compared with repairs of each group.

use carom_proto::lateral::RepairScope;

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{LateralOutcome, LateralRun, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetScope {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    holds: Holds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Lower limit of the mean delay with repairs per group at the most groups, as a multiple of
    /// that with multi-group repairs.
    at_least_times: f64,
    /// Lower limit of the growth of the delay with repairs per group from the fewest to the most
    /// groups, relative to the growth of the number of groups.
    per_group_growth_at_least: f64,
    /// Upper limit of the same growth with multi-group repairs.
    multi_group_growth_at_most: f64,
    /// Maximum difference of the overheads at any number of groups, in points.
    overhead_within_points: f64,
    /// Maximum number of points by which multi-group repairs may recover less.
    recovered_within_points: f64,
}

struct Point<'a> {
    d: u32,
    multi: &'a LateralOutcome,
    single: &'a LateralOutcome,
}

impl Point<'_> {
    fn delays(&self) -> (f64, f64) {
        (self.multi.all().fec.mean_ms(), self.single.all().fec.mean_ms())
    }

    fn recovered(&self) -> (f64, f64) {
        (self.multi.all().recovered_percent(), self.single.all().recovered_percent())
    }
}

impl RicochetScope {
    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let (Some(few), Some(many)) = (points.first(), points.last()) else {
            return Vec::new();
        };
        let holds = &self.holds;
        let groups = f64::from(many.d) / f64::from(few.d);
        let ((multi, single), (multi_few, single_few)) = (many.delays(), few.delays());
        let claim =
            format!("d = {}: mean delay of repairs per group, relative to multi-group", many.d);
        let note = format!("{single:.1} and {multi:.2} ms");
        let overheads = points.iter().map(|point| {
            let points = 100.0 * (point.multi.overhead - point.single.overhead).abs();
            (points, format!("d = {}", point.d))
        });
        let (apart, at) = highest(overheads);
        let losses = points.iter().map(|point| {
            let (multi, single) = point.recovered();
            (single - multi, format!("d = {}", point.d))
        });
        let (less, at_less) = highest(losses);
        vec![
            Relation::at_least(claim, single / multi, holds.at_least_times, "times").noted(note),
            Relation::at_least(
                "growth of the delay over that of d, repairs per group",
                single / single_few / groups,
                holds.per_group_growth_at_least,
                "",
            ),
            Relation::at_most(
                "growth of the delay over that of d, multi-group repairs",
                multi / multi_few / groups,
                holds.multi_group_growth_at_most,
                "",
            ),
            Relation::at_most(
                "difference of the overheads",
                apart,
                holds.overhead_within_points,
                "points",
            )
            .noted(at),
            Relation::at_most(
                "share recovered, repairs per group minus multi-group",
                less,
                holds.recovered_within_points,
                "points",
            )
            .noted(at_less),
        ]
    }
}

impl Experiment for RicochetScope {
    fn figure_names(&self) -> &[&'static str] {
        &["delay", "recovered"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.groups_per_node.check("groups_per_node", 1, 1 << 12)?;
        check_list("mean_size", &[self.mean_size], 2, self.bed.network.hosts())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
        let runs = self.groups_per_node.at(scale.quick).iter().flat_map(|d| {
            let membership = Membership::Random { groups_per_node: *d, mean_size, rate };
            let run = self.bed.run(scale, membership);
            let single = LateralRun { scope: RepairScope::PerGroup, ..run.clone() };
            [Job::new(run), Job::new(single)]
        });
        runs.collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let pairs = self.groups_per_node.at(scale.quick).iter().zip(outcomes.chunks(2));
        let points =
            pairs.map(|(d, pair)| Point { d: *d, multi: pair[0].of(), single: pair[1].of() });
        let points: Vec<Point<'_>> = points.collect();
        let table = Rows(&points).table(
            1,
            &[
                ("groups_per_node", |it| it.d.into()),
                ("multi_group_recovered_percent", |it| it.recovered().0.into()),
                ("per_group_recovered_percent", |it| it.recovered().1.into()),
                ("multi_group_mean_delay_ms", |it| it.delays().0.into()),
                ("per_group_mean_delay_ms", |it| it.delays().1.into()),
                ("multi_group_overhead_percent", |it| (100.0 * it.multi.overhead).into()),
                ("per_group_overhead_percent", |it| (100.0 * it.single.overhead).into()),
            ],
        );
        let line = |value: &dyn Fn(&Point<'_>) -> f64| {
            points.iter().map(|point| (f64::from(point.d), value(point))).collect::<Vec<_>>()
        };
        let x = || Axis::log("groups per node", 2.0);
        let y = Axis::log("mean recovery delay, ms", 10.0);
        let delay = Figure::new("delay", "Delay from the multicast to the recovery", x(), y)
            .ours("multi-group repairs", line(&|point| point.delays().0))
            .ours("repairs per group", line(&|point| point.delays().1));
        let y = Axis::linear("lost packets recovered by FEC, %").spanning(90.0, 100.0);
        let recovered = Figure::new("recovered", "Recovered by repairs", x(), y)
            .ours("multi-group repairs", line(&|point| point.recovered().0))
            .ours("repairs per group", line(&|point| point.recovered().1));
        let relations = self.relations(&points);
        Findings { table, figures: vec![delay, recovered], relations, ..Findings::default() }
    }
}
