//! Small test network of lateral engines: virtual time, seeded delay and loss.
//!
//! The simulator crate runs complete experiments. This rig only connects engines.

#![allow(dead_code, reason = "every test file uses its own part of the rig")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::{Config, Counters, Lateral};
use carom_proto::loss::{Loss, LossInjector};
use carom_proto::wire::Datagram;
use carom_proto::*;

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const RATE: RateOfFire = RateOfFire::new(8, 5);
/// Group of the members that [`World::of_members`] creates.
pub(crate) const GROUP: GroupId = GroupId(100);

/// Predicate: `true` if a datagram from the first to the second node is carried.
type Filter = dyn FnMut(NodeId, NodeId, &[u8]) -> bool;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    /// Called for every datagram before it is sent; `false` drops the datagram.
    pub(crate) filter: Box<Filter>,
    /// Running hash of all datagrams and events, for comparing histories.
    pub(crate) history: u64,
    /// Nonce of the last open from the first to the second node.
    opens: BTreeMap<(NodeId, NodeId), u64>,
    config: Config,
    in_flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    datagrams: u64,
    rng: Rng,
}

pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) engine: Lateral,
    pub(crate) alive: bool,
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) messages: Vec<Message>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) safe: Vec<Confirmed>,
    pub(crate) slow: Vec<Slow>,
    loss: LossInjector,
}

impl World {
    pub(crate) fn new(hosts: usize, config: &Config, loss: Loss, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let host = |number: usize| {
            let id = NodeId(number as u64 + 1);
            Host {
                id,
                engine: Lateral::new(id, config.clone(), rng.next_u64()),
                alive: true,
                groups: BTreeSet::new(),
                messages: Vec::new(),
                lost: Vec::new(),
                safe: Vec::new(),
                slow: Vec::new(),
                loss: LossInjector::new(loss, rng.next_u64()),
            }
        };
        Self {
            now: Time(1_000_000_000),
            hosts: (0..hosts).map(host).collect(),
            filter: Box::new(|_, _, _| true),
            history: 0xcbf2_9ce4_8422_2325,
            opens: BTreeMap::new(),
            config: config.clone(),
            in_flight: BTreeMap::new(),
            datagrams: 0,
            rng: Rng::new(seed ^ 0x5eed),
        }
    }

    pub(crate) fn of_members(hosts: usize, config: &Config, loss: Loss, seed: u64) -> Self {
        let mut world = Self::new(hosts, config, loss, seed);
        (0..hosts).for_each(|host| world.join(host, GROUP, RATE));
        world
    }

    /// Joins host `number` to the group. All hosts in the group learn of it at once.
    pub(crate) fn join(&mut self, number: usize, group: GroupId, rate: RateOfFire) {
        let (now, settings) = (self.now, settings(rate));
        let engine = &mut self.hosts[number].engine;
        engine.join(now, group, settings).expect("the settings are right");
        let newcomer = self.hosts[number].id;
        for other in 0..self.hosts.len() {
            if self.hosts[other].alive && self.hosts[other].groups.contains(&group) {
                let old = self.hosts[other].id;
                self.change(other, group, newcomer, ViewChangeKind::Joined);
                self.change(number, group, old, ViewChangeKind::Joined);
            }
        }
        self.hosts[number].groups.insert(group);
    }

    /// Removes host `number` from the group. The others learn of it a millisecond later.
    pub(crate) fn leave(&mut self, number: usize, group: GroupId) {
        let now = self.now;
        self.hosts[number].engine.leave(now, group);
        self.drain(number);
        self.hosts[number].groups.remove(&group);
        self.run_for(MILLISECOND);
        self.announce(number, group, ViewChangeKind::Left);
    }

    /// Stops host `number` for good. The others are not notified.
    pub(crate) fn crash(&mut self, number: usize) {
        self.hosts[number].alive = false;
    }

