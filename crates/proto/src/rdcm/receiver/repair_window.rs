//! The repair window of a receiver (section 3.3), which contains the packets that it keeps for its
//! application and for the receivers that it serves.
//!
//! A receiver serves its successors, one in each of its rings. A packet is kept until the
//! application has taken it, all successors have acknowledged it and, if the receiver is a proxy,
//! one of its overlay children has acknowledged it. At most three acknowledgments are needed.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::super::packet::{Fragment, RingAck};
use super::super::sack_set::SackSet;
use super::super::successor::{RepairTiming, Successor};
use crate::{NodeId, Time};

#[derive(Debug)]
pub(super) struct RepairWindow {
    kept: VecDeque<Option<KeptPacket>>,
    base: u64,
    capacity: u64,
    pub(super) own: SackSet,
    pub(super) taken_to: u64,
    pub(super) successors: Vec<Successor>,
    children: Option<SackSet>,
    /// `true` if one of the children is heard, or if none of them has anything to report.
    is_branch_heard: bool,
    pub(super) kept_bytes: usize,
    timing: RepairTiming,
}

#[derive(Clone, Debug)]
pub(super) struct KeptPacket {
    pub(super) fragment: Fragment,
    pub(super) repaired_by: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    New,
    Known,
    Beyond,
}

impl RepairWindow {
    pub(super) fn new(first: u64, capacity: u32, timing: RepairTiming) -> Self {
        Self {
            kept: VecDeque::new(),
            base: first,
            capacity: capacity.into(),
            own: SackSet::all_below(first),
            taken_to: first,
            successors: Vec::new(),
            children: None,
            is_branch_heard: true,
            kept_bytes: 0,
            timing,
        }
    }

    /// Returns the packets that the receiver or one of its overlay children has, or `None` if it
    /// has no overlay children.
    pub(super) fn branch(&self) -> Option<SackSet> {
        let mut branch = self.children.clone()?;
        branch.absorb(&self.own);
        Some(branch)
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.capacity
    }

