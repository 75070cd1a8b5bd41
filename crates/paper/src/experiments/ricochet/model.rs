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
    /// Maximum distance of the mean delay from the model's range, in percent.
    delay_within_percent: f64,
    /// XORs per packet in the model, which counts one for each copy of a repair that is sent.
    copies_per_packet: f64,
    copies_within_percent: f64,
    pending_gain: PendingGain,
    model: Vec<Expected>,
}

/// The recovered share that pending repairs add where they add most.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingGain {
    groups_per_node: u32,
    /// Minimum difference between the papers' settings and no pending repairs.
    points: f64,
}

/// The results of the independent model in one setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    groups_per_node: u32,
    recovered_percent: f64,
    /// Maximum difference of Carom's recovered share from it, in points.
    recovered_within_points: f64,
    mean_delay_ms: (f64, f64),
    variant: Variant,
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
        let at = |what: &str| format!("d = {d}, {}: {what}", expected.variant.name());
        let (model, within) = (expected.recovered_percent, expected.recovered_within_points);
        let range = (model - within, model + within);
        let note = |model: String| move |relation: Relation| relation.noted(model.clone());
        let mut relations = Vec::new();
        let share = Relation::within(at("share recovered"), recovered, range, "%");
        relations.extend(share.map(note(format!("model {model} %"))));
        let less = 1.0 - self.delay_within_percent / 100.0;
        let more = 1.0 + self.delay_within_percent / 100.0;
        let delay = Relation::within(at("mean delay"), delay, (low * less, high * more), "ms");
        relations.extend(delay.map(note(format!("model {low} to {high} ms"))));
        let (copies, within) = (self.copies_per_packet, self.copies_within_percent / 100.0);
        let range = (copies * (1.0 - within), copies * (1.0 + within));
        let claim = at("repairs sent with each packet");
        let sent = Relation::within(claim, outcome.copies_per_packet, range, "");
        relations.extend(sent.map(note(format!("model {copies}"))));
        relations
    }
}

impl PendingGain {
    fn relation(&self, points: &[Point<'_>]) -> Option<Relation> {
        let share = |variant: Variant| {
            let mut here =
                points.iter().filter(|it| it.expected.groups_per_node == self.groups_per_node);
            here.find(|it| it.expected.variant == variant).map(|it| it.recovered_percent)
        };
        let gain = share(Variant::Papers)? - share(Variant::NothingPending)?;
        let claim = format!("d = {}: share that pending repairs add", self.groups_per_node);
        Some(Relation::at_least(claim, gain, self.points, "points"))
    }
}

impl Experiment for RicochetModel {
    fn figure_names(&self) -> &[&'static str] {
        &["delay"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        let d = self.pending_gain.groups_per_node;
        for variant in [Variant::Papers, Variant::NothingPending] {
            let is_here = |it: &Expected| it.groups_per_node == d && it.variant == variant;
            if !self.model.iter().any(is_here) {
                let name = variant.name();
                return Err(format!("model has no value with {d} groups per node and {name}"));
            }
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
        let table = Rows(&points).table(
            2,
            &[
                ("groups_per_node", |it| it.expected.groups_per_node.into()),
                ("nodes", |it| it.expected.variant.name().into()),
                ("losses", |it| it.outcome.all().lost.into()),
                ("recovered_percent", |it| it.recovered_percent.into()),
                ("model_recovered_percent", |it| it.expected.recovered_percent.into()),
                ("mean_delay_ms", |it| it.delay_ms.into()),
                ("model_mean_delay_at_least_ms", |it| it.expected.mean_delay_ms.0.into()),
                ("model_mean_delay_at_most_ms", |it| it.expected.mean_delay_ms.1.into()),
                ("copies_per_packet", |it| it.outcome.copies_per_packet.into()),
                ("xors_per_packet", |it| it.outcome.xors_per_packet.into()),
                ("overtaken", |it| it.outcome.all().overtaken.into()),
            ],
        );
        let relations = points.iter().flat_map(|it| self.relations(it));
        let relations = relations.chain(self.pending_gain.relation(&points)).collect();
        let line = |variant: Variant, value: fn(&Point<'_>) -> f64| {
            let line = points.iter().filter(|it| it.expected.variant == variant);
            line.map(|it| (f64::from(it.expected.groups_per_node), value(it))).collect()
        };
        let y = Axis::linear("mean recovery delay, ms").spanning(0.0, 10.0);
        let x = Axis::log("groups per node", 2.0);
        let figure = Figure::new("delay", "Delay from the multicast to the recovery", x, y)
            .with(
                "independent model",
                Kind::Bound,
                Shape::Line,
                line(Variant::Papers, |it| {
                    (it.expected.mean_delay_ms.0 + it.expected.mean_delay_ms.1) / 2.0
                }),
            )
            .ours("papers' settings", line(Variant::Papers, |it| it.delay_ms))
            .ours("no pending repairs", line(Variant::NothingPending, |it| it.delay_ms));
        Findings { table, figures: vec![figure], relations, ..Findings::default() }
    }
}
