//! The repair window of a receiver (section 3.3): the packets that it keeps until those whom it
//! serves have them, and when it repairs.
//!
//! A receiver serves its successors, one in each ring that it is in. A packet is kept until it has
//! come here, all successors have acknowledged it, and, if the receiver is a proxy, one of its
//! overlay children has: three acknowledgements at most.

use alloc::collections::VecDeque;
use core::time::Duration;

use bytes::Bytes;

use super::having::Having;
use crate::{NodeId, Time};

/// The repair window of one receiver.
#[derive(Debug)]
pub struct RepairWindow {
    /// The packets that are kept, from `base` on.
    kept: VecDeque<Option<Bytes>>,
    base: u64,
    capacity: usize,
    own: Having,
    successors: Vec<Successor>,
    /// What at least one overlay child has; `None` if there are none.
    children: Option<Having>,
    kept_bytes: usize,
}

/// Somebody whom this receiver repairs for.
#[derive(Debug)]
struct Successor {
    node: NodeId,
    has: Having,
    /// Since when each packet waits for its acknowledgement, the longest first; one that was
    /// repaired begins anew.
    waiting: VecDeque<(Time, u64)>,
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
    pub fn new(first: u64, capacity: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            base: first,
            capacity,
            own: Having::all_below(first),
            successors: Vec::new(),
            children: None,
            kept_bytes: 0,
        }
    }

    /// What has come here.
    pub fn own(&self) -> &Having {
        &self.own
    }

    /// What is acknowledged in the proxy ring: what the receiver's branch has, as far as an overlay
    /// child has told. `None` if there are no children.
    pub fn branch(&self) -> Option<&Having> {
        self.children.as_ref()
    }

    /// The number after the last packet that there is room for.
    pub fn end(&self) -> u64 {
        self.base + self.capacity as u64
    }

    /// Bytes of the packets that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// A packet that is kept.
    pub fn packet(&self, packet: u64) -> Option<&Bytes> {
        let place = usize::try_from(packet.checked_sub(self.base)?).ok()?;
        self.kept.get(place)?.as_ref()
    }

    /// A packet has come, by the tree or as a repair.
    pub fn on_packet(&mut self, now: Time, packet: u64, payload: Bytes) -> Arrival {
        if self.own.contains(packet) {
            return Arrival::Known;
        }
        if packet >= self.end() {
            return Arrival::Beyond;
        }
        self.own.insert(packet);
        let place = (packet - self.base) as usize;
        while self.kept.len() <= place {
            self.kept.push_back(None);
        }
        self.kept_bytes += payload.len();
        self.kept[place] = Some(payload);
        for successor in &mut self.successors {
            if !successor.has.contains(packet) {
                successor.waiting.push_back((now, packet));
            }
        }
        self.release();
        Arrival::New
    }

    /// Somebody has acknowledged packets. Who is both a successor and an overlay child counts as
    /// both.
    pub fn on_ack(&mut self, from: NodeId, is_child: bool, has: &Having) {
        if let Some(successor) = self.successors.iter_mut().find(|it| it.node == from) {
            successor.has.absorb(has);
        }
        if is_child && let Some(children) = &mut self.children {
            children.absorb(has);
        }
        self.release();
    }

    /// Whom this receiver serves from now on, and whether it has overlay children. Who was served
    /// before keeps what is known of it; somebody new is served with all that is kept.
    pub fn serve(&mut self, now: Time, successors: &[NodeId], has_children: bool) {
        self.successors.retain(|it| successors.contains(&it.node));
        for node in successors {
            if self.successors.iter().any(|it| it.node == *node) {
                continue;
            }
            let kept = (self.base..).zip(&self.kept).filter(|(_, payload)| payload.is_some());
            let waiting = kept.map(|(packet, _)| (now, packet)).collect();
            let has = Having::all_below(self.base);
            self.successors.push(Successor { node: *node, has, waiting });
        }
        match has_children {
            true if self.children.is_none() => self.children = Some(Having::all_below(self.base)),
            true => {}
            false => self.children = None,
        }
        self.release();
    }

    /// A packet that a successor has not acknowledged within `patience`, and to whom it is to be
    /// sent. It is due again after the same time.
    pub fn poll_repair(&mut self, now: Time, patience: Duration) -> Option<(NodeId, u64, Bytes)> {
        for successor in &mut self.successors {
            let Some(since) = successor.longest_waiting() else { continue };
            if now.since(since) < patience {
                continue;
            }
            let (_, packet) = successor.waiting.pop_front()?;
            successor.waiting.push_back((now, packet));
            let place = (packet - self.base) as usize;
            let payload = self.kept[place].clone().expect("what waits is kept");
            return Some((successor.node, packet, payload));
        }
        None
    }

    /// When [`RepairWindow::poll_repair`] is to be called.
    pub fn next_repair(&mut self, patience: Duration) -> Option<Time> {
        let since = self.successors.iter_mut().filter_map(Successor::longest_waiting).min()?;
        Some(since + patience)
    }

    /// The successors that lack a packet that is kept here: who gets a repair passes it on at once.
    /// It counts as repaired for them.
    pub fn pass_on(&mut self, now: Time, packet: u64) -> Vec<NodeId> {
        let mut lacking = Vec::new();
        for successor in &mut self.successors {
            if !successor.has.contains(packet)
                && let Some(place) = successor.waiting.iter().rposition(|(_, it)| *it == packet)
            {
                successor.waiting.remove(place);
                successor.waiting.push_back((now, packet));
                lacking.push(successor.node);
            }
        }
        lacking
    }

    /// Lets go what nobody needs any more.
    fn release(&mut self) {
        let served = self.successors.iter().map(|it| it.has.next());
        let all = served.chain(self.children.as_ref().map(Having::next));
        let edge = all.fold(self.own.next(), u64::min);
        while self.base < edge {
            if let Some(payload) = self.kept.pop_front().flatten() {
                self.kept_bytes -= payload.len();
            }
            self.base += 1;
        }
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        assert!(self.kept.len() <= self.capacity, "more is kept than there is room for");
        let bytes: usize = self.kept.iter().flatten().map(Bytes::len).sum();
        assert_eq!(bytes, self.kept_bytes, "bytes are counted wrongly");
        for (packet, payload) in (self.base..).zip(&self.kept) {
            assert_eq!(payload.is_some(), self.own.contains(packet), "packet {packet}");
        }
        assert!(self.base <= self.own.next(), "a packet was let go that never came");
        for successor in &self.successors {
            let waits = |packet| successor.waiting.iter().any(|(_, it)| *it == packet);
            for (packet, payload) in (self.base..).zip(&self.kept) {
                let is_due = payload.is_some() && !successor.has.contains(packet);
                assert!(!is_due || waits(packet), "packet {packet} is never repaired");
            }
        }
    }
}

impl Successor {
    /// Since when the packet waits that has waited longest of those that are not acknowledged.
    fn longest_waiting(&mut self) -> Option<Time> {
        loop {
            let (since, packet) = *self.waiting.front()?;
            if !self.has.contains(packet) {
                return Some(since);
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
