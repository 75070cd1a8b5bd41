//! `rmp-5.1`, `rmp-5.2` and `rmp-loss`: totally ordered throughput of an Ethernet.

use carom_proto::rmp::packet::DATA_BYTES;

use super::bed::Bed;
use crate::experiments::prelude::*;
use crate::ordered::{Counts, TransferOutcome, TransferRun};
use crate::plan::Size;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RmpThroughput {
    bed: Bed,
    sources: Scaled<Vec<u32>>,
    destinations: Scaled<Vec<u32>>,
    /// `true` if sources are members that do not count as destinations.
    sources_apart: bool,
    file: Scaled<Size>,
    message: Size,
    repeats: Scaled<u32>,
    holds: Holds,
    papers: Papers,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Lower limit of the aggregate throughput with the most destinations.
    #[serde(default)]
    aggregate_at_least_times_the_link: Option<f64>,
    /// Lower limits of the throughput at each destination, each checked as a separate relation.
    #[serde(default)]
    one_source_at_least_percent: Vec<f64>,
    /// Upper limit of the variation between runs with one source, relative to the fastest.
    #[serde(default)]
    one_source_spread_at_most_percent: Option<f64>,
    /// Limits of the work that losses cause.
    #[serde(default)]
    lost: Option<OfLosses>,
}

/// Upper limits of the datagrams that losses cause, relative to the number of losses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfLosses {
    nacks_at_most_percent: f64,
    data_again_at_most_percent: f64,
    acks_again_at_most_percent: f64,
    reformations_at_most: f64,
}

/// The value that the paper reports for one source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Papers {
    destinations: u32,
    aggregate_kb_per_s: f64,
}

struct Point<'a> {
    run: TransferRun,
    outcome: &'a TransferOutcome,
    raw_rate: f64,
}

impl Point<'_> {
    fn destinations(&self) -> f64 {
        f64::from(self.outcome.destinations)
    }

    fn aggregate(&self) -> f64 {
        self.outcome.rate() * self.destinations()
    }

    fn times_the_link(&self) -> f64 {
        self.aggregate() / self.raw_rate
    }

    fn link_percent(&self) -> f64 {
        100.0 * self.outcome.rate() / self.raw_rate
    }

    fn place(&self) -> String {
        format!("{} source(s), {} destinations", self.run.sources, self.outcome.destinations)
    }

    fn payload_percent(&self) -> f64 {
        let payload = self.run.file_bytes as f64 * f64::from(self.run.sources * self.run.repeats);
        let around = (DATA_BYTES + FRAMING_BYTES) as f64 * self.outcome.counts.data as f64;
        100.0 * payload / (payload + around)
    }
}

impl OfLosses {
    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let most = |claim: &str, of: fn(&Counts) -> u64, limit| {
            let share = |it: &Point<'_>| {
                let counts = &it.outcome.counts;
                100.0 * of(counts) as f64 / counts.lost as f64
            };
            let (most, place) = highest(points.iter().map(|it| (share(it), it.place())));
            Relation::at_most(claim, most, limit, "% of the losses").noted(place)
        };
        let begun = |it: &Point<'_>| (it.outcome.counts.reformations as f64, it.place());
        let (reformations, place) = highest(points.iter().map(begun));
        let claim = "reformations while all members are alive";
        vec![
            most("NACKs", |it| it.nacks, self.nacks_at_most_percent),
            most("retransmissions", |it| it.data_again, self.data_again_at_most_percent),
            most("repeated ACKs", |it| it.rounds_again, self.acks_again_at_most_percent),
            Relation::at_most(claim, reformations, self.reformations_at_most, "").noted(place),
        ]
    }
}

impl RmpThroughput {
    fn runs(&self, scale: RunScale) -> Vec<TransferRun> {
        let (sources, destinations) =
            (self.sources.at(scale.quick), self.destinations.at(scale.quick));
        let pairs = sources.iter().flat_map(|sources| {
            let possible = move |it: &&u32| self.sources_apart || **it >= *sources;
            destinations.iter().filter(possible).map(move |it| (*sources, *it))
        });
        let run = |(sources, destinations): (u32, u32)| TransferRun {
            setting: self
                .bed
                .setting(scale, destinations + if self.sources_apart { sources } else { 0 }),
            sources,
            apart: self.sources_apart,
            file_bytes: self.file.at(scale.quick).0,
            message_bytes: self.message.0,
            repeats: *self.repeats.at(scale.quick),
        };
        pairs.map(run).collect()
    }

