//! A small world for several token rings: virtual time, seeded delay, loss, partitions, crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::rmp::packet::Packet;
use carom_proto::rmp::{
    Answer, Config, Handler, JoinOptions, LockChange, LockName, LockNews, LookId, LookOptions,
    Partition, Place, Process, Qos, Request, RequestId, RequestOptions, RingNews, RingView, Rmp,
};
use carom_proto::wire::Header;
use carom_proto::*;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const GROUP: GroupId = GroupId(7);

/// Hosts, and the network between them.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    pub(crate) loss: f64,
    pub(crate) duplicates: f64,
    pub(crate) delay: (Duration, Duration),
    /// In which part of the network each host is.
    pub(crate) part: Vec<u8>,
    pub(crate) profile: Profile,
    /// Bytes of the replies of handlers.
    pub(crate) reply_bytes: usize,
    config: Config,
    in_flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    datagrams: u64,
    rng: Rng,
    pub(crate) datagrams_by_kind: BTreeMap<u8, u64>,
    /// Datagrams by sender and receiver, if they go on only when they are handed over.
    pub(crate) held_back: Option<Vec<(usize, usize, Vec<u8>)>>,
    /// All datagrams that were sent, if they are to be kept.
    pub(crate) record: Option<Vec<Vec<u8>>>,
}

/// One process of one host; a restart makes another host.
pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) engine: Rmp,
    pub(crate) is_alive: bool,
    pub(crate) is_paused: bool,
    pub(crate) is_joined: bool,
    /// It neither sends nor hears multicast.
    pub(crate) is_without_multicast: bool,
    /// What its clock is ahead of the others'.
    pub(crate) ahead: Duration,
    /// It was a member and is none any more, by its own will.
    pub(crate) has_left: bool,
    pub(crate) story: Vec<Told>,
    pub(crate) sent: u32,
    /// Locks that it wants, or has.
    pub(crate) wanted: BTreeSet<LockName>,
    /// Locks that it may use now.
    pub(crate) held: BTreeSet<LockName>,
    /// Requests made, each with what was asked.
    pub(crate) calls: BTreeMap<RequestId, Bytes>,
    /// Requests that it works at, and when it is done.
    work: BTreeMap<(Time, RequestId), Bytes>,
}

/// What an application was told, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Message { sender: NodeId, payload: Bytes, place: Option<Place> },
    Stable { up_to: Place },
    View { view: RingView, place: Place },
    Lock { news: LockNews },
    Request { request: Request },
    Answer { answer: Answer },
    Safe { safe: Safe },
    Lost { lost: Lost },
    Minority,
    Removed,
}

impl Host {
    /// What is told is about the last that was asked, unless that was to leave.
    fn on_lock(&mut self, news: LockNews) -> Told {
        let is_wanted = self.wanted.contains(&news.name);
        match news.change {
            LockChange::Granted { .. } => {
                assert!(is_wanted || self.has_left, "{:?} does not want {news:?}", self.id);
                if is_wanted {
                    self.held.insert(news.name);
                }
            }
            LockChange::Released => {
                assert!(!is_wanted, "{:?} has not given it back: {news:?}", self.id);
            }
            LockChange::Refused { .. } | LockChange::Lost => {
                self.wanted.remove(&news.name);
                self.held.remove(&news.name);
            }
        }
        Told::Lock { news }
    }
}

impl World {
    pub(crate) fn new(hosts: usize, partition: Partition, seed: u64) -> Self {
        let mut world = Self {
            now: Time(1_000_000_000),
            hosts: Vec::new(),
            loss: 0.0,
            duplicates: 0.0,
            delay: (MS / 10, MS / 5),
            part: Vec::new(),
            profile: Profile::Ordered(partition),
            reply_bytes: 20,
            config: Config::default(),
            in_flight: BTreeMap::new(),
            datagrams: 0,
            rng: Rng::new(seed),
            datagrams_by_kind: BTreeMap::new(),
            held_back: None,
            record: None,
        };
        for _ in 0..hosts {
            world.add();
        }
        world
    }

