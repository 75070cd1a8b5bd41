//! The repair window of a receiver (section 3.3): the packets that it keeps until those whom it
//! serves have them.
//!
//! A receiver serves its successors, one in each ring that it is in. A packet is kept until the
//! application has got it here, all successors have acknowledged it, and, if the receiver is a
//! proxy, one of its overlay children has: three acknowledgements at most.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::having::Having;
use super::packet::{Piece, RingAck};
use super::successor::{Patience, Successor};
use crate::{NodeId, Time};

/// The repair window of one receiver.
#[derive(Debug)]
pub struct RepairWindow {
    /// The packets that are kept, from `base` on.
    kept: VecDeque<Option<Kept>>,
    base: u64,
    capacity: u64,
    own: Having,
    /// Packets below this number were taken by the application.
    taken_to: u64,
    successors: Vec<Successor>,
    /// What at least one overlay child has; `None` if there are none.
    children: Option<Having>,
    /// Whether one of them is heard, or none has anything to say.
    is_branch_heard: bool,
    kept_bytes: usize,
    patience: Patience,
}

/// A packet that is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What it carries.
    pub piece: Piece,
    /// Who repaired it; `None` if it came by the tree.
    pub repaired_by: Option<NodeId>,
}

/// What became of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is new here.
    New,
    /// It was here already.
    Known,
    /// It lies beyond the window: there is no room for it.
    Beyond,
}

impl RepairWindow {
    /// The window of a receiver whose stream begins with packet `first`, with room for `capacity`
    /// packets. It serves nobody yet.
    pub fn new(first: u64, capacity: u32, patience: Patience) -> Self {
        Self {
            kept: VecDeque::new(),
            base: first,
            capacity: capacity.into(),
            own: Having::all_below(first),
            taken_to: first,
            successors: Vec::new(),
            children: None,
            is_branch_heard: true,
            kept_bytes: 0,
            patience,
        }
    }

    /// What has come here.
    pub fn own(&self) -> &Having {
        &self.own
    }

    /// What the receiver's branch has, as far as the overlay children have told: what somebody of
    /// them has, and the receiver itself. `None` if there are no children.
    pub fn branch(&self) -> Option<Having> {
        let mut branch = self.children.clone()?;
        branch.absorb(&self.own);
        Some(branch)
    }

    /// The number after the last packet that there is room for.
    pub fn end(&self) -> u64 {
        self.base + self.capacity
    }