    fn figures(&self, scale: RunScale, points: &[Point<'_>]) -> Vec<Figure> {
        let x = || Axis::linear("destinations");
        let y = Axis::linear("all destinations together, KB/s");
        let mut aggregate = Figure::new("aggregate", "Aggregate throughput", x(), y);
        let y = Axis::linear("each destination, % of the raw bit rate").spanning(0.0, 100.0);
        let mut each = Figure::new("each", "Throughput at each destination", x(), y);
        for sources in self.sources.at(scale.quick) {
            let of = |value: fn(&Point<'_>) -> f64| {
                let line = points.iter().filter(|point| point.run.sources == *sources);
                line.map(|point| (point.destinations(), value(point))).collect::<Vec<_>>()
            };
            let label =
                if *sources == 1 { "1 source".into() } else { format!("{sources} sources") };
            aggregate = aggregate.ours(label.clone(), of(|point| point.aggregate() / 1e3));
            each = each.ours(label, of(|point| point.link_percent()));
        }
        let ends: Vec<f64> =
            self.destinations.at(scale.quick).iter().map(|it| f64::from(*it)).collect();
        let link = ends.iter().map(|it| (*it, self.bed.raw_rate() / 1e3)).collect();
        vec![aggregate.with("Ethernet", Kind::Bound, Shape::Line, link), each]
    }

    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let mut relations = Vec::new();
        if let Some(limit) = self.holds.aggregate_at_least_times_the_link {
            let most = points.iter().map(|point| point.outcome.destinations).max().unwrap_or(0);
            let last = points.iter().filter(|point| point.outcome.destinations == most);
            let (measured, note) = lowest(
                last.map(|it| (it.times_the_link(), format!("{} source(s)", it.run.sources))),
            );
            let claim = format!("{most} destinations together, any number of sources: throughput");
            let unit = "times the link";
            relations.push(Relation::at_least(claim, measured, limit, unit).noted(note));
        }
        let one = || points.iter().filter(|point| point.run.sources == 1);
        let percents = || one().map(Point::link_percent);
        // The rate of a late transfer is NaN. Then `low` and `high` are NaN, and no relation holds.
        let low = percents().min_by(least_first).unwrap_or(f64::NAN);
        let high = percents().max_by(greatest_last).unwrap_or(f64::NAN);
        let payload = one().map(Point::payload_percent).fold(f64::NAN, f64::min);
        for limit in &self.holds.one_source_at_least_percent {
            let claim = "one source, any number of destinations: throughput, of the raw bit rate";
            let note = format!("payload is {payload:.1} % of the data packets on the wire");
            relations.push(Relation::at_least(claim, low, *limit, "%").noted(note));
        }
        if let Some(limit) = self.holds.one_source_spread_at_most_percent {
            let claim = "one source, any number of destinations: fastest minus slowest";
            let spread = 100.0 * (high - low) / high;
            relations.push(Relation::at_most(claim, spread, limit, "% of the fastest"));
        }
        relations.extend(self.holds.lost.iter().flat_map(|limits| limits.relations(points)));
        relations
    }
}

