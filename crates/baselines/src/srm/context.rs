//! State that all groups of a node share, and that the recovery in one group uses.

use core::time::Duration;

use carom_proto::{Destination, GroupId, NodeId, PacketId, Rng, SeqNo, Timers};

use super::config::Config;
use super::packet::Packet;
use super::session::Peers;
use crate::retained::Retained;
use crate::shell::Context;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) retained: Retained,
    pub(super) timers: Timers<TimerKey>,
    pub(super) counters: Counters,
}

pub(super) struct GroupContext<'a> {
    pub(super) group: GroupId,
    pub(super) node: &'a mut Context,
    pub(super) shared: &'a mut Shared,
    pub(super) peers: &'a Peers,
}

/// A packet within a group (an "ADU" in the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Adu {
    pub(super) source: NodeId,
    pub(super) seqno: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    Session(GroupId),
    Request(GroupId, Adu),
    Repair(GroupId, Adu),
}

carom_proto::counters! {
    pub(super) struct Counters {
        requests_sent,
        requests_received,
        requests_suppressed,
        /// Requests received just after this member had backed off its own (ignore-backoff).
        requests_ignored,
        /// Requests for packets that any member repaired less than three distances ago.
        requests_held_down,
        requests_unanswerable,
        repairs_sent,
        repairs_suppressed,
        /// Repairs of packets that were not missing at this node.
        repairs_duplicate,
        /// Repairs that were not scheduled because too many are pending or the deadline has passed.
        repairs_refused,
        sessions_sent,
        session_bytes,
        /// Reports that were postponed to the next session message.
        reports_put_off,
        distances_measured,
        /// Session messages of members beyond the limit, which were not stored.
        peers_refused,
    }
}

impl Adu {
    pub(super) fn of(id: PacketId) -> Self {
        Self { source: id.sender, seqno: id.seqno.0 }
    }

    pub(super) fn id(self, group: GroupId) -> PacketId {
        PacketId { sender: self.source, group, seqno: SeqNo(self.seqno) }
    }
}

impl GroupContext<'_> {
    pub(super) fn distance(&self, node: NodeId) -> Duration {
        self.peers.distance(node, self.shared.config.distance)
    }

    pub(super) fn size(&self) -> usize {
        let viewed = self.node.reception.group(self.group).map_or(0, |it| it.view.members().len());
        viewed.max(self.peers.len()) + 1
    }

    pub(super) fn is_missing(&self, adu: Adu) -> bool {
        self.node.reception.is_missing(adu.id(self.group))
    }

    pub(super) fn multicast(&mut self, packet: Packet<'_>) {
        self.node.transmit(Destination::Group(self.group), self.group, packet);
    }

    pub(super) fn set_request(&mut self, adu: Adu, wait: Duration) {
        self.shared.timers.set(TimerKey::Request(self.group, adu), self.node.now + wait);
    }

    pub(super) fn set_repair(&mut self, adu: Adu, wait: Duration) {
        self.shared.timers.set(TimerKey::Repair(self.group, adu), self.node.now + wait);
    }
}