    /// Reports a change of host `number` to all other hosts in `group`.
    pub(crate) fn announce(&mut self, number: usize, group: GroupId, kind: ViewChangeKind) {
        let gone = self.hosts[number].id;
        for other in (0..self.hosts.len()).filter(|other| *other != number) {
            if self.hosts[other].groups.contains(&group) {
                self.change(other, group, gone, kind);
            }
        }
    }

    pub(crate) fn send(
        &mut self,
        number: usize,
        group: GroupId,
        payload: &[u8],
    ) -> Result<SeqNo, SendError> {
        self.send_with(number, group, payload, SendOptions::default())
    }

    /// Sends messages with these numbers from host `number` in [`GROUP`], one per millisecond.
    pub(crate) fn send_all(&mut self, number: usize, messages: Range<u32>) {
        for message in messages {
            self.send(number, GROUP, &payload(message)).expect("nobody holds back");
            self.run_for(MILLISECOND);
        }
    }

    pub(crate) fn send_with(
        &mut self,
        number: usize,
        group: GroupId,
        payload: &[u8],
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let now = self.now;
        let payload = bytes::Bytes::copy_from_slice(payload);
        let sent = self.hosts[number].engine.send(now, group, payload, options);
        self.drain(number);
        sent
    }

    pub(crate) fn confirm(&mut self, number: usize, group: GroupId) {
        let now = self.now;
        self.hosts[number].engine.confirm(now, group);
        self.drain(number);
    }

    pub(crate) fn inject(&mut self, number: usize, datagram: &[u8]) {
        let now = self.now;
        if let Ok(datagram) = Datagram::parse(datagram) {
            self.hosts[number].engine.handle_datagram(now, &datagram);
        }
        self.drain(number);
    }

    /// Passes the answer of `sender` to the last open that host `number` sent it.
    pub(crate) fn answer(
        &mut self,
        number: usize,
        sender: NodeId,
        group: GroupId,
        next: SeqNo,
        first: SeqNo,
    ) {
        let asker = self.hosts[number].id;
        let nonce = *self.opens.get(&(asker, sender)).expect("the sender was asked");
        let packet = Packet::Heartbeat { next, first: Some(first), nonce, confirm: false };
        self.inject(number, &datagram(packet, sender, group));
    }

