use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use carom_proto::loss::{Loss, LossInjector};
use carom_proto::{GroupId, NodeId, Rng, Time};

use crate::clock::Clock;
use crate::ids::PacketIx;
use crate::machine::Machine;

pub(crate) struct Host<M> {
    pub(crate) tenant: Option<Tenant<M>>,
    pub(crate) incarnation: u32,
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) clock: Clock,
    pub(crate) loss: LossInjector,
    /// Datagrams that wait for the processor. The queue holds at most `capacity`.
    pub(crate) waiting: VecDeque<PacketIx>,
    pub(crate) capacity: usize,
    pub(crate) cost: Duration,
    pub(crate) slowness: Duration,
    pub(crate) is_paused: bool,
    /// `true` if the host has no power or network, so that it sends no replies for its former
    /// machine.
    pub(crate) is_dark: bool,
    /// `true` while a datagram is processed and the end of its processing is scheduled.
    pub(crate) is_serving: bool,
    pub(crate) held_commands: Vec<u64>,
    /// Time of the next timer, or [`Time::MAX`] if none is scheduled.
    pub(crate) wake: Time,
    rng: Rng,
}

pub(crate) struct Tenant<M> {
    pub(crate) id: NodeId,
    pub(crate) machine: M,
}

impl<M> Host<M> {
    pub(crate) fn new(loss: Loss, capacity: usize, cost: Duration, rng: &mut Rng) -> Self {
        Self {
            tenant: None,
            incarnation: 0,
            groups: BTreeSet::new(),
            clock: Clock::default(),
            loss: LossInjector::new(loss, rng.next_u64()),
            waiting: VecDeque::new(),
            capacity,
            cost,
            slowness: Duration::ZERO,
            is_paused: false,
            is_dark: false,
            is_serving: false,
            held_commands: Vec::new(),
            wake: Time::MAX,
            rng: Rng::new(rng.next_u64()),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_paused || self.is_serving || !self.service_time().is_zero()
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = self.tenant.is_some();
    }

    /// Starts to process the next datagram on a free processor. Returns the time of completion.
    pub(crate) fn begin_service(&mut self, now: Time) -> Option<Time> {
        let begins = !self.is_serving && !self.is_paused && !self.waiting.is_empty();
        self.is_serving |= begins;
        begins.then(|| now + self.service_time())
    }

    /// Ends the processing of the next waiting datagram for this incarnation, and returns the
    /// datagram. Returns `None` if the machine is gone or paused.
    pub(crate) fn end_service(&mut self, incarnation: u32) -> Option<PacketIx> {
        let is_its = self.incarnation == incarnation && self.is_serving;
        self.is_serving &= !is_its;
        (is_its && !self.is_paused).then(|| self.waiting.pop_front())?
    }

    fn service_time(&self) -> Duration {
        self.cost + self.slowness
    }

    /// Queues a datagram. If the buffer is full, removes and returns a random datagram, like the
    /// receive buffer of the runtime (Ricochet 3.2.5).
    pub(crate) fn wait(&mut self, packet: PacketIx) -> Option<PacketIx> {
        let mut victim = None;
        if self.waiting.len() >= self.capacity {
            victim = self.waiting.remove(self.rng.below(self.waiting.len()));
        }
        self.waiting.push_back(packet);
        victim
    }
}

impl<M: Machine> Host<M> {
    pub(crate) fn next_wake(&mut self, now: Time) -> Option<Time> {
        let wakeup = self.tenant.as_ref()?.machine.poll_timeout()?;
        let at = self.clock.when(wakeup.at).max(now);
        let is_earlier = at < self.wake && !self.is_paused;
        is_earlier.then(|| self.wake = at)?;
        Some(at)
    }
}
