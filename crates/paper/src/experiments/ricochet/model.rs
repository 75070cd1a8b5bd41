//! `ricochet-model`: comparison with an independent model of the protocol in the same setting.

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{LateralOutcome, LateralRun, Membership, Variant};

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

/// The results of the independent model in one setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    groups_per_node: u32,
    recovered_percent: f64,
    mean_delay_ms: (f64, f64),
    /// Settings of the engine that match the model's assumptions, as far as they are known.
    variant: Variant,
    /// `true` if Carom's values must agree with the model's. Otherwise they are only shown.
    must_hold: bool,
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

struct Point<'a> {
    expected: &'a Expected,
    outcome: &'a LateralOutcome,
    recovered_percent: f64,
    delay_ms: f64,
}

impl<'a> Point<'a> {
    fn new(expected: &'a Expected, outcome: &'a LateralOutcome) -> Self {
        let all = outcome.all();
        let (recovered_percent, delay_ms) = (all.recovered_percent(), all.fec.mean_ms());
        Self { expected, outcome, recovered_percent, delay_ms }
    }
}

impl RicochetModel {
    fn relations(&self, point: &Point<'_>) -> Vec<Relation> {
        let Point { expected, outcome, recovered_percent: recovered, delay_ms: delay } = *point;
        let (d, (low, high)) = (expected.groups_per_node, expected.mean_delay_ms);
        let off = (recovered - expected.recovered_percent).abs();
        let within = self.recovered_within_points;
        let note = format!("{recovered:.2} %, model {} %", expected.recovered_percent);
        let claim = format!("d = {d}: distance of the recovered share from the model");
        let mut relations = vec![Relation::at_most(claim, off, within, "points").noted(note)];
        let mut close = |what: &str, value: f64, range: (f64, f64), note: String| {
            let (off, within) = (percent_outside(value, range), self.within_percent);
            let claim = format!("d = {d}: distance of {what}");
            relations.push(Relation::at_most(claim, off, within, "%").noted(note));
        };
        let note = format!("{delay:.2} ms, model {low} to {high} ms");
        close("the mean delay from the model's range", delay, (low, high), note);
        if let Some(xors) = expected.xors_per_packet {
            let note = format!("{:.3}, model {xors}", outcome.xors_per_packet);
            close("XORs per packet from the model", outcome.xors_per_packet, (xors, xors), note);
        }
        relations
    }
}

impl Experiment for RicochetModel {
    fn figure_names(&self) -> &[&'static str] {
        &["delay"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        if self.model.is_empty() {
            return Err("model is empty: expected at least one value".to_owned());
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
        let run = |expected: &Expected| {
            let groups_per_node = expected.groups_per_node;
            let membership = Membership::Random { groups_per_node, mean_size, rate };
            let variant = expected.variant;
            Job::new(LateralRun { variant, ..self.bed.run(scale, membership) })
        };
        self.model.iter().map(run).collect()
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.model.iter().zip(outcomes);
        let points = points.map(|(expected, outcome)| Point::new(expected, outcome.of()));
        let points: Vec<Point<'_>> = points.collect();
        let table = Rows(&points).table(&[
            ("groups_per_node", |it| it.expected.groups_per_node.into()),
            ("nothing_pending", |it| {
                u64::from(it.expected.variant == Variant::NothingPending).into()
            }),
            ("losses", |it| it.outcome.all().lost.into()),
            ("recovered_percent", |it| it.recovered_percent.into()),
            ("model_recovered_percent", |it| it.expected.recovered_percent.into()),
            ("mean_delay_ms", |it| it.delay_ms.into()),
            ("model_mean_delay_at_least_ms", |it| it.expected.mean_delay_ms.0.into()),
            ("model_mean_delay_at_most_ms", |it| it.expected.mean_delay_ms.1.into()),
            ("xors_per_packet", |it| it.outcome.xors_per_packet.into()),
            ("overtaken", |it| it.outcome.all().overtaken.into()),
        ]);
        let must_hold = || points.iter().filter(|it| it.expected.must_hold);
        let relations = must_hold().flat_map(|it| self.relations(it)).collect();
        let line = |value: fn(&Point<'_>) -> f64| {
            must_hold().map(|it| (f64::from(it.expected.groups_per_node), value(it))).collect()
        };
        let y = Axis::linear("mean recovery delay, ms").spanning(0.0, 10.0);
        let x = Axis::log("groups per node", 2.0);
        let figure = Figure::new("delay", "Delay from the multicast to the recovery", x, y)
            .with(
                "independent model",
                Kind::Bound,
                Shape::Line,
                line(|it| (it.expected.mean_delay_ms.0 + it.expected.mean_delay_ms.1) / 2.0),
            )
            .ours("Carom", line(|it| it.delay_ms));
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
