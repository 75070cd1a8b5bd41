//! The world: hosts, the network between them, and virtual time.

mod carrying;
mod config;
mod streaming;
mod wiring;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use carom_proto::loss::LossInjector;
use carom_proto::{GroupId, NodeId, Rng, Time};

pub use self::config::{Lossy, WorldConfig};
use crate::agenda::Agenda;
use crate::counters::Counters;
use crate::ethernet::CableIx;
use crate::faults::{Cuts, Disturbance, Fault};
use crate::history::History;
use crate::host::{Host, HostIx, Tenant};
use crate::links::{LinkIx, Links, Side};
use crate::machine::Machine;
use crate::network::{Network, Onward};
use crate::overheard::Overheard;
use crate::packets::{PacketIx, Packets};
use crate::topology::Topology;
use crate::trace::Trace;

/// An event of a machine, with its time and host.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening<E> {
    /// World time of the event.
    pub at: Time,
    /// Host of the machine that reported the event.
    pub host: HostIx,
    /// The reported event.
    pub event: E,
}

/// Handle of a scheduled command, for [`World::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled(u64);

/// Machines on the hosts of a network, in virtual time.
///
/// The same seed and the same calls give the same history. Time does not pass between calls:
/// [`World::run_until`] advances it, and [`World::step`] processes the next scheduled event.
pub struct World<M: Machine> {
    now: Time,
    network: Network,
    hosts: Vec<Host<M>>,
    nodes: BTreeMap<NodeId, HostIx>,
    packets: Packets,
    links: Links,
    agenda: Agenda<Due>,
    commands: BTreeMap<u64, M::Command>,
    next_command: u64,
    events: VecDeque<Happening<M::Event>>,
    counters: Counters,
    lossy: Lossy,
    cuts: Cuts,
    disturbance: Disturbance,
    history: Option<History>,
    trace: Option<Trace>,
    checks: bool,
    overheard: Overheard,
    rng: Rng,
    buffer: Vec<u8>,
    next: Vec<Onward>,
    /// Timer calls of machines since time last advanced.
    idle_calls: u32,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Arrival(HostIx, PacketIx),
    /// A datagram reaches a link where it must queue.
    Link(PacketIx, u32),
    /// A frame has left its shared cable.
    Cable(CableIx),
    /// A host's processor has finished a datagram.
    Service(HostIx, u32),
    Wake(HostIx),
    /// Data queued on one side of a connection may reach the other side.
    Stream(LinkIx, Side),
    /// One side of a connection has data to read.
    Read(LinkIx, Side),
    Command(HostIx, u32, u64),
}

impl<M: Machine> World<M> {
    /// Creates a world of empty hosts, whose time begins one second after its epoch.
    ///
    /// # Panics
    /// Panics if `receive_buffer` is zero.
    pub fn new(config: WorldConfig) -> Self {
        assert!(config.receive_buffer > 0, "receive_buffer must be at least 1");
        let mut rng = Rng::new(config.seed);
        let network_seed = rng.next_u64();
        let (loss, capacity) = (config.loss, config.receive_buffer);
        let hosts = config.topology.all_hosts();
        let hosts = hosts.map(|_| Host::new(loss, capacity, config.cpu_per_datagram, &mut rng));
        Self {
            now: BEGINNING,
            hosts: hosts.collect(),
            network: Network::new(config.topology, network_seed),
            nodes: BTreeMap::new(),
            packets: Packets::default(),
            links: Links::new(config.link_buffer, network_seed ^ 0x7c9),
            agenda: Agenda::new(),
            commands: BTreeMap::new(),
            next_command: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
            lossy: config.lossy,
            cuts: Cuts::default(),
            disturbance: Disturbance::default(),
            history: config.hashes_history.then(History::new),
            trace: None,
            checks: config.checks,
            overheard: Overheard::default(),
            rng,
            buffer: Vec::new(),
            next: Vec::new(),
            idle_calls: 0,
        }
    }

