//! Several lateral engines under everything that a network and a membership can do to them, from
//! a seed: faults first, then a healed network in which all must come right.
//!
//! `CAROM_STRESS_SEED` replays one seed, `CAROM_STRESS_SEEDS` says how many are tried.

#![allow(clippy::print_stdout, reason = "a seed that fails is printed")]

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::lateral::{Config, Lateral, NakConfig, RepairScope, Solver};
use carom_proto::*;

const RATE: RateOfFire = RateOfFire::new(4, 2);
const HOSTS: usize = 5;
const GROUPS: u32 = 3;

struct Host {
    id: NodeId,
    engine: Lateral,
    alive: bool,
    /// The groups it is in, with how often it has joined.
    groups: BTreeMap<GroupId, u32>,
    /// What the application got: (how often delivered, how often reported as lost).
    account: BTreeMap<(NodeId, GroupId, u32), (u32, u32)>,
    /// Who is in its view, with which of its memberships.
    views: BTreeMap<GroupId, BTreeMap<NodeId, u32>>,
}

enum Flight {
    Datagram(Vec<u8>),
    View(GroupId, NodeId, ViewChangeKind, u32),
}

struct Sent {
    sender: usize,
    /// With which of its memberships.
    round: u32,
    group: GroupId,
    seqno: u32,
    /// Hosts that the sender knew as members, with their memberships at that time.
    owed: Vec<(usize, u32)>,
}

struct World {
    seed: u64,
    rng: Rng,
    now: Time,
    hosts: Vec<Host>,
    in_flight: BTreeMap<(Time, u64), (usize, Flight)>,
    count: u64,
    sent: Vec<Sent>,
    /// Faults: loss, duplication, longest extra delay in us, longest delay of view changes in us.
    loss: f64,
    duplication: f64,
    spread_us: usize,
    view_delay_us: usize,
    safes: Vec<(usize, Safe)>,
}

