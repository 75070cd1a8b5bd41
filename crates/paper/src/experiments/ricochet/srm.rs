//! `ricochet-12`: SRM in a growing number of groups, compared with Ricochet.

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{LateralOutcome, Membership, Preset, SrmOutcome, SrmRun};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetSrm {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    srm_losses: Scaled<u32>,
    srm_tail: Scaled<Span>,
    /// Lower limit of SRM's mean recovery delay with the most groups, as a multiple of Ricochet's.
    at_least_times: f64,
    papers_ricochet_ms: f64,
}

struct Point<'a> {
    d: u32,
    srm: &'a SrmOutcome,
    ricochet: &'a LateralOutcome,
}

impl Point<'_> {
    fn times(&self) -> f64 {
        self.srm.recovery.mean_ms() / self.ricochet.all().fec.mean_ms()
    }
}

impl Experiment for RicochetSrm {
    fn figure_names(&self) -> &[&'static str] {
        &["delay"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.groups_per_node.check("groups_per_node", 1, 1 << 12)?;
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let jobs = self.groups_per_node.at(scale.quick).iter().flat_map(|d| {
            let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
            let membership = Membership::Random { groups_per_node: *d, mean_size, rate };
            let ricochet = self.bed.run(scale, membership);
            let mut run = ricochet.clone();
            run.length.losses = *self.srm_losses.at(scale.quick);
            run.length.tail = self.srm_tail.at(scale.quick).0;
            run.length.warm_up_packets = 0;
            [Job::new(SrmRun { run, preset: Preset::WideArea }), Job::new(ricochet)]
        });
        jobs.collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let pairs = self.groups_per_node.at(scale.quick).iter().zip(outcomes.chunks(2));
        let points =
            pairs.map(|(d, pair)| Point { d: *d, srm: pair[0].of(), ricochet: pair[1].of() });
        let points: Vec<Point<'_>> = points.collect();
        let table = Rows(&points).table(&[
            ("groups_per_node", |it| it.d.into()),
            ("srm_losses", |it| it.srm.lost.into()),
            ("srm_missing", |it| it.srm.missing.into()),
            ("srm_mean_discovery_ms", |it| it.srm.discovery.mean_ms().into()),
            ("srm_mean_recovery_ms", |it| it.srm.recovery.mean_ms().into()),
            ("srm_overhead_percent", |it| (100.0 * it.srm.overhead).into()),
            ("ricochet_mean_recovery_ms", |it| it.ricochet.all().fec.mean_ms().into()),
            ("times", |it| it.times().into()),
        ]);
        let line = |value: &dyn Fn(&Point<'_>) -> f64| {
            points.iter().map(|point| (f64::from(point.d), value(point))).collect::<Vec<_>>()
        };
        let x = Axis::log("groups per node", 2.0);
        let y = Axis::log("mean delay from the multicast, ms", 10.0).spanning(1.0, 20_000.0);
        let figure = Figure::new("delay", "SRM and Ricochet", x, y)
            .ours("SRM, recovery", line(&|point| point.srm.recovery.mean_ms()))
            .ours("SRM, discovery", line(&|point| point.srm.discovery.mean_ms()))
            .ours("Ricochet, recovery", line(&|point| point.ricochet.all().fec.mean_ms()));
        let last = points.last();
        let d = last.map_or(0, |point| point.d);
        let times = last.map_or(f64::NAN, Point::times);
        let claim = format!("SRM's mean recovery delay at d = {d}, relative to Ricochet's");
        let better = last.and_then(|point| {
            let ours = point.ricochet.all().fec.mean_ms();
            Better::if_lower("Ricochet's mean recovery delay", ours, self.papers_ricochet_ms, "ms")
        });
        Findings {
            table,
            figures: vec![figure],
            relations: vec![Relation::at_least(claim, times, self.at_least_times, "times")],
            better: better.into_iter().collect(),
            ..Findings::default()
        }
    }
}
