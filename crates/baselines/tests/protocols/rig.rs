//! A small test world for engines: virtual time, seeded delay and loss, and records of events.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use carom_proto::loss::{Loss, LossInjector};
use carom_proto::wire::Datagram;
use carom_proto::*;

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const GROUP: GroupId = GroupId(0xCA);

/// Returns `true` if a datagram of this class is carried from the first to the second host.
type Filter = dyn FnMut(usize, usize, Class, &[u8]) -> bool;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    pub(crate) filter: Box<Filter>,
    pub(crate) sent: BTreeMap<Class, u64>,
    /// A running hash of all datagrams and events, to compare histories.
    pub(crate) history: u64,
    /// Mean one-way delay. Each delay is drawn from 0.5 to 1.5 times this value.
    pub(crate) delay: Duration,
    in_flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    datagrams: u64,
    rng: Rng,
}

pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) messages: Vec<Message>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) safe: Vec<Confirmed>,
    pub(crate) slow: Vec<Slow>,
    groups: BTreeSet<GroupId>,
    alive: bool,
    loss: LossInjector,
}

impl World {
    pub(crate) fn new(
        count: usize,
        loss: Loss,
        seed: u64,
        make: impl Fn(NodeId, u64) -> Box<dyn Engine>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let host = |number: usize| {
            let id = NodeId(number as u64 + 1);
            Host {
                id,
                engine: make(id, rng.next_u64()),
                messages: Vec::new(),
                lost: Vec::new(),
                safe: Vec::new(),
                slow: Vec::new(),
                groups: BTreeSet::new(),
                alive: true,
                loss: LossInjector::new(loss, rng.next_u64()),
            }
        };
        let mut world = Self {
            now: Time(1_000_000_000),
            hosts: (0..count).map(host).collect(),
            filter: Box::new(|_, _, _, _| true),
            sent: BTreeMap::new(),
            history: 0xcbf2_9ce4_8422_2325,
            delay: Duration::from_micros(100),
            in_flight: BTreeMap::new(),
            datagrams: 0,
            rng: Rng::new(seed ^ 0x5eed),
        };
        (0..count).for_each(|number| world.join(number, GROUP));
        world
    }

    pub(crate) fn join(&mut self, number: usize, group: GroupId) {
        let settings = GroupSettings { profile: Profile::Guest, name_check: 0 };
        let now = self.now;
        self.hosts[number].engine.join(now, group, settings).expect("a group of a guest");
        for other in 0..self.hosts.len() {
            if self.hosts[other].alive && self.hosts[other].groups.contains(&group) {
                self.change(other, group, number, ViewChangeKind::Joined);
                self.change(number, group, other, ViewChangeKind::Joined);
            }
        }
        self.hosts[number].groups.insert(group);
        self.drain(number);
    }

    /// Makes the host receive datagrams of a group that it has not joined.
    pub(crate) fn listen(&mut self, number: usize, group: GroupId) {
        self.hosts[number].groups.insert(group);
    }

    pub(crate) fn leave(&mut self, number: usize, group: GroupId) {
        let now = self.now;
        self.hosts[number].engine.leave(now, group);
        self.hosts[number].groups.remove(&group);
        self.drain(number);
        self.announce(number, group, ViewChangeKind::Left);
    }

    /// Stops the host permanently, and removes it from the views of the others.
    pub(crate) fn crash(&mut self, number: usize) {
        self.hosts[number].alive = false;
        let groups = std::mem::take(&mut self.hosts[number].groups);
        groups.into_iter().for_each(|it| self.announce(number, it, ViewChangeKind::Failed));
    }

    pub(crate) fn send(&mut self, number: usize, payload: &[u8]) -> Result<SeqNo, SendError> {
        self.send_with(number, payload, SendOptions::default())
    }

    pub(crate) fn send_with(
        &mut self,
        number: usize,
        payload: &[u8],
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let now = self.now;
        let payload = bytes::Bytes::copy_from_slice(payload);
        let sent = self.hosts[number].engine.send(now, GROUP, payload, options);
        self.drain(number);
        sent
    }

    /// Sends the host's messages of these rounds, without pauses.
    pub(crate) fn sends(&mut self, number: usize, rounds: Range<usize>) {
        for round in rounds {
            self.send(number, &payload(number, round)).expect("there is room");
        }
    }

    /// Like [`World::sends`], and then lets `rest` pass.
    pub(crate) fn sends_then(&mut self, number: usize, rounds: Range<usize>, rest: Duration) {
        self.sends(number, rounds);
        self.run_for(rest);
    }

    pub(crate) fn confirm(&mut self, number: usize) {
        let now = self.now;
        self.hosts[number].engine.confirm(now, GROUP);
        self.drain(number);
    }

    pub(crate) fn inject(&mut self, number: usize, datagram: &[u8]) {
        let now = self.now;
        if let Ok(datagram) = Datagram::parse(datagram) {
            self.hosts[number].engine.handle_datagram(now, &datagram);
        }
        self.drain(number);
    }

