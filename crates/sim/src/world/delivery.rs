//! Forwards datagrams from their senders along the links to the hosts of the receivers.

use core::time::Duration;
use std::io::{self, Write};
use std::sync::Arc;

use carom_proto::loss::Loss;
use carom_proto::{Class, GroupId, Rng, Time};

use super::context::{BEGINNING, Context, Due, Kind};
use crate::eavesdropper::Eavesdropper;
use crate::ethernet::{Frame, bytes_on_the_wire};
use crate::faults::{Disturbance, corrupt};
use crate::ids::{CableIx, HostIx, PacketIx};
use crate::link_queue::{Dropped, Load};
use crate::medium::{Arrival, Medium};
use crate::network::{Hop, Network, Onward};
use crate::packets::Packets;
use crate::topology::Topology;
use crate::trace::{Captured, Trace};
use crate::tree::{Goal, Tree};

pub(super) struct Delivery {
    pub(super) network: Network,
    pub(super) packets: Packets,
    pub(super) disturbance: Disturbance,
    pub(super) rng: Rng,
    pub(super) eavesdropper: Eavesdropper,
    trace: Option<Trace>,
    onwards: Vec<Onward>,
    medium: Option<Box<dyn Medium>>,
    /// The tree of the datagrams that a medium carries.
    no_tree: Arc<Tree>,
}

impl Delivery {
    pub(super) fn new(
        topology: Topology,
        medium: Option<Box<dyn Medium>>,
        network_seed: u64,
        rng: Rng,
    ) -> Self {
        Self {
            network: Network::new(topology, network_seed),
            packets: Packets::default(),
            disturbance: Disturbance::default(),
            rng,
            eavesdropper: Eavesdropper::default(),
            trace: None,
            onwards: Vec::new(),
            medium,
            no_tree: Arc::new(Tree::empty()),
        }
    }

