//! The failure detector of a rack.
//!
//! It is a process of its own, with a link to every control process that it knows of. Each of them
//! tells it whom to watch: the nodes of its rack, those of racks that have no detector, and the
//! next detector in the chain (Ricochet 3.2.3). It pings them over UDP, suspects who is silent,
//! asks those several times more, and reports who does not answer in the detection time to all
//! control processes, which remove it unless they have heard from it themselves.
//!
//! It is driven as a [`Membership`](crate::membership::Membership) provider is, and has no groups.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::fields::Member;
use super::frame::{Frame, Hello, Owners, Role, Watched, Welcome};
use super::outbox::Outbox;
use super::pinger::Pinger;
use super::reader::FrameReader;
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::{Class, Destination, Endpoint, NodeId, Rng, Time, Timers, Transmit, Wakeup};

/// Settings of a failure detector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorConfig {
    /// TCP addresses of control processes; each names the others. At least one.
    pub addresses: Vec<Endpoint>,
    /// The cluster's name, as the service has it. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// The rack whose nodes are watched, as the nodes say it. At most 255 bytes. Default: empty.
    pub rack: String,
    /// A node that answers no ping for so long is reported; from 100 ms on. Below two thirds of
    /// the service's lease a node that is merely not reached over UDP is taken for dead as well.
    /// Default: `None`, the lease.
    pub detection_time: Option<Duration>,
    /// How long a link may take to be opened and welcomed. Default: 3 s.
    pub greeting_time: Duration,
    /// The pause between two attempts to reach a process, give or take a quarter. Default: 1 s.
    pub retry_after: Duration,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            cluster: String::new(),
            rack: String::new(),
            detection_time: None,
            greeting_time: Duration::from_secs(3),
            retry_after: Duration::from_secs(1),
        }
    }
}

/// One failure detector.
#[derive(Debug)]
pub struct Detector {
    config: DetectorConfig,
    member: Member,
    rng: Rng,
    ways: BTreeMap<Endpoint, Way>,
    pinger: Pinger,
    timers: Timers<Timer>,
    outbox: Outbox,
    next_link: u64,
    counters: Counters,
}

/// One address of a control process.
#[derive(Debug)]
struct Way {
    link: Option<LinkId>,
    reader: FrameReader,
    /// `None` until the process has welcomed this detector.
    lease: Option<Duration>,
    /// The number that the process drew at its start.
    process: u64,
    heard: Time,
    /// Whom this process wants watched.
    watched: BTreeMap<NodeId, Member>,
    successor: Option<Member>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    links_tried: u64,
    links_welcomed: u64,
    links_lost: u64,
    links_nonsense: u64,
    links_refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Connect(Endpoint),
    Greeting(Endpoint),
    Alive(Endpoint),
}

impl Detector {
    /// The detector `id`, which is pinged at `endpoint`; an unspecified address is the one that
    /// its links come from. `seed` is the source of all randomness.
    ///
    /// # Panics
    /// If there is no address, or a pause of zero.
    pub fn new(id: NodeId, endpoint: Endpoint, config: DetectorConfig, seed: u64) -> Self {
        assert!(!config.addresses.is_empty(), "a service without an address");
        let is_patient = !config.retry_after.is_zero() && !config.greeting_time.is_zero();
        assert!(is_patient, "a pause of zero would leave no time between two attempts");
        let mut detector = Self {
            member: Member { node: id, incarnation: 0, endpoint },
            rng: Rng::new(seed),
            ways: BTreeMap::new(),
            pinger: Pinger::new(id),
            timers: Timers::new(),
            outbox: Outbox::default(),
            next_link: 0,
            counters: Counters::default(),
            config,
        };
        for address in detector.config.addresses.clone() {
            detector.add_way(Time::ZERO, address);
        }
        detector
    }

