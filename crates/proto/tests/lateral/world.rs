//! A small test network of engines, with virtual time, seeded delay and loss, and the events of
//! each host.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use carom_proto::loss::{Loss, LossInjector};
use carom_proto::wire::Datagram;
use carom_proto::*;

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const GROUP: GroupId = GroupId(100);

/// A filter that returns `true` if a datagram from the first to the second node is carried.
type Filter = dyn FnMut(NodeId, NodeId, Class, &[u8]) -> bool;

pub(crate) struct World<E: ?Sized> {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host<E>>,
    pub(crate) filter: Box<Filter>,
    pub(crate) sent: BTreeMap<Class, u64>,
    /// Running hash of all datagrams and events, for comparing histories.
    pub(crate) history: u64,
    /// Range from which the one-way delay of each datagram is drawn.
    pub(crate) delay: Range<Duration>,
    pub(crate) unicasts: BTreeMap<(NodeId, NodeId, u8), Vec<u8>>,
    pub(crate) profile: Profile,
    make: Box<Make<E>>,
    in_flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    datagrams: u64,
    rng: Rng,
}

type Make<E> = dyn Fn(Origin, u64) -> Box<E>;

pub(crate) struct Host<E: ?Sized> {
    pub(crate) id: NodeId,
    pub(crate) engine: Box<E>,
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) messages: Vec<Message>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) safe: Vec<Confirmed>,
    pub(crate) slow: Vec<Slow>,
    alive: bool,
    loss: LossInjector,
}

