//! What a group is given to act with: the time, and where its packets and events go.

use alloc::collections::{BTreeSet, VecDeque};

use super::config::Config;
use super::counters::Counters;
use super::line::Line;
use super::packet::Packet;
use crate::outbox::Outbox;
use crate::{
    Class, Destination, Event, GroupId, LossCause, Lost, NodeId, Origin, Rng, SeqNo, Time, Transmit,
};

/// What is around one group while it is called.
pub(super) struct Around<'a> {
    pub(super) now: Time,
    /// Whether the network takes no data for now.
    pub(super) is_blocked: bool,
    pub(super) node: NodeId,
    pub(super) origin: Origin,
    pub(super) group: GroupId,
    /// The number of the stream that is sent or received.
    pub(super) stream: u32,
    pub(super) config: &'a Config,
    /// The nodes that multicast from here does not reach.
    pub(super) unreached: &'a BTreeSet<NodeId>,
    pub(super) outbox: &'a mut Outbox,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
    pub(super) rng: &'a mut Rng,
    /// The way to the manager of the membership service.
    pub(super) line: &'a mut Line,
}

impl Around<'_> {
    /// Sends to one node.
    pub(super) fn unicast(&mut self, to: NodeId, packet: &Packet) {
        self.send(Destination::Node(to), packet);
    }

    /// Sends to all members.
    pub(super) fn multicast(&mut self, packet: &Packet) {
        self.send(Destination::Group(self.group), packet);
    }

    /// Sends along the tree.
    pub(super) fn along_tree(&mut self, packet: &Packet) {
        self.send(Destination::Tree(self.group), packet);
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

    /// Tells the application that packets from `first` to before `end` will not come.
    pub(super) fn lose(&mut self, sender: NodeId, first: u64, end: u64, cause: LossCause) {
        if first < end {
            let (first, last) = (seqno(first), seqno(end - 1));
            let group = self.group;
            self.events.push_back(Event::Lost(Lost { group, sender, first, last, cause }));
        }
    }
}

/// A packet's number as the application sees it.
pub(super) fn seqno(number: u64) -> SeqNo {
    SeqNo(number as u32)
}
