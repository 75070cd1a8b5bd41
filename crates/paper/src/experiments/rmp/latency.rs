//! `rmp-5.3`: latency of one message from application to application, at each level of service.

use carom_proto::ring::Qos;

use super::bed::{Bed, Level};
use crate::experiments::prelude::*;
use crate::ordered::{LEAST_BYTES, PingPongOutcome, PingPongRun};
use crate::plan::Size;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RmpLatency {
    bed: Bed,
    /// Numbers of members other than the sender.
    destinations: Scaled<Vec<u32>>,
    levels: Vec<Level>,
    message: Size,
    warm_up: u32,
    exchanges: Scaled<u32>,
    holds: Holds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Upper limit of the variation of the mean latency over the numbers of destinations, relative
    /// to the shortest, at levels that do not depend on this number.
    flat_within_percent: f64,
    /// Upper limit of the latency in total order, relative to unordered and source-ordered
    /// delivery.
    total_at_most_times: f64,
    each_holder_costs_at_least: Span,
}

struct Point<'a> {
    destinations: u32,
    qos: Qos,
    outcome: &'a PingPongOutcome,
}

impl Point<'_> {
    fn ms(&self) -> f64 {
        self.outcome.mean.as_secs_f64() * 1e3
    }

    fn is_independent(&self) -> bool {
        match self.qos {
            Qos::MajorityResilient | Qos::TotallyResilient => false,
            Qos::Resilient(k) => u32::from(k) < self.destinations,
            _ => true,
        }
    }
}

impl RmpLatency {
    fn runs(&self, scale: RunScale) -> Vec<(u32, PingPongRun)> {
        let destinations = self.destinations.at(scale.quick);
        let pairs =
            self.levels.iter().flat_map(|level| destinations.iter().map(|it| (level.0, *it)));
        let run = |(qos, destinations): (Qos, u32)| {
            let run = PingPongRun {
                setting: self.bed.setting(scale, destinations + 1),
                qos,
                message_bytes: self.message.0,
                warm_up: self.warm_up,
                exchanges: *self.exchanges.at(scale.quick),
            };
            (destinations, run)
        };
        pairs.map(run).collect()
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let holds = &self.holds;
        let mut relations = vec![self.flat(points)];
        for lower in [Qos::Unordered, Qos::SourceOrdered] {
            let total = points.iter().filter(|point| point.qos == Qos::TotallyOrdered);
            let ratios = total.filter_map(|total| {
                let same =
                    |it: &&Point<'_>| it.qos == lower && it.destinations == total.destinations;
                Some((total.ms() / points.iter().find(same)?.ms(), total.destinations))
            });
            let (measured, note) =
                highest(ratios.map(|(ratio, at)| (ratio, format!("{at} destination(s)"))));
            let claim = format!("latency of totally ordered messages, relative to {lower}");
            let limit = holds.total_at_most_times;
            relations.push(Relation::at_most(claim, measured, limit, "times").noted(note));
        }
        let steps = resilience(points);
        let steps = steps.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0));
        let least = steps.min_by(least_first).unwrap_or(f64::NAN);
        let limit = holds.each_holder_costs_at_least.0.as_secs_f64() * 1e3;
        let claim = "latency added by each further member that must hold a message";
        relations.push(Relation::at_least(claim, least, limit, "ms"));
        relations
    }

    fn flat(&self, points: &[Point<'_>]) -> Relation {
        let spread = |level: &Level| {
            let line = || points.iter().filter(|it| it.qos == level.0 && it.is_independent());
            let low = line().map(Point::ms).min_by(f64::total_cmp)?;
            let high = line().map(Point::ms).max_by(greatest_last)?;
            Some((100.0 * (high - low) / low, level.0))
        };
        let spreads = self.levels.iter().filter_map(spread);
        let (measured, note) =
            highest(spreads.map(|(spread, qos)| (spread, format!("maximum: {qos}"))));
        let claim = "variation of the latency over the number of destinations";
        Relation::at_most(claim, measured, self.holds.flat_within_percent, "%").noted(note)
    }
}

/// Returns the numbers of holders and the latencies in milliseconds, with the most destinations.
fn resilience(points: &[Point<'_>]) -> Vec<(f64, f64)> {
    let most = points.iter().map(|point| point.destinations).max().unwrap_or(0);
    let holders = |point: &Point<'_>| match point.qos {
        Qos::TotallyOrdered => Some(0.0),
        Qos::Resilient(k) => Some(f64::from(k).min(f64::from(most))),
        Qos::TotallyResilient => Some(f64::from(most)),
        _ => None,
    };
    let last = points.iter().filter(|point| point.destinations == most);
    let mut line: Vec<(f64, f64)> =
        last.filter_map(|point| Some((holders(point)?, point.ms()))).collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line.dedup_by(|a, b| a.0 == b.0);
    line
}

impl Experiment for RmpLatency {
    fn figure_names(&self) -> &[&'static str] {
        &["latency", "resilience"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.destinations.check("destinations", 1, MAX_DESTINATIONS)?;
        self.exchanges.check_value("exchanges", 1, 1 << 20)?;
        check_list("message", &[self.message.0], LEAST_BYTES, 1024)?;
        let needed = [Qos::Unordered, Qos::SourceOrdered, Qos::TotallyOrdered, Qos::Resilient(1)];
        match needed.into_iter().find(|qos| !self.levels.iter().any(|level| level.0 == *qos)) {
            Some(qos) => Err(format!("levels must contain '{qos}' for the relations")),
            None => Ok(()),
        }
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        self.runs(scale).into_iter().map(|(_, run)| Job::new(run)).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let points = self.runs(scale).into_iter().zip(outcomes);
        let points = points.map(|((destinations, run), outcome)| Point {
            destinations,
            qos: run.qos,
            outcome: outcome.of(),
        });
        let points: Vec<Point<'_>> = points.collect();
        let table = table(&points);
        let x = Axis::linear("destinations");
        let y = Axis::linear("from application to application, ms");
        let mut latency = Figure::new("latency", "Latency of a message", x, y);
        for level in &self.levels {
            let line = points.iter().filter(|point| point.qos == level.0);
            let line = line.map(|point| (f64::from(point.destinations), point.ms())).collect();
            latency = latency.ours(level.0.to_string(), line);
        }
        let x = Axis::linear("other members that must hold the message");
        let y = Axis::linear("from application to application, ms");
        let resilient = Figure::new("resilience", "Latency and resilience", x, y)
            .ours("maximum number of destinations", resilience(&points));
        Findings {
            table,
            figures: vec![latency, resilient],
            relations: self.relations(&points),
            notes: vec![NOTE.to_owned()],
            ..Findings::default()
        }
    }
}

fn table(points: &[Point<'_>]) -> Table {
    Rows(points).table(
        2,
        &[
            ("level", |it| it.qos.to_string().into()),
            ("destinations", |it| it.destinations.into()),
            ("mean_ms", |it| it.ms().into()),
            ("longest_ms", |it| (it.outcome.longest.as_secs_f64() * 1e3).into()),
            ("data_packets", |it| it.outcome.counts.data.into()),
            ("data_sent_again", |it| it.outcome.counts.data_again.into()),
            ("acks", |it| it.outcome.counts.rounds.into()),
            ("null_acks", |it| it.outcome.counts.nulls.into()),
            ("messages_lost", |it| it.outcome.lost.into()),
        ],
    )
}

const NOTE: &str = "With majority and total resilience, the latency grows with the number of \
                    members by design. K resilience is compared where there are more than K \
                    destinations.";
const MAX_DESTINATIONS: u32 = 63;