    /// A new process, not in the group yet.
    pub(crate) fn add(&mut self) -> usize {
        let number = self.hosts.len();
        let id = NodeId(number as u64 + 1);
        let engine = Rmp::new(id, self.config.clone(), self.rng.next_u64());
        self.hosts.push(Host {
            id,
            engine,
            is_alive: true,
            is_paused: false,
            is_joined: false,
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

    pub(crate) fn lock(&mut self, number: usize, name: LockName, waits: bool) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        if !host.wanted.insert(name) {
            return;
        }
        let asked = match waits {
            true => host.engine.lock(now, GROUP, name),
            false => host.engine.try_lock(now, GROUP, name),
        };
        if asked.is_err() {
            host.wanted.remove(&name);
        }
        self.drain(number);
    }

    pub(crate) fn confirm(&mut self, number: usize) {
        let now = self.clock(number);
        self.hosts[number].engine.confirm(now, GROUP);
        self.drain(number);
    }

    pub(crate) fn unlock(&mut self, number: usize, name: LockName) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        if host.wanted.contains(&name) && host.engine.unlock(now, GROUP, name).is_ok() {
            host.wanted.remove(&name);
            host.held.remove(&name);
        }
        self.drain(number);
    }

    /// Makes a request that names its caller, its number and its level; see [`World::send_level`].
    pub(crate) fn call(&mut self, number: usize, handler: Option<u8>, level: u8, bytes: usize) {
        self.call_for(number, handler, level, bytes, Duration::from_secs(120));
    }

    /// Makes a request by way of a member.
    pub(crate) fn call_via(&mut self, number: usize, via: Option<NodeId>) {
        let now = self.clock(number);
        let options = RequestOptions { via, ..RequestOptions::default() };
        let asked = self.hosts[number].engine.request(now, GROUP, "what?".into(), options);
        asked.expect("it may ask");
        self.drain(number);
    }

    pub(crate) fn call_for(
        &mut self,
        number: usize,
        handler: Option<u8>,
        level: u8,
        bytes: usize,
        patience: Duration,
    ) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        let mut payload = vec![host.id.0 as u8; bytes.max(6)];
        let call = host.calls.len() as u32 | 1 << 20;
        payload[1..5].copy_from_slice(&call.to_be_bytes());
        payload[5] = level;
        let payload = Bytes::from(payload);
        let options = RequestOptions {
            handler: handler.and_then(Handler::new),
            qos: crate::random::LEVELS[usize::from(level)],
            patience: Some(patience),
            via: None,
        };
        if let Ok(id) = host.engine.request(now, GROUP, payload.clone(), options) {
            host.calls.insert(id, payload);
        }
        self.drain(number);
    }

    /// The members that are to reply think for a while.
    fn on_request(&mut self, number: usize, request: Request) -> Told {
        if request.is_ours {
            let now = self.clock(number);
            let thinks = Duration::from_micros(self.rng.below(20_000) as u64);
            let mut reply = request.payload.to_vec();
            reply.resize(self.reply_bytes.max(6), 0);
            let work = &mut self.hosts[number].work;
            work.insert((now + thinks, request.id), reply.into());
        }
        Told::Request { request }
    }

