//! A stream over some time in which links get busy or die, and receivers fail (RDCM 4.2, 5.2).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use carom_proto::rdcm::topology::Vertex;
use carom_proto::{Class, Event, Time};
use carom_sim::{Background, Fault, HostIx, Place};

use super::protocol::Protocol;
use super::rider::Rider;
use super::scene::{Scene, Setting};
use crate::work::Ends;

/// A stream of messages, as many as the sender may send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamRun {
    pub(crate) setting: Setting,
    pub(crate) protocol: Protocol,
    /// Payload that the application has to send in a second, in bits; `None`: more than there is
    /// room for.
    pub(crate) bits_per_second: Option<u64>,
    pub(crate) length: Duration,
    /// Everything is counted for each such part of it.
    pub(crate) bin: Duration,
    /// What happens, and when after the beginning, in order.
    pub(crate) happens: Vec<(Duration, Happens)>,
    /// The receiver, by its number among them, that is looked at in detail.
    pub(crate) watched: usize,
}

/// What happens to the links and the receivers, each receiver by its number among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Happens {
    /// On the link of the tree that leads to a receiver a flow begins that lasts so long.
    Flow { to: usize, bits_per_second: u64, lasts: Duration },
    /// The link of the tree that leads to a receiver dies.
    Cut { to: usize },
    /// A receiver fails.
    Fail { receiver: usize },
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamOutcome {
    pub(crate) bins: Vec<Bin>,
    /// When the tree was replaced, in seconds after the beginning.
    pub(crate) rebuilt_at: Vec<f64>,
    /// Messages that living receivers were told they will not get.
    pub(crate) lost: u64,
    /// Messages that were sent before the end and that living receivers lacked a second later.
    /// Messages come in order, so that none that was sent after the end can hide one.
    pub(crate) lacking: u64,
    /// Whether the last tree leads over a link that died.
    pub(crate) uses_dead_link: bool,
}

/// A part of the run; rates in bits of payload a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bin {
    /// When it begins, in seconds.
    pub(crate) at: f64,
    /// What the sender multicast.
    pub(crate) sent: f64,
    /// What living receivers got, on average.
    pub(crate) received: f64,
    /// What the watched receiver got, by the tree and by repairs.
    pub(crate) by_tree: f64,
    pub(crate) by_repair: f64,
}

/// What has been counted up to some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sent: u64,
    received: f64,
    by_tree: u64,
    by_repair: u64,
}

/// A stream at work.
struct Streaming<'a> {
    run: &'a StreamRun,
    scene: Scene,
    /// The receivers as they are numbered.
    receivers: Vec<HostIx>,
    /// Messages that each living receiver has got.
    got: BTreeMap<HostIx, u64>,
    lost: u64,
    begin: Time,
    sent: u64,
    dead: Vec<(Vertex, Vertex)>,
}

const AFTERWARDS: Duration = Duration::from_secs(1);
const BACKGROUND_BYTES: usize = 1024;

impl StreamRun {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<StreamOutcome> {
        let mut scene = self.setting.plane().scene(self.protocol, false);
        scene.begin(ends)?;
        let receivers: Vec<HostIx> = scene.plane.receivers().map(HostIx).collect();
        let got = receivers.iter().map(|host| (*host, 0)).collect();
        let (begin, dead) = (scene.world.now(), Vec::new());
        let mut streaming =
            Streaming { run: self, scene, receivers, got, lost: 0, begin, sent: 0, dead };
        streaming.go_on(ends)
    }

    /// How many datagrams arrive at nodes, roughly.
    pub(crate) fn deliveries(&self) -> f64 {
        let rate = self.bits_per_second.unwrap_or(self.setting.bits_per_second) as f64;
        let packets = rate * self.length.as_secs_f64() / (8.0 * self.setting.payload_bytes as f64);
        2.0 * packets * self.setting.group.receivers() as f64
    }
}

