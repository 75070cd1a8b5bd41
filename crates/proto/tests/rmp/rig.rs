//! A small test network of token rings, with virtual time, delay, loss, partitions and crashes.

mod application;
mod host;
mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carom_proto::ring::{JoinOptions, Place, Process, Quorum, RingNews};
use carom_proto::rmp::{Config, Counters, Rmp};
use carom_proto::wire::Datagram;
use carom_proto::*;

pub(crate) use host::{Host, Told};
pub(crate) use network::packet;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    pub(crate) loss: f64,
    pub(crate) duplicates: f64,
    pub(crate) delay: (Duration, Duration),
    /// Bytes per second that each host can send, or `None` for no limit.
    pub(crate) rate: Option<u64>,
    /// Interval, in calls to engines, at which the invariants are checked. In a large ring, a check
    /// takes far more time than a call.
    pub(crate) check_every: u64,
    drains: u64,
    pub(crate) part: Vec<u8>,
    pub(crate) profile: Profile,
    pub(crate) reply_bytes: usize,
    config: Config,
    in_flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    datagrams: u64,
    seed: u64,
    rng: Rng,
    pub(crate) datagrams_by_kind: BTreeMap<u8, u64>,
    /// Held-back datagrams, each with its sender and receiver. Only [`World::hand_over`] delivers
    /// them. `None` if datagrams are not held back.
    pub(crate) held_back: Option<Vec<(usize, usize, Vec<u8>)>>,
    pub(crate) record: Option<Vec<Vec<u8>>>,
}

impl World {
    pub(crate) fn new(hosts: usize, partition: Quorum, seed: u64) -> Self {
        Self::with_config(hosts, partition, seed, Config::default())
    }

    pub(crate) fn with_config(hosts: usize, partition: Quorum, seed: u64, config: Config) -> Self {
        let mut world = Self {
            now: Time(1_000_000_000),
            hosts: Vec::new(),
            loss: 0.0,
            duplicates: 0.0,
            delay: (MS / 10, MS / 5),
            rate: None,
            check_every: 1,
            drains: 0,
            part: Vec::new(),
            profile: Profile::Ordered(partition),
            reply_bytes: 20,
            config,
            in_flight: BTreeMap::new(),
            datagrams: 0,
            seed,
            rng: Rng::new(seed),
            datagrams_by_kind: BTreeMap::new(),
            held_back: None,
            record: None,
        };
        (0..hosts).for_each(|_| _ = world.add());
        world
    }

    pub(crate) fn joined(members: usize, others: usize, seed: u64) -> Self {
        Self::ring_of(Quorum::Majority, members, others, seed, 2000 * MS)
    }

    /// Creates `members` members, which joined `time` ago, and `others` hosts that have not joined.
    pub(crate) fn ring_of(
        quorum: Quorum,
        members: usize,
        others: usize,
        seed: u64,
        time: Duration,
    ) -> Self {
        let mut world = Self::new(members + others, quorum, seed);
        (0..members).for_each(|number| world.join(number));
        world.run_for(time);
        world
    }

    pub(crate) fn add(&mut self) -> usize {
        self.start(NodeId(self.hosts.len() as u64 + 1).into())
    }

    /// Crashes a host, and starts another process under its id, which is not in the group yet.
    pub(crate) fn restart(&mut self, number: usize, incarnation: Incarnation) -> usize {
        self.crash(number);
        self.start(Origin { node: self.hosts[number].id, incarnation })
    }

    fn start(&mut self, origin: Origin) -> usize {
        let (number, id) = (self.hosts.len(), origin.node);
        let engine = Rmp::new(origin, self.config.clone(), self.rng.next_u64());
        self.hosts.push(Host {
            id,
            engine,
            is_alive: true,
            is_paused: false,
            is_joined: false,
            is_free_at: Time::ZERO,
            is_without_multicast: false,
            ahead: Duration::ZERO,
            has_left: false,
            story: Vec::new(),
            sent: 0,
            wanted: BTreeSet::new(),
            held: BTreeSet::new(),
            calls: BTreeMap::new(),
            work: BTreeMap::new(),
        });
        self.part.push(0);
        number
    }

