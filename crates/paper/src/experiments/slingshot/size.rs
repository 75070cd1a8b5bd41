//! `slingshot-4` and `slingshot-5`: groups and partial views of different sizes among 400 hosts.

use carom_proto::lateral::model::{Bounds, Setting};

use crate::experiments::bed::Bed;
use crate::experiments::experiment::Modelled;
use crate::experiments::prelude::*;
use crate::lateral::{LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlingshotSize {
    bed: Bed,
    rate_of_fire: Fire,
    sweeps: Sweeps,
    /// Sizes of the group, or of the views.
    sizes: Scaled<Vec<u32>>,
    group_size: u32,
    /// Maximum difference between the largest and the smallest share recovered, in points.
    spread_points: f64,
    /// Share that the paper reports for 64 nodes, in percent.
    papers_recovered_percent: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sweeps {
    GroupSize,
    ViewSize,
}

impl SlingshotSize {
    fn settings(&self, quick: bool) -> Vec<Setting> {
        let setting = |size: &u32| {
            let group_size = if self.sweeps == Sweeps::GroupSize { *size } else { self.group_size };
            Setting {
                group_size,
                view_size: *size,
                rate: self.rate_of_fire.0,
                loss: self.bed.loss.0,
            }
        };
        self.sizes.at(quick).iter().map(setting).collect()
    }
}

impl Experiment for SlingshotSize {
    fn figure_names(&self) -> &[&'static str] {
        &["recovered"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        for quick in [false, true] {
            let hosts = self.bed.network.hosts();
            check_list("sizes", self.sizes.at(quick), 2, hosts)?;
            for setting in self.settings(quick) {
                setting.recovered().map_err(|error| error.to_string())?;
                if setting.group_size > hosts {
                    let size = setting.group_size;
                    return Err(format!(
                        "group_size {size} is too large: expected at most {hosts}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let run = |setting: Setting| {
            let (size, rate) = (setting.group_size, setting.rate);
            let mut run = self.bed.run(scale, Membership::OneGroup { size, rate, odd: rate });
            run.view = (setting.view_size < size).then_some(setting.view_size);
            Job::new(run)
        };
        self.settings(scale.quick).into_iter().map(run).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let settings = self.settings(scale.quick);
        let points: Vec<(&Setting, &LateralOutcome)> =
            settings.iter().zip(outcomes).map(|(setting, it)| (setting, it.of())).collect();
        let table = Rows(&points).table(
            2,
            &[
                ("group_size", |(setting, _)| setting.group_size.into()),
                ("view_size", |(setting, _)| setting.view_size.into()),
                ("losses", |(_, outcome)| outcome.all().lost.into()),
                ("recovered_percent", |(_, outcome)| outcome.all().recovered_percent().into()),
                ("mean_delay_ms", |(_, outcome)| outcome.all().fec.mean_ms().into()),
                ("overhead_percent", |(_, outcome)| (100.0 * outcome.overhead).into()),
            ],
        );
        let bound = |which: fn(&Bounds) -> f64| {
            let analysis = settings.iter().filter_map(|it| Some((it, it.recovered().ok()?)));
            let line =
                analysis.map(|(it, bounds)| (f64::from(it.view_size), 100.0 * which(&bounds)));
            line.collect::<Vec<_>>()
        };
        let values = || points.iter().map(|(_, outcome)| outcome.all().recovered_percent());
        let low = values().min_by(least_first).unwrap_or(f64::NAN);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        let line = settings.iter().map(|it| f64::from(it.view_size)).zip(values());
        let x = match self.sweeps {
            Sweeps::GroupSize => "group size",
            Sweeps::ViewSize => "size of partial views",
        };
        let y = Axis::linear("lost packets recovered, %").spanning(84.0, 100.0);
        let figure = Figure::new("recovered", "Recovered by repairs", Axis::linear(x), y)
            .with("analysis, upper bound", Kind::Bound, Shape::Line, bound(|it| it.upper))
            .with("analysis, lower bound", Kind::Bound, Shape::Line, bound(|it| it.lower))
            .ours("Carom", line.collect());
        let claim = "difference between the largest and the smallest share recovered";
        let papers = self.papers_recovered_percent;
        let better = Better::if_higher("share recovered at the worst size", low, papers, "%");
        Findings {
            table,
            figures: vec![figure],
            relations: vec![Relation::at_most(claim, high - low, self.spread_points, "points")],
            better: better.into_iter().collect(),
            ..Findings::default()
        }
    }

    fn modelled(&self, scale: RunScale, outcomes: &[&Outcome]) -> Vec<Modelled> {
        let settings = self.settings(scale.quick).into_iter().zip(outcomes);
        let modelled = settings.map(|(setting, outcome)| {
            let Setting { group_size, view_size, .. } = setting;
            let label = format!("views of {view_size} in a group of {group_size}");
            Modelled::new(label, setting, outcome.of::<LateralOutcome>().all())
        });
        modelled.collect()
    }
}