impl Streaming<'_> {
    fn go_on(&mut self, ends: Ends<'_>) -> Option<StreamOutcome> {
        let mut outcome = StreamOutcome::default();
        let mut happens = self.run.happens.iter().peekable();
        let (mut trees, mut before) = (self.scene.trees, self.count());
        let bins = self.run.length.as_nanos() / self.run.bin.as_nanos();
        for number in 0..bins as u32 {
            let at = self.run.bin * number;
            let end = self.begin + at + self.run.bin;
            while self.scene.world.now() < end {
                let due = self.scene.world.now().since(self.begin);
                while let Some((_, what)) = happens.next_if(|(at, _)| *at <= due) {
                    self.let_happen(*what);
                }
                self.step(end);
                if self.scene.trees != trees {
                    trees = self.scene.trees;
                    let at = self.scene.world.now().since(self.begin);
                    outcome.rebuilt_at.push(at.as_secs_f64());
                }
            }
            if ends() {
                return None;
            }
            let now = self.count();
            outcome.bins.push(self.bin(at, before, now));
            before = now;
        }
        // What the sender keeps still goes out afterwards, and may be on the way in the end.
        let due = self.scene.world.counters().sent.datagrams(Class::Data).min(self.sent);
        self.run_until(self.scene.world.now() + AFTERWARDS);
        outcome.lacking = self.got.values().map(|got| due.saturating_sub(*got)).sum();
        outcome.lost = self.lost;
        let tree = &self.scene.plane.tree;
        let leads = |(from, to): &(Vertex, Vertex)| {
            tree.above(*to).is_some_and(|above| above.vertex == *from)
        };
        outcome.uses_dead_link = self.dead.iter().any(leads);
        Some(outcome)
    }

    /// Sends a message if it is time, and lets time pass until the next one could be sent.
    fn step(&mut self, end: Time) {
        let now = self.scene.world.now();
        let passed = now.since(self.begin).as_secs_f64();
        let bits = 8.0 * self.run.setting.payload_bytes as f64;
        let due = |rate: u64| (passed * rate as f64 / bits) as u64;
        let is_due = self.run.bits_per_second.is_none_or(|rate| self.sent <= due(rate));
        if is_due && self.scene.idle_at() <= now && self.scene.send().is_ok() {
            self.sent += 1;
        }
        let pause = self.scene.plane.packet_time(self.run.protocol);
        let next = self.scene.idle_at().max(now + pause / 2);
        self.run_until(next.min(end));
    }

    fn run_until(&mut self, end: Time) {
        let (got, lost) = (&mut self.got, &mut self.lost);
        self.scene.run_until(end, &mut |happening| match &happening.event {
            Event::Message(_) => *got.entry(happening.host).or_default() += 1,
            Event::Lost(it) => *lost += u64::from(it.count()),
            _ => {}
        });
    }

    /// The link of the tree that leads to a receiver.
    fn link_to(&self, receiver: usize) -> (Vertex, Vertex) {
        let to = Vertex(self.receivers[receiver].0);
        let above = self.scene.plane.tree.above(to).expect("all receivers are in the tree");
        (above.vertex, to)
    }

    fn let_happen(&mut self, what: Happens) {
        let cluster = &self.scene.plane.cluster;
        match what {
            Happens::Flow { to, bits_per_second, lasts } => {
                let (from, to) = self.link_to(to);
                let begin = self.scene.world.now();
                let (datagram_bytes, end) = (BACKGROUND_BYTES, begin + lasts);
                let flow = Background { bits_per_second, datagram_bytes, begin, end };
                let [from, to] = [from, to].map(|end| Place::of(cluster, end));
                self.scene.world.add_background(from, to, flow);
            }
            Happens::Cut { to } => {
                let link = self.link_to(to);
                let [from, to] = [link.0, link.1].map(|end| Place::of(cluster, end));
                self.scene.world.apply(&Fault::CutLink(from, to));
                self.dead.push(link);
            }
            Happens::Fail { receiver } => {
                let host = self.receivers[receiver];
                self.scene.world.kill(host);
                self.got.remove(&host);
            }
        }
    }

    fn count(&self) -> Count {
        let watched = self.scene.world.machine(self.receivers[self.run.watched]);
        let (by_tree, by_repair) = watched.and_then(Rider::arrived).unwrap_or_default();
        let received = self.got.values().sum::<u64>() as f64;
        let sent = self.scene.world.counters().sent.datagrams(Class::Data);
        Count { sent, received: received / self.got.len().max(1) as f64, by_tree, by_repair }
    }

    fn bin(&self, at: Duration, before: Count, now: Count) -> Bin {
        let bits = 8.0 * self.run.setting.payload_bytes as f64 / self.run.bin.as_secs_f64();
        let rate = |before: u64, now: u64| bits * now.saturating_sub(before) as f64;
        Bin {
            at: at.as_secs_f64(),
            sent: rate(before.sent, now.sent),
            received: bits * (now.received - before.received),
            by_tree: rate(before.by_tree, now.by_tree),
            by_repair: rate(before.by_repair, now.by_repair),
        }
    }
}

impl StreamOutcome {
    /// The mean of a value over the parts that begin within this time, in seconds.
    pub(crate) fn mean(&self, within: core::ops::Range<f64>, of: fn(&Bin) -> f64) -> f64 {
        let bins = self.bins.iter().filter(|bin| within.contains(&bin.at));
        bins.clone().map(of).sum::<f64>() / bins.count() as f64
    }

    /// The least of a value over those parts.
    pub(crate) fn least(&self, within: core::ops::Range<f64>, of: fn(&Bin) -> f64) -> f64 {
        let bins = self.bins.iter().filter(|bin| within.contains(&bin.at));
        bins.map(of).min_by(f64::total_cmp).unwrap_or(f64::NAN)
    }
}

impl fmt::Display for StreamRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, length) = (self.protocol.name(), self.length);
        write!(f, "{name} for {length:?}, losses found after {:?}", self.setting.detect_after)
    }
}
