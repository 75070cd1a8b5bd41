//! Connections to all control processes of a cluster, for detectors and observers.
//!
//! A way is an address and, most of the time, a connection to it. Each process names the others, so
//! one address is enough at first. Two addresses of one process become one way, because a process
//! keeps one connection to a detector.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use super::frame::{
    Frame, FrameError, Hello, MAX_PARTITIONS, Owners, Refusal, UnknownSettings, VERSION, Welcome,
};
use super::outbox::Outbox;
use super::reader::FrameReader;
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::{Endpoint, Rng, Time, Timers};

/// All ways of one detector or observer.
#[derive(Debug)]
pub(super) struct Ways {
    settings: WaySettings,
    hello: Hello,
    rng: Rng,
    ways: BTreeMap<Endpoint, Way>,
    timers: Timers<Timer>,
    outbox: Outbox,
    next_link: u64,
    news: VecDeque<(Endpoint, News)>,
    last_refusal: Option<Refusal>,
    counters: Counters,
}

/// Initial addresses and time limits.
#[derive(Clone, Debug)]
pub(super) struct WaySettings {
    /// At least one.
    pub(super) addresses: Vec<Endpoint>,
    pub(super) greeting_time: Duration,
    pub(super) retry_after: Duration,
}

/// An event of a way.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// The process sent its welcome and accepts frames.
    Welcomed {
        lease: Duration,
        /// Number of partitions of the groups.
        partitions: u16,
    },
    /// A frame that only detectors or observers understand.
    Heard(Frame),
    /// The connection has ended. What was received on it no longer applies.
    Lost,
}

/// One address of a control process.
#[derive(Debug)]
struct Way {
    link: Option<LinkId>,
    reader: FrameReader,
    /// `None` until the process has sent its welcome.
    lease: Option<Duration>,
    /// Number that the process drew when it started.
    process: u64,
    heard: Time,
}

