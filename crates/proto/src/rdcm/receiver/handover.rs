//! Handover between predecessors (section 3.4). A receiver that has left a ring is served by its
//! previous predecessor until the new predecessor serves it, because the new one may already have
//! released packets that the receiver lacks.
//!
//! The new predecessor keeps packets for the receiver from the time at which it has its own new
//! place. Its first repair shows that it has all packets from that one on. If there is no repair,
//! the same is assumed after a while. The receiver notifies the previous predecessor of the first
//! packet that the new one repairs, and repeats the notification once it has all earlier packets.
//! The previous predecessor then releases the packets that it kept for the receiver.

use super::super::context::Context;
use super::super::packet::{Packet, Place, RingAck, Seat};
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Handover(Vec<Previous>);

#[derive(Clone, Copy, Debug)]
struct Previous {
    ring: u32,
    node: NodeId,
    /// `true` if the predecessor served the whole branch, `false` if only the receiver.
    is_of_branch: bool,
    /// First packet for which another receiver is responsible, or `None` if it is not known yet.
    from: Option<u64>,
    left_at: Time,
    heard_at: Time,
    notified: u32,
}

impl Handover {
    pub(super) fn on_place(&mut self, now: Time, node: NodeId, before: &Place, place: &Place) {
        let is_served_by = |ring: u32, node: NodeId| {
            place.seats().any(|seat| (seat.ring, seat.predecessor) == (ring, node))
        };
        self.0.retain(|it| !is_served_by(it.ring, it.node));
        // A receiver that is no longer a proxy does not report for its branch.
        let from = if place.proxy.is_none() { Some(0) } else { None };
        let left = [(Some(before.leaf), false, None), (before.proxy, true, from)];
        for (seat, is_of_branch, from) in left {
            let Some(seat) = seat.filter(|seat| seat.predecessor != node) else { continue };
            if !is_served_by(seat.ring, seat.predecessor) {
                self.push(now, &seat, is_of_branch, from);
            }
        }
    }

    fn push(&mut self, now: Time, seat: &Seat, is_of_branch: bool, from: Option<u64>) {
        let (ring, node) = (seat.ring, seat.predecessor);
        self.0.retain(|it| (it.ring, it.node) != (ring, node));
        if self.0.len() == MAX_PREVIOUS {
            self.0.remove(0);
        }
        let (left_at, heard_at) = (now, now);
        self.0.push(Previous { ring, node, is_of_branch, from, left_at, heard_at, notified: 0 });
    }

    pub(super) fn on_repair(&mut self, now: Time, node: NodeId, number: u64, place: &Place) {
        for previous in &mut self.0 {
            let seat = if previous.is_of_branch { place.proxy } else { Some(place.leaf) };
            if previous.node == node {
                previous.heard_at = now;
            } else if seat.is_some_and(|seat| seat.predecessor == node) {
                previous.from = Some(previous.from.map_or(number, |from| from.min(number)));
            }
        }
    }

    pub(super) fn acknowledge(
        &mut self,
        cx: &mut Context<'_>,
        place: &Place,
        known_to: u64,
        own: Option<&RingAck>,
        branch: Option<&RingAck>,
    ) {
        let settles_after = cx.config.ask_after;
        for previous in &mut self.0 {
            let is_of_branch = previous.is_of_branch && place.proxy.is_some();
            let Some(ack) = (if is_of_branch { branch } else { own }) else { continue };
            // By now, the new predecessor is assumed to serve, even if its place was sent again.
            if previous.from.is_none() && cx.now.since(previous.left_at) >= settles_after {
                previous.from = Some(known_to);
            }
            let is_unneeded = previous.from.is_some_and(|from| ack.has.next() >= from);
            previous.notified += u32::from(is_unneeded);
            previous.acknowledge(cx, place, ack);
        }
        let (now, linger) = (cx.now, cx.config.linger_in_ring());
        self.0.retain(|it| it.notified < NOTIFICATIONS && now.since(it.heard_at) < linger);
    }
}

impl Previous {
    fn acknowledge(&self, cx: &mut Context<'_>, place: &Place, ack: &RingAck) {
        // The parent in the same ring gets the acknowledgment anyway.
        if !place.seats().any(|seat| (seat.ring, seat.parent) == (self.ring, self.node)) {
            cx.counters.acks_sent += 1;
            let ack = RingAck { ring: self.ring, ..ack.clone() };
            cx.unicast(self.node, &Packet::Ack(vec![ack]));
        }
        if let Some(from) = self.from {
            let (ring, epoch) = (self.ring, place.epoch);
            cx.unicast(self.node, &Packet::Release { ring, epoch, from });
        }
    }
}

/// Maximum number of previous predecessors. A receiver leaves at most two seats at once, and
/// perhaps two more soon afterwards.
const MAX_PREVIOUS: usize = 4;
/// Number of notifications to a predecessor that is no longer needed, because some may be lost.
const NOTIFICATIONS: u32 = 3;
