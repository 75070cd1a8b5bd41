use alloc::collections::{BTreeSet, VecDeque};

use super::config::Config;
use super::counters::Counters;
use super::manager::ManagerRequests;
use super::packet::Packet;
use crate::outbox::Outbox;
use crate::{
    Class, Destination, Event, GroupId, Hops, LossCause, Lost, NodeId, Origin, Rng, SeqNo, Time,
    Transmit,
};

pub(crate) struct Context<'a> {
    pub(super) now: Time,
    pub(super) is_blocked: bool,
    pub(super) node: NodeId,
    pub(super) origin: Origin,
    pub(super) group: GroupId,
    pub(super) stream: u32,
    pub(super) config: &'a Config,
    pub(super) unreached: &'a BTreeSet<NodeId>,
    pub(super) outbox: &'a mut Outbox,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
    pub(super) rng: &'a mut Rng,
    pub(super) manager: &'a mut ManagerRequests,
}

impl Context<'_> {
    pub(super) fn unicast(&mut self, to: NodeId, packet: &Packet) {
        self.send(Destination::Node(to), packet);
    }

    pub(super) fn multicast(&mut self, packet: &Packet) {
        self.send(Destination::Group(self.group), packet);
    }

    pub(super) fn along_tree(&mut self, hops: Hops, packet: &Packet) {
        self.send(Destination::Tree(self.group, hops), packet);
    }

    fn send(&mut self, destination: Destination, packet: &Packet) {
        let class = match packet {
            Packet::Data(_) => Class::Retransmission,
            _ => Class::Control,
        };
        let (group, origin, stream) = (self.group, self.origin, self.stream);
        let transmit = Transmit { destination, class };
        self.outbox.push(transmit, |out| packet.encode(group, origin, stream, out));
    }

    /// Reports to the application that the packets from `first` up to but excluding `end` are lost.
    pub(super) fn lose(&mut self, sender: NodeId, first: u64, end: u64, cause: LossCause) {
        if first < end {
            let (first, last) = (seqno(first), seqno(end - 1));
            let group = self.group;
            self.events.push_back(Event::Lost(Lost { group, sender, first, last, cause }));
        }
    }
}

pub(super) fn seqno(number: u64) -> SeqNo {
    SeqNo(number as u32)
}
