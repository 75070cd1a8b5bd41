use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::config::Config;
use super::counters::Counters;
use super::packet::fragment;
use super::packet::{FORWARD, PART_BYTES, Packet};
use super::reach::Reach;
use super::timing::Timing;
use crate::outbox::Outbox;
use crate::ring::{Process, RingEvent, RingNews};
use crate::{
    Class, Destination, Event, GroupId, LossCause, Lost, NodeId, Origin, Rng, SeqNo, Time, Timers,
    Transmit,
};

pub(super) struct Context<'a> {
    pub(super) now: Time,
    pub(super) node: NodeId,
    pub(super) origin: Origin,
    pub(super) group: GroupId,
    pub(super) version: u32,
    pub(super) config: &'a Config,
    pub(super) timers: &'a mut Timers<(GroupId, Timer)>,
    pub(super) outbox: &'a mut Outbox,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
    pub(super) rng: &'a mut Rng,
    pub(super) lives: &'a mut u64,
    pub(super) reach: &'a mut Reach,
    pub(super) timing: &'a mut Timing,
}

/// `Linger` is last, because it is not among the timers that [`Context::cancel_all_but_linger`]
/// cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Retransmit,
    Pass,
    Idle,
    Batch,
    /// Delays the token because the application is slow.
    Slow,
    Confirm,
    Ask,
    Request,
    Join,
    Recovery,
    Announce,
    Call,
    Stable,
    Forget,
    Linger,
}

impl Context<'_> {
    pub(super) fn multicast(&mut self, packet: &Packet) {
        for copy in 0..self.reach.copies.len() {
            self.unicast(self.reach.copies[copy], packet);
        }
        if !self.reach.is_without {
            self.send(Destination::Group(self.group), packet, 0);
        } else if !self.reach.relays.is_empty() {
            // The relay is random, so that a dead one does not stop all packets of this node.
            let relay = self.rng.below(self.reach.relays.len());
            self.unicast_to_forward(self.reach.relays[relay], packet);
        }
    }

    pub(super) fn unicast(&mut self, to: NodeId, packet: &Packet) {
        if to != self.node {
            self.send(Destination::Node(to), packet, 0);
        }
    }

    /// Sends the packet to a member that multicasts it (3.4).
    pub(super) fn unicast_to_forward(&mut self, to: NodeId, packet: &Packet) {
        if to != self.node {
            self.send(Destination::Node(to), packet, FORWARD);
        }
    }

    pub(super) fn set(&mut self, timer: Timer, after: Duration) {
        self.timers.set((self.group, timer), self.now + after);
    }

    pub(super) fn set_no_later(&mut self, timer: Timer, after: Duration) {
        self.timers.set_no_later((self.group, timer), self.now + after);
    }

    pub(super) fn set_at(&mut self, timer: Timer, at: Time) {
        self.timers.set((self.group, timer), at.max(self.now));
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.timers.is_set((self.group, timer))
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        self.timers.cancel((self.group, timer));
    }

    pub(super) fn cancel_all_but_linger(&mut self) {
        let all = (self.group, Timer::Retransmit)..(self.group, Timer::Linger);
        self.timers.cancel_range(all);
    }

    pub(super) fn next_life(&mut self) -> Process {
        *self.lives += 1;
        Process { node: self.node, life: *self.lives }
    }

    pub(super) fn report(&mut self, news: RingNews) {
        self.events.push_back(Event::Ring(RingEvent { group: self.group, news }));
    }

    // No member has the complete message. Its number is known if a member has a fragment of it.
    pub(super) fn give_up(&mut self, source: Process, message: Option<SeqNo>) {
        self.counters.messages_given_up += 1;
        tracing::info!(group = %self.group, ?source, ?message, "a message was given up");
        if let Some(number) = message {
            let (group, sender, cause) = (self.group, source.node, LossCause::AttemptsSpent);
            let lost = Lost { group, sender, first: number, last: number, cause };
            self.events.push_back(Event::Lost(lost));
        }
    }

    pub(super) fn random(&mut self, span: Duration) -> Duration {
        let nanos = span.as_nanos() as usize;
        Duration::from_nanos(self.rng.below(nanos + 1) as u64)
    }

    fn send(&mut self, destination: Destination, packet: &Packet, flags: u8) {
        let class = match packet {
            Packet::Data(_) | Packet::NonMemberData(_) => match destination {
                Destination::Group(_) => Class::Data,
                _ => Class::Retransmission,
            },
            _ => Class::Control,
        };
        let transmit = Transmit { destination, class };
        let (group, origin, version) = (self.group, self.origin, self.version);
        let put = |out: &mut Vec<u8>| packet.encode_with(flags, out, group, origin, version);
        let bytes = self.outbox.push(transmit.clone(), put);
        let largest = self.config.datagram_bytes();
        if bytes <= largest {
            return;
        }
        let whole = self.outbox.take_back(bytes);
        if whole.len() > fragment::MAX_PARTS * (largest - PART_BYTES) {
            self.counters.packets_too_large += 1;
            return;
        }
        let id = self.rng.next_u64() as u32;
        for part in fragment::split(id, &whole, largest - PART_BYTES) {
            let part = Packet::Part(part);
            self.outbox.push(transmit.clone(), |out| part.encode(out, group, origin, version));
        }
    }
}
