//! `rdcm-12`: RDCM's sending rate while background flows start and stop on links of its tree.

use std::time::Duration;

use super::bed::Bed;
use super::losses::NAMES;
use crate::cluster::{Bin, Happens, Protocol, Setting, StreamOutcome, StreamRun};
use crate::experiments::prelude::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RdcmRate {
    bed: Bed,
    length: Scaled<Span>,
    bins: Scaled<u32>,
    found_after: Vec<Span>,
    first: Flow,
    second: Flow,
    holds: Holds,
}

/// A UDP flow on the tree's link to one of the receivers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    /// Position of the receiver among all receivers, as a share.
    to: Share,
    megabits_per_second: u32,
    /// Start of the flow, as a share of the length.
    from: Share,
    until: Share,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Lower limit of the rate in the slowest interval after the start, relative to the mean.
    least_part_at_least_percent: f64,
    /// Range of the rate with a flow, relative to the capacity that the flow leaves.
    of_left_percent: (f64, f64),
    /// Lower limit of the rate after the first flow, relative to the rate before it.
    recovers_at_least_percent: f64,
    /// Percentage by which a run may be slower than the run with the next longer detection time.
    chance_percent: f64,
}

struct Line<'a> {
    found_after: Duration,
    outcome: &'a StreamOutcome,
}

impl RdcmRate {
    fn seconds(&self, scale: RunScale, share: f64) -> f64 {
        self.length.at(scale.quick).0.as_secs_f64() * share
    }

    fn run(&self, scale: RunScale, found_after: Duration) -> StreamRun {
        let setting = self.bed.setting(scale);
        let receivers = setting.group.receivers();
        let length = self.length.at(scale.quick).0;
        let happens = [&self.first, &self.second].map(|flow| {
            let to = ((receivers as f64 * flow.to.0) as usize).min(receivers - 1);
            let bits_per_second = u64::from(flow.megabits_per_second) * 1_000_000;
            let lasts = length.mul_f64(flow.until.0 - flow.from.0);
            (length.mul_f64(flow.from.0), Happens::Flow { to, bits_per_second, lasts })
        });
        StreamRun {
            setting: Setting { detect_after: found_after, controls_congestion: true, ..setting },
            protocol: Protocol::Rdcm,
            bits_per_second: None,
            length,
            bin: length / *self.bins.at(scale.quick),
            happens: happens.into(),
            watched: 0,
        }
    }

    /// Returns four time ranges in seconds: without a flow, with the first flow, without a flow,
    /// and with the second flow. The start of each range is left out, because the rate still
    /// adapts.
    fn phases(&self, scale: RunScale) -> [core::ops::Range<f64>; 4] {
        let ends =
            [0.0, self.first.from.0, self.first.until.0, self.second.from.0, self.second.until.0];
        let phase = |place: usize| {
            let (from, until) = (ends[place], ends[place + 1]);
            let settled = from + SETTLING * (until - from);
            self.seconds(scale, settled)..self.seconds(scale, until)
        };
        [0, 1, 2, 3].map(phase)
    }

