//! `ricochet-12`: SRM in a growing number of groups, compared with Ricochet.

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{Guest, GuestOutcome, GuestRun, LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetSrm {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    srm_losses: Scaled<u32>,
    srm_tail: Scaled<Span>,
    /// Warm-up of runs of SRM: long enough for the recovery of the first losses.
    srm_warm_up_packets: u32,
    holds: Holds,
    papers_ricochet_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Lower limit of SRM's mean recovery delay with the fewest and with the most groups, as a
    /// multiple of Ricochet's.
    at_least_times: (f64, f64),
    /// Number of groups up to which a sender's next packet comes before its session message, so
    /// that the discovery time doubles with the groups.
    doubles_up_to: u32,
    /// Range of the factor by which the discovery time grows with each doubling.
    doubling: (f64, f64),
    /// Range of the mean discovery time relative to the mean interval of a sender's packets in one
    /// group.
    discovery_of_interval: (f64, f64),
    /// Range of the mean time from the discovery to the recovery at every d.
    from_discovery_ms: (f64, f64),
    /// Range of the mean recovery delay with the most groups.
    recovery_at_most_groups_ms: (f64, f64),
}

struct Point<'a> {
    d: u32,
    srm: &'a GuestOutcome,
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
            run.length.warm_up_packets = self.srm_warm_up_packets;
            [Job::new(GuestRun { run, guest: Guest::SrmForInternet }), Job::new(ricochet)]
        });
        jobs.collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let pairs = self.groups_per_node.at(scale.quick).iter().zip(outcomes.chunks(2));
        let points =
            pairs.map(|(d, pair)| Point { d: *d, srm: pair[0].of(), ricochet: pair[1].of() });
        let points: Vec<Point<'_>> = points.collect();
        let table = Rows(&points).table(
            1,
            &[
                ("groups_per_node", |it| it.d.into()),
                ("srm_losses", |it| it.srm.lost.into()),
                ("srm_missing", |it| it.srm.missing.into()),
                ("srm_mean_discovery_ms", |it| it.srm.discovery.mean_ms().into()),
                ("srm_mean_recovery_ms", |it| it.srm.recovery.mean_ms().into()),
                ("srm_overhead_percent", |it| (100.0 * it.srm.overhead).into()),
                ("ricochet_mean_recovery_ms", |it| it.ricochet.all().fec.mean_ms().into()),
                ("times", |it| it.times().into()),
            ],
        );
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
        let better = last.and_then(|point| {
            let ours = point.ricochet.all().fec.mean_ms();
            Better::if_lower("Ricochet's mean recovery delay", ours, self.papers_ricochet_ms, "ms")
        });
        Findings {
            table,
            figures: vec![figure],
            relations: self.relations(&points),
            better: better.into_iter().collect(),
            ..Findings::default()
        }
    }
}

impl RicochetSrm {
    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let holds = &self.holds;
        let usual = |point: &&Point<'_>| (2..=holds.doubles_up_to).contains(&point.d);
        let (Some(few), Some(many)) = (points.iter().find(usual), points.last()) else {
            return Vec::new();
        };
        let times = |point: &Point<'_>, limit| {
            let d = point.d;
            let claim = format!("SRM's mean recovery delay at d = {d}, relative to Ricochet's");
            Relation::at_least(claim, point.times(), limit, "times")
        };
        let mut relations =
            vec![times(few, holds.at_least_times.0), times(many, holds.at_least_times.1)];
        let discovery = |point: &Point<'_>| point.srm.discovery.mean_ms();
        let line = Line::through(
            points
                .iter()
                .filter(usual)
                .map(|point| (libm::log2(f64::from(point.d)), libm::log2(discovery(point)))),
        );
        let claim = "growth of SRM's discovery time with each doubling of d";
        relations.extend(Relation::within(claim, libm::exp2(line.slope), holds.doubling, "times"));
        let interval_ms = 1e3 * self.bed.interval.0.as_secs_f64();
        let of_interval =
            |point: &Point<'_>| (discovery(point) / (interval_ms * f64::from(point.d)), point.d);
        let claim = "SRM's discovery time, relative to a sender's interval in a group";
        let fewest = lowest(points.iter().filter(usual).map(of_interval));
        let most = highest(points.iter().filter(usual).map(of_interval));
        let range = holds.discovery_of_interval;
        relations.extend(Relation::all_within(claim, fewest, most, range, "times"));
        let rest = |point: &Point<'_>| (point.srm.recovery.mean_ms() - discovery(point), point.d);
        let claim = "SRM's mean time from the discovery to the recovery";
        let (fewest, most) = (lowest(points.iter().map(rest)), highest(points.iter().map(rest)));
        relations.extend(Relation::all_within(claim, fewest, most, holds.from_discovery_ms, "ms"));
        let claim = format!("SRM's mean recovery delay at d = {}", many.d);
        let delay = many.srm.recovery.mean_ms();
        relations.extend(Relation::within(claim, delay, holds.recovery_at_most_groups_ms, "ms"));
        relations
    }
}
