//! `ricochet-15`: windows of inconsistency of a small replicated service on the public API.

use carom::unstable::lateral;

use crate::experiments::prelude::*;
use crate::lateral::Membership;
use crate::network::Wiring;
use crate::service::{ServiceOutcome, ServiceRun};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetWindows {
    network: Wiring,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: u32,
    interval: Span,
    loss: Share,
    engine: Engine,
    warm_up: Scaled<Span>,
    span: Scaled<Span>,
    tail: Scaled<Span>,
    bar_ms: f64,
    papers: Vec<Percentile>,
    /// Maximum share of repairs and of control datagrams among all datagrams received.
    repairs_at_most: Share,
    control_at_most: Share,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Engine {
    heartbeat: Span,
    flush_after: Span,
    nak_after: Span,
}

/// The time within which this percentage of the updates is applied at all replicas.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Percentile {
    percent: f64,
    ms: f64,
}

struct Row {
    percent: f64,
    papers_ms: f64,
    window_ms: f64,
    within_percent: f64,
}

impl RicochetWindows {
    fn config(&self) -> lateral::Config {
        let nak = lateral::NakConfig { after: self.engine.nak_after.0, ..Default::default() };
        lateral::Config {
            heartbeat: Some(self.engine.heartbeat.0),
            flush_after: Some(self.engine.flush_after.0),
            nak: Some(nak),
            ..lateral::Config::default()
        }
    }
}

impl Experiment for RicochetWindows {
    fn figure_names(&self) -> &[&'static str] {
        &["windows"]
    }

    fn check(&self) -> Result<(), String> {
        self.network.check()?;
        self.config().validate().map_err(|error| error.to_string())?;
        check_list("groups_per_node", &[self.groups_per_node], 1, 1024)?;
        check_list("mean_size", &[self.mean_size], 2, self.network.hosts())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (groups_per_node, mean_size) = (self.groups_per_node, self.mean_size);
        let rate = self.rate_of_fire.0;
        vec![Job::new(ServiceRun {
            wiring: self.network.clone(),
            membership: Membership::Random { groups_per_node, mean_size, rate },
            interval: self.interval.0,
            loss: self.loss.0,
            config: self.config(),
            spans: (self.warm_up.at(scale.quick).0, self.span.at(scale.quick).0),
            tail: self.tail.at(scale.quick).0,
            seed: scale.seed,
        })]
    }

    fn evaluate(&self, _scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let outcome: &ServiceOutcome = outcomes[0].of();
        let windows = &outcome.windows;
        let updates = windows.len() as u64 + outcome.incomplete;
        let rows = self.papers.iter().map(|it| Row {
            percent: it.percent,
            papers_ms: it.ms,
            window_ms: windows.quantile_ms(it.percent / 100.0),
            within_percent: 100.0 * windows.up_to_ms(it.ms) as f64 / updates as f64,
        });
        let rows: Vec<Row> = rows.collect();
        let table = Rows(&rows).table(
            2,
            &[
                ("percent", |row| row.percent.into()),
                ("papers_ms", |row| row.papers_ms.into()),
                ("window_ms", |row| row.window_ms.into()),
                ("updates_within_percent", |row| row.within_percent.into()),
            ],
        );
        let mut relations = Vec::new();
        let mut better = Vec::new();
        for Row { percent, papers_ms, window_ms, within_percent } in rows {
            let claim = format!("time until {percent} % of updates are at all replicas");
            let note = format!("{within_percent:.3} % within {papers_ms} ms");
            relations.push(Relation::at_most(claim, window_ms, papers_ms, "ms").noted(note));
            let what = format!("window that covers {percent} % of updates");
            better.extend(Better::if_lower(what, window_ms, papers_ms, "ms"));
        }
        let claim = "updates not applied by every replica";
        relations.push(Relation::at_most(claim, outcome.incomplete as f64, 0.0, "updates"));
        let claim = "groups with different final values at replicas";
        relations.push(Relation::at_most(claim, outcome.disagreeing as f64, 0.0, "groups"));
        for (claim, share, limit) in [
            ("repairs among all datagrams received", outcome.repairs_share, self.repairs_at_most),
            ("control datagrams among all received", outcome.control_share, self.control_at_most),
        ] {
            relations.push(Relation::at_most(claim, 100.0 * share, 100.0 * limit.0, "%"));
        }
        let x = Axis::linear("ms from the first to the last replica");
        let y = Axis::log("updates, %", 10.0).spanning(0.001, 150.0);
        let bars =
            windows.bars(self.bar_ms, updates).filter(|(_, percent)| *percent > 0.0).collect();
        let figure = Figure::new("windows", "Windows of inconsistency", x, y).with(
            "Carom",
            Kind::Ours,
            Shape::Bars(self.bar_ms),
            bars,
        );
        Findings {
            table,
            figures: vec![figure],
            relations,
            better,
            notes: vec![NOTE.to_owned()],
            ..Findings::default()
        }
    }
}

const NOTE: &str = "The paper does not report the overhead of this experiment. Control datagrams \
                    are heartbeats, acknowledgments and requests.";
