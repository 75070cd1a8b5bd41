//! Acknowledgments, which are also requests for missing packets.

use carom_proto::{Destination, GroupId, NodeId, PacketId, SeqNo, Time};

use super::packet::{ACK_BYTES, Packet, bitmap_without, missing_of};
use super::{Rmtp, TimerKey};
use crate::stream::Gap;

/// A scheduled acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acking {
    /// Settled position in the previous acknowledgment; `None` if there was none.
    settled_to: Option<SeqNo>,
    /// Number of successive acknowledgments without progress.
    in_vain: u32,
}

/// Content of an acknowledgment.
struct Report {
    settled_to: SeqNo,
    next: SeqNo,
    bitmap: Vec<u8>,
    /// Time at which the first gap that is too recent to be reported may be reported.
    tell_more_at: Option<Time>,
    is_complete: bool,
}

impl Rmtp {
    /// Schedules an acknowledgment of a source's packets: for a gap, after the detection delay;
    /// otherwise, within the acknowledgment interval.
    pub(super) fn owe_ack(&mut self, now: Time, group: GroupId, source: NodeId, gap: &Gap) {
        let is_gap = !gap.missing.is_empty();
        let wait = if is_gap { self.config.domains.detect_after } else { self.config.ack_interval };
        self.set_ack(now + wait, group, source);
    }

    fn set_ack(&mut self, at: Time, group: GroupId, source: NodeId) {
        let is_heard = self.depot.reception.stream(group, source).is_some();
        let Some(member) = self.members.get_mut(&group).filter(|_| is_heard) else { return };
        let acking = Acking { settled_to: None, in_vain: 0 };
        member.acking.entry(source).or_insert(acking);
        self.timers.set_no_later(TimerKey::Ack(group, source), at);
    }

    /// Processes a source's beacon. Acknowledgments are spread at random, so that members do not
    /// send them at the same time.
    pub(super) fn on_beacon(&mut self, now: Time, group: GroupId, source: NodeId, next: SeqNo) {
        let gap = self.depot.reception.on_announced(now, group, source, next);
        let spread = self.config.ack_interval.mul_f64(self.rng.fraction());
        if gap.missing.is_empty() {
            self.set_ack(now + spread, group, source);
        } else {
            self.owe_ack(now, group, source, &gap);
        }
    }

    /// Sends an acknowledgment. Schedules the next one while packets are missing.
    pub(super) fn on_ack_due(&mut self, now: Time, group: GroupId, source: NodeId) {
        let report = self.report(now, group, source);
        let Some(member) = self.members.get_mut(&group) else { return };
        let (Some(report), Some(acking)) = (report, member.acking.get_mut(&source)) else {
            member.acking.remove(&source);
            return;
        };
        let is_same = acking.settled_to == Some(report.settled_to) && !report.is_complete;
        acking.in_vain = if is_same { acking.in_vain + 1 } else { 0 };
        acking.settled_to = Some(report.settled_to);
        let climbs = acking.in_vain / self.config.domains.climb_after;
        if report.is_complete {
            member.acking.remove(&source);
        } else {
            let again = now + self.config.ack_interval;
            let at = report.tell_more_at.map_or(again, |at| at.min(again));
            self.timers.set(TimerKey::Ack(group, source), at);
        }
        let Some(parent) = self.depot.parent(group, source, climbs) else {
            self.counters.nobody_to_ask += 1;
            return;
        };
        self.counters.acks_sent += 1;
        let Report { settled_to, next, bitmap, .. } = &report;
        let ack = Packet::Ack { source, settled_to: *settled_to, next: *next, bitmap };
        self.transmit(Destination::Node(parent), group, ack);
    }

    /// Returns the state of a source's stream up to the first gap that is too recent.
    fn report(&self, now: Time, group: GroupId, source: NodeId) -> Option<Report> {
        let stream = self.depot.reception.stream(group, source)?;
        let detect_after = self.config.domains.detect_after;
        let mut gaps = stream.missing_since_when();
        let young = gaps.find(|(_, since)| *since + detect_after > now);
        let settled_to = stream.settled_to();
        let next = young.map_or(stream.next(), |(seqno, _)| seqno);
        let room = (self.config.domains.max_datagram_bytes() - ACK_BYTES) * 8;
        let count = usize::try_from(next.distance_from(settled_to)).unwrap_or(0).min(room);
        let bitmap = bitmap_without(settled_to, count, stream.missing());
        Some(Report {
            settled_to,
            next: settled_to.plus(count as u32),
            bitmap,
            tell_more_at: young.map(|(_, since)| since + detect_after),
            is_complete: stream.missing_count() == 0,
        })
    }

    /// Processes a child's acknowledgment. The packets that the child lacks count as requested.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        (group, source): (GroupId, NodeId),
        child: NodeId,
        (settled_to, next): (SeqNo, SeqNo),
        bitmap: &[u8],
    ) {
        if source == self.id {
            self.look_who_follows(now, group);
            let Some(member) = self.members.get_mut(&group) else { return };
            if settled_to.is_after(member.followers.next()) {
                self.counters.malformed += 1;
                return;
            }
            member.followers.on_ack(now, child, settled_to);
            self.watch_followers(group);
        } else {
            let gap = self.depot.reception.on_reported(now, group, source, next);
            if !gap.missing.is_empty() {
                self.owe_ack(now, group, source, &gap);
            }
        }
        self.counters.acks_received += 1;
        for seqno in missing_of(settled_to, next, bitmap) {
            self.depot.asked(now, PacketId { sender: source, group, seqno }, child);
        }
    }
}
