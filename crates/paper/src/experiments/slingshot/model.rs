//! `slingshot-model`: the bounds of Slingshot's section 3.4, and a check of simulated points.

use carom_proto::RateOfFire;
use carom_proto::lateral::model::{Bounds, Setting};

use crate::experiments::experiment::{Loaded, Modelled};
use crate::experiments::prelude::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlingshotModel {
    group_size: u32,
    view_size: u32,
    r: u8,
    c: Vec<u8>,
    losses: Vec<Share>,
    /// Expected bounds at one rate of loss.
    golden: Golden,
    /// Experiments whose points must lie between the bounds, with their built-in plans.
    simulated: Vec<String>,
    #[serde(skip)]
    others: Vec<Loaded>,
    /// Maximum distance of a point from the bounds, in standard deviations.
    sigmas: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    loss: Share,
    /// Maximum difference from the expected bounds, in percentage points.
    within_points: f64,
    /// Values of c, each with its expected lower and upper bound in percent.
    bounds: Vec<(u8, f64, f64)>,
}

impl SlingshotModel {
    fn setting(&self, c: u8, loss: Share) -> Setting {
        Setting {
            group_size: self.group_size,
            view_size: self.view_size,
            rate: RateOfFire::new(self.r, c),
            loss: loss.0,
        }
    }

    fn settings(&self) -> Vec<Setting> {
        let swept = self.losses.iter();
        let swept = swept.flat_map(|loss| self.c.iter().map(|c| self.setting(*c, *loss)));
        let golden = self.golden.bounds.iter();
        swept.chain(golden.map(|(c, ..)| self.setting(*c, self.golden.loss))).collect()
    }

    fn simulated(&self, scale: RunScale, outcomes: &[&Outcome]) -> Vec<Modelled> {
        let mut rest = outcomes;
        let mut points = Vec::new();
        for Loaded { heading, experiment, .. } in &self.others {
            let (own, others) = rest.split_at(experiment.jobs(scale).len());
            for point in experiment.modelled(scale, own) {
                let label = format!("{}: {}", heading.experiment, point.label);
                points.push(Modelled { label, ..point });
            }
            rest = others;
        }
        points
    }
}

impl Experiment for SlingshotModel {
    fn link(&mut self, find: fn(&str) -> Option<Loaded>) {
        self.others = self.simulated.iter().filter_map(|name| find(name)).collect();
    }

    fn figure_names(&self) -> &[&'static str] {
        &["bounds"]
    }

    fn check(&self) -> Result<(), String> {
        let is_known =
            |name: &str| self.others.iter().any(|other| other.heading.experiment == name);
        if let Some(unknown) = self.simulated.iter().find(|name| !is_known(name)) {
            return Err(format!("unknown experiment '{unknown}'"));
        }
        let wrong = self.settings().iter().find_map(|setting| setting.recovered().err());
        wrong.map_or(Ok(()), |error| Err(error.to_string()))
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        self.others.iter().flat_map(|loaded| loaded.experiment.jobs(scale)).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let bounds = |setting: Setting| {
            (setting, setting.recovered().expect("plans are checked before they are run"))
        };
        let points: Vec<(Setting, Bounds)> = self.settings().into_iter().map(bounds).collect();
        let (swept, golden) = points.split_at(self.losses.len() * self.c.len());
        let simulated = self.simulated(scale, outcomes);
        let row = |label, (setting, bounds): (Setting, Bounds), simulated| Row {
            label,
            setting,
            bounds,
            simulated,
        };
        let swept_rows = swept.iter().map(|point| row("analysis", *point, None));
        let simulated_rows =
            simulated.iter().map(|it| row(it.label.as_str(), bounds(it.setting), Some(it)));
        let rows: Vec<Row<'_>> = swept_rows.chain(simulated_rows).collect();
        Findings {
            table: table(&rows),
            figures: vec![self.figure(swept)],
            relations: vec![self.golden.relation(golden), self.inside(&simulated)],
            ..Findings::default()
        }
    }
}

impl SlingshotModel {
    fn figure(&self, swept: &[(Setting, Bounds)]) -> Figure {
        let y = Axis::linear("lost packets recovered, %").spanning(0.0, 105.0);
        let title = format!("Bounds for {} nodes at r = {}", self.group_size, self.r);
        let mut figure = Figure::new("bounds", title, Axis::linear("c"), y);
        for (loss, points) in self.losses.iter().zip(swept.chunks(self.c.len())) {
            let line = |bound: fn(&Bounds) -> f64| {
                let point = |(setting, bounds): &(Setting, Bounds)| {
                    (f64::from(setting.rate.c), 100.0 * bound(bounds))
                };
                points.iter().map(point).collect::<Vec<_>>()
            };
            let label = |side| format!("{side}, {} % loss", 100.0 * loss.0);
            let upper = line(|bounds| bounds.upper);
            figure = figure.with(label("upper bound"), Kind::Bound, Shape::Line, upper);
            figure = figure.ours(label("lower bound"), line(|bounds| bounds.lower));
        }
        figure
    }

    /// Returns the relation for the worst point's distance from the bounds, in standard deviations.
    /// The distance is negative inside the bounds.
    fn inside(&self, points: &[Modelled]) -> Relation {
        let outside = |point: &Modelled| {
            let bounds = point.setting.recovered().expect("plans are checked before they are run");
            let outside = (bounds.lower - point.recovered).max(point.recovered - bounds.upper);
            (outside / point.sigma, point.label.clone())
        };
        let (outside, label) = highest(points.iter().map(outside));
        let claim = "distance of the worst simulated point outside the bounds";
        Relation::at_most(claim, outside, self.sigmas, "standard deviations")
            .noted(format!("worst of {} points: {label}", points.len()))
    }
}

impl Golden {
    fn relation(&self, points: &[(Setting, Bounds)]) -> Relation {
        let off = |((_, lower, upper), (_, bounds)): (&(u8, f64, f64), &(Setting, Bounds))| {
            (bounds.lower * 100.0 - lower).abs().max((bounds.upper * 100.0 - upper).abs())
        };
        let worst = self.bounds.iter().zip(points).map(off).fold(0.0, f64::max);
        let claim = "difference of the bounds from the expected values";
        Relation::at_most(claim, worst, self.within_points, "points")
    }
}

struct Row<'a> {
    label: &'a str,
    setting: Setting,
    bounds: Bounds,
    simulated: Option<&'a Modelled>,
}

fn table(rows: &[Row<'_>]) -> Table {
    Rows(rows).table(
        8,
        &[
            ("what", |it| it.label.into()),
            ("group_size", |it| it.setting.group_size.into()),
            ("view_size", |it| it.setting.view_size.into()),
            ("r", |it| u64::from(it.setting.rate.r).into()),
            ("c", |it| u64::from(it.setting.rate.c).into()),
            ("loss_percent", |it| (100.0 * it.setting.loss).into()),
            ("recovered_at_least_percent", |it| (100.0 * it.bounds.lower).into()),
            ("recovered_at_most_percent", |it| (100.0 * it.bounds.upper).into()),
            ("simulated_percent", |it| {
                it.simulated.map_or(f64::NAN, |point| 100.0 * point.recovered).into()
            }),
            ("simulated_sigma_points", |it| {
                it.simulated.map_or(f64::NAN, |point| 100.0 * point.sigma).into()
            }),
        ],
    )
}
