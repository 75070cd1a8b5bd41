//! `discovery`: recovery delays of ACK, sender FEC, Bimodal Multicast and SRM in a growing number
//! of groups, compared with Ricochet (section 2.1).

use crate::experiments::bed::Bed;
use crate::experiments::prelude::*;
use crate::lateral::{Guest, GuestOutcome, GuestRun, LateralOutcome, Membership};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Discovery {
    bed: Bed,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    guests: Vec<Guest>,
    guest_losses: Scaled<u32>,
    guest_tail: Span,
    holds: Vec<Holds>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "what", rename_all = "snake_case")]
enum Holds {
    /// Range of the growth of the mean delay from the fewest to the most groups, relative to the
    /// growth of the number of groups. 1 means that the delay is proportional to the interval of a
    /// sender in one group.
    Growth { guest: Guest, range: (f64, f64) },
    /// Upper limit of the same growth of Ricochet.
    RicochetGrowth { at_most: f64 },
    /// Range of the mean delay at every number of groups.
    Delay { guest: Guest, range_ms: (f64, f64) },
    /// Lower limit of the mean delay at the most groups, as a multiple of Ricochet's.
    Times { guest: Guest, at_least: f64 },
    /// Range of the number of control datagrams for each message received.
    ControlPerMessage { guest: Guest, range: (f64, f64) },
}

struct Point<'a> {
    d: u32,
    ricochet: &'a LateralOutcome,
    guests: Vec<(Guest, &'a GuestOutcome)>,
}

struct Row<'a> {
    d: u32,
    name: &'static str,
    lost: u64,
    missing: u64,
    delays: &'a crate::delays::Delays,
    overhead: f64,
    control_per_message: f64,
}

impl Point<'_> {
    fn guest(&self, guest: Guest) -> Option<&GuestOutcome> {
        self.guests.iter().find(|(other, _)| *other == guest).map(|(_, outcome)| *outcome)
    }

    fn delay(&self, guest: Guest) -> f64 {
        self.guest(guest).map_or(f64::NAN, |outcome| outcome.recovery.mean_ms())
    }

    fn ricochet_delay(&self) -> f64 {
        self.ricochet.all().fec.mean_ms()
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let all = self.ricochet.all();
        let ricochet = Row {
            d: self.d,
            name: "Ricochet",
            lost: all.lost,
            missing: all.missing,
            delays: &all.fec,
            overhead: self.ricochet.whole_overhead,
            control_per_message: 0.0,
        };
        let guests = self.guests.iter().map(|(guest, outcome)| Row {
            d: self.d,
            name: guest.name(),
            lost: outcome.lost,
            missing: outcome.missing,
            delays: &outcome.recovery,
            overhead: outcome.overhead,
            control_per_message: outcome.control_per_message,
        });
        [ricochet].into_iter().chain(guests).collect()
    }
}

impl Holds {
    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let (Some(few), Some(many)) = (points.first(), points.last()) else {
            return Vec::new();
        };
        let growth = |delay: &dyn Fn(&Point<'_>) -> f64| {
            delay(many) / delay(few) * f64::from(few.d) / f64::from(many.d)
        };
        let d = many.d;
        match *self {
            Self::Growth { guest, range } => {
                let claim = format!("{}: growth of the delay over that of d", guest.name());
                Relation::within(claim, growth(&|it| it.delay(guest)), range, "").into()
            }
            Self::RicochetGrowth { at_most } => {
                let claim = "Ricochet: growth of the delay over that of d";
                vec![Relation::at_most(claim, growth(&|it| it.ricochet_delay()), at_most, "")]
            }
            Self::Delay { guest, range_ms } => {
                let delays = || points.iter().map(|point| (point.delay(guest), point.d));
                let claim = format!("{}: mean delay at every d", guest.name());
                let (low, high) = (lowest(delays()), highest(delays()));
                Relation::all_within(&claim, low, high, range_ms, "ms").into()
            }
            Self::Times { guest, at_least } => {
                let times = many.delay(guest) / many.ricochet_delay();
                let claim =
                    format!("d = {d}: mean delay of {}, relative to Ricochet", guest.name());
                vec![Relation::at_least(claim, times, at_least, "times")]
            }
            Self::ControlPerMessage { guest, range } => {
                let of = |point: &Point<'_>| {
                    let control = point.guest(guest).map(|it| it.control_per_message);
                    (control.unwrap_or(f64::NAN), point.d)
                };
                let claim = format!("{}: control datagrams per message received", guest.name());
                let values = || points.iter().map(of);
                let (low, high) = (lowest(values()), highest(values()));
                Relation::all_within(&claim, low, high, range, "").into()
            }
        }
    }
}

impl Experiment for Discovery {
    fn figure_names(&self) -> &[&'static str] {
        &["delay"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.groups_per_node.check("groups_per_node", 1, 1 << 12)?;
        check_list("mean_size", &[self.mean_size], 2, self.bed.network.hosts())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
        let mut jobs = Vec::new();
        for d in self.groups_per_node.at(scale.quick) {
            let membership = Membership::Random { groups_per_node: *d, mean_size, rate };
            let ricochet = self.bed.run(scale, membership);
            for guest in &self.guests {
                let mut run = ricochet.clone();
                run.length.losses = *self.guest_losses.at(scale.quick);
                run.length.tail = self.guest_tail.0;
                jobs.push(Job::new(GuestRun { run, guest: *guest }));
            }
            jobs.push(Job::new(ricochet));
        }
        jobs
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let runs = outcomes.chunks(self.guests.len() + 1);
        let points = self.groups_per_node.at(scale.quick).iter().zip(runs).map(|(d, runs)| {
            let (ricochet, guests) = runs.split_last().expect("Ricochet's run is the last");
            let guests = self.guests.iter().zip(guests).map(|(guest, it)| (*guest, it.of()));
            Point { d: *d, ricochet: ricochet.of(), guests: guests.collect() }
        });
        let points: Vec<Point<'_>> = points.collect();
        let rows: Vec<Row<'_>> = points.iter().flat_map(Point::rows).collect();
        let table = Rows(&rows).table(
            2,
            &[
                ("groups_per_node", |it| it.d.into()),
                ("protocol", |it| it.name.into()),
                ("losses", |it| it.lost.into()),
                ("not_recovered", |it| it.missing.into()),
                ("mean_delay_ms", |it| it.delays.mean_ms().into()),
                ("p50_delay_ms", |it| it.delays.quantile_ms(0.5).into()),
                ("p99_delay_ms", |it| it.delays.quantile_ms(0.99).into()),
                ("overhead_percent", |it| (100.0 * it.overhead).into()),
                ("control_per_message", |it| it.control_per_message.into()),
            ],
        );
        let line = |value: &dyn Fn(&Point<'_>) -> f64| {
            points.iter().map(|point| (f64::from(point.d), value(point))).collect::<Vec<_>>()
        };
        let x = Axis::log("groups per node", 2.0);
        let y = Axis::log("mean delay from the multicast, ms", 10.0);
        let mut figure = Figure::new("delay", "Recovery delays", x, y)
            .ours("Ricochet", line(&|point| point.ricochet_delay()));
        for guest in &self.guests {
            figure = figure.ours(guest.name(), line(&|point| point.delay(*guest)));
        }
        Findings {
            table,
            figures: vec![figure],
            relations: self.holds.iter().flat_map(|holds| holds.relations(&points)).collect(),
            ..Findings::default()
        }
    }
}
