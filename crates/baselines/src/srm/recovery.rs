//! Requests and repairs (section III-B of the paper).

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{GroupId, How, NodeId, PacketId, SeqNo, Time};

use super::packet::Packet;
use super::{Adu, Member, Srm, TimerKey};
use crate::block::Block;
use crate::stream::Gap;

/// Pending requests and repairs of this member in one group. A packet is in at most one of the two
/// maps. Each entry has a timer.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    requests: BTreeMap<Adu, Request>,
    repairs: BTreeMap<Adu, Repair>,
}

/// A missing packet.
#[derive(Debug)]
struct Request {
    /// Time from which the packet counts as lost.
    since: Time,
    backoffs: u32,
    /// Requests heard before this time belong to the previous round.
    ignore_until: Time,
    /// `Some(true)` if the first request was this member's own, `Some(false)` if another member's
    /// was heard. `None` if there was none.
    first: Option<bool>,
}

/// A packet that was requested, or repaired recently.
#[derive(Debug)]
enum Repair {
    /// The packet is repaired for this requestor unless another member repairs it first.
    Waiting { requestor: NodeId, since: Time },
    /// The packet was repaired recently, by this or another member. Requests are ignored.
    Held { requestor: NodeId, is_own: bool },
}

/// Maximum number of pending and held-down repairs in one group.
const MAX_REPAIRS: usize = 1 << 16;

impl Recovery {
    /// Returns the timers of all requests and repairs.
    pub(super) fn timers(&self, group: GroupId) -> impl Iterator<Item = TimerKey> {
        let requests = self.requests.keys().map(move |adu| TimerKey::Request(group, *adu));
        requests.chain(self.repairs.keys().map(move |adu| TimerKey::Repair(group, *adu)))
    }

    /// Returns `true` if the packet is being requested.
    pub(super) fn asks(&self, adu: Adu) -> bool {
        self.requests.contains_key(&adu)
    }
}

impl Adu {
    fn of(id: PacketId) -> Self {
        Self { source: id.sender, seqno: id.seqno.0 }
    }

    fn id(self, group: GroupId) -> PacketId {
        PacketId { sender: self.source, group, seqno: SeqNo(self.seqno) }
    }
}

impl Srm {
    /// Sets a request timer for each missing packet of `gap`. Cancels the requests for packets that
    /// are lost because of it.
    pub(super) fn set_requests(&mut self, now: Time, group: GroupId, source: NodeId, gap: &Gap) {
        if !gap.lost.is_empty() {
            self.drop_requests_of_lost(group, source);
        }
        if gap.missing.is_empty() {
            return;
        }
        let (size, distance) = (self.group_size(group), self.distance_to(group, source));
        let Some(member) = self.members.get_mut(&group) else { return };
        member.timing.begin_request(size);
        let since = now + self.config.detect_after;
        for seqno in &gap.missing {
            let adu = Adu { source, seqno: seqno.0 };
            let wait = member.timing.request.draw(&mut self.rng, distance, 1.0);
            let request = Request { since, backoffs: 0, ignore_until: now, first: None };
            member.recovery.requests.insert(adu, request);
            self.timers.set(TimerKey::Request(group, adu), since + wait);
        }
    }

    fn drop_requests_of_lost(&mut self, group: GroupId, source: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let of_source = Adu { source, seqno: 0 }..=Adu { source, seqno: u32::MAX };
        let is_lost = |adu: &Adu, _: &mut Request| !self.reception.is_missing(adu.id(group));
        for (adu, _) in member.recovery.requests.extract_if(of_source, is_lost) {
            self.timers.cancel(TimerKey::Request(group, adu));
        }
    }

    /// Cancels the request for a packet that has arrived.
    pub(super) fn settle_request(&mut self, id: PacketId) {
        let adu = Adu::of(id);
        let member = self.members.get_mut(&id.group);
        if member.is_some_and(|member| member.recovery.requests.remove(&adu).is_some()) {
            self.timers.cancel(TimerKey::Request(id.group, adu));
        }
    }

    /// Sends a request, and backs off to wait for the repair.
    pub(super) fn on_request_due(&mut self, now: Time, group: GroupId, adu: Adu) {
        let distance = self.distance_to(group, adu.source);
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(request) = member.recovery.requests.get_mut(&adu) else { return };
        if !self.reception.is_missing(adu.id(group)) {
            // The packet was given up.
            member.recovery.requests.remove(&adu);
            return;
        }
        if request.first.is_none() {
            request.first = Some(true);
            member.timing.request.note_delay(now.since(request.since), distance);
            member.timing.request.note_sent();
        }
        self.back_off(now, group, adu, distance);
        self.counters.requests_sent += 1;
        let Adu { source, seqno } = adu;
        let distance_us = micros(distance);
        self.multicast(group, Packet::Request { source, seqno: SeqNo(seqno), distance_us });
    }

