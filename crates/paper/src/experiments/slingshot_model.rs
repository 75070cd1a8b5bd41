//! `slingshot-model`: the bounds of Slingshot's section 3.4.

use carom_proto::RateOfFire;
use carom_proto::lateral::model::{Bounds, Setting};
use serde::Deserialize;

use super::{Experiment, RunScale};
use crate::figure::{Axis, Figure, Kind, Shape};
use crate::plan::Share;
use crate::relation::Relation;
use crate::report::Findings;
use crate::table::Table;
use crate::work::{Job, Outcome};

/// The plan's part that is peculiar to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlingshotModel {
    group_size: u32,
    view_size: u32,
    r: u8,
    c: Vec<u8>,
    losses: Vec<Share>,
    /// What the evaluation is held to, at one of the losses.
    golden: Golden,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    loss: Share,
    /// How far the bounds may be from these, in points.
    within_points: f64,
    /// c, the lower and the upper bound in percent.
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

    /// The settings of the plan: for each loss each c, then the golden ones.
    fn settings(&self) -> Vec<Setting> {
        let swept = self.losses.iter();
        let swept = swept.flat_map(|loss| self.c.iter().map(|c| self.setting(*c, *loss)));
        let golden = self.golden.bounds.iter();
        swept.chain(golden.map(|(c, ..)| self.setting(*c, self.golden.loss))).collect()
    }
}

impl Experiment for SlingshotModel {
    fn check(&self) -> Result<(), String> {
        let wrong = self.settings().iter().find_map(|setting| setting.recovered().err());
        wrong.map_or(Ok(()), |error| Err(error.to_string()))
    }

    fn jobs(&self, _scale: RunScale) -> Vec<Job> {
        self.settings().into_iter().map(Job::Bounds).collect()
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let bounds = outcomes.iter().map(|outcome| match outcome {
            Outcome::Bounds(bounds) => *bounds,
        });
        let points: Vec<(Setting, Bounds)> = self.settings().into_iter().zip(bounds).collect();
        let (swept, golden) = points.split_at(self.losses.len() * self.c.len());
        Findings {
            table: table(swept),
            figures: vec![self.figure(swept)],
            relations: self.golden.relations(golden),
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
            let label = |side| format!("{side}, {} % lost", 100.0 * loss.0);
            let upper = line(|bounds| bounds.upper);
            figure = figure.with(label("at most"), Kind::Bound, Shape::Line, upper);
            figure = figure.ours(label("at least"), line(|bounds| bounds.lower));
        }
        figure
    }
}

impl Golden {
    fn relations(&self, points: &[(Setting, Bounds)]) -> Vec<Relation> {
        let off = |((_, lower, upper), (_, bounds)): (&(u8, f64, f64), &(Setting, Bounds))| {
            (bounds.lower * 100.0 - lower).abs().max((bounds.upper * 100.0 - upper).abs())
        };
        let worst = self.bounds.iter().zip(points).map(off).fold(0.0, f64::max);
        let claim = "the bounds are those that the evaluation is held to";
        vec![Relation::at_most(claim, worst, self.within_points, "points")]
    }
}

fn table(points: &[(Setting, Bounds)]) -> Table {
    let mut table = Table::new(&[
        "group_size",
        "view_size",
        "r",
        "c",
        "loss_percent",
        "recovered_at_least_percent",
        "recovered_at_most_percent",
    ]);
    for (setting, bounds) in points {
        table.push(vec![
            u64::from(setting.group_size).into(),
            u64::from(setting.view_size).into(),
            u64::from(setting.rate.r).into(),
            u64::from(setting.rate.c).into(),
            (setting.loss * 100.0).into(),
            (bounds.lower * 100.0).into(),
            (bounds.upper * 100.0).into(),
        ]);
    }
    table
}
