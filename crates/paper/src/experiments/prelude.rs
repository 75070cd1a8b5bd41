pub(super) use carom_figures::{Axis, Figure, Kind, Shape};
pub(super) use serde::Deserialize;

pub(super) use super::bed::check_list;
pub(super) use super::experiment::Experiment;
pub(super) use crate::line::Line;
pub(super) use crate::plan::{Fire, RunScale, Scaled, Share, Span};
pub(super) use crate::relation::{Better, Relation, greatest_last, highest, least_first, lowest};
pub(super) use crate::report::Findings;
pub(super) use crate::table::{Rows, Table};
pub(super) use crate::work::{Job, Outcome};
