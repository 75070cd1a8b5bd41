//! `rdcm-10` and `rdcm-11`: goodput and traffic of a file to a thousand receivers over lossy links.

use std::time::Duration;

use carom_proto::loss::Loss;

use super::bed::Bed;
use crate::cluster::{BulkOutcome, BulkRun, Protocol, Setting};
use crate::experiments::prelude::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RdcmLosses {
    bed: Bed,
    protocols: Vec<Protocol>,
    packets: Scaled<u32>,
    losses: Scaled<Vec<Share>>,
    mean_burst: f64,
    /// Times after which a gap counts as a loss, one for each figure.
    found_after: Scaled<Vec<Span>>,
    looks_at: LooksAt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "what", rename_all = "snake_case")]
enum LooksAt {
    Throughput {
        /// Lower limit of RDCM's goodput, if losses are detected immediately.
        at_least_percent: f64,
        /// Lower limit of RDCM's goodput as a multiple of SRM's, at every detection time.
        at_least_times_srm: f64,
        /// Number of points by which the goodput of a protocol may be behind the paper's order.
        order_slack_points: Scaled<f64>,
        /// Lower limit of RDCM's goodput with later detection, relative to that of a transfer with
        /// one detection time at its end.
        at_least_of_one_detection_percent: f64,
        /// Number of receivers that leave, and of others that join, in additional runs of RDCM.
        changes: Scaled<u32>,
        /// Lower limit of the goodput of the receivers that stay, relative to a run without
        /// changes.
        changed_at_least_percent: f64,
    },
    Footprint {
        /// Percentage by which the footprint of a protocol may exceed the paper's order.
        order_slack_percent: Scaled<f64>,
        /// Lower limit of the growth of the difference between SRM and RDCM from the lowest to the
        /// highest loss.
        gap_grows_at_least_times: f64,
    },
}

struct Point<'a> {
    protocol: Protocol,
    loss: f64,
    found_after: Duration,
    /// Number of receivers that leave, and of others that join.
    changes: u32,
    outcome: &'a BulkOutcome,
}

impl Point<'_> {
    fn percent(&self) -> f64 {
        100.0 * self.outcome.mean_share
    }

    fn gigabytes(&self) -> f64 {
        self.outcome.footprint.of_messages() as f64 / 1e9
    }

    fn place(&self) -> String {
        format!("at {} %, losses detected after {:?}", 100.0 * self.loss, self.found_after)
    }
}

