//! A gossiping cluster whose nodes crash and stall, with the detection times of crashes and the
//! number of false detections. It runs in virtual time, and the same setting gives the same
//! outcome.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::lateral::{self, Lateral};
use carom_proto::loss::Loss;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::{
    Event, GroupId, GroupSettings, NodeId, Profile, RateOfFire, Rng, SendOptions, Time, ViewChange,
    ViewChangeKind,
};
use carom_sim::{
    EventQueue, Fault, GroupMember as _, Happening, HostIx, Jitter, Link, Member, Notice, Topology,
    World, WorldConfig,
};

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) nodes: u32,
    pub(crate) loss: f64,
    pub(crate) stalls: Option<Stalls>,
    pub(crate) messages_per_second: u32,
    pub(crate) gossip: Config,
    pub(crate) span: Duration,
    /// Interval between crashes. Another node starts on the host after [`DEAD_FOR`].
    pub(crate) crash_every: Duration,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalls {
    pub(crate) share: f64,
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) detections: Vec<Duration>,
    /// Crashes that some view still did not show at the end, more than twice the detection time
    /// later.
    pub(crate) unseen: u32,
    /// Removals of live nodes from views. Those of one node within [`ONE_INCIDENT`] count as one.
    pub(crate) false_failures: u32,
    pub(crate) suspicions: u64,
    pub(crate) node_hours: f64,
}

const GROUP: GroupId = GroupId(7);
const DEAD_FOR: Duration = Duration::from_secs(5);
const ONE_INCIDENT: Duration = Duration::from_secs(5);
const WARM_UP: Duration = Duration::from_secs(5);
const PAYLOAD: [u8; 64] = [7; 64];

pub(crate) fn play(setting: &Setting) -> Outcome {
    let mut field = Field::new(setting);
    let end = field.start + setting.span;
    while let Some((at, act)) = field.queue.pop().filter(|(at, _)| *at <= end) {
        field.run_until(at);
        field.act(act);
    }
    field.run_until(end);
    field.finish()
}

impl Outcome {
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let rank = (self.detections.len() as f64 * share).ceil() as usize;
        self.detections.get(rank.saturating_sub(1)).copied().unwrap_or(Duration::MAX)
    }
}

struct Field<'a> {
    setting: &'a Setting,
    world: World<Member>,
    queue: EventQueue<Act>,
    rng: Rng,
    lives: u64,
    alive: BTreeMap<NodeId, HostIx>,
    crashed: BTreeMap<NodeId, (Time, BTreeSet<HostIx>)>,
    failed_at: BTreeMap<NodeId, Time>,
    start: Time,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Send(HostIx),
    Stall(HostIx),
    Resume(HostIx),
    Crash,
    Restart(HostIx),
}

impl<'a> Field<'a> {
    fn new(setting: &'a Setting) -> Self {
        let jitter = Jitter::Exponential(Duration::from_micros(30));
        let link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
        let world = World::new(WorldConfig {
            loss: Loss::Uniform(setting.loss),
            // Slow processing lets the timers of a stalled node fire before it has read the waiting
            // datagrams.
            cpu_per_datagram: Duration::from_micros(5),
            receive_buffer: 4096,
            hashes_history: false,
            checks: false,
            ..WorldConfig::new(Topology::lan(setting.nodes, link), setting.seed)
        });
        let start = world.now() + WARM_UP;
        let mut field = Self {
            setting,
            world,
            queue: EventQueue::default(),
            rng: Rng::new(setting.seed),
            lives: 0,
            alive: BTreeMap::new(),
            crashed: BTreeMap::new(),
            failed_at: BTreeMap::new(),
            start,
            outcome: Outcome::default(),
        };
        field.queue.add(start + setting.crash_every, Act::Crash);
        for host in (0..setting.nodes).map(HostIx) {
            field.spawn(host);
            field.plan_stall(start, host);
            if setting.messages_per_second > 0 {
                let at = field.world.now() + field.random(Duration::ZERO, Duration::from_secs(1));
                field.queue.add(at, Act::Send(host));
            }
        }
        field.run_until(start);
        field
    }