    /// Bytes of the packets that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// A packet that is kept.
    pub fn packet(&self, number: u64) -> Option<&Kept> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.kept.get(place)?.as_ref()
    }

    /// A packet has come.
    pub fn on_packet(&mut self, now: Time, number: u64, packet: Kept) -> Arrival {
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
        self.kept_bytes += packet.piece.bytes.len();
        self.kept[place] = Some(packet);
        let patience = &self.patience;
        self.successors.iter_mut().for_each(|it| it.await_ack(now, number, patience));
        self.release();
        Arrival::New
    }

    /// The next packet in order that the application has not taken; it is taken now.
    pub fn take(&mut self) -> Option<Kept> {
        if self.taken_to >= self.own.next() {
            return None;
        }
        let packet = self.packet(self.taken_to).cloned();
        self.taken_to += 1;
        self.release();
        packet
    }

    /// The number of the packet that [`RepairWindow::take`] gives next.
    pub fn taken_to(&self) -> u64 {
        self.taken_to
    }

    /// A successor or an overlay child has acknowledged packets.
    pub fn on_ack(&mut self, now: Time, from: NodeId, ack: &RingAck, is_child: bool) {
        let is_it = |it: &&mut Successor| it.node == from && it.ring == ack.ring;
        // As long as the others wait for this receiver nobody is sent what it has no room for.
        let ack = ack.below(self.end());
        if let Some(successor) = self.successors.iter_mut().find(is_it) {
            let fresh = successor.on_ack(now, &ack, &self.patience);
            let end = fresh.end.min(self.base + self.kept.len() as u64);
            for number in fresh.start.max(self.base)..end {
                let place = (number - self.base) as usize;
                if self.kept.get(place).is_some_and(Option::is_some) {
                    successor.misses(number, now + self.patience.detect_after);
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

    /// Somebody else serves a successor from packet `from` on, as it says in its place of an epoch:
    /// it is a former one, or will be as soon as that is known here.
    pub fn on_release(&mut self, node: NodeId, ring: u32, epoch: u32, from: u64) {
        let its = self.successors.iter_mut().find(|it| (it.ring, it.node) == (ring, node));
        if let Some(successor) = its {
            successor.release(epoch, from);
            self.successors.retain(|it| !it.is_released());
            self.release();
        }
    }

    /// Somebody has sent a repair: whoever it is has the packet.
    pub fn on_repair_from(&mut self, from: NodeId, number: u64) {
        let its = self.successors.iter_mut().filter(|it| it.node == from);
        its.for_each(|successor| successor.note_has(number));
    }

    /// Whom this receiver serves from now on, each with its ring, in an epoch of places, and
    /// whether it has overlay children. Who was served before is served yet until it needs
    /// nothing, or was not heard for the time `linger` (3.4); somebody new is served with all that
    /// is kept.
    pub fn serve(
        &mut self,
        now: Time,
        epoch: u32,
        successors: &[(u32, NodeId)],
        has_children: bool,
        linger: Duration,
    ) {
        let is_served = |it: &Successor| successors.contains(&(it.ring, it.node));
        // Who is served again is somebody new.
        self.successors.retain(|it| it.until().is_none() || !is_served(it));
        for successor in &mut self.successors {
            match is_served(successor) {
                true => successor.serve(epoch),
                false => successor.linger(now, linger),
            }
        }
        self.forget_former(now);
        for (ring, node) in successors {
            if self.successors.iter().any(|it| (it.ring, it.node) == (*ring, *node)) {
                continue;
            }
            let mut successor = Successor::new(now, *ring, *node, self.base);
            successor.serve(epoch);
            let kept = (self.base..).zip(&self.kept).filter(|(_, packet)| packet.is_some());
            kept.for_each(|(number, _)| successor.await_ack(now, number, &self.patience));
            self.successors.push(successor);
        }
        match has_children {
            true if self.children.is_none() => self.children = Some(Having::all_below(self.base)),
            true => {}
            false => self.children = None,
        }
        self.release();
    }

    /// Looks which successors are silent: nothing is kept for them any more, and for the branch
    /// neither unless one of its children is heard. Whoever gets too little asks the sender.
    pub fn look_for_silent(&mut self, now: Time, gone_after: Duration, is_branch_heard: bool) {
        self.successors.iter_mut().for_each(|it| it.look_for_silence(now, gone_after));
        self.is_branch_heard = is_branch_heard;
        self.release();
    }

    /// The overlay children are others than before: what they have is not known.
    pub fn forget_branch(&mut self) {
        (self.children, self.is_branch_heard) = (None, true);
    }

    /// A packet that a successor lacks, and to whom it is to be sent.
    pub fn poll_repair(&mut self, now: Time) -> Option<(NodeId, u64)> {
        for successor in &mut self.successors {
            let (base, kept) = (self.base, &self.kept);
            let is_kept = |number: u64| {
                let place = number.checked_sub(base).and_then(|it| usize::try_from(it).ok());
                place.and_then(|place| kept.get(place)).is_some_and(Option::is_some)
            };
            if let Some(number) = successor.poll_repair(now, &self.patience, is_kept) {
                return Some((successor.node, number));
            }
        }
        None
    }

    /// When [`RepairWindow::poll_repair`] is to be called.
    pub fn next_repair(&mut self) -> Option<Time> {
        self.successors.iter_mut().filter_map(|it| it.next_repair(&self.patience)).min()
    }

    /// Whom a repair that has just come is passed on to at once: the successors that are known to
    /// lack it; if nothing was known of it here (`is_news`), those too of which nothing is known.
    pub fn pass_on(&mut self, now: Time, number: u64, is_news: bool) -> Vec<NodeId> {
        let patience = &self.patience;
        let lacking = self.successors.iter_mut().filter_map(|successor| {
            successor.pass_on(now, number, is_news, patience).then_some(successor.node)
        });
        lacking.collect()
    }

    /// Whom this receiver serves, former successors too.
    pub fn successors_mut(&mut self) -> impl Iterator<Item = &mut Successor> {
        self.successors.iter_mut()
    }

    /// Time has passed: former successors are served no longer.
    pub fn handle_timeout(&mut self, now: Time) {
        self.forget_former(now);
        self.release();
    }

    /// Who needs nothing any more, or was not heard, would only hold packets.
    fn forget_former(&mut self, now: Time) {
        let is_late = |it: &Successor| it.until().is_some_and(|until| until <= now);
        self.successors.retain(|it| !is_late(it) && !it.is_released());
    }

    /// When [`RepairWindow::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.successors.iter().filter_map(Successor::until).min()
    }

    /// Lets go what nobody needs any more.
    fn release(&mut self) {
        let heard = self.successors.iter().filter(|it| !it.is_given_up());
        // What a former successor lacks must not stop the stream: it may be one that the others
        // wait for no longer. It asks the sender for what is let go here.
        let most_behind = self.own.next().saturating_sub(self.capacity / FORMER_PART);
        // What was released while somebody was silent holds nobody up once it is heard again.
        let served = heard.map(|it| match it.until() {
            Some(_) => it.next_from(self.base).max(most_behind),
            None => it.next_from(self.base),
        });
        let all = served.chain(self.branch_next());
        let edge = all.fold(self.own.next().min(self.taken_to), u64::min);
        while self.base < edge {
            if let Some(packet) = self.kept.pop_front().flatten() {
                self.kept_bytes -= packet.piece.bytes.len();
            }
            self.base += 1;
        }
    }

    /// Whether the receiver keeps something for its branch.
    pub fn branch_lacks(&self) -> bool {
        self.children.as_ref().is_some_and(|it| it.next_from(self.base) < self.own.next())
    }

    fn branch_next(&self) -> Option<u64> {
        let children = self.children.as_ref().filter(|_| self.is_branch_heard)?;
        Some(children.next_from(self.base))
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        assert!(self.kept.len() as u64 <= self.capacity, "more is kept than there is room for");
        let bytes: usize = self.kept.iter().flatten().map(|it| it.piece.bytes.len()).sum();
        assert_eq!(bytes, self.kept_bytes, "bytes are counted wrongly");
        for (number, packet) in (self.base..).zip(&self.kept) {
            assert_eq!(packet.is_some(), self.own.contains(number), "packet {number}");
        }
        assert!(self.base <= self.taken_to, "a packet was let go that was never taken");
        assert!(self.taken_to <= self.own.next(), "a packet was taken that never came");
        let current = self.successors.iter().filter(|it| it.until().is_none());
        assert!(current.count() <= 2, "it repairs for more than two others");
        for successor in &self.successors {
            // All of a large window would take too long after each step of a simulation.
            for (number, packet) in (self.base..).zip(self.kept.iter().take(CHECKED)) {
                let is_due = packet.is_some() && !successor.has(number);
                assert!(!is_due || successor.awaits(number), "packet {number} is never repaired");
            }
        }
    }
}

/// Former successors hold at most this part of the window.
const FORMER_PART: u64 = 4;
/// Packets whose repairs are checked.
const CHECKED: usize = 16;

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
