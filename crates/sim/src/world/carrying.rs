//! Path of a datagram: from a machine into the network, along the links, into a host's buffer, and
//! to its machine.

use carom_proto::{Class, Destination, Time, Transmit};

use super::{DELIVERED, Due, SENT, World};
use crate::HostIx;
use crate::crossing::Load;
use crate::ethernet::{CableIx, Frame, bytes_on_the_wire};
use crate::faults::{Disturbance, corrupt};
use crate::machine::Machine;
use crate::network::{Goal, Onward};
use crate::packets::PacketIx;
use crate::trace::Captured;

impl<M: Machine> World<M> {
    pub(super) fn on_arrival(&mut self, ix: HostIx, number: PacketIx) {
        let packet = self.packets.get(number);
        let (source, class) = (packet.source, packet.class);
        let host = &mut self.hosts[ix.0 as usize];
        let fate = if self.cuts.between(source, ix) {
            self.counters.cut_off += 1;
            Some("partitioned")
        } else if host.tenant.is_none() {
            self.counters.nobody_there += 1;
            Some("no node on the host")
        } else if self.lossy.concerns(class) && host.loss.drops_next() {
            self.counters.lost_at_host += 1;
            Some("lost at the host")
        } else {
            None
        };
        self.capture(ix, number, false, fate);
        if fate.is_some() {
            self.packets.release(number);
        } else if self.hosts[ix.0 as usize].is_busy() {
            if let Some(victim) = self.hosts[ix.0 as usize].wait(number) {
                self.counters.buffer_full += 1;
                self.packets.release(victim);
            }
            self.serve_next(ix);
        } else {
            self.deliver(ix, number);
        }
    }

    /// Starts processing of the next waiting datagram, if the processor is free.
    pub(super) fn serve_next(&mut self, ix: HostIx) {
        let now = self.now;
        let host = self.host_mut(ix);
        if !host.is_serving && !host.is_paused && !host.waiting.is_empty() {
            host.is_serving = true;
            let (done, incarnation) = (now + host.service_time(), host.incarnation);
            self.agenda.add(done, Due::Service(ix, incarnation));
        }
    }

    pub(super) fn on_service(&mut self, ix: HostIx, incarnation: u32) {
        let host = self.host_mut(ix);
        if host.incarnation != incarnation || !host.is_serving {
            return;
        }
        host.is_serving = false;
        if host.is_paused {
            return;
        }
        if let Some(number) = host.waiting.pop_front() {
            self.deliver(ix, number);
        }
        self.serve_next(ix);
    }

    fn deliver(&mut self, ix: HostIx, number: PacketIx) {
        let now = self.now;
        let packet = self.packets.get(number);
        self.counters.delivered.add(packet.class, packet.bytes.len());
        if let Some(history) = &mut self.history {
            history.note(now, DELIVERED, ix, &packet.bytes);
        }
        let host = &mut self.hosts[ix.0 as usize];
        if let Some(tenant) = &mut host.tenant {
            let local = host.clock.show(now);
            tenant.machine.handle_datagram(local, packet.source.endpoint(), &packet.bytes);
        }
        self.packets.release(number);
        self.drain(ix);
    }

    pub(super) fn on_link(&mut self, number: PacketIx, branch: u32) {
        let packet = self.packets.get(number);
        let load = self.load(packet.bytes.len(), packet.class, packet.goal);
        let mut next = std::mem::take(&mut self.next);
        let tree = &packet.tree;
        self.network.send_on(self.now, tree, branch, load, &mut |onward| next.push(onward));
        next.drain(..).for_each(|onward| self.take_onward(number, onward));
        self.next = next;
        self.packets.release(number);
    }

    fn contend(&mut self, number: PacketIx, branch: u32) {
        let packet = self.packets.get(number);
        let frame = Frame { packet: number, branch, bytes: bytes_on_the_wire(packet.bytes.len()) };
        match self.network.contend(self.now, &packet.tree, frame) {
            Some((cable, until)) => {
                self.packets.hold(number);
                self.watch_cable(cable, until);
            }
            None => self.counters.queue_full += 1,
        }
    }

    fn watch_cable(&mut self, cable: CableIx, until: Option<Time>) {
        if let Some(until) = until {
            self.agenda.add(until, Due::Cable(cable));
        }
    }

