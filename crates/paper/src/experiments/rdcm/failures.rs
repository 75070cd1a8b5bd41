//! `rdcm-15`: effect of a failed link of RDCM's tree, and of a failed receiver.

use std::time::Duration;

use super::bed::Bed;
use crate::cluster::{Bin, Happens, Protocol, Setting, StreamOutcome, StreamRun};
use crate::experiments::prelude::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RdcmFailures {
    bed: Bed,
    found_after: Span,
    gone_after: Span,
    length: Scaled<Span>,
    bin: Scaled<Span>,
    megabits_per_second: u32,
    link_dies_above: usize,
    /// Time of the link's failure, as a share of the length.
    link_dies_at: Share,
    fails: usize,
    /// Time at which the receiver `fails`, as a share of the length.
    fails_at: Share,
    holds: Holds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Rate of the living receivers in the slowest interval, relative to the application's rate.
    received_at_least_percent: f64,
    /// Rate of repairs at the receiver below the failed link until the tree is replaced, relative
    /// to the application's rate.
    by_repair_at_least_percent: f64,
    /// Rate by the tree at this receiver afterwards, relative to the application's rate.
    by_tree_at_least_percent: f64,
}

impl RdcmFailures {
    fn run(&self, scale: RunScale) -> StreamRun {
        let length = self.length.at(scale.quick).0;
        let cut = Happens::Cut { to: self.link_dies_above };
        let fail = Happens::Fail { receiver: self.fails };
        let happens = [(self.link_dies_at, cut), (self.fails_at, fail)];
        let setting = Setting {
            detect_after: self.found_after.0,
            gone_after: Some(self.gone_after.0),
            ..self.bed.setting(scale)
        };
        StreamRun {
            setting,
            protocol: Protocol::Rdcm,
            bits_per_second: Some(self.bits_per_second()),
            length,
            bin: self.bin.at(scale.quick).0,
            happens: happens.map(|(at, what)| (length.mul_f64(at.0), what)).into(),
            watched: self.link_dies_above,
        }
    }

    fn bits_per_second(&self) -> u64 {
        u64::from(self.megabits_per_second) * 1_000_000
    }

    fn seconds(&self, scale: RunScale, share: Share) -> f64 {
        self.length.at(scale.quick).0.mul_f64(share.0).as_secs_f64()
    }

    fn relations(&self, scale: RunScale, outcome: &StreamOutcome) -> Vec<Relation> {
        let bin = self.bin.at(scale.quick).0.as_secs_f64();
        let rate = self.bits_per_second() as f64;
        let percent = |value: f64| 100.0 * value / rate;
        let end = self.length.at(scale.quick).0.as_secs_f64();
        let dies = self.seconds(scale, self.link_dies_at);
        let replaced = outcome.rebuilt_at.iter().copied().find(|at| *at >= dies);
        let replaced = replaced.unwrap_or(f64::NAN);
        let holds = &self.holds;
        // The first interval is left out, because the first messages are still in flight.
        let received = outcome.least(bin..end, |bin| bin.received);
        let by_repair = outcome.mean(dies..replaced - bin, |bin| bin.by_repair);
        let by_tree = outcome.mean(replaced + bin..end, |bin| bin.by_tree);
        let note = format!("tree replaced {:.0} ms after the link failed", 1e3 * (replaced - dies));
        vec![
            Relation::at_least(
                "rate at living receivers in the slowest interval, of the rate sent",
                percent(received),
                holds.received_at_least_percent,
                "%",
            ),
            Relation::at_least(
                "receiver below the failed link: rate by repairs until the tree is replaced",
                percent(by_repair),
                holds.by_repair_at_least_percent,
                "%",
            )
            .noted(note),
            Relation::at_least(
                "receiver below the failed link: rate by the tree afterwards",
                percent(by_tree),
                holds.by_tree_at_least_percent,
                "%",
            ),
            Relation::at_most(
                "failed links in the final tree",
                f64::from(u8::from(outcome.uses_dead_link)),
                0.0,
                "links",
            ),
            Relation::at_most(
                "messages not delivered to living receivers",
                (outcome.lost + outcome.lacking) as f64,
                0.0,
                "messages",
            ),
        ]
    }
}

fn figures(outcome: &StreamOutcome) -> Vec<Figure> {
    let figure = |name, title| {
        let y = Axis::linear("Mbit/s of payload");
        Figure::new(name, title, Axis::linear("seconds"), y)
    };
    let line = |of: fn(&Bin) -> f64| {
        outcome.bins.iter().map(|bin| (bin.at, of(bin) / 1e6)).collect::<Vec<_>>()
    };
    let curve = |it: Figure, label: &str, of| it.with(label, Kind::Ours, Shape::Curve, line(of));
    let all = figure("rates", "Rates of the sender and of the living receivers on average");
    let all = curve(all, "sent", |bin| bin.sent);
    let one = figure("one", "Rate of the receiver below the failed link");
    let one = curve(one, "by the tree", |bin| bin.by_tree);
    let one = curve(one, "by the backup overlay", |bin| bin.by_repair);
    vec![
        curve(all, "received, mean", |bin| bin.received),
        curve(one, "both", |bin| bin.by_tree + bin.by_repair),
    ]
}

impl Experiment for RdcmFailures {
    fn figure_names(&self) -> &[&'static str] {
        &["rates", "one"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        for quick in [false, true] {
            let (length, bin) = (self.length.at(quick).0, self.bin.at(quick).0);
            let most = Duration::from_secs(1000);
            check_list("length", &[length], Duration::from_millis(100), most)?;
            check_list("bin", &[bin], Duration::from_millis(1), length / 8)?;
            let scale = RunScale { quick, seed: 0 };
            let receivers = self.bed.setting(scale).group.receivers();
            let indices = [self.link_dies_above, self.fails];
            check_list("link_dies_above or fails", &indices, 0, receivers - 1)?;
        }
        let least = Duration::from_millis(1);
        check_list("gone_after", &[self.gone_after.0], least, Duration::from_secs(10))?;
        check_list("megabits_per_second", &[self.megabits_per_second], 1, 100_000)?;
        if self.link_dies_at.0 >= self.fails_at.0 || self.link_dies_above == self.fails {
            return Err("fails must differ from link_dies_above, and fails_at must be after \
                        link_dies_at"
                .to_owned());
        }
        Ok(())
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        vec![Job::new(self.run(scale))]
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let outcome = outcomes[0].of::<StreamOutcome>();
        let table = Rows(&outcome.bins).table(
            1,
            &[
                ("at_s", |bin| bin.at.into()),
                ("sent_mbit_per_s", |bin| (bin.sent / 1e6).into()),
                ("received_mbit_per_s", |bin| (bin.received / 1e6).into()),
                ("below_dead_link_by_tree_mbit_per_s", |bin| (bin.by_tree / 1e6).into()),
                ("below_dead_link_by_overlay_mbit_per_s", |bin| (bin.by_repair / 1e6).into()),
            ],
        );
        let (figures, relations) = (figures(outcome), self.relations(scale, outcome));
        Findings { table, figures, relations, ..Findings::default() }
    }
}