crate::counters! {
    struct Counters {
        tried = "links_tried",
        welcomed = "links_welcomed",
        lost = "links_lost",
        nonsense = "links_nonsense",
        /// Snapshots of groups whose settings this program does not know.
        settings_unknown,
        refused = "links_refused",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Connect(Endpoint),
    Greeting(Endpoint),
    Alive(Endpoint),
}

impl Ways {
    /// Creates ways to `settings.addresses`. `hello` is the first frame of each connection.
    ///
    /// # Panics
    /// There is no address, or an interval is zero.
    pub(super) fn new(settings: WaySettings, hello: Hello, seed: u64) -> Self {
        assert!(!settings.addresses.is_empty(), "the service must have at least one address");
        let is_patient = !settings.retry_after.is_zero() && !settings.greeting_time.is_zero();
        assert!(is_patient, "retry_after and greeting_time must not be zero");
        let mut ways = Self {
            hello,
            rng: Rng::new(seed),
            ways: BTreeMap::new(),
            timers: Timers::new(),
            outbox: Outbox::default(),
            next_link: 0,
            news: VecDeque::new(),
            last_refusal: None,
            counters: Counters::default(),
            settings,
        };
        for address in ways.settings.addresses.clone() {
            ways.add(Time::ZERO, address);
        }
        ways
    }

    /// Processes an event of a connection. The results are returned by `poll_news`.
    pub(super) fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        let mut ways = self.ways.iter();
        let Some((address, _)) = ways.find(|(_, way)| way.link == Some(link)) else { return };
        let address = *address;
        match event {
            LinkEvent::Opened => self.outbox.send(link, &Frame::Hello(self.hello.clone())),
            LinkEvent::Received(bytes) => self.on_bytes(now, address, link, bytes),
            LinkEvent::Closed { .. } => {
                self.outbox.forget(link);
                self.on_closed(now, address);
            }
        }
    }

    /// Processes the timers that are due at `now`.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Connect(address) => self.connect(now, address),
                Timer::Greeting(address) => self.drop_link(now, address),
                Timer::Alive(address) => self.on_alive_timer(now, address),
            }
        }
    }

    /// Returns the next event with its address.
    pub(super) fn poll_news(&mut self) -> Option<(Endpoint, News)> {
        self.news.pop_front()
    }

    /// Returns the next command for a connection.
    pub(super) fn poll_link(&mut self) -> Option<LinkCommand> {
        self.outbox.poll()
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    /// Sends `frame` to the process at `address`, if it has sent its welcome.
    pub(super) fn send(&mut self, address: Endpoint, frame: &Frame) {
        let way = self.ways.get(&address).filter(|way| way.lease.is_some());
        if let Some(link) = way.and_then(|way| way.link) {
            self.outbox.send(link, frame);
        }
    }

    /// Sends `frame` to all processes.
    pub(super) fn send_to_all(&mut self, frame: &Frame) {
        let welcomed = self.ways.values().filter(|way| way.lease.is_some());
        welcomed.filter_map(|way| way.link).for_each(|link| self.outbox.send(link, frame));
    }

    /// Closes the connection after a frame that makes no sense, and discards its other frames.
    pub(super) fn on_nonsense(&mut self, now: Time, address: Endpoint) {
        self.counters.nonsense += 1;
        self.news.retain(|(from, _)| *from != address);
        self.drop_link(now, address);
    }

    /// Closes all connections, with a goodbye to processes that sent a welcome.
    pub(super) fn shut_down(&mut self) {
        for way in self.ways.values_mut() {
            if let Some(link) = way.link.take() {
                if way.lease.take().is_some() {
                    self.outbox.send(link, &Frame::Goodbye);
                }
                self.outbox.close(link);
            }
        }
        self.timers = Timers::new();
        self.news.clear();
    }

    /// Returns the addresses in order, with `true` for those whose process has sent its welcome.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (Endpoint, bool)> {
        self.ways.iter().map(|(address, way)| (*address, way.lease.is_some()))
    }

    /// Returns the reason of the last refusal, unless a welcome was received since.
    pub(super) fn last_refusal(&self) -> Option<&Refusal> {
        self.last_refusal.as_ref()
    }

    /// Returns all counters with their names.
    pub(super) fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.by_name()
    }

    fn add(&mut self, now: Time, address: Endpoint) {
        let reader = FrameReader::default();
        let way = Way { link: None, reader, lease: None, process: 0, heard: now };
        self.ways.insert(address, way);
        self.timers.set(Timer::Connect(address), now);
    }

    fn connect(&mut self, now: Time, address: Endpoint) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        self.next_link += 1;
        let link = LinkId(self.next_link);
        (way.link, way.reader, way.lease) = (Some(link), FrameReader::default(), None);
        self.counters.tried += 1;
        self.outbox.open(link, address);
        self.timers.set(Timer::Greeting(address), now + self.settings.greeting_time);
    }

    fn on_bytes(&mut self, now: Time, address: Endpoint, link: LinkId, bytes: &[u8]) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        way.heard = now;
        way.reader.push(bytes);
        while let Some(way) = self.ways.get_mut(&address).filter(|way| way.link == Some(link)) {
            match way.reader.next_frame() {
                Ok(Some(frame)) => self.on_frame(now, address, frame),
                Ok(None) => return,
                Err(FrameError::Settings(UnknownSettings::Snapshot { group })) => {
                    tracing::warn!(%address, %group, "unknown group settings");
                    self.counters.settings_unknown += 1;
                }
                Err(error) => {
                    if let FrameError::Version { given } = error {
                        let why = Refusal::Version { ours: given, theirs: VERSION };
                        self.last_refusal = Some(why);
                    }
                    self.on_nonsense(now, address);
                }
            }
        }
    }

    fn on_frame(&mut self, now: Time, address: Endpoint, frame: Frame) {
        match frame {
            Frame::Welcome(welcome) => self.on_welcome(now, address, welcome),
            Frame::Refused(why) => {
                tracing::warn!(%address, %why, "refused by the service");
                self.counters.refused += 1;
                self.last_refusal = Some(why);
                self.drop_link(now, address);
            }
            Frame::Alive => {}
            Frame::Owners(owners) => self.on_owners(now, address, owners),
            frame => self.news.push_back((address, News::Heard(frame))),
        }
    }

    fn on_welcome(&mut self, now: Time, address: Endpoint, welcome: Welcome) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        let lease = Duration::from_millis(welcome.lease_ms.into());
        (way.lease, way.process) = (Some(lease), welcome.process);
        self.counters.welcomed += 1;
        self.last_refusal = None;
        self.forget_other_ways_to(address, welcome.process);
        self.timers.cancel(Timer::Greeting(address));
        self.timers.set(Timer::Alive(address), now + lease / 3);
        let partitions = welcome.owners.partitions;
        self.news.push_back((address, News::Welcomed { lease, partitions }));
        self.on_owners(now, address, welcome.owners);
    }

    /// Removes the other addresses of a process.
    ///
    /// A process keeps only the last connection of a detector, so another address of the same
    /// process would end this one again.
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
            self.news.push_back((other, News::Lost));
        }
    }

    fn on_owners(&mut self, now: Time, from: Endpoint, owners: Owners) {
        for (_, mut owner) in owners.owned {
            if owner.0.ip().is_unspecified() {
                owner.0.set_ip(from.0.ip());
            }
            let has_room = self.ways.len() < usize::from(MAX_PARTITIONS);
            if has_room && !self.ways.contains_key(&owner) {
                self.add(now, owner);
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

    /// Schedules another attempt after the end of a connection.
    fn on_closed(&mut self, now: Time, address: Endpoint) {
        let Some(way) = self.ways.get_mut(&address) else { return };
        way.link = None;
        if way.lease.take().is_some() {
            self.counters.lost += 1;
            self.news.push_back((address, News::Lost));
        }
        self.timers.cancel(Timer::Greeting(address));
        self.timers.cancel(Timer::Alive(address));
        let half = u64::try_from(self.settings.retry_after.as_nanos() / 2).unwrap_or(u64::MAX / 8);
        let random = Duration::from_nanos(self.rng.below(half as usize + 1) as u64);
        let again = now + self.settings.retry_after * 3 / 4 + random;
        self.timers.set(Timer::Connect(address), again);
        // The process may come back under an address that was removed in favor of this one.
        for configured in self.settings.addresses.clone() {
            if !self.ways.contains_key(&configured) {
                self.add(again, configured);
            }
        }
    }
}