    /// Processes the request of `requestor`.
    pub(super) fn on_request(
        &mut self,
        now: Time,
        id: PacketId,
        requestor: NodeId,
        distance_us: u32,
    ) {
        self.counters.requests_received += 1;
        if id.sender != self.id {
            let gap = self.reception.on_reported(now, id.group, id.sender, id.seqno.next());
            self.set_requests(now, id.group, id.sender, &gap);
        }
        if self.reception.is_missing(id) {
            self.on_request_heard(now, id, Duration::from_micros(u64::from(distance_us)));
        } else {
            self.on_request_to_answer(now, id, requestor);
        }
    }

    /// Processes a repair. It cancels this member's own request or repair of the packet.
    pub(super) fn on_repair(
        &mut self,
        now: Time,
        id: PacketId,
        repairer: NodeId,
        distance_us: u32,
        bytes: &[u8],
    ) {
        let Ok(block) = Block::copy(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let adu = Adu::of(id);
        let how = How::Retransmitted(repairer);
        let gap =
            if id.sender == self.id { None } else { self.reception.on_block(now, id, &block, how) };
        match gap {
            Some(gap) => {
                self.retained.insert(now, id, block);
                self.note_request_delay(now, id);
                self.settle_request(id);
                self.hold_down(now, id.group, adu, id.sender, false);
                self.set_requests(now, id.group, id.sender, &gap);
            }
            None => {
                self.counters.repairs_duplicate += 1;
                let other = Duration::from_micros(u64::from(distance_us));
                self.on_repair_heard(now, id.group, adu, other);
            }
        }
    }

    /// Sends a repair, or ends its hold-down.
    pub(super) fn on_repair_due(&mut self, now: Time, group: GroupId, adu: Adu) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(Repair::Waiting { requestor, since }) = member.recovery.repairs.remove(&adu)
        else {
            return;
        };
        let Some(block) = self.retained.get(&adu.id(group)).cloned() else {
            self.counters.requests_unanswerable += 1;
            return;
        };
        let distance = member.peers.distance(requestor, self.config.distance);
        member.timing.repair.note_delay(now.since(since), distance);
        member.timing.repair.note_sent();
        self.hold_down(now, group, adu, requestor, true);
        self.counters.repairs_sent += 1;
        let (Adu { source, seqno }, distance_us) = (adu, micros(distance));
        let (seqno, block) = (SeqNo(seqno), block.bytes());
        self.multicast(group, Packet::Repair { source, seqno, distance_us, requestor, block });
    }

    /// Processes another member's request for a packet that is missing here too.
    fn on_request_heard(&mut self, now: Time, id: PacketId, other: Duration) {
        let (group, adu) = (id.group, Adu::of(id));
        let distance = self.distance_to(group, adu.source);
        let Some(Member { timing, recovery, .. }) = self.members.get_mut(&group) else { return };
        let Some(request) = recovery.requests.get_mut(&adu) else { return };
        if now < request.ignore_until {
            self.counters.requests_ignored += 1;
            timing.request.note_duplicate();
            if request.first == Some(true) {
                timing.request.note_other(other, distance);
            }
            return;
        }
        if request.first.is_none() {
            request.first = Some(false);
            timing.request.note_delay(now.since(request.since), distance);
        }
        self.counters.requests_suppressed += 1;
        self.back_off(now, group, adu, distance);
    }

    /// Sets the request's timer again, from an interval that grows with each backoff. Further
    /// requests are ignored for half of the wait, because they belong to the previous round.
    fn back_off(&mut self, now: Time, group: GroupId, adu: Adu, distance: Duration) {
        let limit = self.config.backoff_limit;
        let Some(Member { timing, recovery, .. }) = self.members.get_mut(&group) else { return };
        let Some(request) = recovery.requests.get_mut(&adu) else { return };
        request.backoffs = (request.backoffs + 1).min(limit);
        let scale = (0..request.backoffs).fold(1.0, |scale, _| scale * timing.backoff_factor());
        let wait = timing.request.draw(&mut self.rng, distance, scale);
        request.ignore_until = now + wait / 2;
        self.timers.set(TimerKey::Request(group, adu), now + wait);
    }