impl<E: Engine + ?Sized> World<E> {
    pub(crate) fn with_engines(
        hosts: usize,
        profile: Profile,
        loss: Loss,
        seed: u64,
        make: impl Fn(Origin, u64) -> Box<E> + 'static,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let host = |number: usize| {
            let id = NodeId(number as u64 + 1);
            Host {
                id,
                engine: make(id.into(), rng.next_u64()),
                groups: BTreeSet::new(),
                messages: Vec::new(),
                lost: Vec::new(),
                safe: Vec::new(),
                slow: Vec::new(),
                alive: true,
                loss: LossInjector::new(loss, rng.next_u64()),
            }
        };
        Self {
            now: Time(1_000_000_000),
            hosts: (0..hosts).map(host).collect(),
            filter: Box::new(|_, _, _, _| true),
            sent: BTreeMap::new(),
            history: 0xcbf2_9ce4_8422_2325,
            delay: MILLISECOND / 10..MILLISECOND * 16 / 100,
            unicasts: BTreeMap::new(),
            profile,
            make: Box::new(make),
            in_flight: BTreeMap::new(),
            datagrams: 0,
            rng: Rng::new(seed ^ 0x5eed),
        }
    }

    pub(crate) fn join(&mut self, number: usize, group: GroupId) {
        self.join_as(number, group, self.profile);
    }

    /// Adds host `number` to the group. All hosts in the group learn of it at once.
    pub(crate) fn join_as(&mut self, number: usize, group: GroupId, profile: Profile) {
        let settings = GroupSettings { profile, name_check: 0 };
        let joined = self.hosts[number].engine.join(self.now, group, settings);
        joined.expect("the settings are right");
        for other in 0..self.hosts.len() {
            if self.hosts[other].alive && self.hosts[other].groups.contains(&group) {
                let [newcomer, old] = [number, other].map(|it| self.hosts[it].id);
                self.change(other, group, newcomer, ViewChangeKind::Joined);
                self.change(number, group, old, ViewChangeKind::Joined);
            }
        }
        self.hosts[number].groups.insert(group);
        self.drain(number);
    }

    /// Removes host `number` from the group. The others learn of it a millisecond later.
    pub(crate) fn leave(&mut self, number: usize, group: GroupId) {
        self.hosts[number].engine.leave(self.now, group);
        self.drain(number);
        self.hosts[number].groups.remove(&group);
        self.run_for(MILLISECOND);
        self.announce(number, group, ViewChangeKind::Left);
    }

    /// Stops host `number` permanently. The others are not notified.
    pub(crate) fn crash(&mut self, number: usize) {
        self.hosts[number].alive = false;
    }

    /// Restarts host `number`, which joins its groups again. The other hosts are not notified.
    pub(crate) fn restart(&mut self, number: usize, incarnation: u64) {
        let origin = Origin { node: self.hosts[number].id, incarnation: Incarnation(incarnation) };
        self.hosts[number].engine = (self.make)(origin, incarnation);
        for group in self.hosts[number].groups.clone() {
            let settings = GroupSettings { profile: self.profile, name_check: 0 };
            let joined = self.hosts[number].engine.join(self.now, group, settings);
            joined.expect("the settings are right");
            for other in (0..self.hosts.len()).filter(|other| *other != number) {
                if self.hosts[other].groups.contains(&group) {
                    let node = self.hosts[other].id;
                    self.change(number, group, node, ViewChangeKind::Joined);
                }
            }
        }
    }

    pub(crate) fn announce(&mut self, number: usize, group: GroupId, kind: ViewChangeKind) {
        let node = self.hosts[number].id;
        for other in (0..self.hosts.len()).filter(|other| *other != number) {
            if self.hosts[other].groups.contains(&group) {
                self.change(other, group, node, kind);
            }
        }
    }

    pub(crate) fn change(
        &mut self,
        number: usize,
        group: GroupId,
        node: NodeId,
        kind: ViewChangeKind,
    ) {
        let change = ViewChange { group, node, kind, version: 1 };
        self.hosts[number].engine.handle_view(self.now, &change);
        self.drain(number);
    }

    pub(crate) fn send(&mut self, number: usize, payload: &[u8]) -> SeqNo {
        self.try_send(number, GROUP, payload).expect("no member holds back")
    }

    pub(crate) fn try_send(
        &mut self,
        number: usize,
        group: GroupId,
        payload: &[u8],
    ) -> Result<SeqNo, SendError> {
        self.send_with(number, group, payload, SendOptions::default())
    }

    pub(crate) fn send_within(&mut self, number: usize, payload: &[u8], deadline: Duration) {
        let options = SendOptions { deadline: Some(deadline), qos: None };
        self.send_with(number, GROUP, payload, options).expect("no member holds back");
    }

    fn send_with(
        &mut self,
        number: usize,
        group: GroupId,
        payload: &[u8],
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let payload = bytes::Bytes::copy_from_slice(payload);
        let sent = self.hosts[number].engine.send(self.now, group, payload, options);
        self.drain(number);
        sent
    }

    pub(crate) fn confirm(&mut self, number: usize) {
        self.hosts[number].engine.confirm(self.now, GROUP);
        self.drain(number);
    }

    pub(crate) fn inject(&mut self, number: usize, datagram: &[u8]) {
        if let Ok(datagram) = Datagram::parse(datagram) {
            self.hosts[number].engine.handle_datagram(self.now, &datagram);
        }
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

    pub(crate) fn check(&self) {
        self.hosts.iter().for_each(|host| host.engine.check());
    }

    pub(crate) fn total(&self, name: &str) -> u64 {
        self.hosts.iter().map(|host| host.counter(name)).sum()
    }

    fn next_event(&self) -> Option<Time> {
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let alive = self.hosts.iter().filter(|host| host.alive);
        let timers = alive.filter_map(|host| host.engine.poll_timeout());
        timers.map(|wakeup| wakeup.at).chain(arrival).min()
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(entry) = self.in_flight.first_entry().filter(|it| it.key().0 <= now) {
            let (number, datagram) = entry.remove();
            let host = &mut self.hosts[number];
            if host.alive && !host.loss.drops_next() {
                self.inject(number, &datagram);
            }
        }
        for number in 0..self.hosts.len() {
            let host = &mut self.hosts[number];
            let is_due = |engine: &E| engine.poll_timeout().is_some_and(|it| it.at <= now);
            if host.alive && is_due(&host.engine) {
                host.engine.handle_timeout(now);
                assert!(!is_due(&host.engine), "a timer is still due after it was handled");
                self.drain(number);
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.hosts[number].engine.poll_transmit(&mut datagram) {
            assert!(datagram.len() <= 1472, "a datagram of {} bytes", datagram.len());
            *self.sent.entry(transmit.class).or_default() += 1;
            self.carry(number, transmit, &datagram);
            datagram.clear();
        }
        while let Some(event) = self.hosts[number].engine.poll_event() {
            self.note_event(number, &event);
            self.hosts[number].keep(event);
        }
        if self.datagrams.is_multiple_of(61) {
            self.hosts[number].engine.check();
        }
    }

    fn carry(&mut self, from: usize, transmit: Transmit, datagram: &[u8]) {
        self.note(datagram);
        let sender = self.hosts[from].id;
        if let Destination::Node(to) = transmit.destination {
            self.unicasts.insert((sender, to, datagram[4]), datagram.to_vec());
        }
        for number in (0..self.hosts.len()).filter(|number| *number != from) {
            let host = &self.hosts[number];
            let is_meant = match transmit.destination {
                Destination::Group(group) | Destination::Tree(group, _) => {
                    host.groups.contains(&group)
                }
                Destination::Node(node) => host.id == node,
                Destination::Endpoint(_) | Destination::Lan => false,
            };
            if is_meant && (self.filter)(sender, host.id, transmit.class, datagram) {
                let spread = (self.delay.end - self.delay.start).as_nanos() as usize;
                let delay = Duration::from_nanos(self.rng.below(spread) as u64);
                self.datagrams += 1;
                let key = (self.now + self.delay.start + delay, self.datagrams);
                self.in_flight.insert(key, (number, datagram.to_vec()));
            }
        }
    }

    /// Adds an event to the history, without formatting the payload, which can be large.
    fn note_event(&mut self, number: usize, event: &Event) {
        if let Event::Message(message) = event {
            let Message { group, sender, seqno, how, age, missing_for, .. } = message;
            let text = format!("{number} {group} {sender} {seqno} {how:?} {age:?} {missing_for:?}");
            self.note(text.as_bytes());
            self.note(&message.payload);
        } else {
            self.note(format!("{number} {event:?}").as_bytes());
        }
    }

    /// Adds bytes and the current time to the history, by FNV-1a.
    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&self.now.0.to_be_bytes()) {
            self.history = (self.history ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl<E: Engine + ?Sized> Host<E> {
    fn keep(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.messages.push(message),
            Event::Lost(lost) => self.lost.push(lost),
            Event::Confirmed(safe) => self.safe.push(safe),
            Event::Slow(slow) => self.slow.push(slow),
            other => panic!("the engine gave {other:?}"),
        }
    }

    /// Returns the sorted sequence numbers of the messages from `sender` in [`GROUP`], each as
    /// often as it was delivered.
    pub(crate) fn got(&self, sender: NodeId) -> Vec<u32> {
        self.got_in(GROUP, sender)
    }

    pub(crate) fn got_in(&self, group: GroupId, sender: NodeId) -> Vec<u32> {
        let of_stream = |it: &&Message| (it.sender, it.group) == (sender, group);
        let messages = self.messages.iter().filter(of_stream);
        let mut numbers: Vec<u32> = messages.map(|message| message.seqno.0).collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn lost_ranges(&self) -> Vec<(u32, u32)> {
        self.lost.iter().map(|lost| (lost.first.0, lost.last.0)).collect()
    }

    pub(crate) fn lost_count(&self) -> u32 {
        self.lost.iter().map(Lost::count).sum()
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let stats = self.engine.stats();
        let found = stats.iter().find(|(counter, _)| *counter == name);
        found.unwrap_or_else(|| panic!("no counter {name} in {stats:?}")).1
    }
}