    pub(super) fn on_cable(&mut self, cable: CableIx) {
        let (passed, until) = self.network.pass(self.now, cable);
        self.watch_cable(cable, until);
        let Some(Frame { packet: number, branch, .. }) = passed else { return };
        let packet = self.packets.get(number);
        let load = self.load(packet.bytes.len(), packet.class, packet.goal);
        let mut next = std::mem::take(&mut self.next);
        let tree = &packet.tree;
        self.network.send_behind(self.now, tree, branch, load, &mut |onward| next.push(onward));
        next.drain(..).for_each(|onward| self.take_onward(number, onward));
        self.next = next;
        self.packets.release(number);
    }

    pub(super) fn send(&mut self, source: HostIx, transmit: Transmit, datagram: &[u8]) {
        let Transmit { destination, class } = transmit;
        self.counters.sent.add(class, datagram.len());
        let goal = match destination {
            Destination::Group(group) | Destination::Tree(group) => Some(Goal::Group(group)),
            Destination::Node(node) => self.nodes.get(&node).map(|host| Goal::Host(*host)),
            Destination::Endpoint(endpoint) => {
                HostIx::at(endpoint).filter(|host| host.0 < self.topology().hosts()).map(Goal::Host)
            }
            Destination::Lan => Some(Goal::Everyone),
        };
        let Some(goal) = goal else {
            self.counters.unknown_destination.add(class, datagram.len());
            self.overheard.note_elsewhere(datagram);
            return;
        };
        self.send_to(source, goal, class, datagram);
        if let Destination::Group(group) = destination {
            for deaf in self.network.deaf_listeners(group) {
                if deaf != source {
                    self.send_to(source, Goal::Host(deaf), class, datagram);
                }
            }
        }
    }

    fn send_to(&mut self, source: HostIx, goal: Goal, class: Class, datagram: &[u8]) {
        self.note(SENT, source, datagram);
        if !matches!(goal, Goal::Host(_)) {
            self.overheard.note(datagram);
        }
        let tree = self.network.tree(source, goal);
        let number = self.packets.add(datagram, source, class, goal, tree.clone());
        self.capture(source, number, true, None);
        self.counters.unreachable += tree.unreachable;
        let load = self.load(datagram.len(), class, goal);
        let mut next = std::mem::take(&mut self.next);
        self.network.send(self.now, &tree, load, &mut |onward| next.push(onward));
        next.drain(..).for_each(|onward| self.take_onward(number, onward));
        self.next = next;
        self.packets.release(number);
    }

    fn load(&self, datagram_bytes: usize, class: Class, goal: Goal) -> Load {
        Load {
            bytes: bytes_on_the_wire(datagram_bytes),
            class,
            is_multicast: !matches!(goal, Goal::Host(_)),
            may_be_lost: self.lossy.concerns(class),
        }
    }

    pub(super) fn take_onward(&mut self, number: PacketIx, onward: Onward) {
        match onward {
            Onward::Arrive(at, host) => self.schedule_arrival(at, host, number),
            Onward::Queue(at, branch) => {
                self.packets.hold(number);
                self.agenda.add(at, Due::Link(number, branch));
            }
            Onward::Contend(branch) => self.contend(number, branch),
            Onward::Lost => self.counters.lost_on_link += 1,
            Onward::QueueFull => self.counters.queue_full += 1,
            Onward::Dead => self.counters.dead_link += 1,
        }
    }

    fn schedule_arrival(&mut self, at: Time, host: HostIx, number: PacketIx) {
        if self.disturbance.is_none() {
            self.packets.hold(number);
            self.agenda.add(at, Due::Arrival(host, number));
            return;
        }
        let Disturbance { reorder, duplicate, corrupt: damage, .. } = self.disturbance;
        let (mut at, mut number) = (at, number);
        if self.rng.chance(duplicate) {
            self.counters.duplicated += 1;
            self.packets.hold(number);
            let again = at + self.disturbance.delay(&mut self.rng);
            self.agenda.add(again, Due::Arrival(host, number));
        }
        if self.rng.chance(reorder) {
            self.counters.reordered += 1;
            at = at + self.disturbance.delay(&mut self.rng);
        }
        if self.rng.chance(damage) {
            self.counters.corrupted += 1;
            number = self.packets.copy(number, |bytes| corrupt(bytes, &mut self.rng));
        } else {
            self.packets.hold(number);
        }
        self.agenda.add(at, Due::Arrival(host, number));
    }

    fn capture(
        &mut self,
        host: HostIx,
        number: PacketIx,
        is_outbound: bool,
        comment: Option<&'static str>,
    ) {
        let Some(trace) = &mut self.trace else { return };
        let packet = self.packets.get(number);
        let (source, goal, datagram) = (packet.source, packet.goal, &packet.bytes[..]);
        let at = self.now;
        trace.packet(&Captured { at, host, is_outbound, source, goal, datagram, comment });
    }
}
