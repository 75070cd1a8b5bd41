use alloc::collections::VecDeque;

use super::config::Config;
use super::counters::Counters;
use super::groups::Groups;
use super::index::{GroupIx, StreamIx};
use super::packet::symbol::Arena;
use super::packet::{ID_BYTES, Packet, REPAIR_BYTES};
use crate::outbox::Outbox;
use crate::wire::MAX_DATAGRAM_BYTES;
use crate::{Destination, Event, GroupId, NodeId, Origin, RateOfFire, Rng, Time, Timers};

#[derive(Debug)]
pub(super) struct Context {
    pub(super) now: Time,
    pub(super) origin: Origin,
    pub(super) config: Config,
    pub(super) groups: Groups,
    pub(super) rng: Rng,
    pub(super) arena: Arena,
    pub(super) timers: Timers<TimerKey>,
    pub(super) outbox: Outbox,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
}

const MAX_QUEUED: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    Heartbeat(GroupIx),
    Patience(GroupIx),
    Open(StreamIx),
    Reassembly(StreamIx),
    Pace,
    Joiners(GroupIx),
}

impl Context {
    pub(super) fn id(&self) -> NodeId {
        self.origin.node
    }

    pub(super) fn transmit(
        &mut self,
        destination: Destination,
        group: GroupIx,
        packet: Packet<'_>,
    ) {
        let group = self.groups.get(group);
        let (id, view) = (group.id, group.view_version);
        self.send([destination], (id, view), packet);
    }

    pub(super) fn transmit_to(&mut self, node: NodeId, packet: Packet<'_>) {
        self.send([Destination::Node(node)], (GroupId::NONE, 0), packet);
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        destinations: impl IntoIterator<Item = Destination>,
        (group, view): (GroupId, u32),
        packet: Packet<'_>,
    ) -> u64 {
        let Self { origin, outbox, counters, .. } = self;
        if outbox.len() >= MAX_QUEUED {
            counters.outbox_dropped += destinations.into_iter().count() as u64;
            return 0;
        }
        let encode = |out: &mut Vec<u8>| packet.encode(*origin, group, view, out);
        let bytes = outbox.push_to_each(packet.class(), destinations, encode) as u64;
        counters.bytes_sent += bytes;
        bytes
    }

    /// Returns `true` if a repair or a retransmission of the symbol fits in a UDP datagram. Symbols
    /// of correct senders always fit, because all groups of a node have the same r.
    pub(super) fn fits_repair(&self, symbol: &[u8]) -> bool {
        let ids = usize::from(self.groups.r.unwrap_or(RateOfFire::MAX_R)) * ID_BYTES;
        REPAIR_BYTES + ids + symbol.len() <= MAX_DATAGRAM_BYTES
    }
}

impl TimerKey {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Heartbeat(_) => "heartbeat",
            Self::Patience(_) => "lagging members",
            Self::Open(_) => "open a stream",
            Self::Reassembly(_) => "reassembly of a message",
            Self::Pace => "pacing of fragments",
            Self::Joiners(_) => "end of the stream for joiners",
        }
    }
}