    pub(super) fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.trace = Some(Trace::new(out, self.network.topology.hosts()));
    }

    pub(super) fn end_trace(&mut self) -> io::Result<()> {
        self.trace.take().map_or(Ok(()), Trace::finish)
    }

    pub(super) fn set_link_loss(&mut self, loss: Loss) {
        let seed = self.rng.next_u64();
        self.network.set_loss(loss, seed);
    }

    pub(super) fn send(
        &mut self,
        cx: &mut Context,
        source: HostIx,
        goal: Goal,
        class: Class,
        datagram: &[u8],
    ) {
        cx.note(Kind::Sent, source, datagram);
        if !matches!(goal, Goal::Host(_)) {
            self.eavesdropper.add_multicast(datagram);
        }
        let tree = match self.medium {
            Some(_) => Arc::clone(&self.no_tree),
            None => self.network.tree(source, goal),
        };
        cx.counters.unreachable += tree.unreachable;
        let number = self.packets.add(datagram, source, class, goal, tree);
        self.capture(cx.now, source, number, true, None);
        match &mut self.medium {
            Some(medium) => {
                medium.send(source, goal, class, datagram);
                self.packets.release(number);
            }
            None => self.forward(cx, number, Hop::Source),
        }
    }

    pub(super) fn subscribe(&mut self, host: HostIx, group: GroupId) {
        self.network.subscribe(host, group);
        if let Some(medium) = &mut self.medium {
            medium.subscribe(host, group);
        }
    }

    pub(super) fn unsubscribe(&mut self, host: HostIx, group: GroupId) {
        self.network.unsubscribe(host, group);
        if let Some(medium) = &mut self.medium {
            medium.unsubscribe(host, group);
        }
    }

    /// Returns the time of the medium, or `None` if time is virtual.
    pub(super) fn real_time(&self) -> Option<Time> {
        self.medium.as_ref().map(|medium| BEGINNING + medium.elapsed())
    }

    /// Reports to the medium that an event took place late.
    pub(super) fn note_lag(&mut self, lag: Duration) {
        if let Some(medium) = &mut self.medium {
            medium.note_lag(lag);
        }
    }

    /// Waits for at most `most` for a datagram from the medium, and schedules its arrival.
    pub(super) fn receive(&mut self, cx: &mut Context, most: Duration) {
        let Some(medium) = &mut self.medium else { return };
        let arrival = medium.receive(most);
        let Some(Arrival { host, source, class, is_multicast, datagram }) = arrival else { return };
        if is_multicast && self.network.is_deaf(host) {
            return;
        }
        let goal = if is_multicast { Goal::Everyone } else { Goal::Host(host) };
        let number = self.packets.add(datagram, source, class, goal, Arc::clone(&self.no_tree));
        let at = self.real_time().unwrap_or(cx.now).max(cx.now);
        self.schedule_arrival(cx, at, host, number);
        self.packets.release(number);
    }

    pub(super) fn send_to_deaf(
        &mut self,
        cx: &mut Context,
        source: HostIx,
        group: GroupId,
        class: Class,
        datagram: &[u8],
    ) {
        for deaf in self.network.deaf_listeners(group) {
            if deaf != source {
                self.send(cx, source, Goal::Host(deaf), class, datagram);
            }
        }
    }

    pub(super) fn on_cable(&mut self, cx: &mut Context, cable: CableIx) {
        let (passed, until) = self.network.pass(cx.now, cable);
        watch_cable(cx, cable, until);
        if let Some(Frame { packet, branch, .. }) = passed {
            self.forward(cx, packet, Hop::PastCable(branch));
        }
    }

    /// Forwards a datagram from the hop `from`, and releases one hold on it.
    pub(super) fn forward(&mut self, cx: &mut Context, number: PacketIx, from: Hop) {
        let packet = self.packets.get(number);
        let load = Load {
            bytes: bytes_on_the_wire(packet.bytes.len()),
            class: packet.class,
            is_multicast: !matches!(packet.goal, Goal::Host(_)),
            may_be_lost: cx.may_lose(packet.class),
        };
        let mut onwards = std::mem::take(&mut self.onwards);
        self.network.send(cx.now, &packet.tree, from, load, &mut |onward| onwards.push(onward));
        onwards.drain(..).for_each(|onward| self.on_outcome(cx, number, onward));
        self.onwards = onwards;
        self.packets.release(number);
    }

    fn on_outcome(&mut self, cx: &mut Context, number: PacketIx, onward: Onward) {
        match onward {
            Onward::Arrive(at, host) => self.schedule_arrival(cx, at, host, number),
            Onward::Queue(at, branch) => {
                self.packets.hold(number);
                cx.schedule(at, Due::Link(number, branch));
            }
            Onward::Contend(branch) => self.contend(cx, number, branch),
            Onward::Dropped(Dropped::Lost) => cx.counters.lost_on_link += 1,
            Onward::Dropped(Dropped::QueueFull) => cx.counters.queue_full += 1,
            Onward::Dropped(Dropped::Dead) => cx.counters.dead_link += 1,
        }
    }

    fn contend(&mut self, cx: &mut Context, number: PacketIx, branch: u32) {
        let packet = self.packets.get(number);
        let frame = Frame { packet: number, branch, bytes: bytes_on_the_wire(packet.bytes.len()) };
        match self.network.contend(cx.now, &packet.tree, frame) {
            Some((cable, until)) => {
                self.packets.hold(number);
                watch_cable(cx, cable, until);
            }
            None => cx.counters.queue_full += 1,
        }
    }

    fn schedule_arrival(&mut self, cx: &mut Context, at: Time, host: HostIx, number: PacketIx) {
        if self.disturbance.is_none() {
            self.packets.hold(number);
            cx.schedule(at, Due::Arrival(host, number));
            return;
        }
        let Disturbance { reorder, duplicate, corrupt: damage, .. } = self.disturbance;
        let (mut at, mut number) = (at, number);
        if self.rng.chance(duplicate) {
            cx.counters.duplicated += 1;
            self.packets.hold(number);
            let again = at + self.disturbance.delay(&mut self.rng);
            cx.schedule(again, Due::Arrival(host, number));
        }
        if self.rng.chance(reorder) {
            cx.counters.reordered += 1;
            at = at + self.disturbance.delay(&mut self.rng);
        }
        if self.rng.chance(damage) {
            cx.counters.corrupted += 1;
            number = self.packets.copy(number, |bytes| corrupt(bytes, &mut self.rng));
        } else {
            self.packets.hold(number);
        }
        cx.schedule(at, Due::Arrival(host, number));
    }

    /// Captures a datagram that leaves or reaches `host`. `comment` is the reason if it is dropped.
    pub(super) fn capture(
        &mut self,
        at: Time,
        host: HostIx,
        number: PacketIx,
        is_outbound: bool,
        comment: Option<&'static str>,
    ) {
        let Some(trace) = &mut self.trace else { return };
        let packet = self.packets.get(number);
        let (source, goal, datagram) = (packet.source, packet.goal, &packet.bytes[..]);
        trace.packet(&Captured { at, host, is_outbound, source, goal, datagram, comment });
    }
}

fn watch_cable(cx: &mut Context, cable: CableIx, until: Option<Time>) {
    if let Some(until) = until {
        cx.schedule(until, Due::Cable(cable));
    }
}
