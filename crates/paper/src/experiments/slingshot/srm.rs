//! `slingshot-3`: distribution of recovery delays of Slingshot and SRM.

use crate::delays::Delays;
use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{LateralOutcome, Membership, Preset, SrmOutcome, SrmRun};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlingshotSrm {
    bed: Bed,
    rate_of_fire: Fire,
    /// Approximate number of losses that each run of SRM counts.
    srm_losses: Scaled<u32>,
    /// Time for which sending continues in runs of SRM after the measurement.
    srm_tail: Scaled<Span>,
    /// Lower limit of SRM's median recovery delay, as a multiple of Slingshot's.
    at_least_times: f64,
    papers: Papers,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Papers {
    recovered_percent: f64,
    overhead_percent: f64,
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

    fn srm(&self, scale: RunScale, preset: Preset) -> SrmRun {
        let mut run = self.bed.run(scale, self.membership());
        run.length.losses = *self.srm_losses.at(scale.quick);
        run.length.tail = self.srm_tail.at(scale.quick).0;
        SrmRun { run, preset }
    }
}

fn curves<'a>(outcomes: &[&'a Outcome]) -> [Curve<'a>; 4] {
    let slingshot: &LateralOutcome = outcomes[0].of();
    let [srm, tuned]: [&SrmOutcome; 2] = [outcomes[1].of(), outcomes[2].of()];
    let all = slingshot.all();
    let of_srm = |label, delays, outcome: &'a SrmOutcome| Curve {
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
            Job::new(self.srm(scale, Preset::WideArea)),
            Job::new(self.srm(scale, Preset::Datacenter)),
        ]
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let curves = curves(outcomes);
        let table = Rows(&curves).table(&[
            ("what", |it| it.label.into()),
            ("losses", |it| it.lost.into()),
            ("share_percent", |it| (100.0 * it.delays.len() as f64 / it.lost as f64).into()),
            ("p50_ms", |it| it.delays.quantile_ms(0.5).into()),
            ("p90_ms", |it| it.delays.quantile_ms(0.9).into()),
            ("p99_ms", |it| it.delays.quantile_ms(0.99).into()),
            ("max_ms", |it| it.delays.quantile_ms(1.0).into()),
            ("overhead_percent", |it| (100.0 * it.overhead).into()),
        ]);
        let median = |curve: &Curve<'_>| curve.delays.quantile_ms(0.5);
        let [slingshot, discovery, srm, tuned] = &curves;
        let times = median(srm) / median(slingshot);
        let recovered = 100.0 * slingshot.delays.len() as f64 / slingshot.lost as f64;
        let note =
            format!("medians: Slingshot {:.2} ms, SRM {:.0} ms", median(slingshot), median(srm));
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
        let claim = "SRM's median recovery delay, relative to Slingshot's";
        Findings {
            table,
            figures: vec![distribution(&curves)],
            relations: vec![
                Relation::at_least(claim, times, self.at_least_times, "times").noted(note),
            ],
            better: better.into_iter().flatten().collect(),
            notes: vec![
                format!(
                    "SRM discovers half of its losses within {:.1} ms, with the sender's next \
                     packet.",
                    median(discovery)
                ),
                format!(
                    "SRM with settings for data centers (adaptive timers, measured distances) \
                     recovers half of its losses within {:.1} ms, {:.0} times Slingshot's median. \
                     Discovery is the lower limit.",
                    median(tuned),
                    median(tuned) / median(slingshot)
                ),
            ],
            ..Findings::default()
        }
    }
}
