//! What an experiment has shown.

use crate::experiments::RunScale;
use crate::figure::{Figure, Kind, Shape};
use crate::plan::Heading;
use crate::relation::{Better, Relation};
use crate::table::Table;
use crate::{csv, json, svg};

/// What one experiment has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the plan says of it.
    pub heading: Heading,
    /// Whether the shorter runs of `--quick` were used.
    pub quick: bool,
    /// The seed.
    pub seed: u64,
    /// The points; the same for the same seed, plan and version.
    pub table: Table,
    /// What was measured on this machine's processor, if anything was: not the same twice.
    pub measured: Option<Table>,
    /// The figures, the paper's points in them.
    pub figures: Vec<Figure>,
    /// What must hold. Empty if the figure is only shown.
    pub relations: Vec<Relation>,
    /// Where ours is better than the paper.
    pub better: Vec<Better>,
    /// What else the reader should know, a sentence or two each.
    pub notes: Vec<String>,
}

/// What an experiment makes of its runs.
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
    /// Puts the paper's points into the figures.
    pub(crate) fn new(heading: Heading, scale: RunScale, findings: Findings) -> Self {
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
        Self { heading, quick, seed, table, measured, figures, relations, better, notes }
    }

    /// The experiment's name.
    pub fn name(&self) -> &str {
        &self.heading.experiment
    }

    /// Whether every relation holds.
    pub fn holds(&self) -> bool {
        self.relations.iter().all(|relation| relation.holds)
    }

    /// The points as CSV: the same bytes for the same seed.
    pub fn csv(&self) -> String {
        csv::write(&self.table)
    }

    /// What was measured on this machine's processor, as CSV.
    pub fn measured_csv(&self) -> Option<String> {
        self.measured.as_ref().map(csv::write)
    }

    /// The figures as one SVG.
    pub fn svg(&self) -> String {
        svg::draw(&self.figures)
    }

    /// Everything as JSON; `docs/json.md` explains each field.
    pub fn json(&self) -> serde_json::Value {
        json::of(self)
    }
}