    /// One message per `interval` and host. The hosts send at different times. Then `rest` passes.
    pub(crate) fn everybody_sends(&mut self, count: usize, interval: Duration, rest: Duration) {
        let pause = interval / self.hosts.len() as u32;
        for round in 0..count {
            for number in 0..self.hosts.len() {
                let payload = payload(number, round);
                self.send(number, &payload).expect("there is room");
                self.run_for(pause);
            }
        }
        self.run_for(rest);
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

    /// Asserts that each message 1 to `count` is settled once everywhere. Returns the losses.
    pub(crate) fn assert_all_settled(&self, count: usize) -> usize {
        let mut lost_in_all = 0;
        for host in &self.hosts {
            for sender in self.hosts.iter().filter(|sender| sender.id != host.id) {
                let (got, lost) = host.account(sender.id);
                let mut all = [got.clone(), lost.clone()].concat();
                all.sort_unstable();
                let expected: Vec<u32> = (1..=count as u32).collect();
                let of = (host.id, sender.id);
                assert_eq!(all, expected, "{of:?} got {got:?} and lost {lost:?}");
                lost_in_all += lost.len();
            }
            for message in &host.messages {
                let number = message.sender.0 as usize - 1;
                let sent = payload(number, message.seqno.0 as usize - 1);
                assert_eq!(message.payload, sent, "{message:?} was never sent");
            }
        }
        lost_in_all
    }

    fn change(&mut self, number: usize, group: GroupId, node: usize, kind: ViewChangeKind) {
        let (now, node) = (self.now, self.hosts[node].id);
        let change = ViewChange { group, node, kind, version: 1 };
        self.hosts[number].engine.handle_view(now, &change);
        self.drain(number);
    }

    fn announce(&mut self, number: usize, group: GroupId, kind: ViewChangeKind) {
        for other in (0..self.hosts.len()).filter(|other| *other != number) {
            if self.hosts[other].groups.contains(&group) {
                self.change(other, group, number, kind);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let alive = self.hosts.iter().filter(|host| host.alive);
        let timers = alive.filter_map(|host| host.engine.poll_timeout());
        timers.map(|wakeup| wakeup.at).chain(arrival).min()
    }

    fn step(&mut self) {
        while let Some(entry) = self.in_flight.first_entry().filter(|e| e.key().0 <= self.now) {
            let (number, datagram) = entry.remove();
            let host = &mut self.hosts[number];
            if host.alive && !host.loss.drops_next() {
                if let Ok(datagram) = Datagram::parse(&datagram) {
                    host.engine.handle_datagram(self.now, &datagram);
                }
                self.drain(number);
            }
        }
        for number in 0..self.hosts.len() {
            let due = self.hosts[number].engine.poll_timeout();
            if self.hosts[number].alive && due.is_some_and(|wakeup| wakeup.at <= self.now) {
                let now = self.now;
                self.hosts[number].engine.handle_timeout(now);
                let next = self.hosts[number].engine.poll_timeout();
                let is_later = next.is_none_or(|wakeup| wakeup.at > now);
                assert!(is_later, "{next:?} is still due after it was handled");
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
            self.note(format!("{number} {event:?}").as_bytes());
            self.hosts[number].keep(event);
        }
        if self.datagrams.is_multiple_of(61) {
            self.hosts[number].engine.check();
        }
    }

    fn carry(&mut self, from: usize, transmit: Transmit, datagram: &[u8]) {
        self.note(datagram);
        for number in (0..self.hosts.len()).filter(|number| *number != from) {
            let host = &self.hosts[number];
            let meant = match transmit.destination {
                Destination::Group(group) | Destination::Tree(group, _) => {
                    host.groups.contains(&group)
                }
                Destination::Node(node) => host.id == node,
                Destination::Endpoint(_) | Destination::Lan => false,
            };
            if meant && (self.filter)(from, number, transmit.class, datagram) {
                let nanos = self.delay.as_nanos() as usize;
                let delay = Duration::from_nanos((nanos / 2 + self.rng.below(nanos)) as u64);
                self.datagrams += 1;
                let key = (self.now + delay, self.datagrams);
                self.in_flight.insert(key, (number, datagram.to_vec()));
            }
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&self.now.0.to_be_bytes()) {
            self.history = (self.history ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl Host {
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let stats = self.engine.stats();
        let found = stats.iter().find(|(counter, _)| *counter == name);
        found.unwrap_or_else(|| panic!("no counter {name} in {stats:?}")).1
    }

    /// Returns how often `sender`'s messages were delivered and were lost, by sequence number.
    pub(crate) fn account(&self, sender: NodeId) -> (Vec<u32>, Vec<u32>) {
        let of_sender = self.messages.iter().filter(|message| message.sender == sender);
        let got = of_sender.map(|message| message.seqno.0).collect();
        let of_sender = self.lost.iter().filter(|lost| lost.sender == sender);
        let lost = of_sender.flat_map(|lost| lost.first.0..=lost.last.0).collect();
        (got, lost)
    }

    fn keep(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.messages.push(message),
            Event::Lost(lost) => self.lost.push(lost),
            Event::Confirmed(safe) => self.safe.push(safe),
            Event::Slow(slow) => self.slow.push(slow),
            other => panic!("the engine gave {other:?}"),
        }
    }
}

/// Returns message `round` of host `number`. Its length differs from that of its neighbors.
pub(crate) fn payload(number: usize, round: usize) -> Vec<u8> {
    let length = 20 + (round * 37 + number) % 900;
    (0..length).map(|place| (place ^ (round * 31) ^ number) as u8).collect()
}

pub(crate) fn assert_repeats(history: impl Fn(u64) -> u64) {
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}
