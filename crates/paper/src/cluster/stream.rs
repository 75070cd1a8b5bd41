//! A stream during which links become busy or fail, and receivers fail (RDCM 4.2, 5.2).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use carom_conformance::rdcm::cluster::place;
use carom_proto::rdcm::topology::Vertex;
use carom_proto::{Class, Event, Time};
use carom_sim::{Background, Fault, HostIx};

use super::plane::Setting;
use super::protocol::Protocol;
use super::scene::Scene;
use crate::work::{Env, Run};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamRun {
    pub(crate) setting: Setting,
    pub(crate) protocol: Protocol,
    /// Sending rate in bits of payload per second. With `None`, the sender sends as fast as it can.
    pub(crate) bits_per_second: Option<u64>,
    pub(crate) length: Duration,
    pub(crate) bin: Duration,
    /// Events, each with its time after the start, in order of time.
    pub(crate) happens: Vec<(Duration, Happens)>,
    pub(crate) watched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Happens {
    /// A background flow starts on the tree's link to a receiver, and lasts for the given time.
    Flow {
        to: usize,
        bits_per_second: u64,
        lasts: Duration,
    },
    Cut {
        to: usize,
    },
    Fail {
        receiver: usize,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamOutcome {
    pub(crate) bins: Vec<Bin>,
    /// Times at which the tree was replaced, in seconds after the start.
    pub(crate) rebuilt_at: Vec<f64>,
    /// Number of messages that living receivers reported as lost.
    pub(crate) lost: u64,
    /// Number of messages sent before the end that living receivers lack a second later. Delivery
    /// is in order, so that messages sent after the end do not distort the number.
    pub(crate) lacking: u64,
    pub(crate) uses_dead_link: bool,
}

/// An interval of the run. Rates are in bits of payload per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bin {
    pub(crate) at: f64,
    pub(crate) sent: f64,
    /// Mean rate at which living receivers received.
    pub(crate) received: f64,
    pub(crate) by_tree: f64,
    pub(crate) by_repair: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sent: u64,
    received: f64,
    by_tree: u64,
    by_repair: u64,
}

struct Streaming<'a> {
    run: &'a StreamRun,
    scene: Scene,
    receivers: Vec<HostIx>,
    got: BTreeMap<HostIx, u64>,
    lost: u64,
    begin: Time,
    sent: u64,
    dead: Vec<(Vertex, Vertex)>,
}

const AFTERWARDS: Duration = Duration::from_secs(1);
const BACKGROUND_BYTES: usize = 1024;

impl Run for StreamRun {
    type Outcome = StreamOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let mut scene = Scene::new(self.setting.plane(), self.protocol, false);
        scene.begin(env)?;
        let receivers: Vec<HostIx> = scene.plane.receivers().map(HostIx).collect();
        let got = receivers.iter().map(|host| (*host, 0)).collect();
        let (begin, dead) = (scene.world.now(), Vec::new());
        let mut streaming =
            Streaming { run: self, scene, receivers, got, lost: 0, begin, sent: 0, dead };
        streaming.go_on(env)
    }

    fn cost(&self) -> f64 {
        let rate = self.bits_per_second.unwrap_or(self.setting.bits_per_second) as f64;
        let packets = rate * self.length.as_secs_f64() / (8.0 * self.setting.payload_bytes as f64);
        2.0 * packets * self.setting.group.receivers() as f64
    }
}

impl Streaming<'_> {
    fn go_on(&mut self, env: Env<'_>) -> Option<StreamOutcome> {
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
            if env.ends() {
                return None;
            }
            let now = self.count();
            outcome.bins.push(self.bin(at, before, now));
            before = now;
        }
        // The sender still transmits what it has queued, and packets can be in flight.
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

    fn step(&mut self, end: Time) {
        let now = self.scene.world.now();
        let passed = now.since(self.begin).as_secs_f64();
        let bits = 8.0 * self.run.setting.payload_bytes as f64;
        let due = |rate: u64| (passed * rate as f64 / bits) as u64;
        let is_due = self.run.bits_per_second.is_none_or(|rate| self.sent <= due(rate));
        if is_due && self.scene.idle_at() <= now && self.scene.send().is_ok() {
            self.sent += 1;
        }
        let pause = self.run.protocol.packet_time(&self.run.setting);
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
                let [from, to] = [from, to].map(|end| place(cluster, end));
                self.scene.world.network().add_background(from, to, flow);
            }
            Happens::Cut { to } => {
                let link = self.link_to(to);
                let [from, to] = [link.0, link.1].map(|end| place(cluster, end));
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
        let (by_tree, by_repair) =
            watched.and_then(|rider| rider.ridden.arrived()).unwrap_or_default();
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
    /// Returns the mean of a value over the intervals that start within a range, in seconds.
    pub(crate) fn mean(&self, within: core::ops::Range<f64>, of: fn(&Bin) -> f64) -> f64 {
        let bins = self.bins.iter().filter(|bin| within.contains(&bin.at));
        bins.clone().map(of).sum::<f64>() / bins.count() as f64
    }

    pub(crate) fn least(&self, within: core::ops::Range<f64>, of: fn(&Bin) -> f64) -> f64 {
        let bins = self.bins.iter().filter(|bin| within.contains(&bin.at));
        bins.map(of).min_by(f64::total_cmp).unwrap_or(f64::NAN)
    }
}

impl fmt::Display for StreamRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, length) = (self.protocol.name(), self.length);
        write!(f, "{name} for {length:?}, losses detected after {:?}", self.setting.detect_after)
    }
}