    /// Processes a request for a packet that this member has, or had.
    fn on_request_to_answer(&mut self, now: Time, id: PacketId, requestor: NodeId) {
        let (group, adu) = (id.group, Adu::of(id));
        let size = self.group_size(group);
        let distance = self.distance_to(group, requestor);
        let Some(Member { timing, recovery, .. }) = self.members.get_mut(&group) else { return };
        match recovery.repairs.get(&adu) {
            Some(Repair::Waiting { .. }) => return,
            Some(Repair::Held { .. }) => {
                self.counters.requests_held_down += 1;
                return;
            }
            None => {}
        }
        match self.retained.get(&id) {
            None => self.counters.requests_unanswerable += 1,
            Some(block) if block.is_expired(now) || recovery.repairs.len() >= MAX_REPAIRS => {
                self.counters.repairs_refused += 1;
            }
            Some(_) => {
                timing.begin_repair(size);
                let wait = timing.repair.draw(&mut self.rng, distance, 1.0);
                recovery.repairs.insert(adu, Repair::Waiting { requestor, since: now });
                self.timers.set(TimerKey::Repair(group, adu), now + wait);
            }
        }
    }

    /// Processes another member's repair of a packet that was not missing here. `other` is that
    /// member's distance to the requestor.
    fn on_repair_heard(&mut self, now: Time, group: GroupId, adu: Adu, other: Duration) {
        let setting = self.config.distance;
        let Some(Member { peers, timing, recovery, .. }) = self.members.get_mut(&group) else {
            return;
        };
        match recovery.repairs.get(&adu) {
            Some(Repair::Waiting { requestor, since }) => {
                let (requestor, since) = (*requestor, *since);
                let distance = peers.distance(requestor, setting);
                timing.repair.note_delay(now.since(since), distance);
                self.counters.repairs_suppressed += 1;
                self.hold_down(now, group, adu, requestor, false);
            }
            Some(Repair::Held { requestor, is_own }) => {
                timing.repair.note_duplicate();
                if *is_own {
                    timing.repair.note_other(other, peers.distance(*requestor, setting));
                }
            }
            None => {}
        }
    }

    /// Ignores requests for three distances to `whom`: requests that were sent before the repair
    /// was heard may still be in flight.
    fn hold_down(&mut self, now: Time, group: GroupId, adu: Adu, whom: NodeId, is_own: bool) {
        let wait = 3 * self.distance_to(group, whom);
        let Some(member) = self.members.get_mut(&group) else { return };
        let repairs = &mut member.recovery.repairs;
        if repairs.contains_key(&adu) || repairs.len() < MAX_REPAIRS {
            repairs.insert(adu, Repair::Held { requestor: whom, is_own });
            self.timers.set(TimerKey::Repair(group, adu), now + wait);
        }
    }

    /// Records the delay of a repair that arrived before any request was sent or heard.
    fn note_request_delay(&mut self, now: Time, id: PacketId) {
        let distance = self.distance_to(id.group, id.sender);
        let Some(member) = self.members.get_mut(&id.group) else { return };
        let request = member.recovery.requests.get(&Adu::of(id));
        if let Some(request) = request.filter(|request| request.first.is_none()) {
            member.timing.request.note_delay(now.since(request.since), distance);
        }
    }

    fn distance_to(&self, group: GroupId, node: NodeId) -> Duration {
        let setting = self.config.distance;
        let member = self.members.get(&group);
        member.map_or(Duration::ZERO, |member| member.peers.distance(node, setting))
    }
}

fn micros(distance: Duration) -> u32 {
    u32::try_from(distance.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::GuestPacket as _;
    use crate::srm::Config;
    use carom_proto::{Engine, GroupSettings, Profile};

    #[test]
    fn what_is_too_far_behind_is_not_asked_for_any_more() {
        let (group, source, now) = (GroupId(1), NodeId(2), Time(1));
        let mut srm = Srm::new(NodeId(1), Config { max_missing: 4, ..Config::wide_area() }, 1);
        let settings = GroupSettings { profile: Profile::Guest, name_check: 0 };
        srm.join(now, group, settings).expect("a group of a guest");
        for jump in 0..100 {
            let mut datagram = Vec::new();
            let packet = Packet::Session { sent_at: 1, next: SeqNo(jump * 6), reports: &[] };
            packet.encode(source, group, 1, &mut datagram);
            srm.handle_datagram(now, &datagram);
            srm.check();
            assert!(srm.members[&group].recovery.requests.len() <= 4, "after {jump} jumps");
        }
        assert_eq!(srm.timers.len(), 1 + 4, "a session message and what is missing");
    }
}