    pub(crate) fn join(&mut self, number: usize) {
        self.join_with(number, JoinOptions::default());
    }

    pub(crate) fn join_with(&mut self, number: usize, options: JoinOptions) {
        let settings = GroupSettings { profile: self.profile, name_check: 0 };
        let now = self.clock(number);
        let engine = &mut self.hosts[number].engine;
        engine.join_with(now, GROUP, settings, options).expect("it is not in it");
        self.hosts[number].is_joined = true;
        self.drain(number);
    }

    pub(crate) fn leave(&mut self, number: usize) {
        let now = self.clock(number);
        self.hosts[number].engine.leave(now, GROUP);
        let host = &mut self.hosts[number];
        (host.is_joined, host.has_left) = (false, true);
        (host.wanted, host.held) = Default::default();
        self.drain(number);
    }

    pub(crate) fn crash(&mut self, number: usize) {
        self.hosts[number].is_alive = false;
    }

    pub(crate) fn tell_views(&mut self) {
        for number in 0..self.hosts.len() {
            for other in (0..self.hosts.len()).filter(|other| *other != number) {
                let host = &self.hosts[other];
                let kind = match host.is_alive && host.is_joined {
                    true => ViewChangeKind::Joined,
                    false => ViewChangeKind::Failed,
                };
                if self.hosts[number].is_alive {
                    self.tell(number, other, kind);
                }
            }
        }
    }

    pub(crate) fn heal(&mut self, span: Duration) {
        self.part.fill(0);
        self.tell_views();
        self.run_for(span);
    }

    pub(crate) fn suspect(&mut self, number: usize, other: usize) {
        self.tell(number, other, ViewChangeKind::Failed);
    }

    fn tell(&mut self, number: usize, other: usize, kind: ViewChangeKind) {
        let (now, node) = (self.clock(number), self.hosts[other].id);
        let change = ViewChange { group: GROUP, node, kind, version: 1 };
        self.hosts[number].engine.handle_view(now, &change);
        self.drain(number);
    }

    pub(crate) fn ring(&self, number: usize) -> Option<Vec<NodeId>> {
        let view = self.hosts[number].engine.view(GROUP)?;
        Some(view.processes().map(|process: Process| process.node).collect())
    }

    pub(crate) fn assert_ring_sizes(&self, hosts: impl IntoIterator<Item = usize>, members: usize) {
        for number in hosts {
            let ring = self.ring(number);
            let size = ring.as_ref().map(Vec::len);
            assert_eq!(size, Some(members), "seed {}: host {number}: {ring:?}", self.seed);
        }
    }

    pub(crate) fn sum(&self, counter: fn(&Counters) -> u64) -> u64 {
        self.hosts.iter().map(|host| counter(&host.engine.counters())).sum()
    }

    pub(crate) fn datagrams_sent(&self) -> u64 {
        self.datagrams_by_kind.values().sum()
    }

    pub(crate) fn process(&self, number: usize) -> Option<Process> {
        let host = &self.hosts[number];
        host.engine.view(GROUP)?.process_of(host.id)
    }