    fn spawn(&mut self, host: HostIx) {
        self.lives += 1;
        let id = NodeId(u64::from(host.0) + 1000 * self.lives);
        let engine = Lateral::new(id, lateral::Config::default(), self.rng.next_u64());
        let (config, seed) = (self.setting.gossip.clone(), self.rng.next_u64());
        let gossip = Gossip::new(id, host.endpoint(), config, seed);
        self.world.spawn(host, id, Member::new(Box::new(engine), Some(Box::new(gossip))));
        self.world.subscribe(host, GROUP);
        let settings = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(8, 5)));
        let join = |member: &mut Member, now| member.join_group(now, GROUP, settings);
        let joined = self.world.with(host, join).expect("the node has just been started");
        joined.expect("all have the same settings");
        self.alive.insert(id, host);
    }

    fn act(&mut self, act: Act) {
        let now = self.world.now();
        match act {
            Act::Send(host) => {
                let pause = Duration::from_secs(1) / self.setting.messages_per_second;
                self.queue.add(now + pause, Act::Send(host));
                if !self.world.is_paused(host) {
                    let payload = bytes::Bytes::from_static(&PAYLOAD);
                    // A node that is held back skips this message.
                    self.world.with(host, |member, now| {
                        _ = member.send(now, GROUP, payload, SendOptions::default());
                    });
                }
            }
            Act::Stall(host) => {
                let Some(stalls) = self.setting.stalls else { return };
                self.world.apply(&Fault::Pause(host));
                let end = now + self.random(stalls.shortest, stalls.longest);
                self.queue.add(end, Act::Resume(host));
            }
            Act::Resume(host) => {
                self.world.apply(&Fault::Resume(host));
                self.plan_stall(now, host);
            }
            Act::Crash => {
                self.queue.add(now + self.setting.crash_every, Act::Crash);
                self.crash(now);
            }
            Act::Restart(host) => self.spawn(host),
        }
    }

    fn plan_stall(&mut self, now: Time, host: HostIx) {
        if let Some(stalls) = self.setting.stalls {
            let mean = (stalls.shortest + stalls.longest).div_f64(2.0);
            let between = mean.mul_f64((1.0 - stalls.share) / stalls.share);
            let at = now + self.random(between / 2, between * 3 / 2);
            self.queue.add(at, Act::Stall(host));
        }
    }

    fn crash(&mut self, now: Time) {
        let running = self.alive.iter().filter(|(_, host)| !self.world.is_paused(**host));
        let running: Vec<(NodeId, HostIx)> = running.map(|(id, host)| (*id, *host)).collect();
        let (id, host) = running[self.rng.below(running.len())];
        self.retire(host);
        self.alive.remove(&id);
        for (_, (_, holders)) in self.crashed.iter_mut() {
            holders.remove(&host);
        }
        let has_it = |other: &HostIx| {
            let member = self.world.machine(*other);
            member.and_then(|it| it.view(GROUP)).is_some_and(|view| view.contains(id))
        };
        let holders = self.alive.values().copied().filter(has_it).collect();
        self.crashed.insert(id, (now, holders));
        self.queue.add(now + DEAD_FOR, Act::Restart(host));
        self.settle_crashes(now);
    }

    fn retire(&mut self, host: HostIx) {
        let member = self.world.kill(host).expect("a node that is alive");
        let stats = member.provider().expect("each has one").stats();
        let suspicions = stats.iter().find(|(name, _)| *name == "suspicions");
        self.outcome.suspicions += suspicions.expect("gossip counts them").1;
    }

    fn run_until(&mut self, at: Time) {
        let mut told = Vec::new();
        self.world.run_until(at, &mut |happening| told.push(happening));
        for Happening { at, host, event } in told {
            if let Notice::Event(Event::View(change)) = event {
                self.on_view(at, host, &change);
            }
        }
    }

    fn on_view(&mut self, at: Time, host: HostIx, change: &ViewChange) {
        let node = change.node;
        if let Some((_, holders)) = self.crashed.get_mut(&node) {
            match change.kind {
                ViewChangeKind::Joined => holders.insert(host),
                ViewChangeKind::Left | ViewChangeKind::Failed => holders.remove(&host),
            };
            self.settle_crashes(at);
        } else if change.kind == ViewChangeKind::Failed && self.alive.contains_key(&node) {
            let last = self.failed_at.insert(node, at);
            let is_new = last.is_none_or(|last| at.since(last) > ONE_INCIDENT);
            self.outcome.false_failures += u32::from(is_new);
        }
    }

    fn settle_crashes(&mut self, now: Time) {
        let seen = self.crashed.iter().filter(|(_, (_, holders))| holders.is_empty());
        let seen: Vec<(NodeId, Time)> = seen.map(|(id, (since, _))| (*id, *since)).collect();
        for (id, since) in seen {
            self.crashed.remove(&id);
            self.outcome.detections.push(now.since(since));
        }
    }

    fn finish(mut self) -> Outcome {
        for host in self.alive.values().copied().collect::<Vec<_>>() {
            self.retire(host);
        }
        let patience = self.setting.gossip.detection_time * 2;
        let end = self.world.now();
        let late = self.crashed.values().filter(|(since, _)| end.since(*since) > patience);
        self.outcome.unseen = late.count() as u32;
        self.outcome.detections.sort_unstable();
        let hours = end.since(self.start).as_secs_f64() / 3600.0;
        self.outcome.node_hours = hours * f64::from(self.setting.nodes);
        self.outcome
    }

    fn random(&mut self, from: Duration, to: Duration) -> Duration {
        from + (to - from).mul_f64(self.rng.fraction())
    }
}
