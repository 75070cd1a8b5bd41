//! A receiver that has left a ring stays with its former predecessor there until the new one serves
//! it (section 3.4): what it lacks the new one may have let go before.
//!
//! The new one keeps what comes once it knows of the receiver. That it does shows in its first
//! repair: from that packet on it has all. If there is none, it knows within a time. So it is told
//! to the former predecessor from which packet on it is not needed, and when it is not needed at
//! all: it lets go what it kept for the receiver.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::{Packet, Place, RingAck, Seat};
use super::Reception;
use crate::{NodeId, Time};

/// The former predecessors of a receiver that serve it yet.
#[derive(Debug, Default)]
pub(super) struct Formers(Vec<Former>);

/// A former predecessor.
#[derive(Clone, Copy, Debug)]
struct Former {
    ring: u32,
    node: NodeId,
    /// Whether it served the receiver's branch, and not the receiver alone.
    is_of_branch: bool,
    /// From this packet on somebody else serves the receiver; `None` if that is not known yet.
    from: Option<u64>,
    left_at: Time,
    /// When a repair came from it, or the receiver left.
    heard_at: Time,
    /// How often it was told that it is not needed any more.
    told: u32,
}

impl Formers {
    /// The receiver has left a seat.
    fn push(&mut self, now: Time, seat: &Seat, is_of_branch: bool, from: Option<u64>) {
        let (ring, node) = (seat.ring, seat.predecessor);
        self.0.retain(|it| (it.ring, it.node) != (ring, node));
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        let (left_at, heard_at) = (now, now);
        self.0.push(Former { ring, node, is_of_branch, from, left_at, heard_at, told: 0 });
    }

    /// A repair has come from a node to the receiver in its place.
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
    /// The receiver has another place than `before`.
    pub(super) fn leave_seats(&mut self, around: &Around<'_>, before: &Place) {
        let is_served_by = |ring: u32, node: NodeId| {
            self.place.seats().any(|seat| (seat.ring, seat.predecessor) == (ring, node))
        };
        self.formers.0.retain(|it| !is_served_by(it.ring, it.node));
        // Who is no proxy any more does not speak for its branch.
        let from = if self.place.proxy.is_none() { Some(0) } else { None };
        let left = [(Some(before.leaf), false, None), (before.proxy, true, from)];
        for (seat, is_of_branch, from) in left {
            let Some(seat) = seat.filter(|seat| seat.predecessor != around.node) else { continue };
            if !is_served_by(seat.ring, seat.predecessor) {
                self.formers.push(around.now, &seat, is_of_branch, from);
            }
        }
    }

    /// Acknowledges to former predecessors what is acknowledged to those of now: what came here,
    /// what came to the branch, or both.
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
        // To who is the parent in the same ring it goes anyway.
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
    /// When the new predecessor of a receiver knows of it, if places are told again that were lost.
    fn settles_after(&self) -> Duration {
        self.ask_after
    }
}

/// Two seats are left at once, and perhaps others soon after.
const MOST: usize = 4;
/// One who is not needed is told so as often: it may be lost.
const TOLD: u32 = 3;
