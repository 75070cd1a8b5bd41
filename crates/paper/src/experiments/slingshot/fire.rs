//! `slingshot-2a` and `slingshot-2b`: one group with different rates-of-fire.

use carom_proto::RateOfFire;
use carom_proto::lateral::model::Setting;

use crate::experiments::bed::Bed;
use crate::experiments::experiment::Modelled;
use crate::experiments::prelude::*;
use crate::lateral::{GroupOutcome, LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlingshotFire {
    bed: Bed,
    /// Pairs of r and twice c. If twice c is odd, the members alternate between two values of c.
    rates: Vec<(u8, u8)>,
    sweeps: Sweeps,
    /// Share that the paper reports at (8,5), in percent.
    papers_recovered_percent: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sweeps {
    C,
    R,
}

struct Point<'a> {
    r: u8,
    c: f64,
    setting: Option<Setting>,
    outcome: &'a LateralOutcome,
    all: &'a GroupOutcome,
}

impl SlingshotFire {
    fn points<'a>(&self, outcomes: &[&'a Outcome]) -> Vec<Point<'a>> {
        let point = |((r, twice_c), outcome): (&(u8, u8), &&'a Outcome)| {
            let size = self.bed.network.hosts();
            let rate = RateOfFire::new(*r, twice_c / 2);
            let setting =
                Setting { group_size: size, view_size: size, rate, loss: self.bed.loss.0 };
            let (c, is_whole) = (f64::from(*twice_c) / 2.0, twice_c % 2 == 0);
            let outcome: &LateralOutcome = outcome.of();
            Point { r: *r, c, setting: is_whole.then_some(setting), outcome, all: outcome.all() }
        };
        self.rates.iter().zip(outcomes).map(point).collect()
    }

    fn x(&self, point: &Point<'_>) -> f64 {
        if self.sweeps == Sweeps::C { point.c } else { f64::from(point.r) }
    }

    fn figures(&self, points: &[Point<'_>]) -> Vec<Figure> {
        let label = if self.sweeps == Sweeps::C { "c of (8, c)" } else { "r of (r, r/2)" };
        let axis = || Axis::linear(label);
        let line = |value: &dyn Fn(&Point<'_>) -> f64| {
            points.iter().map(|point| (self.x(point), value(point))).collect::<Vec<_>>()
        };
        let bound = |which: fn(&Setting) -> f64| {
            let of = |point: &Point<'_>| {
                let setting = point.setting.as_ref()?;
                Some((self.x(point), 100.0 * which(setting)))
            };
            points.iter().filter_map(of).collect::<Vec<_>>()
        };
        let lower = bound(|setting| setting.recovered().map_or(f64::NAN, |it| it.lower));
        let upper = bound(|setting| setting.recovered().map_or(f64::NAN, |it| it.upper));
        let percent = Axis::linear("lost packets recovered, %").spanning(0.0, 105.0);
        let recovered = Figure::new("recovered", "Recovered by repairs", axis(), percent)
            .with("analysis, upper bound", Kind::Bound, Shape::Line, upper)
            .with("analysis, lower bound", Kind::Bound, Shape::Line, lower)
            .ours("Carom", line(&|point| point.all.recovered_percent()));
        let y = Axis::linear("mean recovery delay, ms");
        let delay = Figure::new("delay", "Delay from the multicast to the recovery", axis(), y)
            .ours("Carom", line(&|point| point.all.fec.mean_ms()));
        let y = Axis::linear("repairs among all packets, %").spanning(0.0, 60.0);
        let overhead = Figure::new("overhead", "Overhead", axis(), y)
            .ours("Carom", line(&|point| 100.0 * point.outcome.overhead));
        vec![recovered, delay, overhead]
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        match self.sweeps {
            Sweeps::C => self.bounds_hold(points),
            Sweeps::R => monotone(points),
        }
    }

    fn bounds_hold(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let modelled = points.iter().filter_map(|point| {
            let setting = point.setting?;
            let (bounds, overhead) = (setting.recovered().ok()?, setting.overhead().ok()?);
            Some((point, bounds, overhead))
        });
        let modelled: Vec<_> = modelled.collect();
        let above = modelled.iter().map(|(point, bounds, _)| {
            (point.all.recovered_percent() - 100.0 * bounds.lower, point.c)
        });
        let below = modelled.iter().map(|(point, bounds, _)| {
            (100.0 * bounds.upper - point.all.recovered_percent(), point.c)
        });
        let off = modelled.iter().map(|(point, _, overhead)| {
            (100.0 * (point.outcome.overhead / overhead - 1.0).abs(), point.c)
        });
        let ((above, at_above), (below, at_below)) = (lowest(above), lowest(below));
        let (off, at_off) = highest(off);
        vec![
            Relation::at_least("share recovered above the lower bound", above, 0.0, "points")
                .noted(format!("minimum at c = {at_above}")),
            Relation::at_least("share recovered below the upper bound", below, 0.0, "points")
                .noted(format!("minimum at c = {at_below}")),
            Relation::at_most(
                "relative difference of the overhead from c(1-p)/(r+c(1-p))",
                off,
                1.0,
                "%",
            )
            .noted(format!("maximum at c = {at_off}")),
        ]
    }
}