fn config(rng: &mut Rng) -> Config {
    Config {
        window: [0, 1, 2, 8, 64, 1 << 14][rng.below(6)],
        max_gap: [1 << 16, 1 << 16, 1 << 16, 40, 5][rng.below(5)],
        buffer_bytes: [64 << 20, 64 << 20, 20_000, 2_000, 0][rng.below(5)],
        stagger: [1, 1, 3][rng.below(3)],
        partial_view: [None, None, Some(2)][rng.below(3)],
        solver: [Solver::Elimination, Solver::Elimination, Solver::Peeling][rng.below(3)],
        scope: [RepairScope::Regions, RepairScope::PerGroup][rng.below(2)],
        pending_repairs: [256, 3, 0][rng.below(3)],
        nak: Some(NakConfig {
            ids_per_second: [50_000, 200, 0][rng.below(3)],
            ..NakConfig::default()
        }),
        flush_after: [None, Some(Duration::ZERO), Some(Duration::from_millis(20))][rng.below(3)],
        patience: Duration::from_millis([0, 500][rng.below(2)]),
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = config(&mut rng);
        let host = |number: usize, rng: &mut Rng| Host {
            id: NodeId(number as u64 + 1),
            engine: Lateral::new(NodeId(number as u64 + 1), config.clone(), rng.next_u64()),
            alive: true,
            groups: BTreeMap::new(),
            account: BTreeMap::new(),
            views: BTreeMap::new(),
        };
        let hosts = (0..HOSTS).map(|number| host(number, &mut rng)).collect();
        Self {
            seed,
            now: Time(1_000_000_000),
            hosts,
            in_flight: BTreeMap::new(),
            count: 0,
            sent: Vec::new(),
            loss: [0.0, 0.02, 0.2, 0.4][rng.below(4)],
            duplication: [0.0, 0.05, 0.3][rng.below(3)],
            spread_us: [60, 2_000, 50_000, 300_000][rng.below(4)],
            view_delay_us: [0, 0, 5_000, 300_000][rng.below(4)],
            safes: Vec::new(),
            rng,
        }
    }

    fn join(&mut self, number: usize, group: GroupId, round: u32) {
        let settings = GroupSettings { profile: Profile::TimeCritical(RATE), name_check: 0 };
        self.hosts[number].engine.join(self.now, group, settings).expect("it is not in");
        self.hosts[number].groups.insert(group, round);
        let id = self.hosts[number].id;
        for other in (0..HOSTS).filter(|other| *other != number) {
            if self.hosts[other].groups.contains_key(&group) && self.hosts[other].alive {
                let old = self.hosts[other].id;
                self.tell(other, group, id, ViewChangeKind::Joined);
                self.tell(number, group, old, ViewChangeKind::Joined);
            }
        }
    }

    fn leave(&mut self, number: usize, group: GroupId) {
        self.hosts[number].engine.leave(self.now, group);
        self.hosts[number].groups.remove(&group);
        self.hosts[number].views.remove(&group);
        // Of what the last membership was told nothing may follow into the next.
        self.in_flight.retain(|_, (to, flight)| {
            *to != number || !matches!(flight, Flight::View(of, ..) if *of == group)
        });
        self.gone(number, group, ViewChangeKind::Left);
    }

    fn crash(&mut self, number: usize) {
        self.hosts[number].alive = false;
        for group in (0..GROUPS).map(group) {
            if self.hosts[number].groups.remove(&group).is_some() {
                self.gone(number, group, ViewChangeKind::Failed);
            }
        }
    }

    fn gone(&mut self, number: usize, group: GroupId, kind: ViewChangeKind) {
        let id = self.hosts[number].id;
        for other in (0..HOSTS).filter(|other| *other != number) {
            if self.hosts[other].groups.contains_key(&group) {
                self.tell(other, group, id, kind);
            }
        }
    }

    /// View changes of one host about one node stay in order.
    fn tell(&mut self, to: usize, group: GroupId, node: NodeId, kind: ViewChangeKind) {
        let of_node = &self.hosts[node.0 as usize - 1];
        let round = of_node.groups.get(&group).copied().unwrap_or_default();
        let mut delay = 0;
        if self.view_delay_us > 0 {
            delay = self.rng.below(self.view_delay_us);
        }
        let mut at = self.now + Duration::from_micros(delay as u64);
        for ((due, _), (other, flight)) in &self.in_flight {
            let same = matches!(flight, Flight::View(g, n, ..) if *g == group && *n == node);
            if *other == to && same {
                at = at.max(*due);
            }
        }
        self.count += 1;
        self.in_flight.insert((at, self.count), (to, Flight::View(group, node, kind, round)));
    }

    fn send(&mut self, number: usize, group: GroupId) {
        let size = self.rng.below(300);
        let payload = bytes::Bytes::from(vec![self.count as u8; size]);
        let deadline = self.rng.chance(0.2).then_some(Duration::from_millis(30));
        let host = &mut self.hosts[number];
        let sent = host.engine.send(self.now, group, payload, SendOptions { deadline });
        if let Ok(seqno) = sent {
            let view = host.views.get(&group).cloned().unwrap_or_default();
            let owed = view.iter().map(|(node, round)| (node.0 as usize - 1, *round)).collect();
            let round = host.groups[&group];
            self.sent.push(Sent { sender: number, round, group, seqno: seqno.0, owed });
        }
        self.drain(number);
    }

    fn confirm(&mut self, number: usize, group: GroupId) {
        self.hosts[number].engine.confirm(self.now, group);
        self.drain(number);
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        let mut steps = 0_u64;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            steps += 1;
            assert!(steps < 3_000_000, "seed {}: timers spin", self.seed);
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    fn next_event(&self) -> Option<Time> {
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let alive = self.hosts.iter().filter(|host| host.alive);
        let timers = alive.filter_map(|host| host.engine.poll_timeout());
        timers.map(|wakeup| wakeup.at).chain(arrival).min()
    }

    fn step(&mut self) {
        while let Some(entry) = self.in_flight.first_entry().filter(|e| e.key().0 <= self.now) {
            let (number, flight) = entry.remove();
            let now = self.now;
            let host = &mut self.hosts[number];
            if !host.alive {
                continue;
            }
            match flight {
                Flight::Datagram(datagram) => host.engine.handle_datagram(now, &datagram),
                Flight::View(group, node, kind, round) => {
                    if !host.groups.contains_key(&group) {
                        continue;
                    }
                    let view = host.views.entry(group).or_default();
                    match kind {
                        ViewChangeKind::Joined => view.insert(node, round),
                        _ => view.remove(&node),
                    };
                    let change = ViewChange { group, node, kind, version: 1 };
                    host.engine.handle_view(now, &change);
                }
            }
            self.drain(number);
        }
        for number in 0..HOSTS {
            let due = self.hosts[number].engine.poll_timeout();
            if self.hosts[number].alive && due.is_some_and(|wakeup| wakeup.at <= self.now) {
                self.hosts[number].engine.handle_timeout(self.now);
                let next = self.hosts[number].engine.poll_timeout();
                let past = next.filter(|wakeup| wakeup.at <= self.now);
                assert_eq!(past, None, "seed {}: due again at once", self.seed);
                self.drain(number);
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.hosts[number].engine.poll_transmit(&mut datagram) {
            assert!(datagram.len() <= 1472, "seed {}: {} bytes", self.seed, datagram.len());
            self.carry(number, transmit.destination, &datagram);
            datagram.clear();
        }
        while let Some(event) = self.hosts[number].engine.poll_event() {
            self.keep(number, event);
        }
        self.hosts[number].engine.check();
    }

    fn keep(&mut self, number: usize, event: Event) {
        let host = &mut self.hosts[number];
        match event {
            Event::Message(m) => {
                let entry = host.account.entry((m.sender, m.group, m.seqno.0)).or_default();
                entry.0 += 1;
            }
            Event::Lost(lost) => {
                assert!(lost.count() < 100_000, "seed {}: {lost:?}", self.seed);
                for seqno in lost.first.0..=lost.last.0 {
                    host.account.entry((lost.sender, lost.group, seqno)).or_default().1 += 1;
                }
            }
            Event::Safe(safe) => self.safes.push((number, safe)),
            Event::Slow(slow) => assert!(slow.behind > 0, "seed {}: {slow:?}", self.seed),
            other => panic!("{other:?}"),
        }
    }

    fn carry(&mut self, from: usize, destination: Destination, datagram: &[u8]) {
        for number in (0..HOSTS).filter(|number| *number != from) {
            let host = &self.hosts[number];
            let meant = match destination {
                Destination::Group(group) => host.groups.contains_key(&group),
                Destination::Node(node) => host.id == node,
                _ => false,
            };
            if !meant {
                continue;
            }
            let copies = 1 + usize::from(self.rng.chance(self.duplication));
            for _ in 0..copies {
                if !self.rng.chance(self.loss) {
                    let delay = 100 + self.rng.below(self.spread_us);
                    self.count += 1;
                    let key = (self.now + Duration::from_micros(delay as u64), self.count);
                    self.in_flight.insert(key, (number, Flight::Datagram(datagram.to_vec())));
                }
            }
        }
    }

    fn check_at_most_once(&self, faults: &mut Vec<String>) {
        for host in &self.hosts {
            for ((sender, group, seqno), (delivered, lost)) in &host.account {
                if delivered + lost > 1 {
                    faults.push(format!(
                        "at {:?}: {sender:?} {group:?} #{seqno} delivered {delivered}, lost {lost}",
                        host.id
                    ));
                }
            }
        }
    }

    /// Whoever was a member when it was sent, and still is, got it or was told.
    fn check_complete(&self, faults: &mut Vec<String>) {
        for sent in &self.sent {
            let sender = &self.hosts[sent.sender];
            // What a sender that went away left behind may be unknown to all others.
            if !sender.alive || sender.groups.get(&sent.group) != Some(&sent.round) {
                continue;
            }
            for (number, round) in &sent.owed {
                let host = &self.hosts[*number];
                let stayed = host.alive && host.groups.get(&sent.group) == Some(round);
                let known = host.account.contains_key(&(sender.id, sent.group, sent.seqno));
                if stayed && !known {
                    faults.push(format!(
                        "at {:?}: {:?} {:?} #{} neither delivered nor lost",
                        host.id, sender.id, sent.group, sent.seqno
                    ));
                }
            }
        }
    }
}

fn group(number: u32) -> GroupId {
    GroupId(100 + number)
}

fn run(seed: u64) -> Vec<String> {
    let mut world = World::new(seed);
    let mut rounds = 0;
    for host in 0..HOSTS {
        for number in 0..GROUPS {
            if world.rng.chance(0.7) {
                world.join(host, group(number), 0);
            }
        }
    }
    let steps = 100 + world.rng.below(200);
    for _ in 0..steps {
        let (host, group) = (world.rng.below(HOSTS), group(world.rng.below(3) as u32));
        if world.hosts[host].alive {
            let is_in = world.hosts[host].groups.contains_key(&group);
            match world.rng.below(100) {
                0..=3 if is_in => world.leave(host, group),
                0..=15 if !is_in => {
                    rounds += 1;
                    world.join(host, group, rounds);
                }
                4 if world.rng.chance(0.1) => world.crash(host),
                5..=7 if is_in => world.confirm(host, group),
                _ if is_in => {
                    for _ in 0..1 + world.rng.below(6) {
                        world.send(host, group);
                    }
                }
                _ => {}
            }
        }
        let pause = world.rng.below(20_000);
        world.run_for(Duration::from_micros(pause as u64));
    }
    heal(world)
}

/// The faults stop; every sender says one thing more and asks for confirmation.
fn heal(mut world: World) -> Vec<String> {
    let mut faults = Vec::new();
    world.loss = 0.0;
    world.duplication = 0.0;
    world.spread_us = 60;
    world.run_for(Duration::from_secs(4));
    let mut expected = Vec::new();
    for host in 0..HOSTS {
        let groups: Vec<GroupId> = world.hosts[host].groups.keys().copied().collect();
        for group in groups {
            let before = world.sent.len();
            world.send(host, group);
            if world.sent.len() == before {
                // Its members are asked now, and answer.
                world.run_for(Duration::from_secs(1));
                world.send(host, group);
            }
            if world.sent.len() == before {
                faults.push(format!("{host} is still held back in {group:?}"));
            }
            world.safes.clear();
            world.confirm(host, group);
            expected.push((host, group));
            world.run_for(Duration::from_secs(11));
            let safe = world.safes.iter().any(|(h, safe)| *h == host && safe.group == group);
            if !safe {
                let behind = world.hosts[host].engine.unconfirmed(group);
                faults.push(format!("{host} in {group:?}: never safe, waits for {behind:?}"));
            }
        }
    }
    world.run_for(Duration::from_secs(15));
    world.check_at_most_once(&mut faults);
    world.check_complete(&mut faults);
    for host in world.hosts.iter().filter(|host| host.alive) {
        let (_, missing) = host.engine.bins_and_missing();
        if missing > 0 {
            faults.push(format!("at {:?}: {missing} still missing", host.id));
        }
    }
    faults
}

#[test]
fn under_all_faults_everything_is_delivered_or_reported_once() {
    let var = |name| std::env::var(name).ok().and_then(|value: String| value.parse().ok());
    let seeds: Vec<u64> = match var("CAROM_STRESS_SEED") {
        Some(seed) => vec![seed],
        None => (0..var("CAROM_STRESS_SEEDS").unwrap_or(60)).collect(),
    };
    let mut failing = 0;
    for seed in &seeds {
        let result = std::panic::catch_unwind(|| run(*seed));
        let faults = result.unwrap_or_else(|_| vec!["panic".into()]);
        if !faults.is_empty() {
            failing += 1;
            println!("seed {seed}: {} faults, first {:?}", faults.len(), faults.first());
        }
    }
    assert_eq!(failing, 0, "of {} seeds", seeds.len());
}