    /// The members whose work is done reply.
    fn reply(&mut self, number: usize) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        while let Some(entry) = host.work.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), reply) = entry.remove_entry();
            // It may be closed by now: another has replied, or the member was removed.
            let _closed = host.engine.reply(now, GROUP, id, reply);
        }
        self.drain(number);
    }

    /// Looks at the rings, for so long at most.
    pub(crate) fn look(&mut self, number: usize, options: LookOptions) -> LookId {
        let now = self.clock(number);
        let id = self.hosts[number].engine.look(now, GROUP, options).expect("there is room");
        self.drain(number);
        id
    }

    /// The hosts that may use a lock now.
    pub(crate) fn holders(&self, name: LockName) -> Vec<usize> {
        let holds = |number: &usize| {
            let host = &self.hosts[*number];
            host.is_alive && host.held.contains(&name)
        };
        (0..self.hosts.len()).filter(holds).collect()
    }

    /// Sends a message that is promised this; see [`World::send_level`].
    pub(crate) fn send(&mut self, number: usize, qos: Qos, bytes: usize) {
        let level = crate::random::LEVELS.iter().position(|level| *level == qos);
        self.send_level(number, level.expect("a known level") as u8, bytes);
    }

    /// Sends a message that names its sender, its number and its level.
    pub(crate) fn send_level(&mut self, number: usize, level: u8, bytes: usize) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        let mut payload = vec![host.id.0 as u8; bytes.max(6)];
        payload[1..5].copy_from_slice(&host.sent.to_be_bytes());
        payload[5] = level;
        let qos = crate::random::LEVELS[usize::from(level)];
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        if host.engine.send(now, GROUP, payload.into(), options).is_ok() {
            host.sent += 1;
        }
        self.drain(number);
    }

    /// Sends an unreliable message; it does not count among those that all must get.
    pub(crate) fn send_unreliable(&mut self, number: usize, payload: &'static [u8]) {
        let options = SendOptions { qos: Some(Qos::Unreliable), ..SendOptions::default() };
        let (now, payload) = (self.now, Bytes::from_static(payload));
        let sent = self.hosts[number].engine.send(now, GROUP, payload, options);
        sent.expect("there is room");
        self.drain(number);
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    /// The membership provider tells everybody who is there, and who is not.
    pub(crate) fn tell_views(&mut self) {
        for number in 0..self.hosts.len() {
            for other in (0..self.hosts.len()).filter(|other| *other != number) {
                let (host, now) = (&self.hosts[other], self.clock(number));
                let kind = match host.is_alive && host.is_joined {
                    true => ViewChangeKind::Joined,
                    false => ViewChangeKind::Failed,
                };
                let change = ViewChange { group: GROUP, node: host.id, kind, version: 1 };
                if self.hosts[number].is_alive {
                    self.hosts[number].engine.handle_view(now, &change);
                    self.drain(number);
                }
            }
        }
    }

    /// The membership provider tells one host that another has failed.
    pub(crate) fn suspect(&mut self, number: usize, other: usize) {
        let (now, node) = (self.clock(number), self.hosts[other].id);
        let kind = ViewChangeKind::Failed;
        let change = ViewChange { group: GROUP, node, kind, version: 1 };
        self.hosts[number].engine.handle_view(now, &change);
        self.drain(number);
    }

    /// Lets time pass until so many datagrams of this kind were sent.
    pub(crate) fn run_until_sent(&mut self, kind: u8, count: u64) {
        while self.datagrams_by_kind.get(&kind).is_none_or(|sent| *sent < count) {
            self.run_for(MS / 100);
        }
    }

    /// Hands over the first packet of this kind that is held back; the others stay.
    pub(crate) fn hand_over(&mut self, from: usize, to: usize, is_it: fn(&Packet) -> bool) {
        let held_back = self.held_back.as_mut().expect("datagrams are held back");
        let place = held_back.iter().position(|(sender, receiver, datagram)| {
            (*sender, *receiver) == (from, to) && is_it(&packet(datagram))
        });
        let (_, _, datagram) = held_back.remove(place.expect("it was sent"));
        self.arrive(to, &datagram);
    }

    /// The clock of a host alone goes on to its next timer, so often until it sends such a packet.
    pub(crate) fn time_out_until(&mut self, number: usize, is_it: fn(&Packet) -> bool) {
        for _ in 0..100 {
            let sent = self.held_back.iter().flatten();
            let mut own = sent.filter(|(sender, ..)| *sender == number);
            if own.any(|(_, _, datagram)| is_it(&packet(datagram))) {
                return;
            }
            let due = self.hosts[number].engine.poll_timeout().expect("it waits").at;
            let wait = due.since(self.clock(number));
            self.hosts[number].ahead += wait;
            let now = self.clock(number);
            self.hosts[number].engine.handle_timeout(now);
            self.drain(number);
        }
        panic!("it never sends that");
    }

    /// The ring as a host knows it.
    pub(crate) fn ring(&self, number: usize) -> Option<Vec<NodeId>> {
        let view = self.hosts[number].engine.view(GROUP)?;
        Some(view.processes().map(|process: Process| process.node).collect())
    }

    /// The life that a host has in its ring.
    pub(crate) fn process(&self, number: usize) -> Option<Process> {
        let host = &self.hosts[number];
        host.engine.view(GROUP)?.process_of(host.id)
    }

    /// The time as a host sees it.
    pub(crate) fn clock(&self, number: usize) -> Time {
        self.now + self.hosts[number].ahead
    }

    /// A datagram arrives at a host, wherever it comes from.
    pub(crate) fn arrive(&mut self, number: usize, datagram: &[u8]) {
        let now = self.clock(number);
        self.hosts[number].engine.handle_datagram(now, datagram);
        self.drain(number);
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
                host.engine.handle_datagram(now, &datagram);
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
                    RingNews::Minority { .. } => Told::Minority,
                    RingNews::Removed { .. } => Told::Removed,
                },
                Event::Safe(safe) => Told::Safe { safe },
                Event::Lost(lost) => Told::Lost { lost },
                other => panic!("{other:?}"),
            };
            self.hosts[number].story.push(told);
        }
        self.hosts[number].engine.check();
    }

    /// What is told to be with all members of the ring is there, whether they live or not.
    fn check_stable(&self, number: usize, up_to: Place) {
        let Some(view) = self.hosts[number].engine.view(GROUP) else { return };
        for member in view.processes() {
            let is_it = |other: &usize| self.process(*other) == Some(member);
            // Of one that is out of the ring by now nothing can be seen.
            let Some(other) = (0..self.hosts.len()).find(is_it) else { continue };
            let Some(reached) = self.hosts[other].engine.reached(GROUP) else { continue };
            // Who has accepted the list of a reformation has all that gets its place by it, and
            // counts no places until it hears that the list holds.
            let is_between = reached.ring < up_to.ring;
            assert!(is_between || reached >= up_to, "{member:?} at {reached:?}, told: {up_to:?}");
        }
    }

    fn carry(&mut self, from: usize, to: usize, datagram: &[u8]) {
        if self.part[from] != self.part[to] {
            return;
        }
        if let Some(held_back) = &mut self.held_back {
            held_back.push((from, to, datagram.to_vec()));
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(self.duplicates));
        for _ in 0..copies {
            if self.rng.chance(self.loss) {
                continue;
            }
            let (least, most) = self.delay;
            let spread = (most - least).as_nanos() as usize;
            let delay = least + Duration::from_nanos(self.rng.below(spread + 1) as u64);
            self.datagrams += 1;
            self.in_flight.insert((self.now + delay, self.datagrams), (to, datagram.to_vec()));
        }
    }
}

/// The packet in a datagram of an engine.
pub(crate) fn packet(datagram: &[u8]) -> Packet {
    let (header, body) = Header::decode(datagram).expect("an engine has written it");
    Packet::decode(&header, body).expect("an engine has written it")
}