impl Experiment for RmpThroughput {
    fn figure_names(&self) -> &[&'static str] {
        &["aggregate", "each"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.sources.check("sources", 1, MAX_HOSTS)?;
        self.destinations.check("destinations", 1, MAX_HOSTS)?;
        self.repeats.check_value("repeats", 1, 1000)?;
        check_list("file", &[self.file.at(false).0, self.file.at(true).0], 1, MAX_FILE_BYTES)?;
        check_list("message", &[self.message.0], 1, MAX_FILE_BYTES)
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        self.runs(scale).into_iter().map(Job::new).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let raw_rate = self.bed.raw_rate();
        let points = self.runs(scale).into_iter().zip(outcomes);
        let points = points.map(|(run, outcome)| Point { run, outcome: outcome.of(), raw_rate });
        let points: Vec<Point<'_>> = points.collect();
        let table = table(&points);
        let Papers { destinations, aggregate_kb_per_s: papers } = self.papers;
        let same =
            points.iter().find(|it| it.run.sources == 1 && it.outcome.destinations == destinations);
        let better = same.and_then(|point| {
            let what = format!("1 source, {destinations} destination(s) together");
            Better::if_higher(what, point.aggregate() / 1e3, papers, "KB/s")
        });
        Findings {
            table,
            figures: self.figures(scale, &points),
            relations: self.relations(&points),
            better: better.into_iter().collect(),
            notes: vec![NOTE.to_owned()],
            ..Findings::default()
        }
    }
}

fn table(points: &[Point<'_>]) -> Table {
    Rows(points).table(
        2,
        &[
            ("sources", |it| it.run.sources.into()),
            ("destinations", |it| it.outcome.destinations.into()),
            ("throughput_kb_per_s", |it| (it.outcome.rate() / 1e3).into()),
            ("aggregate_kb_per_s", |it| (it.aggregate() / 1e3).into()),
            ("aggregate_times_link", |it| it.times_the_link().into()),
            ("link_percent", |it| it.link_percent().into()),
            ("payload_of_data_packets_percent", |it| it.payload_percent().into()),
            ("spread_of_repeats_percent", |it| (100.0 * it.outcome.spread()).into()),
            ("data_packets", |it| it.outcome.counts.data.into()),
            ("data_sent_again", |it| it.outcome.counts.data_again.into()),
            ("acks", |it| it.outcome.counts.rounds.into()),
            ("null_acks", |it| it.outcome.counts.nulls.into()),
            ("acks_sent_again", |it| it.outcome.counts.rounds_again.into()),
            ("nacks", |it| it.outcome.counts.nacks.into()),
            ("lost_on_receipt", |it| it.outcome.counts.lost.into()),
            ("dropped_at_interfaces", |it| it.outcome.counts.queue_full.into()),
            ("reformations", |it| it.outcome.counts.reformations.into()),
        ],
    )
}

const NOTE: &str = "Throughput counts the bytes of the files without headers, until the last \
                    destination has all of them. 1 KB is 1000 bytes. As in the paper, the link is \
                    the raw bit rate, which includes preambles, headers, check sequences and gaps \
                    (1250 KB/s at 10 Mbit/s).";
/// Overhead of a datagram on the wire: Ethernet with its gap, IPv4 and UDP.
const FRAMING_BYTES: usize = 66;
const MAX_HOSTS: u32 = 64;
/// Largest file that fits in an engine's queue.
const MAX_FILE_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::suite::Suite;

    /// Returns which relations hold if all transfers reach 92 % of the link, except that the last
    /// one takes too long if `is_late`.
    fn holding(name: &str, is_late: bool) -> Vec<bool> {
        let text = Suite::built_in_plan(name).expect("the experiment is known");
        let plan = Plan::<RmpThroughput>::read(name, text).expect("the plan is valid");
        let (_, _, experiment) = plan.split();
        let raw_rate = experiment.bed.raw_rate();
        let runs = experiment.runs(RunScale { quick: true, seed: 1 });
        let outcome = |(place, run): (usize, &TransferRun)| {
            let apart = if run.apart { run.sources } else { 0 };
            let rate = if is_late && place + 1 == runs.len() { f64::NAN } else { 0.92 * raw_rate };
            let destinations = run.setting.members - apart;
            TransferOutcome { destinations, rates: vec![rate], counts: Counts::default() }
        };
        let outcomes: Vec<TransferOutcome> = runs.iter().enumerate().map(outcome).collect();
        let points = runs.iter().zip(&outcomes);
        let points = points.map(|(run, outcome)| Point { run: run.clone(), outcome, raw_rate });
        let relations = experiment.relations(&points.collect::<Vec<_>>());
        relations.iter().map(|relation| relation.holds).collect()
    }

    #[test]
    fn no_relation_holds_if_one_transfer_takes_too_long() {
        for (name, count) in [("rmp-5.1", 1), ("rmp-5.2", 3)] {
            assert_eq!(holding(name, false), vec![true; count], "{name}");
            assert_eq!(holding(name, true), vec![false; count], "{name}");
        }
    }

    #[test]
    fn datagrams_that_losses_cause_are_limited() {
        let limits = OfLosses {
            nacks_at_most_percent: 130.0,
            data_again_at_most_percent: 160.0,
            acks_again_at_most_percent: 10.0,
            reformations_at_most: 0.0,
        };
        let text = Suite::built_in_plan("rmp-loss").expect("the experiment is known");
        let plan = Plan::<RmpThroughput>::read("rmp-loss", text).expect("the plan is valid");
        let run = plan.split().2.runs(RunScale { quick: true, seed: 1 }).swap_remove(0);
        let holding = |counts: Counts| {
            let outcome = TransferOutcome { destinations: 8, rates: vec![1e6], counts };
            let point = Point { run: run.clone(), outcome: &outcome, raw_rate: 1e6 };
            let relations = limits.relations(&[point]);
            relations.iter().map(|relation| relation.holds).collect::<Vec<_>>()
        };
        let lost = 100;
        let right =
            Counts { lost, nacks: 120, data_again: 150, rounds_again: 9, ..Counts::default() };
        assert_eq!(holding(right), [true; 4]);
        let wrong = Counts { nacks: 900, data_again: 800, rounds_again: 20, ..right };
        assert_eq!(holding(Counts { reformations: 1, ..wrong }), [false; 4]);
        assert_eq!(holding(Counts { lost: 0, ..Counts::default() })[..3], [false; 3], "no losses");
    }
}