fn monotone(points: &[Point<'_>]) -> Vec<Relation> {
    let steps = |value: &dyn Fn(&Point<'_>) -> f64| {
        lowest(
            points.windows(2).map(|pair| (value(&pair[1]) - value(&pair[0]), f64::from(pair[1].r))),
        )
    };
    let (recovered, at_recovered) = steps(&|point| point.all.recovered_percent());
    let (delay, at_delay) = steps(&|point| point.all.fec.mean_ms());
    let overheads = || points.iter().map(|point| 100.0 * point.outcome.overhead);
    let low = overheads().min_by(least_first).unwrap_or(f64::NAN);
    let high = overheads().fold(f64::NEG_INFINITY, f64::max);
    vec![
        Relation::at_least("growth of the share recovered with each r", recovered, 0.0, "points")
            .noted(format!("minimum at r = {at_recovered}")),
        Relation::at_least("growth of the mean delay with each r", delay, 0.0, "ms")
            .noted(format!("minimum at r = {at_delay}")),
        Relation::at_most("variation of the overhead over r", high - low, 1.0, "points"),
    ]
}

impl Experiment for SlingshotFire {
    fn figure_names(&self) -> &[&'static str] {
        &["recovered", "delay", "overhead"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        for (r, twice_c) in &self.rates {
            RateOfFire::new(*r, *twice_c).validate().map_err(|error| error.to_string())?;
            let hosts = self.bed.network.hosts();
            if u32::from(twice_c.div_ceil(2)) >= hosts {
                return Err(format!("c = {twice_c}/2 is too large: expected less than {hosts}"));
            }
        }
        check_list("rates", &self.rates, (1, 1), (RateOfFire::MAX_R, u8::MAX))
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let run = |(r, twice_c): &(u8, u8)| {
            let (rate, odd) = (twice_c / 2, twice_c.div_ceil(2));
            let [rate, odd] = [rate, odd].map(|c| RateOfFire::new(*r, c));
            let size = self.bed.network.hosts();
            Job::new(self.bed.run(scale, Membership::OneGroup { size, rate, odd }))
        };
        self.rates.iter().map(run).collect()
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.points(outcomes);
        let table = Rows(&points).table(
            2,
            &[
                ("r", |it| u64::from(it.r).into()),
                ("c", |it| it.c.into()),
                ("losses", |it| it.all.lost.into()),
                ("recovered_percent", |it| it.all.recovered_percent().into()),
                ("mean_delay_ms", |it| it.all.fec.mean_ms().into()),
                ("p50_delay_ms", |it| it.all.fec.quantile_ms(0.5).into()),
                ("p99_delay_ms", |it| it.all.fec.quantile_ms(0.99).into()),
                ("overhead_percent", |it| (100.0 * it.outcome.overhead).into()),
                ("xors_per_packet", |it| it.outcome.xors_per_packet.into()),
            ],
        );
        let usual = points.iter().find(|point| (point.r, point.c) == (8, 5.0));
        let better = usual.and_then(|point| {
            let papers = self.papers_recovered_percent;
            Better::if_higher(
                "share recovered at (8,5)",
                point.all.recovered_percent(),
                papers,
                "%",
            )
        });
        Findings {
            table,
            figures: self.figures(&points),
            relations: self.relations(&points),
            better: better.into_iter().collect(),
            ..Findings::default()
        }
    }

    fn modelled(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Vec<Modelled> {
        let points = self.points(outcomes).into_iter();
        let modelled = points.filter_map(|point| {
            let label = format!("({}, {})", point.r, point.c);
            Some(Modelled::new(label, point.setting?, point.all))
        });
        modelled.collect()
    }
}