    /// Returns the world's time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        self.network.topology()
    }

    /// Returns the counters of the network's traffic so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of datagrams in flight.
    pub fn in_flight(&self) -> usize {
        self.packets.len()
    }

    /// Returns a hash of everything that has happened, or 0 unless [`WorldConfig::hashes_history`]
    /// is set.
    pub fn history(&self) -> u64 {
        self.history.as_ref().map_or(0, History::hash)
    }

    /// Captures every packet from now on, as pcapng.
    pub fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.trace = Some(Trace::new(out, self.topology().hosts()));
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// Returns the first error in writing the capture.
    pub fn end_trace(&mut self) -> io::Result<()> {
        self.trace.take().map_or(Ok(()), Trace::finish)
    }

    /// Keeps copies of the last `count` datagrams that are multicast from now on.
    pub fn overhear(&mut self, count: usize) {
        self.overheard.count = count;
    }

    /// Returns the multicast datagrams kept by [`World::overhear`], oldest first.
    pub fn overheard(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.overheard.datagrams.iter()
    }

    /// Takes the datagrams that were sent to addresses of no host since the last call, oldest
    /// first.
    ///
    /// Only the most recent ones are kept, and only if the world [overhears](Self::overhear).
    pub fn take_sent_elsewhere(&mut self) -> Vec<Vec<u8>> {
        self.overheard.elsewhere.drain(..).collect()
    }

    /// Places a machine on a host, and kills the machine that ran there before. Other machines
    /// reach it under `id`.
    ///
    /// # Panics
    /// Panics if the host does not exist, or if the id was used before.
    pub fn spawn(&mut self, host: HostIx, id: NodeId, machine: M) {
        self.kill(host);
        let earlier = self.nodes.insert(id, host);
        assert!(earlier.is_none(), "node {id} already runs on {earlier:?}");
        let place = self.host_mut(host);
        place.incarnation += 1;
        place.is_dark = false;
        place.tenant = Some(Tenant { id, machine });
        self.note(SPAWNED, host, &id.0.to_be_bytes());
        self.with(host, |machine, now| machine.handle_timeout(now));
    }

    /// Kills the machine of a host at once, as by SIGKILL, ends its subscriptions, and returns it.
    pub fn kill(&mut self, host: HostIx) -> Option<M> {
        let place = self.host_mut(host);
        let tenant = place.tenant.take()?;
        (place.is_serving, place.is_paused, place.wake) = (false, false, Time::MAX);
        let waiting = std::mem::take(&mut place.waiting);
        let held = std::mem::take(&mut place.held_commands);
        for group in std::mem::take(&mut place.groups) {
            self.network.unsubscribe(host, group);
        }
        self.counters.nobody_there += waiting.len() as u64;
        waiting.into_iter().for_each(|packet| self.packets.release(packet));
        for number in held {
            self.commands.remove(&number);
            self.counters.commands_missed += 1;
        }
        self.nodes.remove(&tenant.id);
        self.break_links_at(host);
        self.note(KILLED, host, &tenant.id.0.to_be_bytes());
        Some(tenant.machine)
    }

    /// Returns the machine on a host.
    pub fn machine(&self, host: HostIx) -> Option<&M> {
        self.hosts[host.0 as usize].tenant.as_ref().map(|tenant| &tenant.machine)
    }

    /// Returns the id of the machine on a host.
    pub fn node_id(&self, host: HostIx) -> Option<NodeId> {
        self.hosts[host.0 as usize].tenant.as_ref().map(|tenant| tenant.id)
    }

    /// Returns `true` if the host is paused.
    pub fn is_paused(&self, host: HostIx) -> bool {
        self.hosts[host.0 as usize].is_paused
    }

    /// Returns `true` if a partition blocks datagrams from `from` to `to`.
    pub fn is_cut_off(&self, from: HostIx, to: HostIx) -> bool {
        self.cuts.between(from, to)
    }

    /// Returns the time that the host's clock shows now.
    pub fn local_time(&mut self, host: HostIx) -> Time {
        let now = self.now;
        self.host_mut(host).clock.show(now)
    }

    /// Subscribes `host` to the multicasts of `group` from now on.
    pub fn subscribe(&mut self, host: HostIx, group: GroupId) {
        self.network.subscribe(host, group);
        self.host_mut(host).groups.insert(group);
    }

    /// Ends the subscription of `host` to `group`.
    pub fn unsubscribe(&mut self, host: HostIx, group: GroupId) {
        self.network.unsubscribe(host, group);
        self.host_mut(host).groups.remove(&group);
    }

    /// Calls the machine on `host` with its local time, and sends the datagrams that result.
    /// Returns `None` if the host has no machine.
    pub fn with<R>(&mut self, host: HostIx, call: impl FnOnce(&mut M, Time) -> R) -> Option<R> {
        let now = self.now;
        let place = self.hosts.get_mut(host.0 as usize)?;
        let tenant = place.tenant.as_mut()?;
        let result = call(&mut tenant.machine, place.clock.show(now));
        self.drain(host);
        Some(result)
    }

    /// Gives the machine on `host` a command now, or when the host resumes if it is paused.
    pub fn command(&mut self, host: HostIx, command: M::Command) {
        if self.is_paused(host) {
            let number = self.keep(command);
            self.host_mut(host).held_commands.push(number);
            return;
        }
        self.with(host, |machine, now| machine.handle_command(now, command));
    }

    /// Schedules a command for the machine that is on `host` now.
    ///
    /// The command is dropped and counted if that machine is gone when it is due.
    pub fn command_at(&mut self, at: Time, host: HostIx, command: M::Command) -> Scheduled {
        let number = self.keep(command);
        let incarnation = self.hosts[host.0 as usize].incarnation;
        self.agenda.add(at.max(self.now), Due::Command(host, incarnation, number));
        Scheduled(number)
    }

    /// Cancels a scheduled command, if it has not been executed.
    pub fn cancel(&mut self, command: Scheduled) {
        self.commands.remove(&command.0);
    }

    /// Begins or ends a fault.
    ///
    /// # Panics
    /// Panics if it names a host or a link that does not exist.
    pub fn apply(&mut self, fault: &Fault) {
        match fault {
            Fault::Pause(host) => self.host_mut(*host).pause(),
            Fault::Resume(host) => self.resume(*host),
            Fault::Partition(hosts) => self.cuts.partition(hosts.clone()),
            Fault::OneWay(from, to) => self.cuts.one_way(from.clone(), to.clone()),
            Fault::Heal => self.cuts.heal(),
            Fault::CutLink(a, b) => self.network.set_dead(*a, *b, true),
            Fault::MendLink(a, b) => self.network.set_dead(*a, *b, false),
            Fault::Disturb(disturbance) => self.disturbance = *disturbance,
            Fault::Loss(host, loss) => {
                let seed = self.rng.next_u64();
                self.host_mut(*host).loss = LossInjector::new(*loss, seed);
            }
            Fault::LinkLoss(loss) => self.network.set_loss(*loss, self.rng.next_u64()),
            Fault::ClockStep(host, by_ns) => {
                self.host_mut(*host).clock.step(*by_ns);
                self.schedule_wake(*host);
            }
            Fault::Slow(host, extra) => self.host_mut(*host).slowness = *extra,
        }
    }

    /// Returns the time of the next scheduled event.
    pub fn next_at(&self) -> Option<Time> {
        self.agenda.next_at()
    }

    /// Processes the next scheduled event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some((at, due)) = self.agenda.pop() else { return false };
        if at > self.now {
            (self.now, self.idle_calls) = (at, 0);
        }
        match due {
            Due::Arrival(host, packet) => self.on_arrival(host, packet),
            Due::Link(packet, branch) => self.on_link(packet, branch),
            Due::Cable(cable) => self.on_cable(cable),
            Due::Service(host, incarnation) => self.on_service(host, incarnation),
            Due::Wake(host) => self.on_wake(host),
            Due::Stream(link, side) => self.on_stream(link, side),
            Due::Read(link, side) => self.read_link(link, side),
            Due::Command(host, incarnation, number) => self.on_command(host, incarnation, number),
        }
        true
    }

    /// Takes the next event that a machine has reported.
    pub fn poll_event(&mut self) -> Option<Happening<M::Event>> {
        self.events.pop_front()
    }

    /// Advances time to `end`, and passes every event to `on_event`.
    pub fn run_until(&mut self, end: Time, on_event: &mut impl FnMut(Happening<M::Event>)) {
        loop {
            while let Some(happening) = self.events.pop_front() {
                on_event(happening);
            }
            if self.agenda.next_at().is_none_or(|at| at > end) {
                break;
            }
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Advances time by `span`, and passes every event to `on_event`.
    pub fn run_for(&mut self, span: Duration, on_event: &mut impl FnMut(Happening<M::Event>)) {
        self.run_until(self.now + span, on_event);
    }

    fn host_mut(&mut self, host: HostIx) -> &mut Host<M> {
        &mut self.hosts[host.0 as usize]
    }

    /// Stores a command under the number that is returned.
    fn keep(&mut self, command: M::Command) -> u64 {
        let number = self.next_command;
        self.next_command += 1;
        self.commands.insert(number, command);
        number
    }

    fn resume(&mut self, host: HostIx) {
        let place = self.host_mut(host);
        if !std::mem::take(&mut place.is_paused) {
            return;
        }
        let held = std::mem::take(&mut place.held_commands);
        let incarnation = place.incarnation;
        place.wake = Time::MAX;
        // At once, so that no command that is due now overtakes a held one.
        for number in held {
            self.on_command(host, incarnation, number);
        }
        self.serve_next(host);
        self.read_links_at(host);
        self.schedule_wake(host);
    }

    fn on_wake(&mut self, ix: HostIx) {
        let now = self.now;
        let host = self.host_mut(ix);
        // An earlier timer has replaced this one, or the host schedules one when it resumes.
        if host.wake != now || host.is_paused {
            return;
        }
        host.wake = Time::MAX;
        let local = host.clock.show(now);
        let Some(tenant) = &mut host.tenant else { return };
        let Some(wakeup) = tenant.machine.poll_timeout() else { return };
        if wakeup.at > local {
            self.schedule_wake(ix);
            return;
        }
        tenant.machine.handle_timeout(local);
        self.idle_calls += 1;
        let reason = wakeup.reason;
        assert!(self.idle_calls < MAX_IDLE_CALLS, "{ix} requests endless wakeups: {reason}");
        self.note(WOKEN, ix, &[]);
        self.drain(ix);
    }

    fn on_command(&mut self, ix: HostIx, incarnation: u32, number: u64) {
        let host = self.host_mut(ix);
        if host.incarnation == incarnation && host.tenant.is_some() && host.is_paused {
            host.held_commands.push(number);
            return;
        }
        let is_there = host.incarnation == incarnation && host.tenant.is_some();
        match self.commands.remove(&number) {
            Some(command) if is_there => self.command(ix, command),
            Some(_) => self.counters.commands_missed += 1,
            None => {}
        }
    }

    /// Sends what a machine has queued, collects its events, and schedules its next timer. Follows
    /// every call of a machine.
    fn drain(&mut self, ix: HostIx) {
        self.counters.steps += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            buffer.clear();
            let Some(tenant) = &mut self.hosts[ix.0 as usize].tenant else { break };
            let Some(transmit) = tenant.machine.poll_transmit(&mut buffer) else { break };
            self.send(ix, transmit, &buffer);
        }
        self.buffer = buffer;
        while let Some(command) =
            self.hosts[ix.0 as usize].tenant.as_mut().and_then(|it| it.machine.poll_link())
        {
            self.carry(ix, command);
        }
        let now = self.now;
        if let Some(tenant) = &mut self.hosts[ix.0 as usize].tenant {
            while let Some(event) = tenant.machine.poll_event() {
                self.events.push_back(Happening { at: now, host: ix, event });
            }
            if self.checks {
                tenant.machine.check();
            }
        }
        self.schedule_wake(ix);
    }

    fn schedule_wake(&mut self, ix: HostIx) {
        let host = &mut self.hosts[ix.0 as usize];
        let Some(wakeup) = host.tenant.as_ref().and_then(|it| it.machine.poll_timeout()) else {
            return;
        };
        let at = host.clock.when(wakeup.at).max(self.now);
        if at < host.wake && !host.is_paused {
            host.wake = at;
            self.agenda.add(at, Due::Wake(ix));
        }
    }

    fn note(&mut self, kind: u8, host: HostIx, bytes: &[u8]) {
        if let Some(history) = &mut self.history {
            history.note(self.now, kind, host, bytes);
        }
    }
}

/// Time at which a world begins: late enough that engines can subtract from it.
const BEGINNING: Time = Time(1_000_000_000);
/// Maximum number of timer calls of machines while time does not advance. Reaching it means a
/// livelock.
const MAX_IDLE_CALLS: u32 = 100_000;

const SPAWNED: u8 = 1;
const KILLED: u8 = 2;
const SENT: u8 = 3;
const DELIVERED: u8 = 4;
const WOKEN: u8 = 5;
const LINKED: u8 = 6;