    fn figure(&self, scale: RunScale, lines: &[Line<'_>]) -> Figure {
        let x = Axis::linear("seconds");
        let y = Axis::linear("sending rate, Mbit/s of payload");
        let mut figure = Figure::new("rate", "RDCM's sending rate", x, y);
        for line in lines {
            let label = match line.found_after.is_zero() {
                true => "losses detected immediately".to_owned(),
                false => format!("losses detected after {:?}", line.found_after),
            };
            let points = line.outcome.bins.iter().map(|bin| (bin.at, bin.sent / 1e6));
            figure = figure.with(label, Kind::Ours, Shape::Curve, points.collect());
        }
        let link = self.bed.bits_per_second() as f64 / 1e6;
        let left = |flow: &Flow| link - f64::from(flow.megabits_per_second);
        let mut bound = Vec::new();
        let mut level = |from: f64, until: f64, rate: f64| {
            bound.extend([from, until].map(|share| (self.seconds(scale, share), rate)));
        };
        level(0.0, self.first.from.0, link);
        level(self.first.from.0, self.first.until.0, left(&self.first));
        level(self.first.until.0, self.second.from.0, link);
        level(self.second.from.0, self.second.until.0, left(&self.second));
        figure.with("capacity left by the flows", Kind::Bound, Shape::Curve, bound)
    }

    /// Returns the payload rate, in bits per second, for which a link has room beside the flow.
    fn left(&self, scale: RunScale, flow: &Flow) -> f64 {
        let setting = self.bed.setting(scale);
        let alone =
            8.0 * setting.payload_bytes as f64 / Protocol::Rdcm.packet_time(&setting).as_secs_f64();
        let taken = f64::from(flow.megabits_per_second) * 1e6 / self.bed.bits_per_second() as f64;
        alone * (1.0 - taken)
    }

    fn relations(&self, scale: RunScale, lines: &[Line<'_>]) -> Vec<Relation> {
        let mut relations = Vec::new();
        let phases = self.phases(scale);
        for Line { found_after, outcome } in lines {
            let mean = |place: usize| outcome.mean(phases[place].clone(), sent);
            let all = phases[0].start..phases[3].end;
            let least = 100.0 * outcome.least(all.clone(), sent) / outcome.mean(all, sent);
            let limit = self.holds.least_part_at_least_percent;
            let claim = format!(
                "detected after {found_after:?}: rate in the slowest interval, of the mean"
            );
            relations.push(Relation::at_least(claim, least, limit, "%"));
            for (name, flow, place) in [("first", &self.first, 1), ("second", &self.second, 3)] {
                let claim = format!(
                    "detected after {found_after:?}: rate with the {name} flow, of the capacity \
                     left"
                );
                let of_left = 100.0 * mean(place) / self.left(scale, flow);
                let range = self.holds.of_left_percent;
                relations.extend(Relation::within(claim, of_left, range, "%"));
            }
            let claim = format!(
                "detected after {found_after:?}: rate after the first flow, of that before"
            );
            let limit = self.holds.recovers_at_least_percent;
            relations.push(Relation::at_least(claim, 100.0 * mean(2) / mean(0), limit, "%"));
            let lacking = (outcome.lacking + outcome.lost) as f64;
            let claim = format!("detected after {found_after:?}: messages not delivered");
            relations.push(Relation::at_most(claim, lacking, 0.0, "messages"));
        }
        for pair in lines.windows(2) {
            let mean = |line: &Line<'_>| line.outcome.mean(0.0..f64::INFINITY, sent);
            let claim = format!(
                "detected after {:?}: rate, relative to detected after {:?}",
                pair[0].found_after, pair[1].found_after
            );
            let limit = 1.0 - self.holds.chance_percent / 100.0;
            let times = mean(&pair[0]) / mean(&pair[1]);
            relations.push(Relation::at_least(claim, times, limit, "times"));
        }
        relations
    }
}

fn sent(bin: &Bin) -> f64 {
    bin.sent
}

impl Experiment for RdcmRate {
    fn figure_names(&self) -> &[&'static str] {
        &["rate"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        let lengths = [self.length.at(false).0, self.length.at(true).0];
        check_list("length", &lengths, LEAST_LENGTH, MOST_LENGTH)?;
        self.bins.check_value("bins", 8, 10_000)?;
        let found_after: Vec<Duration> = self.found_after.iter().map(|span| span.0).collect();
        check_list("found_after", &found_after, Duration::ZERO, Duration::from_secs(1))?;
        check_list("the length of found_after", &[found_after.len()], 1, NAMES.len())?;
        let (first, second) = (&self.first, &self.second);
        let ends = [0.0, first.from.0, first.until.0, second.from.0, second.until.0];
        if ends.windows(2).any(|pair| pair[0] >= pair[1]) {
            let order = "0 < first.from < first.until < second.from < second.until";
            return Err(format!("the flows overlap or are out of order: expected {order}"));
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let runs = self.found_after.iter().map(|span| self.run(scale, span.0));
        runs.map(Job::new).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let lines = self.found_after.iter().zip(outcomes);
        let lines =
            lines.map(|(span, outcome)| Line { found_after: span.0, outcome: outcome.of() });
        let lines: Vec<Line<'_>> = lines.collect();
        let bins =
            lines.iter().flat_map(|line| line.outcome.bins.iter().map(move |bin| (line, bin)));
        let table = Rows(&bins.collect::<Vec<_>>()).table(
            2,
            &[
                ("found_after_ms", |(line, _)| (1e3 * line.found_after.as_secs_f64()).into()),
                ("at_s", |(_, bin)| bin.at.into()),
                ("sent_mbit_per_s", |(_, bin)| (bin.sent / 1e6).into()),
                ("received_mbit_per_s", |(_, bin)| (bin.received / 1e6).into()),
            ],
        );
        let (figures, relations) =
            (vec![self.figure(scale, &lines)], self.relations(scale, &lines));
        Findings { table, figures, relations, ..Findings::default() }
    }
}

const SETTLING: f64 = 0.2;
const LEAST_LENGTH: Duration = Duration::from_millis(10);
const MOST_LENGTH: Duration = Duration::from_secs(1000);
