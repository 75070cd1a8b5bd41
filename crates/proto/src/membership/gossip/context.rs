use alloc::collections::VecDeque;

use super::config::Config;
use super::counters::Counters;
use super::packet::Packet;
use crate::membership::MembershipEvent;
use crate::{Destination, Endpoint, NodeId, Origin, Rng, Time, Timers};

pub(super) struct Context {
    pub(super) now: Time,
    pub(super) origin: Origin,
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) timers: Timers<Timer>,
    pub(super) events: VecDeque<MembershipEvent>,
    pub(super) counters: Counters,
    outgoing: VecDeque<(Destination, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Hello,
    Settle,
    Roster,
    Digest,
    Push,
    Confirm(NodeId),
    Pull(NodeId),
    Challenge(NodeId),
    Report(NodeId),
    Rejoin,
}

const ANSWERS: usize = 8;

impl Context {
    pub(super) fn new(origin: Origin, config: Config, rng: Rng) -> Self {
        Self {
            now: Time::ZERO,
            origin,
            config,
            rng,
            timers: Timers::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            outgoing: VecDeque::new(),
        }
    }

    pub(super) fn send(&mut self, to: Endpoint, packet: &Packet) {
        self.transmit(Destination::Endpoint(to), packet);
    }

    pub(super) fn transmit(&mut self, destination: Destination, packet: &Packet) {
        let datagram = self.encode(packet);
        self.transmit_encoded(destination, packet, datagram);
    }

    pub(super) fn encode(&self, packet: &Packet) -> Vec<u8> {
        packet.encode(self.config.network, self.origin)
    }

    pub(super) fn transmit_encoded(
        &mut self,
        destination: Destination,
        packet: &Packet,
        datagram: Vec<u8>,
    ) {
        if self.outgoing.len() >= self.config.max_queued {
            self.counters.queue_dropped += 1;
            return;
        }
        debug_assert!(datagram.len() <= self.config.max_datagram_bytes);
        self.counters.count_sent(packet, datagram.len());
        self.outgoing.push_back((destination, datagram));
    }

    pub(super) fn poll_datagram(&mut self) -> Option<(Destination, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    pub(super) fn stop(&mut self) {
        self.timers = Timers::new();
        self.outgoing.clear();
    }

    /// Returns `true` with such a probability that about [`ANSWERS`] of the members answer.
    pub(super) fn is_among_answers(&mut self, members: usize) -> bool {
        self.rng.below(members + 1) < ANSWERS
    }
}