    pub(super) fn packet(&self, number: u64) -> Option<&KeptPacket> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.kept.get(place)?.as_ref()
    }

    pub(super) fn on_packet(&mut self, now: Time, number: u64, packet: KeptPacket) -> Arrival {
        if self.own.contains(number) {
            return Arrival::Known;
        }
        if number >= self.end() {
            return Arrival::Beyond;
        }
        self.own.insert(number);
        let place = (number - self.base) as usize;
        while self.kept.len() <= place {
            self.kept.push_back(None);
        }
        self.kept_bytes += packet.fragment.bytes.len();
        self.kept[place] = Some(packet);
        let timing = &self.timing;
        self.successors.iter_mut().for_each(|it| it.await_ack(now, number, timing));
        self.release();
        Arrival::New
    }

    pub(super) fn take(&mut self) -> Option<KeptPacket> {
        if self.taken_to >= self.own.next() {
            return None;
        }
        let packet = self.packet(self.taken_to).cloned();
        self.taken_to += 1;
        self.release();
        packet
    }

    pub(super) fn on_ack(&mut self, now: Time, from: NodeId, ack: &RingAck, is_child: bool) {
        let is_it = |it: &&mut Successor| it.node == from && it.ring == ack.ring;
        // Nothing is kept beyond the window, though the sender may be ahead of a late receiver.
        let ack = ack.below(self.end());
        if let Some(successor) = self.successors.iter_mut().find(is_it) {
            let fresh = successor.on_ack(now, &ack, &self.timing);
            let end = fresh.end.min(self.base + self.kept.len() as u64);
            for number in fresh.start.max(self.base)..end {
                let place = (number - self.base) as usize;
                if self.kept.get(place).is_some_and(Option::is_some) {
                    successor.mark_missing(number, now + self.timing.detect_after);
                }
            }
        }
        self.successors.retain(|it| !it.is_released());
        if is_child && let Some(children) = &mut self.children {
            children.absorb(&ack.has);
            self.is_branch_heard = true;
        }
        self.release();
    }

    /// Handles a release by a former successor, or by one that will be when the new place arrives.
    pub(super) fn on_release(&mut self, node: NodeId, ring: u32, epoch: u32, from: u64) {
        let its = self.successors.iter_mut().find(|it| (it.ring, it.node) == (ring, node));
        if let Some(successor) = its {
            successor.release(epoch, from);
            self.successors.retain(|it| !it.is_released());
            self.release();
        }
    }

    pub(super) fn on_repair_from(&mut self, from: NodeId, number: u64) {
        let its = self.successors.iter_mut().filter(|it| it.node == from);
        its.for_each(|successor| successor.record_has(number));
    }

    /// Serves new successors, and for a limited time former ones that need packets and are heard.
    pub(super) fn serve(
        &mut self,
        now: Time,
        epoch: u32,
        successors: &[(u32, NodeId)],
        has_children: bool,
        linger: Duration,
    ) {
        let is_served = |it: &Successor| successors.contains(&(it.ring, it.node));
        // A former successor that is served again counts as new.
        self.successors.retain(|it| it.until().is_none() || !is_served(it));
        for successor in &mut self.successors {
            match is_served(successor) {
                true => successor.serve(epoch),
                false => successor.linger(now, linger),
            }
        }
        self.drop_former(now);
        for (ring, node) in successors {
            if self.successors.iter().any(|it| (it.ring, it.node) == (*ring, *node)) {
                continue;
            }
            let mut successor = Successor::new(now, *ring, *node, self.base);
            successor.serve(epoch);
            let kept = (self.base..).zip(&self.kept).filter(|(_, packet)| packet.is_some());
            kept.for_each(|(number, _)| successor.await_ack(now, number, &self.timing));
            self.successors.push(successor);
        }
        match has_children {
            true if self.children.is_none() => self.children = Some(SackSet::all_below(self.base)),
            true => {}
            false => self.children = None,
        }
        self.release();
    }

    /// Checks which successors are silent. Nothing is kept for silent successors, nor for the
    /// branch unless one of its children is heard.
    pub(super) fn check_silence(&mut self, now: Time, gone_after: Duration, is_branch_heard: bool) {
        self.successors.iter_mut().for_each(|it| it.check_silence(now, gone_after));
        self.is_branch_heard = is_branch_heard;
        self.release();
    }

    pub(super) fn forget_branch(&mut self) {
        (self.children, self.is_branch_heard) = (None, true);
    }

    pub(super) fn poll_repair(&mut self, now: Time) -> Option<(NodeId, u64)> {
        for successor in &mut self.successors {
            let (base, kept) = (self.base, &self.kept);
            let is_kept = |number: u64| {
                let place = number.checked_sub(base).and_then(|it| usize::try_from(it).ok());
                place.and_then(|place| kept.get(place)).is_some_and(Option::is_some)
            };
            if let Some(number) = successor.poll_repair(now, &self.timing, is_kept) {
                return Some((successor.node, number));
            }
        }
        None
    }

    pub(super) fn next_repair(&mut self) -> Option<Time> {
        self.successors.iter_mut().filter_map(|it| it.next_repair(&self.timing)).min()
    }

    /// Returns the successors to which a repair that has just arrived is forwarded at once: those
    /// that are known to lack it and, with `is_news`, those whose state is unknown.
    pub(super) fn pass_on(&mut self, now: Time, number: u64, is_news: bool) -> Vec<NodeId> {
        let timing = &self.timing;
        let lacking = self.successors.iter_mut().filter_map(|successor| {
            successor.pass_on(now, number, is_news, timing).then_some(successor.node)
        });
        lacking.collect()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.drop_former(now);
        self.release();
    }

    /// Drops former successors that need nothing or whose time is over.
    fn drop_former(&mut self, now: Time) {
        let is_late = |it: &Successor| it.until().is_some_and(|until| until <= now);
        self.successors.retain(|it| !is_late(it) && !it.is_released());
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.successors.iter().filter_map(Successor::until).min()
    }

    fn release(&mut self) {
        let heard = self.successors.iter().filter(|it| !it.is_given_up);
        // A former successor must not stop the stream. It can request packets from the sender.
        let most_behind = self.own.next().saturating_sub(self.capacity / FORMER_PART);
        // Packets that were released during a successor's silence do not hold the window.
        let served = heard.map(|it| match it.until() {
            Some(_) => it.has.next_from(self.base).max(most_behind),
            None => it.has.next_from(self.base),
        });
        let children = self.children.as_ref().filter(|_| self.is_branch_heard);
        let all = served.chain(children.map(|it| it.next_from(self.base)));
        let edge = all.fold(self.own.next().min(self.taken_to), u64::min);
        while self.base < edge {
            if let Some(packet) = self.kept.pop_front().flatten() {
                self.kept_bytes -= packet.fragment.bytes.len();
            }
            self.base += 1;
        }
    }

    pub(super) fn branch_lacks(&self) -> bool {
        self.children.as_ref().is_some_and(|it| it.next_from(self.base) < self.own.next())
    }

    pub(super) fn check(&self) {
        assert!(self.kept.len() as u64 <= self.capacity, "the window exceeds its capacity");
        let bytes: usize = self.kept.iter().flatten().map(|it| it.fragment.bytes.len()).sum();
        assert_eq!(bytes, self.kept_bytes, "the kept bytes were miscounted");
        for (number, packet) in (self.base..).zip(&self.kept) {
            assert_eq!(packet.is_some(), self.own.contains(number), "packet {number}");
        }
        assert!(self.base <= self.taken_to, "a packet was released before it was taken");
        assert!(self.taken_to <= self.own.next(), "a packet was taken that never arrived");
        let current = self.successors.iter().filter(|it| it.until().is_none());
        assert!(current.count() <= 2, "the receiver repairs for more than two others");
        for successor in &self.successors {
            // After each step of a simulation, checking a whole large window would take too long.
            for (number, packet) in (self.base..).zip(self.kept.iter().take(CHECKED)) {
                let is_due = packet.is_some() && !successor.has(number);
                assert!(
                    !is_due || successor.will_repair(number),
                    "packet {number} is never repaired"
                );
            }
        }
    }
}

/// Former successors can hold at most the capacity of the window divided by this number.
const FORMER_PART: u64 = 4;
const CHECKED: usize = 16;

#[cfg(test)]
#[path = "repair_window_tests.rs"]
mod tests;