    /// Something happened to a link.
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        let mut ways = self.ways.iter();
        let Some((address, _)) = ways.find(|(_, way)| way.link == Some(link)) else { return };
        let address = *address;
        match event {
            LinkEvent::Opened => self.say_hello(link),
            LinkEvent::Received(bytes) => self.on_bytes(now, address, link, bytes),
            LinkEvent::Closed { .. } => {
                self.outbox.forget(link);
                self.on_closed(now, address);
            }
        }
    }

    /// A datagram of [`crate::wire::Protocol::Membership`] arrived from `source`.
    pub fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        let is_known = self.pinger.handle_datagram(now, source, datagram);
        self.pinger.counters.pings_foreign += u64::from(!is_known);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Connect(address) => self.connect(now, address),
                Timer::Greeting(address) => self.drop_link(now, address),
                Timer::Alive(address) => self.on_alive_timer(now, address),
            }
        }
        self.pinger.handle_timeout(now);
        while let Some(report) = self.pinger.reports.pop_front() {
            let welcomed = self.ways.values().filter(|way| way.lease.is_some());
            welcomed.filter_map(|way| way.link).for_each(|it| self.outbox.send(it, &report));
        }
    }

    /// Says goodbye to all control processes: the rack becomes another detector's at once.
    pub fn shut_down(&mut self) {
        for way in self.ways.values_mut() {
            if let Some(link) = way.link.take() {
                if way.lease.is_some() {
                    self.outbox.send(link, &Frame::Goodbye);
                }
                self.outbox.close(link);
            }
        }
        self.timers = Timers::new();
        let targets: Vec<NodeId> = self.pinger.targets().collect();
        targets.into_iter().for_each(|node| self.pinger.unwatch(node));
    }

    /// Appends the next datagram to `out` and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (to, datagram) = self.pinger.poll_datagram()?;
        out.extend_from_slice(&datagram);
        Some(Transmit { destination: Destination::Endpoint(to), class: Class::Control })
    }

    /// The next thing to be done with a link.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        self.outbox.poll()
    }

    /// When [`Detector::handle_timeout`] should be called next, and why.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "failure detector" });
        let ping = self.pinger.next_due().map(|at| Wakeup { at, reason: "ping a node" });
        Wakeup::earlier(own, ping)
    }

    /// The nodes and detectors that are watched now, in order.
    pub fn watched(&self) -> impl Iterator<Item = NodeId> {
        self.pinger.targets()
    }

    /// All counters, by name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("links_tried", self.counters.links_tried),
            ("links_welcomed", self.counters.links_welcomed),
            ("links_lost", self.counters.links_lost),
            ("links_nonsense", self.counters.links_nonsense),
            ("links_refused", self.counters.links_refused),
            ("pings_sent", self.pinger.counters.pings_sent),
            ("pings_received", self.pinger.counters.pings_received),
            ("pings_foreign", self.pinger.counters.pings_foreign),
            ("pongs_received", self.pinger.counters.pongs_received),
            ("suspicions", self.pinger.counters.suspicions),
            ("reports_made", self.pinger.counters.reports_made),
        ]
    }

    fn add_way(&mut self, now: Time, address: Endpoint) {
        let way = Way {
            link: None,
            reader: FrameReader::default(),
            lease: None,
            process: 0,
            heard: now,
            watched: BTreeMap::new(),
            successor: None,
        };
        self.ways.insert(address, way);
        self.timers.set(Timer::Connect(address), now);
    }

    fn connect(&mut self, now: Time, address: Endpoint) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        self.next_link += 1;
        let link = LinkId(self.next_link);
        (way.link, way.reader, way.lease) = (Some(link), FrameReader::default(), None);
        self.counters.links_tried += 1;
        self.outbox.open(link, address);
        self.timers.set(Timer::Greeting(address), now + self.config.greeting_time);
    }

    fn say_hello(&mut self, link: LinkId) {
        let (cluster, rack) = (self.config.cluster.clone(), self.config.rack.clone());
        let hello = Hello { role: Role::Detector, cluster, member: self.member, rack };
        self.outbox.send(link, &Frame::Hello(hello));
    }

    fn on_bytes(&mut self, now: Time, address: Endpoint, link: LinkId, bytes: &[u8]) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        way.heard = now;
        way.reader.push(bytes);
        while let Some(way) = self.ways.get_mut(&address).filter(|way| way.link == Some(link)) {
            match way.reader.next_frame() {
                Ok(Some(frame)) => self.on_frame(now, address, frame),
                Ok(None) => return,
                Err(_) => self.on_nonsense(now, address),
            }
        }
    }

    fn on_frame(&mut self, now: Time, address: Endpoint, frame: Frame) {
        match frame {
            Frame::Welcome(welcome) => self.on_welcome(now, address, welcome),
            Frame::Refused(why) => {
                tracing::warn!(%address, %why, "the detector is refused by the service");
                self.counters.links_refused += 1;
                self.drop_link(now, address);
            }
            Frame::Alive => {}
            Frame::Owners(owners) => self.on_owners(now, address, owners),
            Frame::Watch(changes) => self.on_watch(now, address, &changes),
            Frame::Successor(next) => {
                if let Some(way) = self.ways.get_mut(&address) {
                    way.successor = next;
                }
                self.follow(now);
            }
            _ => self.on_nonsense(now, address),
        }
    }

    fn on_nonsense(&mut self, now: Time, address: Endpoint) {
        self.counters.links_nonsense += 1;
        self.drop_link(now, address);
    }

    fn on_welcome(&mut self, now: Time, address: Endpoint, welcome: Welcome) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        let lease = Duration::from_millis(welcome.lease_ms.into());
        (way.lease, way.process) = (Some(lease), welcome.process);
        self.counters.links_welcomed += 1;
        self.forget_other_ways_to(address, welcome.process);
        self.pinger.set_detection_time(self.config.detection_time.unwrap_or(lease));
        self.timers.cancel(Timer::Greeting(address));
        self.timers.set(Timer::Alive(address), now + lease / 3);
        self.on_owners(now, address, welcome.owners);
    }

    /// A process keeps one link to a detector, the last one: another address that leads there would
    /// take it away again.
    fn forget_other_ways_to(&mut self, address: Endpoint, process: u64) {
        let is_other = |(at, way): &(&Endpoint, &Way)| {
            **at != address && way.lease.is_some() && way.process == process
        };
        let others: Vec<Endpoint> = self.ways.iter().filter(is_other).map(|(at, _)| *at).collect();
        for other in others {
            if let Some(link) = self.ways.remove(&other).and_then(|way| way.link) {
                self.outbox.close(link);
            }
            for timer in [Timer::Connect, Timer::Greeting, Timer::Alive] {
                self.timers.cancel(timer(other));
            }
        }
    }

    fn on_owners(&mut self, now: Time, from: Endpoint, owners: Owners) {
        for (_, mut owner) in owners.owned {
            if owner.0.ip().is_unspecified() {
                owner.0.set_ip(from.0.ip());
            }
            let has_room = self.ways.len() < usize::from(super::frame::MAX_PARTITIONS);
            if has_room && !self.ways.contains_key(&owner) {
                self.add_way(now, owner);
            }
        }
    }

    fn on_watch(&mut self, now: Time, address: Endpoint, changes: &[Watched]) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        for Watched { watched, member } in changes {
            if *watched {
                way.watched.insert(member.node, *member);
            } else if way.watched.get(&member.node) == Some(member) {
                way.watched.remove(&member.node);
            }
        }
        self.follow(now);
    }

    /// Pings those whom any process wants watched; of two incarnations the later one.
    fn follow(&mut self, now: Time) {
        let mut wanted: BTreeMap<NodeId, Member> = BTreeMap::new();
        for way in self.ways.values() {
            for member in way.watched.values().chain(&way.successor) {
                let known = wanted.entry(member.node).or_insert(*member);
                *known = (*known).max(*member);
            }
        }
        wanted.remove(&self.member.node);
        let targets: BTreeSet<NodeId> = self.pinger.targets().collect();
        for node in targets.iter().filter(|node| !wanted.contains_key(node)) {
            self.pinger.unwatch(*node);
        }
        for member in wanted.into_values() {
            if !self.pinger.watches(member) {
                self.pinger.watch(now, member);
            }
        }
    }

    fn on_alive_timer(&mut self, now: Time, address: Endpoint) {
        let Some(Way { link: Some(link), lease: Some(lease), heard, .. }) = self.ways.get(&address)
        else {
            return;
        };
        if now.since(*heard) > *lease {
            return self.drop_link(now, address);
        }
        self.outbox.send(*link, &Frame::Alive);
        self.timers.set(Timer::Alive(address), now + *lease / 3);
    }

    fn drop_link(&mut self, now: Time, address: Endpoint) {
        if let Some(link) = self.ways.get(&address).and_then(|way| way.link) {
            self.outbox.close(link);
            self.on_closed(now, address);
        }
    }

    /// The process is asked again later; those whom it wanted watched are its own affair until
    /// then.
    fn on_closed(&mut self, now: Time, address: Endpoint) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        (way.link, way.successor) = (None, None);
        way.watched.clear();
        self.counters.links_lost += u64::from(way.lease.take().is_some());
        self.timers.cancel(Timer::Greeting(address));
        self.timers.cancel(Timer::Alive(address));
        let half = u64::try_from(self.config.retry_after.as_nanos() / 2).unwrap_or(u64::MAX / 8);
        let random = Duration::from_nanos(self.rng.below(half as usize + 1) as u64);
        let again = now + self.config.retry_after * 3 / 4 + random;
        self.timers.set(Timer::Connect(address), again);
        // The process may come back under an address that was given up for this one.
        for configured in self.config.addresses.clone() {
            if !self.ways.contains_key(&configured) {
                self.add_way(again, configured);
            }
        }
        self.follow(now);
    }
}
