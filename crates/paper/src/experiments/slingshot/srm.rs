//! `slingshot-3`: distribution of recovery delays of Slingshot and SRM.

use crate::delays::Delays;
use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{Guest, GuestOutcome, GuestRun, LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlingshotSrm {
    bed: Bed,
    rate_of_fire: Fire,
    /// Approximate number of losses that each run of SRM counts.
    srm_losses: Scaled<u32>,
    /// Warm-up of runs of SRM: long enough for the recovery of the first losses.
    srm_warm_up_packets: u32,
    /// Time for which sending continues in runs of SRM after the measurement.
    srm_tail: Scaled<Span>,
    holds: Holds,
    papers: Papers,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Papers {
    recovered_percent: f64,
    overhead_percent: f64,
    /// Time within which SRM discovers losses: the interval of a sender.
    srm_discovery_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Lower limit of the median recovery delay of SRM for data centers, as a multiple of
    /// Slingshot's.
    at_least_times: f64,
    /// Maximum distance of Slingshot's overhead from the paper's, in points.
    overhead_within_points: f64,
    /// Maximum distance of the median of SRM's discovery times from the paper's, in percent.
    discovery_within_percent: f64,
    /// Range of SRM's overhead with the settings for the Internet, in percent.
    srm_overhead_percent: (f64, f64),
}

struct Curve<'a> {
    label: &'static str,
    delays: &'a Delays,
    lost: u64,
    overhead: f64,
}

impl SlingshotSrm {
    fn membership(&self) -> Membership {
        let (size, rate) = (self.bed.network.hosts(), self.rate_of_fire.0);
        Membership::OneGroup { size, rate, odd: rate }
    }

    fn srm(&self, scale: RunScale, guest: Guest) -> GuestRun {
        let mut run = self.bed.run(scale, self.membership());
        run.length.losses = *self.srm_losses.at(scale.quick);
        run.length.warm_up_packets = self.srm_warm_up_packets;
        run.length.tail = self.srm_tail.at(scale.quick).0;
        GuestRun { run, guest }
    }
}

fn curves<'a>(outcomes: &[&'a Outcome]) -> [Curve<'a>; 4] {
    let slingshot: &LateralOutcome = outcomes[0].of();
    let [srm, tuned]: [&GuestOutcome; 2] = [outcomes[1].of(), outcomes[2].of()];
    let all = slingshot.all();
    let of_srm = |label, delays, outcome: &'a GuestOutcome| Curve {
        label,
        delays,
        lost: outcome.lost,
        overhead: outcome.overhead,
    };
    let overhead = slingshot.overhead;
    [
        Curve { label: "Slingshot", delays: &all.fec, lost: all.lost, overhead },
        of_srm("SRM, discovery", &srm.discovery, srm),
        of_srm("SRM, recovery", &srm.recovery, srm),
        of_srm("SRM for data centers, recovery", &tuned.recovery, tuned),
    ]
}

fn distribution(curves: &[Curve<'_>]) -> Figure {
    let x = Axis::log("seconds after the multicast", 10.0).spanning(1e-4, 30.0);
    let y = Axis::linear("lost packets, %").spanning(0.0, 105.0);
    let mut figure = Figure::new("distribution", "Lost packets discovered or recovered", x, y);
    for curve in curves {
        let point = |step: i32| {
            let seconds = 1e-4 * libm::exp(f64::from(step) * 0.1);
            let share = curve.delays.up_to_ms(1e3 * seconds) as f64 / curve.lost as f64;
            (seconds, 100.0 * share)
        };
        let points = (0..=126).map(point).collect();
        figure = figure.with(curve.label, Kind::Ours, Shape::Curve, points);
    }
    figure
}

impl Experiment for SlingshotSrm {
    fn figure_names(&self) -> &[&'static str] {
        &["distribution"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.rate_of_fire.0.validate().map_err(|error| error.to_string())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        vec![
            Job::new(self.bed.run(scale, self.membership())),
            Job::new(self.srm(scale, Guest::SrmForInternet)),
            Job::new(self.srm(scale, Guest::SrmForDatacenter)),
        ]
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let curves = curves(outcomes);
        let table = Rows(&curves).table(
            1,
            &[
                ("what", |it| it.label.into()),
                ("losses", |it| it.lost.into()),
                ("share_percent", |it| (100.0 * it.delays.len() as f64 / it.lost as f64).into()),
                ("p50_ms", |it| it.delays.quantile_ms(0.5).into()),
                ("p90_ms", |it| it.delays.quantile_ms(0.9).into()),
                ("p99_ms", |it| it.delays.quantile_ms(0.99).into()),
                ("max_ms", |it| it.delays.quantile_ms(1.0).into()),
                ("overhead_percent", |it| (100.0 * it.overhead).into()),
            ],
        );
        let median = |curve: &Curve<'_>| curve.delays.quantile_ms(0.5);
        let [slingshot, discovery, srm, tuned] = &curves;
        let times = median(tuned) / median(slingshot);
        let recovered = 100.0 * slingshot.delays.len() as f64 / slingshot.lost as f64;
        let note =
            format!("medians: Slingshot {:.2} ms, SRM {:.1} ms", median(slingshot), median(tuned));
        let papers = &self.papers;
        let better = [
            Better::if_higher("share recovered by FEC", recovered, papers.recovered_percent, "%"),
            Better::if_lower(
                "overhead of Slingshot",
                100.0 * slingshot.overhead,
                papers.overhead_percent,
                "%",
            ),
        ];
        let claim = "median recovery delay of SRM for data centers, relative to Slingshot's";
        let holds = &self.holds;
        let mut relations = vec![
            Relation::at_least(claim, times, holds.at_least_times, "times").noted(note),
            Relation::at_least("share recovered by FEC", recovered, papers.recovered_percent, "%"),
        ];
        let around = |value: f64, by: f64| (value - by, value + by);
        let range = around(papers.overhead_percent, holds.overhead_within_points);
        let overhead = 100.0 * slingshot.overhead;
        relations.extend(Relation::within("overhead of Slingshot", overhead, range, "%"));
        let by = papers.srm_discovery_ms * holds.discovery_within_percent / 100.0;
        let range = around(papers.srm_discovery_ms, by);
        let claim = "median of SRM's discovery times";
        relations.extend(Relation::within(claim, median(discovery), range, "ms"));
        let claim = "overhead of SRM with timers for the Internet";
        let range = holds.srm_overhead_percent;
        relations.extend(Relation::within(claim, 100.0 * srm.overhead, range, "%"));
        Findings {
            table,
            figures: vec![distribution(&curves)],
            relations,
            better: better.into_iter().flatten().collect(),
            notes: vec![NOTE.to_owned()],
            ..Findings::default()
        }
    }
}

const NOTE: &str = "SRM with timers for the Internet is only shown: its delays follow from the \
                    assumed distance of 1 s. Settings for data centers have adaptive timers and \
                    measured distances, so that discovery, with the sender's next packet, is the \
                    lower limit.";