    pub(crate) fn clock(&self, number: usize) -> Time {
        self.now + self.hosts[number].ahead
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    pub(crate) fn run_until(
        &mut self,
        step: Duration,
        limit: Duration,
        is_done: impl Fn(&Self) -> bool,
    ) -> Duration {
        let begin = self.now;
        while !is_done(self) && self.now.since(begin) < limit {
            self.run_for(step);
        }
        self.now.since(begin)
    }

    fn next_event(&self) -> Option<Time> {
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let awake = self.hosts.iter().filter(|host| host.is_alive && !host.is_paused);
        let timers = awake.flat_map(|host| {
            let wakeup = host.engine.poll_timeout().map(|wakeup| wakeup.at);
            let work = host.work.keys().next().map(|(at, _)| *at);
            let due = wakeup.into_iter().chain(work);
            due.map(|at| Time(at.0.saturating_sub(host.ahead.as_nanos() as u64)))
        });
        timers.chain(arrival).min()
    }

    fn step(&mut self) {
        while let Some(entry) = self.in_flight.first_entry().filter(|it| it.key().0 <= self.now) {
            let (number, datagram) = entry.remove();
            let (now, host) = (self.clock(number), &mut self.hosts[number]);
            if host.is_alive && !host.is_paused {
                if let Ok(datagram) = Datagram::parse(&datagram) {
                    host.engine.handle_datagram(now, &datagram);
                }
                self.drain(number);
            }
        }
        for number in 0..self.hosts.len() {
            let (now, host) = (self.clock(number), &mut self.hosts[number]);
            let is_due = host.engine.poll_timeout().is_some_and(|wakeup| wakeup.at <= now);
            if is_due && host.is_alive && !host.is_paused {
                host.engine.handle_timeout(now);
                self.drain(number);
            }
            if self.hosts[number].is_alive && !self.hosts[number].is_paused {
                self.reply(number);
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.hosts[number].engine.poll_transmit(&mut datagram) {
            if let Some(record) = &mut self.record {
                record.push(datagram.clone());
            }
            *self.datagrams_by_kind.entry(datagram[4]).or_default() += 1;
            self.occupy_link(number, datagram.len());
            for to in 0..self.hosts.len() {
                let is_meant = match transmit.destination {
                    Destination::Group(_) => {
                        let host = &self.hosts[to];
                        let is_deaf =
                            host.is_without_multicast || self.hosts[number].is_without_multicast;
                        !is_deaf
                            && to != number
                            && (host.is_joined || host.engine.view(GROUP).is_some())
                    }
                    Destination::Node(node) => self.hosts[to].id == node,
                    _ => false,
                };
                if is_meant {
                    self.carry(number, to, &datagram);
                }
            }
            datagram.clear();
        }
        while let Some(event) = self.hosts[number].engine.poll_event() {
            let told = match event {
                Event::Message(Message { sender, payload, place, .. }) => {
                    Told::Message { sender, payload, place }
                }
                Event::Ring(event) => match event.news {
                    RingNews::View(event) => Told::View { view: event.view, place: event.place },
                    RingNews::Stable { up_to, .. } => {
                        self.check_stable(number, up_to);
                        Told::Stable { up_to }
                    }
                    RingNews::Request(request) => self.on_request(number, request),
                    RingNews::Answer(answer) => Told::Answer { answer },
                    RingNews::Lock(news) => self.hosts[number].on_lock(news),
                    RingNews::Minority { voters: Some(voters), needed, .. } => {
                        Told::Waiting { voters, needed }
                    }
                    RingNews::Minority { voters: None, .. } => Told::Minority,
                    RingNews::ElectorateFull { voters } => Told::Full { voters },
                    RingNews::Removed { .. } => Told::Removed,
                    RingNews::Rejoined { missed } => Told::Rejoined { missed },
                    other => panic!("{other:?}"),
                },
                Event::Confirmed(safe) => Told::Confirmed { safe },
                Event::Lost(lost) => Told::Lost { lost },
                other => panic!("{other:?}"),
            };
            self.hosts[number].story.push(told);
        }
        self.drains += 1;
        if self.drains.is_multiple_of(self.check_every) {
            self.hosts[number].engine.check();
        }
    }

    fn check_stable(&self, number: usize, up_to: Place) {
        let Some(view) = self.hosts[number].engine.view(GROUP) else { return };
        for member in view.processes() {
            let is_it = |other: &usize| self.process(*other) == Some(member);
            // A member that has left the ring cannot be inspected.
            let Some(other) = (0..self.hosts.len()).find(is_it) else { continue };
            let Some(reached) = self.hosts[other].engine.reached(GROUP) else { continue };
            // A member that has accepted the list of a reformation holds everything that gets its
            // place by it. It counts no places until it learns that the list is in force.
            let is_between = reached.ring < up_to.ring;
            assert!(is_between || reached >= up_to, "{member:?} at {reached:?}, told: {up_to:?}");
        }
    }
}

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const GROUP: GroupId = GroupId(7);
