//! `ricochet-model`: comparison with an independent model of the protocol in the same setting.

use serde::Deserialize;

use super::bed::Bed;
use super::experiment::Experiment;
use crate::figure::{Axis, Figure, Kind, Shape};
use crate::lateral::{LateralRun, Membership, Variant};
use crate::plan::{Fire, RunScale};
use crate::relation::Relation;
use crate::report::Findings;
use crate::table::Table;
use crate::work::{Job, Outcome};

/// Settings in the plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetModel {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    /// Maximum difference of the recovered share from the model's, in points.
    recovered_within_points: f64,
    /// Maximum distance of other values from the model's range, in percent.
    within_percent: f64,
    model: Vec<Expected>,
}

/// Results of the independent model in one setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    groups_per_node: u32,
    recovered_percent: f64,
    /// Range of the mean delay.
    mean_delay_ms: (f64, f64),
    /// Settings of the engine that match the model's assumptions, as far as they are known.
    variant: Variant,
    /// `true` if Carom's values must agree with the model's. Otherwise they are only shown.
    must_hold: bool,
    /// Number of XORs per data packet, if the model counted them.
    xors_per_packet: Option<f64>,
}

/// Returns the distance of `value` from a range, in percent of the nearer end. It is 0 inside.
fn percent_outside(value: f64, (low, high): (f64, f64)) -> f64 {
    if value < low {
        100.0 * (low - value) / low
    } else if value > high {
        100.0 * (value - high) / high
    } else {
        value * 0.0
    }
}

impl Experiment for RicochetModel {
    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        if self.model.is_empty() {
            return Err("model is empty".to_owned());
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
        let run = |expected: &Expected| {
            let groups_per_node = expected.groups_per_node;
            let membership = Membership::Random { groups_per_node, mean_size, rate };
            let variant = expected.variant;
            Job::Lateral(LateralRun { variant, ..self.bed.run(scale, membership) })
        };
        self.model.iter().map(run).collect()
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let mut table = Table::new(&[
            "groups_per_node",
            "nothing_pending",
            "losses",
            "recovered_percent",
            "model_recovered_percent",
            "mean_delay_ms",
            "model_mean_delay_at_least_ms",
            "model_mean_delay_at_most_ms",
            "xors_per_packet",
            "overtaken",
        ]);
        let mut relations = Vec::new();
        let mut lines = (Vec::new(), Vec::new());
        for (expected, outcome) in self.model.iter().zip(outcomes) {
            let (outcome, all) = (outcome.lateral(), outcome.lateral().all());
            let d = expected.groups_per_node;
            let recovered = 100.0 * all.recovered_share();
            let delay = all.fec.mean_ms();
            let (low, high) = expected.mean_delay_ms;
            table.push(vec![
                u64::from(d).into(),
                u64::from(expected.variant == Variant::NothingPending).into(),
                all.lost.into(),
                recovered.into(),
                expected.recovered_percent.into(),
                delay.into(),
                low.into(),
                high.into(),
                outcome.xors_per_packet.into(),
                all.overtaken.into(),
            ]);
            if expected.must_hold {
                lines.0.push((f64::from(d), delay));
                lines.1.push((f64::from(d), (low + high) / 2.0));
            }
            if !expected.must_hold {
                continue;
            }
            let off = (recovered - expected.recovered_percent).abs();
            let within = self.recovered_within_points;
            let note = format!("{recovered:.2} %, model {} %", expected.recovered_percent);
            let claim = format!("d = {d}: distance of the recovered share from the model");
            relations.push(Relation::at_most(claim, off, within, "points").noted(note));
            let off = percent_outside(delay, expected.mean_delay_ms);
            let note = format!("{delay:.2} ms, model {low} to {high} ms");
            let claim = format!("d = {d}: distance of the mean delay from the model's range");
            relations.push(Relation::at_most(claim, off, self.within_percent, "%").noted(note));
            if let Some(xors) = expected.xors_per_packet {
                let off = percent_outside(outcome.xors_per_packet, (xors, xors));
                let note = format!("{:.3}, model {xors}", outcome.xors_per_packet);
                let claim = format!("d = {d}: distance of XORs per packet from the model");
                relations.push(Relation::at_most(claim, off, self.within_percent, "%").noted(note));
            }
        }
        let y = Axis::linear("mean recovery delay, ms").spanning(0.0, 10.0);
        let x = Axis::log("groups per node", 2.0);
        let figure = Figure::new("delay", "Delay from the multicast to the recovery", x, y)
            .with("independent model", Kind::Bound, Shape::Line, lines.1)
            .ours("Carom", lines.0);
        Findings { table, figures: vec![figure], relations, ..Findings::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_is_told_in_percent_of_the_nearer_end() {
        assert_eq!(percent_outside(8.2, (8.0, 8.5)), 0.0);
        assert!((percent_outside(7.2, (8.0, 8.5)) - 10.0).abs() < 1e-9);
        assert!((percent_outside(17.0, (8.0, 8.5)) - 100.0).abs() < 1e-9);
        assert!(percent_outside(f64::NAN, (8.0, 8.5)).is_nan());
    }
}
