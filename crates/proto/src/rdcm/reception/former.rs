//! Handover between predecessors (section 3.4). A receiver that has left a ring is served by its
//! former predecessor until the new one serves it, because the new one may already have released
//! packets that the receiver lacks.
//!
//! The new predecessor keeps packets for the receiver once it has its own new place. Its first
//! repair shows that it has all packets from that one on. Without a repair, this is assumed after a
//! while. The receiver notifies the former predecessor of the first packet for which it is no
//! longer needed, and repeats this once it is not needed at all. The former predecessor then
//! releases what it kept for the receiver.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::{Packet, Place, RingAck, Seat};
use super::Reception;
use crate::{NodeId, Time};

/// Former predecessors that still serve a receiver.
#[derive(Debug, Default)]
pub(super) struct Formers(Vec<Former>);

#[derive(Clone, Copy, Debug)]
struct Former {
    ring: u32,
    node: NodeId,
    /// `true` if it served the receiver's branch, `false` if it served only the receiver.
    is_of_branch: bool,
    /// First packet for which another receiver is responsible. `None` if it is not known yet.
    from: Option<u64>,
    left_at: Time,
    /// When its last repair arrived, or the receiver left the ring.
    heard_at: Time,
    /// Number of notifications that it is no longer needed.
    told: u32,
}

impl Formers {
    /// Adds the predecessor of a seat that the receiver has left.
    fn push(&mut self, now: Time, seat: &Seat, is_of_branch: bool, from: Option<u64>) {
        let (ring, node) = (seat.ring, seat.predecessor);
        self.0.retain(|it| (it.ring, it.node) != (ring, node));
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        let (left_at, heard_at) = (now, now);
        self.0.push(Former { ring, node, is_of_branch, from, left_at, heard_at, told: 0 });
    }

    /// Records a repair from `node` to the receiver, which is in `place`.
    pub(super) fn on_repair(&mut self, now: Time, node: NodeId, number: u64, place: &Place) {
        for former in &mut self.0 {
            let seat = if former.is_of_branch { place.proxy } else { Some(place.leaf) };
            if former.node == node {
                former.heard_at = now;
            } else if seat.is_some_and(|seat| seat.predecessor == node) {
                former.from = Some(former.from.map_or(number, |from| from.min(number)));
            }
        }
    }
}

impl Reception {
    /// Updates the former predecessors after a change of the place from `before`.
    pub(super) fn leave_seats(&mut self, around: &Around<'_>, before: &Place) {
        let is_served_by = |ring: u32, node: NodeId| {
            self.place.seats().any(|seat| (seat.ring, seat.predecessor) == (ring, node))
        };
        self.formers.0.retain(|it| !is_served_by(it.ring, it.node));
        // A former proxy no longer reports for its branch.
        let from = if self.place.proxy.is_none() { Some(0) } else { None };
        let left = [(Some(before.leaf), false, None), (before.proxy, true, from)];
        for (seat, is_of_branch, from) in left {
            let Some(seat) = seat.filter(|seat| seat.predecessor != around.node) else { continue };
            if !is_served_by(seat.ring, seat.predecessor) {
                self.formers.push(around.now, &seat, is_of_branch, from);
            }
        }
    }

    /// Sends former predecessors the acknowledgments that the current ones get: those of the
    /// receiver itself, of its branch, or both.
    pub(super) fn tell_formers(&mut self, around: &mut Around<'_>, own: bool, branch: bool) {
        if self.formers.0.is_empty() {
            return;
        }
        let (now, config) = (around.now, around.config);
        let mut formers = core::mem::take(&mut self.formers);
        for former in &mut formers.0 {
            let of_branch = former.is_of_branch && self.place.proxy.is_some();
            if !(if of_branch { branch } else { own }) {
                continue;
            }
            if former.from.is_none() && now.since(former.left_at) >= config.settles_after() {
                former.from = Some(self.known_to);
            }
            let ack = match of_branch {
                true => self.branch_ack(former.ring, config),
                false => self.own_ack(former.ring, config),
            };
            former.told += u32::from(former.from.is_some_and(|from| ack.has.next() >= from));
            self.tell_former(around, former, ack);
        }
        let is_needed =
            |it: &Former| it.told < TOLD && now.since(it.heard_at) < config.linger_at_ring();
        formers.0.retain(is_needed);
        self.formers = formers;
    }

    fn tell_former(&self, around: &mut Around<'_>, former: &Former, ack: RingAck) {
        // The parent in the same ring gets it anyway.
        if !self.place.seats().any(|seat| (seat.ring, seat.parent) == (former.ring, former.node)) {
            around.counters.acks_sent += 1;
            around.unicast(former.node, &Packet::Ack(alloc::vec![ack]));
        }
        if let Some(from) = former.from {
            let (ring, epoch) = (former.ring, self.place.epoch);
            around.unicast(former.node, &Packet::Release { ring, epoch, from });
        }
    }
}

impl Config {
    /// Returns the time after which the new predecessor is assumed to serve the receiver, even if
    /// its place was lost and sent again.
    fn settles_after(&self) -> Duration {
        self.ask_after
    }
}

/// Maximum number of former predecessors. Two seats are left at once, and perhaps two more soon
/// after.
const MOST: usize = 4;
/// Number of times that a former predecessor is notified that it is not needed, because
/// notifications may be lost.
const TOLD: u32 = 3;
