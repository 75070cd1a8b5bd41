use carom_figures::{Figure, Kind, Shape};

use crate::plan::{Heading, RunScale};
use crate::relation::{Better, Relation};
use crate::table::Table;
use crate::{csv, json};

/// The results of one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The common part of the experiment's plan.
    pub heading: Heading,
    pub(crate) quick: bool,
    pub(crate) seed: u64,
    /// Number of runs of each point, with consecutive seeds from `seed` on.
    pub(crate) runs: u32,
    /// Points. They are the same for the same seed, plan and version.
    pub(crate) table: Table,
    /// Values measured on this machine's processor, if there are any. They differ from run to run.
    pub(crate) measured: Option<Table>,
    pub(crate) figures: Vec<Figure>,
    /// Relations that must hold. Empty if the experiment only shows a figure.
    pub relations: Vec<Relation>,
    pub(crate) better: Vec<Better>,
    /// Notes for the reader, of one or two sentences each.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) table: Table,
    pub(crate) measured: Option<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) relations: Vec<Relation>,
    pub(crate) better: Vec<Better>,
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// Creates the report from the combined findings of all runs. `scale` is that of the first run.
    pub(crate) fn new(heading: Heading, scale: RunScale, runs: u32, findings: Findings) -> Self {
        let RunScale { quick, seed } = scale;
        let Findings { table, measured, mut figures, relations, better, notes } = findings;
        for reported in &heading.reported {
            let figure = figures.iter_mut().find(|figure| figure.name == reported.figure);
            if let Some(figure) = figure {
                let (label, points) = (reported.label.clone(), reported.points.clone());
                let with = figure.clone().with(label, Kind::Papers, Shape::Line, points);
                *figure = with;
            }
        }
        Self { heading, quick, seed, runs, table, measured, figures, relations, better, notes }
    }

    /// Returns the name of the experiment.
    pub fn name(&self) -> &str {
        &self.heading.experiment
    }

    /// Returns `true` if every relation holds.
    pub fn holds(&self) -> bool {
        self.relations.iter().all(|relation| relation.holds)
    }

    /// Returns the points as CSV. The same plan, options and version give the same bytes.
    pub fn csv(&self) -> String {
        csv::write(&self.table)
    }

    /// Returns the processor times of this machine as CSV, or `None` if none were measured.
    pub fn measured_csv(&self) -> Option<String> {
        self.measured.as_ref().map(csv::write)
    }

    /// Returns all figures as one SVG image.
    pub fn svg(&self) -> String {
        carom_figures::draw(&self.figures)
    }

    /// Returns the report as JSON. `docs/json.md` documents the fields.
    pub fn json(&self) -> serde_json::Value {
        let mut value = serde_json::json!({
            "name": self.name(),
            "title": self.heading.title,
            "source": self.heading.source,
            "seed": self.seed,
            "runs": self.runs,
            "quick": self.quick,
            "holds": self.holds(),
            "relations": self.relations,
            "better": self.better,
            "notes": self.notes,
            "points": json::points(&self.table),
        });
        if let (Some(measured), Some(object)) = (&self.measured, value.as_object_mut()) {
            object.insert("measured".to_owned(), json::points(measured));
        }
        value
    }
}
