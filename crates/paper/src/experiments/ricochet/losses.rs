//! `ricochet-latency`, `-burst`, `-stagger` and `-loss`: effects of losses and of staggering.

use std::fmt;

use carom_figures::significant;
use carom_proto::RateOfFire;
use carom_proto::loss::Loss;

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{GroupOutcome, LateralOutcome, LateralRun, Membership, Variant};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetLosses {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: u32,
    rates: Scaled<Vec<Share>>,
    models: Scaled<Vec<Model>>,
    staggers: Scaled<Vec<u8>>,
    /// Settings of the nodes. The relations are evaluated for the first of these settings.
    nodes: Vec<Nodes>,
    /// Quantity on the horizontal axis.
    sweeps: Sweeps,
    /// Time for which sending continues in additional runs with NAKs, in which everything should be
    /// delivered. `None` disables these runs.
    with_naks: Option<Span>,
    /// `true` if the delays of each run are drawn in an additional figure.
    distribution: bool,
    holds: Vec<Holds>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    variant: Variant,
    interval: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
enum Model {
    Uniform,
    Burst { length: u32 },
    Markov { mean_burst: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sweeps {
    Rate,
    BurstLength,
    Stagger,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "what", rename_all = "snake_case")]
enum Holds {
    EverythingDelivered,
    /// In the runs with NAKs, most losses are recovered by FEC in time, and NAKs add few datagrams.
    MostlyByFec {
        within_ms: f64,
        at_least_percent: f64,
        /// Datagrams other than messages and the repairs of the design, as a share of all.
        beyond_repairs_at_most_percent: f64,
    },
    /// At one point, the share recovered by FEC reaches the paper's value, and the mean delay is a
    /// part of the time in which a bin of one lane fills.
    Reached {
        burst: u32,
        stagger: u8,
        recovered_percent: f64,
        /// Mean delay that the paper reports, which is only shown.
        papers_delay_ms: f64,
        /// Range of the mean delay, relative to the time in which a bin fills.
        delay_of_filling_percent: (f64, f64),
    },
}

impl Model {
    fn at(self, rate: f64) -> Loss {
        match self {
            Self::Uniform => Loss::Uniform(rate),
            Self::Burst { length } => Loss::Burst { rate, length },
            Self::Markov { mean_burst } => Loss::Markov { rate, mean_burst },
        }
    }

    fn burst_length(self) -> f64 {
        match self {
            Self::Uniform => 1.0,
            Self::Burst { length } => f64::from(length),
            Self::Markov { mean_burst } => mean_burst,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Uniform => "uniform".to_owned(),
            Self::Burst { length } => format!("bursts of {length}"),
            Self::Markov { mean_burst } => format!("Markov, bursts of {mean_burst} on average"),
        }
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.variant.name();
        write!(f, "{name}, {:.0}/s per node", 1.0 / self.interval.0.as_secs_f64())
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    model: Model,
    rate: f64,
    stagger: u8,
    nodes: Nodes,
}

struct Point<'a> {
    place: Place,
    /// Outcome without NAKs, which would preempt repairs.
    fec: &'a GroupOutcome,
    with_naks: Option<&'a GroupOutcome>,
    /// Datagrams that are not messages in the run with NAKs, as a share of all.
    overhead_with_naks: f64,
    /// Share of repairs by design without NAKs: c(1-p)/(r+c(1-p)) (Slingshot 3.2).
    overhead_by_design: f64,
}

impl Point<'_> {
    fn with_naks(&self, value: fn(&GroupOutcome) -> f64) -> f64 {
        self.with_naks.map_or(f64::NAN, value)
    }

    fn fec_within_percent(&self, ms: f64) -> f64 {
        self.with_naks.map_or(f64::NAN, |all| 100.0 * all.fec.up_to_ms(ms) as f64 / all.lost as f64)
    }
}

impl RicochetLosses {
    fn places(&self, quick: bool) -> Vec<Place> {
        let mut places = Vec::new();
        for model in self.models.at(quick) {
            for stagger in self.staggers.at(quick) {
                for rate in self.rates.at(quick) {
                    let (model, rate, stagger) = (*model, rate.0, *stagger);
                    let place = |nodes: &Nodes| Place { model, rate, stagger, nodes: *nodes };
                    places.extend(self.nodes.iter().map(place));
                }
            }
        }
        places
    }

    fn run(&self, scale: RunScale, place: Place) -> LateralRun {
        let (groups_per_node, mean_size) = (self.groups_per_node, self.mean_size);
        let membership =
            Membership::Random { groups_per_node, mean_size, rate: self.rate_of_fire.0 };
        let loss = place.model.at(place.rate);
        let (stagger, Nodes { variant, interval }) = (place.stagger, place.nodes);
        let base = self.bed.run(scale, membership);
        LateralRun { loss, stagger, variant, interval: interval.0, ..base }
    }

    fn x(&self, place: Place) -> f64 {
        match self.sweeps {
            Sweeps::Rate => 100.0 * place.rate,
            Sweeps::BurstLength => place.model.burst_length(),
            Sweeps::Stagger => f64::from(place.stagger),
        }
    }

    /// Returns the label of a line. Points with the same label differ only in the swept quantity.
    fn line_of(&self, place: Place) -> String {
        let of_losses = match self.sweeps {
            Sweeps::BurstLength => format!("{} % loss", significant(100.0 * place.rate)),
            Sweeps::Rate | Sweeps::Stagger => place.model.name(),
        };
        if self.nodes.len() == 1 { of_losses } else { format!("{of_losses}, {}", place.nodes) }
    }

    fn figures(&self, points: &[Point<'_>]) -> Vec<Figure> {
        let x = || match self.sweeps {
            Sweeps::Rate => Axis::linear("loss, %"),
            Sweeps::BurstLength => Axis::linear("packets per loss burst"),
            Sweeps::Stagger => Axis::linear("stagger"),
        };
        let y = Axis::linear("lost packets recovered by FEC, %").spanning(0.0, 105.0);
        let mut recovered = Figure::new("recovered", "Recovered by repairs", x(), y);
        let y = Axis::linear("mean recovery delay by FEC, ms");
        let title = "Delay from the multicast to the recovery";
        let mut delay = Figure::new("delay", title, x(), y);
        let mut lines: Vec<(String, Vec<&Point<'_>>)> = Vec::new();
        for point in points {
            let label = self.line_of(point.place);
            match lines.iter_mut().find(|(known, _)| *known == label) {
                Some((_, line)) => line.push(point),
                None => lines.push((label, vec![point])),
            }
        }
        for (label, line) in lines {
            let of = |value: &dyn Fn(&Point<'_>) -> f64| {
                line.iter().map(|point| (self.x(point.place), value(point))).collect::<Vec<_>>()
            };
            recovered = recovered.ours(label.clone(), of(&|point| point.fec.recovered_percent()));
            delay = delay.ours(label, of(&|point| point.fec.fec.mean_ms()));
        }
        let mut figures = vec![recovered, delay];
        if self.distribution {
            figures.push(distribution(points));
        }
        figures
    }

    fn better(&self, points: &[Point<'_>]) -> Vec<Better> {
        let all: Vec<&Point<'_>> = points.iter().collect();
        self.holds.iter().flat_map(|holds| holds.better(&all)).collect()
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let first = self.nodes.first();
        let of_first = points.iter().filter(|point| Some(&point.place.nodes) == first);
        let of_first: Vec<&Point<'_>> = of_first.collect();
        let filling_ms = |place: Place| self.filling_ms(place);
        self.holds.iter().flat_map(|holds| holds.relations(&of_first, filling_ms)).collect()
    }

    /// Returns the mean time in which a bin for one node gets r packets in one lane. Of the packets
    /// that a node receives, the other node receives its share of the groups.
    fn filling_ms(&self, place: Place) -> f64 {
        let (nodes, size) = (f64::from(self.bed.network.hosts()), f64::from(self.mean_size));
        let received_per_ms = (size - 1.0) / (1e3 * place.nodes.interval.0.as_secs_f64());
        let shared_per_ms = received_per_ms * (size - 1.0) / (nodes - 1.0);
        f64::from(place.stagger) * f64::from(self.rate_of_fire.0.r) / shared_per_ms
    }
}

impl Holds {
    fn point<'a, 'b>(&self, points: &[&'a Point<'b>]) -> Option<&'a Point<'b>> {
        let Self::Reached { burst, stagger, .. } = *self else { return None };
        let length = f64::from(burst);
        let is_there = |point: &&&Point<'_>| {
            point.place.stagger == stagger && point.place.model.burst_length() == length
        };
        points.iter().find(is_there).copied()
    }

    fn relations(&self, points: &[&Point<'_>], filling_ms: impl Fn(Place) -> f64) -> Vec<Relation> {
        match self {
            Self::EverythingDelivered => {
                let missing: u64 =
                    points.iter().filter_map(|point| Some(point.with_naks?.missing)).sum();
                let runs = points.iter().filter(|point| point.with_naks.is_some()).count();
                let expected: u64 =
                    points.iter().filter_map(|point| Some(point.with_naks?.expected)).sum();
                let missing = if runs > 0 { missing as f64 } else { f64::NAN };
                let claim = "packets not delivered in runs with NAKs";
                let note = format!("of {expected} in {runs} runs");
                vec![Relation::at_most(claim, missing, 0.0, "packets").noted(note)]
            }
            Self::MostlyByFec { within_ms, at_least_percent, beyond_repairs_at_most_percent } => {
                let rate = |point: &Point<'_>| format!("{} % loss", 100.0 * point.place.rate);
                let shares = points.iter().map(|it| (it.fec_within_percent(*within_ms), rate(it)));
                let beyond =
                    |it: &Point<'_>| 100.0 * (it.overhead_with_naks - it.overhead_by_design);
                let overheads = points.iter().map(|it| (beyond(it), rate(it)));
                let (least, at) = lowest(shares);
                let claim =
                    format!("with NAKs: lost packets recovered by FEC within {within_ms} ms");
                let by_fec = Relation::at_least(claim, least, *at_least_percent, "%").noted(at);
                let (most, at) = highest(overheads);
                let claim =
                    "with NAKs: datagrams beyond messages and the repairs of the design, of all";
                let limit = *beyond_repairs_at_most_percent;
                vec![by_fec, Relation::at_most(claim, most, limit, "%").noted(at)]
            }
            Self::Reached {
                burst,
                stagger,
                recovered_percent,
                papers_delay_ms,
                delay_of_filling_percent,
            } => {
                let point = self.point(points);
                let recovered = point.map_or(f64::NAN, |point| point.fec.recovered_percent());
                let delay = point.map_or(f64::NAN, |point| point.fec.fec.mean_ms());
                let filling = point.map_or(f64::NAN, |point| filling_ms(point.place));
                let at = format!("stagger {stagger}, bursts of {burst}");
                let claim = format!("{at}: recovered by FEC");
                let mut relations =
                    vec![Relation::at_least(claim, recovered, *recovered_percent, "%")];
                let claim = format!("{at}: mean recovery delay, of the time in which a bin fills");
                let share = 100.0 * delay / filling;
                let note = format!(
                    "{delay:.0} ms of {filling:.0} ms; the paper reports {papers_delay_ms} ms at \
                     an unknown rate of packets"
                );
                let range = *delay_of_filling_percent;
                let delays = Relation::within(claim, share, range, "%");
                relations.extend(delays.map(|relation| relation.noted(note.clone())));
                relations
            }
        }
    }

    fn better(&self, points: &[&Point<'_>]) -> Vec<Better> {
        let Self::Reached { recovered_percent, papers_delay_ms, .. } = *self else {
            return Vec::new();
        };
        let Some(point) = self.point(points) else { return Vec::new() };
        let (recovered, delay) = (point.fec.recovered_percent(), point.fec.fec.mean_ms());
        let at = format!("stagger {}, {}", point.place.stagger, point.place.model.name());
        let recovered =
            Better::if_higher(format!("{at}: recovered by FEC"), recovered, recovered_percent, "%");
        let delay =
            Better::if_lower(format!("{at}: mean recovery delay"), delay, papers_delay_ms, "ms");
        recovered.into_iter().chain(delay).collect()
    }
}

fn distribution(points: &[Point<'_>]) -> Figure {
    let mut figure = Figure::new(
        "distribution",
        "Delivery of lost packets after their multicast, with NAKs 25 ms after discovery",
        Axis::log("ms from the multicast", 10.0),
        Axis::linear("lost packets, %").spanning(0.0, 105.0),
    );
    let times: Vec<f64> = (0..=72).map(|step| 0.1 * libm::exp(f64::from(step) * 0.16)).collect();
    for point in points {
        let Some(outcome) = point.with_naks else { continue };
        let curve = |with_naks: bool| {
            let share = |ms: &f64| {
                let naks = if with_naks { outcome.nak.up_to_ms(*ms) } else { 0 };
                (*ms, 100.0 * (outcome.fec.up_to_ms(*ms) + naks) as f64 / outcome.lost as f64)
            };
            times.iter().map(share).collect::<Vec<_>>()
        };
        let lost = significant(100.0 * point.place.rate);
        figure = figure
            .with(format!("FEC and NAK, {lost} % loss"), Kind::Ours, Shape::Curve, curve(true))
            .with(format!("FEC alone, {lost} % loss"), Kind::Bound, Shape::Curve, curve(false));
    }
    figure
}

impl Experiment for RicochetLosses {
    fn figure_names(&self) -> &[&'static str] {
        if self.distribution {
            &["recovered", "delay", "distribution"]
        } else {
            &["recovered", "delay"]
        }
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        for quick in [false, true] {
            check_list("staggers", self.staggers.at(quick), 1, 64)?;
            if self.places(quick).is_empty() {
                return Err("rates, models, staggers or nodes is empty".to_owned());
            }
            let invalid = |place: &Place| !place.model.at(place.rate).is_valid();
            let invalid = self.places(quick).into_iter().find(invalid);
            if let Some(place) = invalid {
                let name = place.model.name();
                let percent = 100.0 * place.rate;
                return Err(format!("a loss of {percent} % is impossible in the model '{name}'"));
            }
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let mut jobs = Vec::new();
        for place in self.places(scale.quick) {
            let run = self.run(scale, place);
            if let Some(tail) = self.with_naks {
                let mut with_naks = LateralRun { nak: true, ..run.clone() };
                with_naks.length.tail = tail.0;
                jobs.push(Job::new(with_naks));
            }
            jobs.push(Job::new(run));
        }
        jobs
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let runs = outcomes.chunks(1 + usize::from(self.with_naks.is_some()));
        let points = self.places(scale.quick).into_iter().zip(runs).map(|(place, runs)| {
            let (fec, before) = runs.split_last().expect("there is a run without NAKs");
            let with_naks = before.first().map(|outcome| outcome.of::<LateralOutcome>());
            let overhead_with_naks = with_naks.map_or(f64::NAN, |it| it.whole_overhead);
            let (fec, with_naks) = (fec.of::<LateralOutcome>().all(), with_naks.map(|it| it.all()));
            let RateOfFire { r, c } = self.rate_of_fire.0;
            let repairs = f64::from(c) * (1.0 - place.rate);
            let overhead_by_design = repairs / (f64::from(r) + repairs);
            Point { place, fec, with_naks, overhead_with_naks, overhead_by_design }
        });
        let points: Vec<Point<'_>> = points.collect();
        let table = table(&points);
        Findings {
            table,
            figures: self.figures(&points),
            relations: self.relations(&points),
            better: self.better(&points),
            ..Findings::default()
        }
    }
}

fn table(points: &[Point<'_>]) -> Table {
    Rows(points).table(
        4,
        &[
            ("loss", |it| it.place.model.name().into()),
            ("nodes", |it| it.place.nodes.to_string().into()),
            ("loss_percent", |it| (100.0 * it.place.rate).into()),
            ("stagger", |it| u64::from(it.place.stagger).into()),
            ("losses", |it| it.fec.lost.into()),
            ("recovered_percent", |it| it.fec.recovered_percent().into()),
            ("mean_delay_ms", |it| it.fec.fec.mean_ms().into()),
            ("p50_delay_ms", |it| it.fec.fec.quantile_ms(0.5).into()),
            ("p90_delay_ms", |it| it.fec.fec.quantile_ms(0.9).into()),
            ("p99_delay_ms", |it| it.fec.fec.quantile_ms(0.99).into()),
            ("with_naks_fec_percent", |it| it.with_naks(|all| all.recovered_percent()).into()),
            ("with_naks_fec_within_50_ms_percent", |it| it.fec_within_percent(50.0).into()),
            ("with_naks_overhead_percent", |it| (100.0 * it.overhead_with_naks).into()),
            ("with_naks_nak_mean_delay_ms", |it| it.with_naks(|all| all.nak.mean_ms()).into()),
            ("with_naks_nak_max_delay_ms", |it| {
                it.with_naks(|all| all.nak.quantile_ms(1.0)).into()
            }),
            ("with_naks_delivered_percent", |it| {
                it.with_naks(|all| 100.0 * all.delivered_share()).into()
            }),
        ],
    )
}

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