    /// Kills the process of host `number` and starts it again under its id at once.
    ///
    /// The other hosts are not notified. The new process learns the members of its groups.
    pub(crate) fn restart(&mut self, number: usize, incarnation: u64) {
        let id = self.hosts[number].id;
        let origin = Origin { node: id, incarnation: Incarnation(incarnation) };
        let engine = Lateral::new(origin, self.config.clone(), incarnation);
        self.hosts[number].engine = engine;
        for group in self.hosts[number].groups.clone() {
            let now = self.now;
            let engine = &mut self.hosts[number].engine;
            engine.join(now, group, settings(RATE)).expect("the settings are right");
            for other in (0..self.hosts.len()).filter(|other| *other != number) {
                if self.hosts[other].groups.contains(&group) {
                    let node = self.hosts[other].id;
                    self.change(number, group, node, ViewChangeKind::Joined);
                }
            }
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    /// Returns the sum of the hosts' counters. Counters that are not listed here are 0.
    pub(crate) fn total(&self) -> Counters {
        let mut total = Counters::default();
        for counters in self.hosts.iter().map(|host| host.engine.counters()) {
            total.data_sent += counters.data_sent;
            total.packets_binned += counters.packets_binned;
            total.repairs_sent += counters.repairs_sent;
            total.xors += counters.xors;
            total.missing += counters.missing;
            total.recovered += counters.recovered;
            total.retransmitted += counters.retransmitted;
            total.late += counters.late;
            total.lost += counters.lost;
            total.pieces_sent += counters.pieces_sent;
            total.retransmissions_sent += counters.retransmissions_sent;
            total.messages_put_together += counters.messages_put_together;
            total.messages_broken += counters.messages_broken;
            total.naks_sent += counters.naks_sent;
            total.repairs_contradictory += counters.repairs_contradictory;
            total.malformed += counters.malformed;
        }
        total
    }

    pub(crate) fn change(
        &mut self,
        number: usize,
        group: GroupId,
        node: NodeId,
        kind: ViewChangeKind,
    ) {
        let now = self.now;
        let change = ViewChange { group, node, kind, version: 1 };
        self.hosts[number].engine.handle_view(now, &change);
        self.drain(number);
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
                self.drain(number);
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.hosts[number].engine.poll_transmit(&mut datagram) {
            self.carry(number, transmit.destination, &datagram);
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

    fn carry(&mut self, from: usize, destination: Destination, datagram: &[u8]) {
        self.note(datagram);
        let sender = self.hosts[from].id;
        if let (Destination::Node(to), Ok((_, Packet::Open { nonce }))) =
            (&destination, Packet::decode(datagram))
        {
            self.opens.insert((sender, *to), nonce);
        }
        for number in (0..self.hosts.len()).filter(|number| *number != from) {
            let host = &self.hosts[number];
            let meant = match destination {
                Destination::Group(group) | Destination::Tree(group, _) => {
                    host.groups.contains(&group)
                }
                Destination::Node(node) => host.id == node,
                Destination::Endpoint(_) | Destination::Lan => false,
            };
            if meant && (self.filter)(sender, host.id, datagram) {
                let delay = Duration::from_micros(100 + self.rng.below(60) as u64);
                self.datagrams += 1;
                let key = (self.now + delay, self.datagrams);
                self.in_flight.insert(key, (number, datagram.to_vec()));
            }
        }
    }

    /// Adds an event to the history. The payload of a message is not formatted, as it can be large.
    fn note_event(&mut self, number: usize, event: &Event) {
        if let Event::Message(message) = event {
            let Message { group, sender, seqno, how, age, missing_for, .. } = message;
            let told = format!("{number} {group} {sender} {seqno} {how:?} {age:?} {missing_for:?}");
            self.note(told.as_bytes());
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

impl Host {
    fn keep(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.messages.push(message),
            Event::Lost(lost) => self.lost.push(lost),
            Event::Confirmed(safe) => self.safe.push(safe),
            Event::Slow(slow) => self.slow.push(slow),
            other => panic!("the engine gave {other:?}"),
        }
    }

    /// Returns the sorted sequence numbers of the messages from `sender` in `group`, each as often
    /// as it was delivered.
    pub(crate) fn got(&self, sender: NodeId, group: GroupId) -> Vec<u32> {
        let of_stream = |message: &&Message| message.sender == sender && message.group == group;
        let mut numbers: Vec<u32> =
            self.messages.iter().filter(of_stream).map(|message| message.seqno.0).collect();
        numbers.sort_unstable();
        numbers
    }
}

pub(crate) fn settings(rate: RateOfFire) -> GroupSettings {
    GroupSettings { profile: Profile::TimeCritical(rate), name_check: 0 }
}

pub(crate) fn datagram(packet: Packet<'_>, sender: impl Into<Origin>, group: GroupId) -> Vec<u8> {
    let mut datagram = Vec::new();
    packet.encode(sender, group, 1, &mut datagram);
    datagram
}

/// Encodes a message in [`GROUP`] that was sent at `now`.
pub(crate) fn data(now: Time, sender: impl Into<Origin>, seqno: SeqNo, payload: &[u8]) -> Vec<u8> {
    let symbol = Symbol::of_message(&mut Arena::default(), now, None, payload);
    datagram(Packet::Data { seqno, confirm: false, symbol: symbol.bytes() }, sender, GROUP)
}

pub(crate) fn heartbeat(next: SeqNo) -> Packet<'static> {
    Packet::Heartbeat { next, first: None, nonce: 0, confirm: false }
}

/// Returns the payload of message `number`. Its length differs from those of the messages before
/// and after it.
pub(crate) fn payload(number: u32) -> Vec<u8> {
    payload_of(number, 20 + (number as usize * 37) % 900)
}

pub(crate) fn payload_of(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place as u32 ^ number.wrapping_mul(31)) as u8).collect()
}