impl RdcmLosses {
    fn points<'a>(&self, scale: RunScale, outcomes: &[&'a Outcome]) -> Vec<Point<'a>> {
        let mut outcomes = outcomes.iter();
        let mut points = Vec::new();
        self.for_each(scale, |protocol, loss, found_after| {
            let outcome = outcomes.next().expect("each job has an outcome").of();
            points.push(Point { protocol, loss, found_after, changes: 0, outcome });
        });
        let changed = self.losses.at(scale.quick).iter().zip(outcomes);
        points.extend(changed.map(|(loss, outcome)| Point {
            protocol: Protocol::Rdcm,
            loss: loss.0,
            found_after: Duration::ZERO,
            changes: self.changes(scale),
            outcome: outcome.of(),
        }));
        points
    }

    /// Returns the number of changes in additional runs, or 0 if there are none.
    fn changes(&self, scale: RunScale) -> u32 {
        match &self.looks_at {
            LooksAt::Throughput { changes, .. } => *changes.at(scale.quick),
            LooksAt::Footprint { .. } => 0,
        }
    }

    fn for_each(&self, scale: RunScale, mut call: impl FnMut(Protocol, f64, Duration)) {
        for found_after in self.found_after.at(scale.quick) {
            for loss in self.losses.at(scale.quick) {
                self.protocols.iter().for_each(|it| call(*it, loss.0, found_after.0));
            }
        }
    }

    fn figures(&self, scale: RunScale, points: &[Point<'_>]) -> Vec<Figure> {
        let delays = self.found_after.at(scale.quick).iter();
        let figures = delays.zip(NAMES).map(|(found_after, name)| {
            let x = Axis::linear("loss per link, %");
            let (title, y, value): (_, _, fn(&Point<'_>) -> f64) = match self.looks_at {
                LooksAt::Throughput { .. } => (
                    "Goodput of receivers",
                    Axis::linear("mean goodput, % of the link").spanning(0.0, 105.0),
                    |it| it.percent(),
                ),
                LooksAt::Footprint { .. } => {
                    ("Traffic footprint", Axis::linear("bytes on all links, GB"), |it| {
                        it.gigabytes()
                    })
                }
            };
            let title = match found_after.0.is_zero() {
                true => format!("{title}, losses detected immediately"),
                false => format!("{title}, losses detected after {:?}", found_after.0),
            };
            let mut figure = Figure::new(name, title, x, y);
            for protocol in &self.protocols {
                let of =
                    |it: &&Point<'_>| (it.protocol, it.found_after) == (*protocol, found_after.0);
                let line = points.iter().filter(of).map(|it| (100.0 * it.loss, value(it)));
                figure = figure.ours(protocol.name(), line.collect());
            }
            let ends = self.losses.at(scale.quick).iter().map(|loss| (100.0 * loss.0, 100.0));
            match self.looks_at {
                LooksAt::Throughput { .. } => {
                    figure.with("link", Kind::Bound, Shape::Line, ends.collect())
                }
                LooksAt::Footprint { .. } => figure,
            }
        });
        figures.collect()
    }
}

/// Returns the minimum of `compare` for a pair of protocols, and the setting where it is reached.
/// Only settings that satisfy `counts` and in which both protocols ran are compared.
fn closest(
    points: &[Point<'_>],
    (above, below): (Protocol, Protocol),
    counts: impl Fn(&Point<'_>) -> bool,
    compare: impl Fn(&Point<'_>, &Point<'_>) -> f64,
) -> (f64, String) {
    let of = |protocol| points.iter().filter(move |it: &&Point<'_>| it.protocol == protocol);
    let pairs = of(above).filter(|it| counts(it)).filter_map(|one| {
        let same = |it: &&Point<'_>| (it.loss, it.found_after) == (one.loss, one.found_after);
        Some((compare(one, of(below).find(same)?), one.place()))
    });
    lowest(pairs)
}

fn throughput(
    points: &[Point<'_>],
    at_least_percent: f64,
    at_least_times: f64,
    slack_points: f64,
) -> Vec<Relation> {
    let at_once = |it: &Point<'_>| it.found_after.is_zero();
    let of_rdcm = points.iter().filter(|it| it.protocol == Protocol::Rdcm && at_once(it));
    let (least, place) = lowest(of_rdcm.map(|it| (it.percent(), it.place())));
    let claim = "RDCM, losses detected immediately: mean goodput, of the link";
    let mut relations = vec![Relation::at_least(claim, least, at_least_percent, "%").noted(place)];
    let times = |one: &Point<'_>, other: &Point<'_>| one.percent() / other.percent();
    let pair = (Protocol::Rdcm, Protocol::Srm);
    let (least, place) = closest(points, pair, |_| true, times);
    let claim = "RDCM at every detection time: mean goodput, relative to SRM";
    relations.push(Relation::at_least(claim, least, at_least_times, "times").noted(place));
    let points_more = |one: &Point<'_>, other: &Point<'_>| one.percent() - other.percent();
    for (above, below) in ORDER {
        let (least, place) = closest(points, (above, below), |_| true, points_more);
        let claim = format!("goodput of {} minus that of {}", above.name(), below.name());
        relations.push(Relation::at_least(claim, least, -slack_points, "points").noted(place));
    }
    relations
}

/// Returns the relation for RDCM's goodput where losses are detected later. The last losses of a
/// file cannot be repaired before they are detected, so the limit is a share of the goodput of a
/// transfer that `lasts` as long as its packets and one detection time.
fn later(points: &[Point<'_>], lasts: Duration, at_least_percent: f64) -> Option<Relation> {
    let is_later = |it: &&Point<'_>| it.protocol == Protocol::Rdcm && !it.found_after.is_zero();
    let share = |it: &Point<'_>| {
        let bound = lasts.as_secs_f64() / (lasts + it.found_after).as_secs_f64();
        (it.percent() / bound, it.place())
    };
    points.iter().any(|it| is_later(&it)).then(|| {
        let (least, place) = lowest(points.iter().filter(is_later).map(share));
        let claim = "RDCM, losses detected later: mean goodput, of a file and one detection time";
        Relation::at_least(claim, least, at_least_percent, "%").noted(place)
    })
}

/// Returns the relation for the goodput of the receivers that stay while others leave and join.
fn unchanged(points: &[Point<'_>], changed: &[Point<'_>], at_least_percent: f64) -> Relation {
    let same = |it: &Point<'_>| {
        let still = points.iter().find(|other| {
            (other.protocol, other.loss, other.found_after)
                == (it.protocol, it.loss, it.found_after)
        });
        let still = still.map_or(f64::NAN, Point::percent);
        (100.0 * it.percent() / still, it.place())
    };
    let (least, place) = lowest(changed.iter().map(same));
    let changes = changed.first().map_or(0, |it| it.changes);
    let claim = format!("RDCM: goodput while {changes} receivers leave and others join, relative");
    Relation::at_least(claim, least, at_least_percent, "%").noted(place)
}

/// Returns the relation for the growth of the difference between the footprints of SRM and RDCM
/// from the lowest to the highest loss.
fn gap(points: &[Point<'_>], at_least_times: f64) -> Relation {
    let of = |protocol, loss| {
        let mut same = points.iter().filter(|it| (it.protocol, it.loss) == (protocol, loss));
        same.next().map_or(f64::NAN, Point::gigabytes)
    };
    let gap = |loss| of(Protocol::Srm, loss) - of(Protocol::Rdcm, loss);
    let (low, _) = lowest(points.iter().map(|it| (it.loss, ())));
    let (high, _) = highest(points.iter().map(|it| (it.loss, ())));
    let claim = "SRM's footprint minus RDCM's: growth from the lowest to the highest loss";
    let note = format!(
        "{:.3} GB at {} %, {:.3} GB at {} %",
        gap(low),
        100.0 * low,
        gap(high),
        100.0 * high
    );
    Relation::at_least(claim, gap(high) / gap(low), at_least_times, "times").noted(note)
}

fn footprint(points: &[Point<'_>], slack_percent: f64) -> Vec<Relation> {
    let times = |more: &Point<'_>, less: &Point<'_>| more.gigabytes() / less.gigabytes();
    let order = ORDER.iter().map(|(less, more)| {
        let (least, place) = closest(points, (*more, *less), |_| true, times);
        let claim = format!("traffic footprint of {}, relative to {}", more.name(), less.name());
        Relation::at_least(claim, least, 1.0 - slack_percent / 100.0, "times").noted(place)
    });
    order.collect()
}

impl Experiment for RdcmLosses {
    fn figure_names(&self) -> &[&'static str] {
        &NAMES
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        for quick in [false, true] {
            let losses: Vec<f64> = self.losses.at(quick).iter().map(|loss| loss.0).collect();
            check_list("losses", &losses, 0.0, 0.5)?;
            let found_after: Vec<Duration> =
                self.found_after.at(quick).iter().map(|span| span.0).collect();
            check_list("found_after", &found_after, Duration::ZERO, MOST_FOUND_AFTER)?;
            check_list("the length of found_after", &[found_after.len()], 1, NAMES.len())?;
            check_list("packets", &[*self.packets.at(quick)], 1, MAX_PACKETS)?;
        }
        check_list("mean_burst", &[self.mean_burst], 1.0, 1000.0)?;
        check_list("protocols", &self.protocols, Protocol::Srm, Protocol::Rdcm)
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let mut jobs = Vec::new();
        self.for_each(scale, |protocol, loss, detect_after| {
            let loss = Loss::Markov { rate: loss, mean_burst: self.mean_burst };
            let setting = Setting { loss, detect_after, ..self.bed.setting(scale) };
            let packets = *self.packets.at(scale.quick);
            jobs.push(Job::new(BulkRun { setting, protocol, packets, changes: 0 }));
        });
        let changes = self.changes(scale);
        for loss in self.losses.at(scale.quick).iter().filter(|_| changes > 0) {
            let loss = Loss::Markov { rate: loss.0, mean_burst: self.mean_burst };
            let setting = Setting { loss, ..self.bed.setting(scale) };
            let packets = *self.packets.at(scale.quick);
            jobs.push(Job::new(BulkRun { setting, protocol: Protocol::Rdcm, packets, changes }));
        }
        jobs
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let all = self.points(scale, outcomes);
        let table = table(&all);
        let (points, changed): (Vec<Point<'_>>, Vec<Point<'_>>) =
            all.into_iter().partition(|point| point.changes == 0);
        let mut relations = match &self.looks_at {
            LooksAt::Throughput {
                at_least_percent,
                at_least_times_srm,
                order_slack_points,
                at_least_of_one_detection_percent,
                changed_at_least_percent,
                ..
            } => {
                let slack = *order_slack_points.at(scale.quick);
                let mut relations =
                    throughput(&points, *at_least_percent, *at_least_times_srm, slack);
                let packets = *self.packets.at(scale.quick);
                let lasts = Protocol::Rdcm.packet_time(&self.bed.setting(scale)) * packets;
                relations.extend(later(&points, lasts, *at_least_of_one_detection_percent));
                relations.push(unchanged(&points, &changed, *changed_at_least_percent));
                relations
            }
            LooksAt::Footprint { order_slack_percent, gap_grows_at_least_times } => {
                let mut relations = footprint(&points, *order_slack_percent.at(scale.quick));
                relations.push(gap(&points, *gap_grows_at_least_times));
                relations
            }
        };
        let incomplete: u32 = points.iter().chain(&changed).map(|it| it.outcome.incomplete).sum();
        let claim = "incomplete receivers";
        relations.push(Relation::at_most(claim, f64::from(incomplete), 0.0, "receivers"));
        let figures = self.figures(scale, &points);
        Findings { table, figures, relations, notes: vec![NOTE.to_owned()], ..Findings::default() }
    }
}

fn table(points: &[Point<'_>]) -> Table {
    Rows(points).table(
        4,
        &[
            ("protocol", |it| it.protocol.name().into()),
            ("loss_percent", |it| (100.0 * it.loss).into()),
            ("found_after_ms", |it| (1e3 * it.found_after.as_secs_f64()).into()),
            ("receivers_replaced", |it| it.changes.into()),
            ("receivers", |it| it.outcome.receivers.into()),
            ("goodput_link_percent", |it| it.percent().into()),
            ("last_receiver_link_percent", |it| (100.0 * it.outcome.least_share).into()),
            ("goodput_mbit_per_s", |it| (it.outcome.goodput / 1e6).into()),
            ("footprint_gb", |it| it.gigabytes().into()),
            ("data_gb", |it| (it.outcome.footprint.data as f64 / 1e9).into()),
            ("repairs_gb", |it| (it.outcome.footprint.repairs as f64 / 1e9).into()),
            ("control_gb", |it| (it.outcome.footprint.control as f64 / 1e9).into()),
            ("tree_links", |it| it.outcome.tree_links.into()),
            ("lost", |it| it.outcome.counts.lost.into()),
            ("repair_delay_mean_ms", |it| it.outcome.delays.mean_ms().into()),
            ("repair_delay_p99_ms", |it| it.outcome.delays.quantile_ms(0.99).into()),
            ("incomplete", |it| it.outcome.incomplete.into()),
        ],
    )
}

/// Pairs of protocols. The first must have more goodput than the second, and less traffic.
const ORDER: [(Protocol, Protocol); 4] = [
    (Protocol::Rdcm, Protocol::Rmtp),
    (Protocol::Rdcm, Protocol::Lbrm),
    (Protocol::Rmtp, Protocol::Srm),
    (Protocol::Lbrm, Protocol::Srm),
];

/// Names of the figures, in the order of `found_after`.
pub(super) const NAMES: [&str; 3] = ["found_at_once", "found_later", "found_much_later"];

const NOTE: &str = "A receiver's goodput is measured from the first packet sent until its \
                    application has the last. The share of the link is counted in whole packets, \
                    with headers and framing: at 100 %, packets follow each other without a \
                    pause. The footprint is counted until the last receiver has everything. As in \
                    the paper, it consists of messages and repairs, delivered or lost. \
                    Acknowledgments, requests and beacons are counted separately.";
const MOST_FOUND_AFTER: Duration = Duration::from_secs(1);
const MAX_PACKETS: u32 = 1 << 16;

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
