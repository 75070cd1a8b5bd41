mod commands;
mod config;
mod context;
mod delivery;
mod hosts;
mod passage;
mod tcp_links;

use std::collections::VecDeque;
use std::io::{self, Write};

use carom_proto::loss::LossInjector;
use carom_proto::membership::link::LinkEvent;
use carom_proto::{Class, Destination, GroupId, NodeId, Rng, Time, Transmit};

use self::commands::Commands;
pub use self::commands::Scheduled;
pub use self::config::{Lossy, WorldConfig};
use self::context::{Context, Due, Kind};
use self::delivery::Delivery;
use self::hosts::Hosts;
use self::tcp_links::{Arrived, Environment, TcpLinks};
use crate::connections::{ConnectionIx, Segment, Side};
use crate::counters::Counters;
use crate::eavesdropper::Eavesdropper;
use crate::faults::Fault;
use crate::history_hash::HistoryHash;
use crate::host::{Host, Tenant};
use crate::ids::{HostIx, PacketIx};
use crate::link_queue::Traffic;
use crate::machine::{Happening, Machine};
use crate::network::Network;
use crate::topology::{Place, Topology};

/// The machines on the hosts of a network, in virtual time.
///
/// The same seed and the same calls give the same history. Time does not pass between calls:
/// [`World::run_until`] advances it, and [`World::step`] processes the next scheduled event.
///
/// Over a [`Medium`](crate::Medium), time is real, and histories differ from run to run.
pub struct World<M: Machine> {
    cx: Context,
    delivery: Delivery,
    links: TcpLinks,
    hosts: Hosts<M>,
    commands: Commands<M::Command>,
    events: VecDeque<Happening<M::Event>>,
    checks: bool,
    buffer: Vec<u8>,
    idle_calls: u32,
}

impl<M: Machine> World<M> {
    /// Creates a world of empty hosts. Its time begins one second after the epoch.
    ///
    /// # Panics
    /// Panics if `receive_buffer` is zero.
    pub fn new(config: WorldConfig) -> Self {
        assert!(config.receive_buffer > 0, "receive_buffer must be at least 1");
        let mut rng = Rng::new(config.seed);
        let network_seed = rng.next_u64();
        let (loss, capacity) = (config.loss, config.receive_buffer);
        let medium = config.media.map(|media| media.create(&config.topology));
        let host = |_| Host::new(loss, capacity, config.cpu_per_datagram, &mut rng);
        let hosts = config.topology.all_hosts().map(host).collect();
        Self {
            cx: Context::new(config.lossy, config.hashes_history),
            delivery: Delivery::new(config.topology, medium, network_seed, rng),
            links: TcpLinks::new(config.link_buffer, network_seed ^ 0x7c9),
            hosts: Hosts::new(hosts),
            commands: Commands::new(),
            events: VecDeque::new(),
            checks: config.checks,
            buffer: Vec::new(),
            idle_calls: 0,
        }
    }

    /// Returns the world's time.
    pub fn now(&self) -> Time {
        self.cx.now
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        &self.delivery.network.topology
    }

    /// Returns the counters of the network's traffic so far.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// Returns the number of datagrams that are in flight or wait at hosts.
    pub fn in_flight(&self) -> usize {
        self.delivery.packets.len()
    }

    /// Returns a hash of all events so far, or 0 if `hashes_history` is `false`.
    pub fn history(&self) -> u64 {
        self.cx.history.as_ref().map_or(0, HistoryHash::hash)
    }

    /// Starts to capture every packet in the pcapng format.
    pub fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.delivery.trace_to(out);
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// Returns the first error that occurred while the capture was written.
    pub fn end_trace(&mut self) -> io::Result<()> {
        self.delivery.end_trace()
    }

    /// Returns the copies of datagrams that an attacker on the network has.
    pub fn eavesdropper(&mut self) -> &mut Eavesdropper {
        &mut self.delivery.eavesdropper
    }

    /// Returns the network, to control its links.
    pub fn network(&mut self) -> &mut Network {
        &mut self.delivery.network
    }

