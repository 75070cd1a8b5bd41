//! `churn`: recovery by repairs while nodes are replaced.

use super::bed::Bed;
use super::prelude::*;
use crate::lateral::{Churn, GroupOutcome, LateralOutcome, LateralRun, Membership, Views};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnderChurn {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: u32,
    replaced_per_minute: Scaled<Vec<Share>>,
    views: Scaled<Vec<Views>>,
    with_naks: WithNaks,
    holds: Holds,
}

/// The settings of the runs with NAKs, which use the first kind of views.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WithNaks {
    losses: Scaled<u32>,
    tail: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Share of the nodes replaced per minute at which the relation is evaluated.
    at: Scaled<Share>,
    /// Maximum loss of the recovered share compared with no replacement, in points.
    costs_at_most_points: f64,
}

#[derive(Clone, Debug)]
struct Place {
    churn: Churn,
    nak: bool,
}

struct Point<'a> {
    place: Place,
    outcome: &'a LateralOutcome,
    all: &'a GroupOutcome,
}

impl Point<'_> {
    fn replaced_percent(&self) -> f64 {
        100.0 * self.place.churn.replaced_per_minute
    }

    fn to_gone_percent(&self) -> f64 {
        let (all, to_gone) = self.outcome.repairs_sent;
        100.0 * to_gone as f64 / all as f64
    }
}

impl UnderChurn {
    fn places(&self, quick: bool) -> Vec<Place> {
        let views = self.views.at(quick);
        let with_naks = views.first().map(|views| (*views, true));
        let runs = views.iter().map(|views| (*views, false)).chain(with_naks);
        let shares = self.replaced_per_minute.at(quick);
        let place = |views, nak, share: &Share| {
            let churn = Churn { replaced_per_minute: share.0, views };
            Place { churn, nak }
        };
        runs.flat_map(|(views, nak)| shares.iter().map(move |share| place(views, nak, share)))
            .collect()
    }

    fn run(&self, scale: RunScale, place: Place) -> LateralRun {
        let membership = Membership::Random {
            groups_per_node: self.groups_per_node,
            mean_size: self.mean_size,
            rate: self.rate_of_fire.0,
        };
        let mut run = self.bed.run(scale, membership);
        if place.nak {
            run.length.losses = *self.with_naks.losses.at(scale.quick);
            run.length.tail = self.with_naks.tail.0;
        }
        LateralRun { churn: Some(place.churn), nak: place.nak, ..run }
    }

    fn figures(&self, quick: bool, points: &[Point<'_>]) -> Vec<Figure> {
        let x = || Axis::linear("nodes replaced per minute, %");
        let y = Axis::linear("lost packets recovered by FEC, %").spanning(90.0, 100.0);
        let mut recovered = Figure::new("recovered", "Recovered by repairs", x(), y);
        let y = Axis::linear("mean recovery delay by FEC, ms").spanning(0.0, 50.0);
        let title = "Delay from the multicast to the recovery";
        let mut delay = Figure::new("delay", title, x(), y);
        for views in self.views.at(quick) {
            let of = |value: fn(&Point<'_>) -> f64| {
                let line = without_naks(points, *views);
                line.map(|point| (point.replaced_percent(), value(point))).collect::<Vec<_>>()
            };
            let label = format!("views {views}");
            recovered = recovered.ours(label.clone(), of(|point| point.all.recovered_percent()));
            delay = delay.ours(label, of(|point| point.all.fec.mean_ms()));
        }
        vec![recovered, delay]
    }

    fn relations(&self, quick: bool, points: &[Point<'_>]) -> Vec<Relation> {
        let (at, limit) = (self.holds.at.at(quick).0, self.holds.costs_at_most_points);
        let cost = |views: &Views| {
            let recovered = |share: f64| {
                let mut line = without_naks(points, *views);
                let point = line.find(|point| point.place.churn.replaced_per_minute == share);
                point.map_or(f64::NAN, |it| it.all.recovered_percent())
            };
            let percent = 100.0 * at;
            let claim = format!(
                "{percent} % replaced per minute, views {views}: recovered share, decrease"
            );
            let (still, churned) = (recovered(0.0), recovered(at));
            let note = format!("{still:.2} % without churn, {churned:.2} % with");
            Relation::at_most(claim, still - churned, limit, "points").noted(note)
        };
        self.views.at(quick).iter().map(cost).collect()
    }
}

fn without_naks<'a, 'b>(
    points: &'a [Point<'b>],
    views: Views,
) -> impl Iterator<Item = &'a Point<'b>> {
    points.iter().filter(move |point| !point.place.nak && point.place.churn.views == views)
}

impl Experiment for UnderChurn {
    fn figure_names(&self) -> &[&'static str] {
        &["recovered", "delay"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        check_list("groups_per_node", &[self.groups_per_node], 1, 1 << 10)?;
        check_list("mean_size", &[self.mean_size], 2, self.bed.network.hosts())?;
        for quick in [false, true] {
            let shares: Vec<f64> =
                self.replaced_per_minute.at(quick).iter().map(|share| share.0).collect();
            check_list("replaced_per_minute", &shares, 0.0, 1.0)?;
            let needed = [0.0, self.holds.at.at(quick).0];
            if let Some(share) = needed.into_iter().find(|share| !shares.contains(share)) {
                let percent = 100.0 * share;
                return Err(format!("replaced_per_minute must contain {percent} %"));
            }
            if self.views.at(quick).is_empty() {
                return Err("views is empty: expected at least one value".to_owned());
            }
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let places = self.places(scale.quick).into_iter();
        places.map(|place| Job::new(self.run(scale, place))).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.places(scale.quick).into_iter().zip(outcomes);
        let points = points.map(|(place, outcome)| {
            let outcome: &LateralOutcome = outcome.of();
            Point { place, outcome, all: outcome.all() }
        });
        let points: Vec<Point<'_>> = points.collect();
        let table = table(&points);
        Findings {
            table,
            figures: self.figures(scale.quick, &points),
            relations: self.relations(scale.quick, &points),
            notes: vec![NOTE.to_owned()],
            ..Findings::default()
        }
    }
}

fn table(points: &[Point<'_>]) -> Table {
    Rows(points).table(
        3,
        &[
            ("views", |it| it.place.churn.views.to_string().into()),
            ("with_naks", |it| u64::from(it.place.nak).into()),
            ("replaced_per_minute_percent", |it| it.replaced_percent().into()),
            ("nodes_replaced", |it| it.outcome.replaced.into()),
            ("losses", |it| it.all.lost.into()),
            ("recovered_percent", |it| it.all.recovered_percent().into()),
            ("mean_delay_ms", |it| it.all.fec.mean_ms().into()),
            ("p99_delay_ms", |it| it.all.fec.quantile_ms(0.99).into()),
            ("repairs_to_gone_nodes", |it| it.outcome.repairs_sent.1.into()),
            ("repairs_to_gone_nodes_percent", |it| it.to_gone_percent().into()),
            ("not_delivered", |it| it.all.missing.into()),
            ("reported_lost", |it| it.outcome.reported_lost.into()),
            ("delivered_percent", |it| (100.0 * it.all.delivered_share()).into()),
            ("overhead_percent", |it| (100.0 * it.outcome.overhead).into()),
            ("xors_per_packet", |it| it.outcome.xors_per_packet.into()),
        ],
    )
}

const NOTE: &str = "A packet counts as lost at every node that was in the group when it was sent \
                    and stayed for the time of the tail, even if its sender did not know of the \
                    node yet. Such losses are not recovered, requested or reported.";