    /// Returns the traffic and the two ends of each directed link.
    pub fn traffic(&mut self) -> impl Iterator<Item = (Place, Place, &Traffic)> + use<'_, M> {
        self.delivery.network.traffic(self.cx.now)
    }

    /// Returns the total traffic of all links so far. A datagram counts once for each link that it
    /// crosses.
    ///
    /// The paths from hosts to a shared cable and from the cable to hosts count as separate links.
    pub fn footprint(&mut self) -> Traffic {
        let mut sum = Traffic::default();
        self.traffic().for_each(|(_, _, traffic)| sum.add(traffic));
        sum
    }

    /// Places a machine on a host, and kills the host's previous machine. Other machines reach the
    /// new machine under `id`.
    ///
    /// # Panics
    /// Panics if the host does not exist, or if a machine on another host has this id.
    pub fn spawn(&mut self, host: HostIx, id: NodeId, machine: M) {
        self.kill(host);
        self.hosts.place(host, id, machine);
        self.cx.note(Kind::Spawned, host, &id.0.to_be_bytes());
        self.with(host, |machine, now| machine.handle_timeout(now));
    }

    /// Kills and returns the machine of a host, as SIGKILL does, and ends its subscriptions.
    pub fn kill(&mut self, host: HostIx) -> Option<M> {
        let tenant = self.hosts.remove(host)?;
        let place = &mut self.hosts[host];
        (place.is_serving, place.is_paused, place.wake) = (false, false, Time::MAX);
        let waiting = std::mem::take(&mut place.waiting);
        let held = std::mem::take(&mut place.held_commands);
        for group in std::mem::take(&mut place.groups) {
            self.delivery.unsubscribe(host, group);
        }
        self.cx.counters.nobody_there += waiting.len() as u64;
        waiting.into_iter().for_each(|packet| self.delivery.packets.release(packet));
        for number in held {
            self.commands.take(number);
            self.cx.counters.commands_missed += 1;
        }
        let (links, mut env) = self.links_and_environment();
        links.break_at(&mut env, host);
        self.cx.note(Kind::Killed, host, &tenant.id.0.to_be_bytes());
        Some(tenant.machine)
    }

    /// Returns the machine on a host, or `None` if the host has none.
    pub fn machine(&self, host: HostIx) -> Option<&M> {
        self.hosts[host].tenant.as_ref().map(|tenant| &tenant.machine)
    }

    /// Returns the id of the machine on a host, or `None` if the host has no machine.
    pub fn node_id(&self, host: HostIx) -> Option<NodeId> {
        self.hosts[host].tenant.as_ref().map(|tenant| tenant.id)
    }

    /// Returns `true` if the host is paused.
    pub fn is_paused(&self, host: HostIx) -> bool {
        self.hosts[host].is_paused
    }

    /// Returns `true` if a partition or a one-way fault blocks datagrams from `from` to `to`.
    pub fn is_cut_off(&self, from: HostIx, to: HostIx) -> bool {
        self.cx.cuts.between(from, to)
    }

    /// Subscribes `host` to the multicasts of `group`.
    pub fn subscribe(&mut self, host: HostIx, group: GroupId) {
        self.delivery.subscribe(host, group);
        self.hosts[host].groups.insert(group);
    }

    /// Ends the subscription of `host` to `group`.
    pub fn unsubscribe(&mut self, host: HostIx, group: GroupId) {
        self.delivery.unsubscribe(host, group);
        self.hosts[host].groups.remove(&group);
    }

    /// Calls the machine on `host` with its local time, and sends the resulting datagrams. Returns
    /// `None` if the host has no machine.
    pub fn with<R>(&mut self, host: HostIx, call: impl FnOnce(&mut M, Time) -> R) -> Option<R> {
        self.follow_medium();
        let place = self.hosts.get_mut(host)?;
        let tenant = place.tenant.as_mut()?;
        let result = call(&mut tenant.machine, place.clock.show(self.cx.now));
        self.drain(host);
        Some(result)
    }

    /// Passes a command to the machine on `host`, immediately or when a paused host resumes.
    pub fn command(&mut self, host: HostIx, command: M::Command) {
        if self.is_paused(host) {
            let number = self.commands.add(command);
            self.hosts[host].held_commands.push(number);
            return;
        }
        self.with(host, |machine, now| machine.handle_command(now, command));
    }

    /// Schedules a command for the current machine on `host`.
    ///
    /// The command is dropped and counted if that machine is gone when the command is due.
    pub fn command_at(&mut self, at: Time, host: HostIx, command: M::Command) -> Scheduled {
        let number = self.commands.add(command);
        let incarnation = self.hosts[host].incarnation;
        self.cx.schedule(at.max(self.cx.now), Due::Command(host, incarnation, number));
        Scheduled(number)
    }

    /// Cancels a scheduled command, unless it has been executed or dropped.
    pub fn cancel(&mut self, command: Scheduled) {
        self.commands.take(command.0);
    }

    /// Begins or ends a fault.
    ///
    /// # Panics
    /// Panics if the fault names a host or a link that does not exist. Partitions and one-way
    /// faults may name any hosts.
    pub fn apply(&mut self, fault: &Fault) {
        match fault {
            Fault::Pause(host) => self.hosts[*host].pause(),
            Fault::Resume(host) => self.resume(*host),
            Fault::Partition(hosts) => self.cx.cuts.partition(hosts.clone()),
            Fault::OneWay(from, to) => self.cx.cuts.one_way(from.clone(), to.clone()),
            Fault::Heal => self.cx.cuts.heal(),
            Fault::CutLink(a, b) => self.delivery.network.set_dead(*a, *b, true),
            Fault::MendLink(a, b) => self.delivery.network.set_dead(*a, *b, false),
            Fault::Disturb(disturbance) => self.delivery.disturbance = *disturbance,
            Fault::Loss(host, loss) => {
                let seed = self.delivery.rng.next_u64();
                self.hosts[*host].loss = LossInjector::new(*loss, seed);
            }
            Fault::LinkLoss(loss) => self.delivery.set_link_loss(*loss),
            Fault::ClockStep(host, by_ns) => {
                self.hosts[*host].clock.step(*by_ns);
                self.hosts.schedule_wake(&mut self.cx, *host);
            }
            Fault::Slow(host, extra) => self.hosts[*host].slowness = *extra,
        }
    }

    fn resume(&mut self, host: HostIx) {
        let place = &mut self.hosts[host];
        if !std::mem::take(&mut place.is_paused) {
            return;
        }
        let held = std::mem::take(&mut place.held_commands);
        let incarnation = place.incarnation;
        place.wake = Time::MAX;
        // Held commands are executed at once, so that no command that is due now overtakes them.
        for number in held {
            self.on_command(host, incarnation, number);
        }
        self.hosts.serve_next(&mut self.cx, host);
        for (ix, side) in self.links.at(host) {
            self.read_link(ix, side);
            self.links.schedule(&mut self.cx, ix, side.other());
        }
        self.hosts.schedule_wake(&mut self.cx, host);
    }

    fn on_wake(&mut self, ix: HostIx) {
        let now = self.cx.now;
        let host = &mut self.hosts[ix];
        // An earlier timer has replaced this one, or the resumed host will schedule a timer.
        if host.wake > now || host.is_paused {
            return;
        }
        host.wake = Time::MAX;
        let local = host.clock.show(now);
        let Some(tenant) = &mut host.tenant else { return };
        let Some(wakeup) = tenant.machine.poll_timeout() else { return };
        if wakeup.at > local {
            self.hosts.schedule_wake(&mut self.cx, ix);
            return;
        }
        tenant.machine.handle_timeout(local);
        self.idle_calls += 1;
        let is_live = self.idle_calls < MAX_IDLE_CALLS;
        assert!(is_live, "{ix} requests endless wakeups: {}", wakeup.reason);
        self.cx.note(Kind::Woken, ix, &[]);
        self.drain(ix);
    }

    fn on_command(&mut self, ix: HostIx, incarnation: u32, number: u64) {
        let host = &mut self.hosts[ix];
        let is_there = host.incarnation == incarnation && host.tenant.is_some();
        if is_there && host.is_paused {
            host.held_commands.push(number);
            return;
        }
        match self.commands.take(number) {
            Some(command) if is_there => self.command(ix, command),
            Some(_) => self.cx.counters.commands_missed += 1,
            None => {}
        }
    }

    fn on_arrival(&mut self, ix: HostIx, number: PacketIx) {
        let packet = self.delivery.packets.get(number);
        let (source, class) = (packet.source, packet.class);
        let fate = self.hosts.refusal(&mut self.cx, source, class, ix);
        self.delivery.capture(self.cx.now, ix, number, false, fate);
        if fate.is_some() {
            self.delivery.packets.release(number);
        } else if self.hosts[ix].is_busy() {
            if let Some(victim) = self.hosts[ix].wait(number) {
                self.cx.counters.buffer_full += 1;
                self.delivery.packets.release(victim);
            }
            self.hosts.serve_next(&mut self.cx, ix);
        } else {
            self.deliver(ix, number);
        }
    }

    fn deliver(&mut self, ix: HostIx, number: PacketIx) {
        let packet = self.delivery.packets.get(number);
        self.cx.counters.delivered.add(packet.class, packet.bytes.len());
        self.cx.note(Kind::Delivered, ix, &packet.bytes);
        let host = &mut self.hosts[ix];
        if let Some(tenant) = &mut host.tenant {
            let local = host.clock.show(self.cx.now);
            tenant.machine.handle_datagram(local, packet.source.endpoint(), &packet.bytes);
        }
        self.delivery.packets.release(number);
        self.drain(ix);
    }

    fn on_stream(&mut self, ix: ConnectionIx, side: Side) {
        let (links, mut env) = self.links_and_environment();
        if let Some(reader) = links.deliver(&mut env, ix, side) {
            self.read_link(ix, reader);
            self.links.schedule(&mut self.cx, ix, side);
        }
    }

    fn read_link(&mut self, ix: ConnectionIx, side: Side) {
        while let Some(arrived) = self.links.read(&mut self.cx, &self.hosts, ix, side) {
            let Arrived { host: at, link, from, segment } = arrived;
            let host = &mut self.hosts[at];
            let now = host.clock.show(self.cx.now);
            if let Some(Tenant { machine, .. }) = &mut host.tenant {
                match &segment {
                    Segment::Open => machine.handle_accepted(now, link, from.endpoint()),
                    Segment::Opened => machine.handle_link(now, link, LinkEvent::Opened),
                    Segment::Bytes(bytes) => {
                        machine.handle_link(now, link, LinkEvent::Received(bytes));
                    }
                    Segment::End(why) => {
                        machine.handle_link(now, link, LinkEvent::Closed { why: *why });
                    }
                }
            }
            self.drain(at);
        }
    }

    fn links_and_environment(&mut self) -> (&mut TcpLinks, Environment<'_, M>) {
        let (cx, network) = (&mut self.cx, &mut self.delivery.network);
        (&mut self.links, Environment { cx, network, hosts: &mut self.hosts })
    }

    fn send(&mut self, source: HostIx, transmit: &Transmit, datagram: &[u8]) {
        let Transmit { destination, class } = transmit;
        let hops = if let Destination::Tree(_, hops) = destination { Some(hops) } else { None };
        let direct = hops.is_none_or(|it| it.by_multicast).then(|| destination.clone());
        let relays = hops.into_iter().flat_map(|it| it.relays.iter().copied());
        let copies = direct.into_iter().chain(relays.map(Destination::Node));
        copies.for_each(|to| self.send_copy(source, &to, *class, datagram));
    }

    fn send_copy(&mut self, source: HostIx, to: &Destination, class: Class, datagram: &[u8]) {
        self.cx.counters.sent.add(class, datagram.len());
        let Some(goal) = self.hosts.goal(to) else {
            self.cx.counters.unknown_destination.add(class, datagram.len());
            self.delivery.eavesdropper.add_stray(datagram);
            return;
        };
        self.delivery.send(&mut self.cx, source, goal, class, datagram);
        if let Destination::Group(group) = to {
            self.delivery.send_to_deaf(&mut self.cx, source, *group, class, datagram);
        }
    }

    /// Sends, reports and schedules the output of a machine. Must follow every call to a machine.
    fn drain(&mut self, ix: HostIx) {
        self.cx.counters.steps += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            buffer.clear();
            let Some(tenant) = &mut self.hosts[ix].tenant else { break };
            let Some(transmit) = tenant.machine.poll_transmit(&mut buffer) else { break };
            self.send(ix, &transmit, &buffer);
        }
        self.buffer = buffer;
        while let Some(command) =
            self.hosts[ix].tenant.as_mut().and_then(|it| it.machine.poll_link())
        {
            let (links, mut env) = self.links_and_environment();
            links.execute(&mut env, ix, command);
        }
        let now = self.cx.now;
        if let Some(tenant) = &mut self.hosts[ix].tenant {
            while let Some(event) = tenant.machine.poll_event() {
                self.events.push_back(Happening { at: now, host: ix, event });
            }
            if self.checks {
                tenant.machine.check();
            }
        }
        self.hosts.schedule_wake(&mut self.cx, ix);
    }
}

/// Maximum number of timer calls while time does not advance. More indicate a livelock.
const MAX_IDLE_CALLS: u32 = 100_000;
