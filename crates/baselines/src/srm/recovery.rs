//! Requests and repairs (section III-B of the paper).

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{GroupId, How, NodeId, PacketId, SeqNo, Time};

use super::config;
use super::context::{Adu, GroupContext, TimerKey};
use super::packet::Packet;
use super::timing::Timing;
use crate::stream::Gap;

/// The requests and repairs of a group. A packet is in at most one of the maps, and has a timer.
#[derive(Debug)]
pub(super) struct Recovery {
    timing: Timing,
    requests: BTreeMap<Adu, Request>,
    repairs: BTreeMap<Adu, Repair>,
}

#[derive(Debug)]
struct Request {
    since: Time,
    backoffs: u32,
    /// Requests received before this time belong to the previous round.
    ignore_until: Time,
    /// `Some(true)` if this member sent the first request, or `None` if there was none.
    first: Option<bool>,
}

#[derive(Debug)]
enum Repair {
    /// The packet is repaired for this requestor unless another member repairs it first.
    Waiting { requestor: NodeId, since: Time },
    /// The packet was repaired recently, by this or another member. Requests are ignored.
    Held { requestor: NodeId, is_own: bool },
}

const MAX_REPAIRS: usize = 1 << 16;

impl Recovery {
    pub(super) fn new(timing: config::Timing) -> Self {
        Self { timing: Timing::new(timing), requests: BTreeMap::new(), repairs: BTreeMap::new() }
    }

    pub(super) fn timers(&self, group: GroupId) -> impl Iterator<Item = TimerKey> {
        let requests = self.requests.keys().map(move |adu| TimerKey::Request(group, *adu));
        requests.chain(self.repairs.keys().map(move |adu| TimerKey::Repair(group, *adu)))
    }

    pub(super) fn requests(&self, adu: Adu) -> bool {
        self.requests.contains_key(&adu)
    }

    pub(super) fn set_requests(&mut self, cx: &mut GroupContext<'_>, source: NodeId, gap: &Gap) {
        if !gap.lost.is_empty() {
            self.drop_requests_of_lost(cx, source);
        }
        if gap.missing.is_empty() {
            return;
        }
        self.timing.begin_request(cx.size());
        let (now, distance) = (cx.node.now, cx.distance(source));
        let detect_after = cx.shared.config.detect_after;
        for seqno in &gap.missing {
            let adu = Adu { source, seqno: seqno.0 };
            let wait = self.timing.request.draw(&mut cx.shared.rng, distance, 1.0);
            let since = now + detect_after;
            let request = Request { since, backoffs: 0, ignore_until: now, first: None };
            self.requests.insert(adu, request);
            cx.set_request(adu, detect_after + wait);
        }
    }

    fn drop_requests_of_lost(&mut self, cx: &mut GroupContext<'_>, source: NodeId) {
        let of_source = Adu { source, seqno: 0 }..=Adu { source, seqno: u32::MAX };
        let reception = &cx.node.reception;
        let requested = self.requests.range(of_source).map(|(adu, _)| *adu);
        let is_lost = |adu: &Adu| !reception.is_missing(adu.id(cx.group));
        let lost: Vec<Adu> = requested.filter(is_lost).collect();
        for adu in lost {
            self.requests.remove(&adu);
            cx.shared.timers.cancel(TimerKey::Request(cx.group, adu));
        }
    }

    pub(super) fn settle_request(&mut self, cx: &mut GroupContext<'_>, adu: Adu) {
        if self.requests.remove(&adu).is_some() {
            cx.shared.timers.cancel(TimerKey::Request(cx.group, adu));
        }
    }

    pub(super) fn on_request_due(&mut self, cx: &mut GroupContext<'_>, adu: Adu) {
        let distance = cx.distance(adu.source);
        let Some(request) = self.requests.get_mut(&adu) else { return };
        if !cx.is_missing(adu) {
            self.requests.remove(&adu);
            return;
        }
        if request.first.is_none() {
            request.first = Some(true);
            self.timing.request.note_delay(cx.node.now.since(request.since), distance);
            self.timing.request.note_sent();
        }
        self.back_off(cx, adu, distance);
        cx.shared.counters.requests_sent += 1;
        let Adu { source, seqno } = adu;
        let distance_us = micros(distance);
        cx.multicast(Packet::Request { source, seqno: SeqNo(seqno), distance_us });
    }

    pub(super) fn on_request(
        &mut self,
        cx: &mut GroupContext<'_>,
        id: PacketId,
        requestor: NodeId,
        distance_us: u32,
    ) {
        cx.shared.counters.requests_received += 1;
        if id.sender != cx.node.id {
            let (now, next) = (cx.node.now, id.seqno.next());
            let gap = cx.node.reception.on_reported(now, id.group, id.sender, next);
            self.set_requests(cx, id.sender, &gap);
        }
        if cx.node.reception.is_missing(id) {
            let other = Duration::from_micros(u64::from(distance_us));
            self.on_request_heard(cx, Adu::of(id), other);
        } else {
            self.on_request_to_answer(cx, id, requestor);
        }
    }

    pub(super) fn on_repair(
        &mut self,
        cx: &mut GroupContext<'_>,
        id: PacketId,
        repairer: NodeId,
        distance_us: u32,
        bytes: &[u8],
    ) {
        let Some(block) = cx.node.block(bytes) else { return };
        let (now, adu, how) = (cx.node.now, Adu::of(id), How::Retransmitted(repairer));
        let is_own = id.sender == cx.node.id;
        let gap = if is_own { None } else { cx.node.reception.on_block(now, id, &block, how) };
        match gap {
            Some(gap) => {
                cx.shared.retained.insert(now, id, block);
                self.note_request_delay(cx, adu);
                self.settle_request(cx, adu);
                self.hold_down(cx, adu, id.sender, false);
                self.set_requests(cx, id.sender, &gap);
            }
            None => {
                cx.shared.counters.repairs_duplicate += 1;
                self.on_repair_heard(cx, adu, Duration::from_micros(u64::from(distance_us)));
            }
        }
    }

    pub(super) fn on_repair_due(&mut self, cx: &mut GroupContext<'_>, adu: Adu) {
        let Some(Repair::Waiting { requestor, since }) = self.repairs.remove(&adu) else { return };
        let Some(block) = cx.shared.retained.get(&adu.id(cx.group)).cloned() else {
            cx.shared.counters.requests_unanswerable += 1;
            return;
        };
        let distance = cx.distance(requestor);
        self.timing.repair.note_delay(cx.node.now.since(since), distance);
        self.timing.repair.note_sent();
        self.hold_down(cx, adu, requestor, true);
        cx.shared.counters.repairs_sent += 1;
        let (Adu { source, seqno }, distance_us) = (adu, micros(distance));
        let (seqno, block) = (SeqNo(seqno), block.bytes());
        cx.multicast(Packet::Repair { source, seqno, distance_us, requestor, block });
    }

    fn on_request_heard(&mut self, cx: &mut GroupContext<'_>, adu: Adu, other: Duration) {
        let (now, distance) = (cx.node.now, cx.distance(adu.source));
        let Some(request) = self.requests.get_mut(&adu) else { return };
        if now < request.ignore_until {
            cx.shared.counters.requests_ignored += 1;
            self.timing.request.note_duplicate();
            if request.first == Some(true) {
                self.timing.request.note_other(other, distance);
            }
            return;
        }
        if request.first.is_none() {
            request.first = Some(false);
            self.timing.request.note_delay(now.since(request.since), distance);
        }
        cx.shared.counters.requests_suppressed += 1;
        self.back_off(cx, adu, distance);
    }

    /// Sets the request's timer again, from an interval that grows with each backoff. Further
    /// requests are ignored for half of the wait, because they belong to the previous round.
    fn back_off(&mut self, cx: &mut GroupContext<'_>, adu: Adu, distance: Duration) {
        let Self { timing, requests, .. } = self;
        let Some(request) = requests.get_mut(&adu) else { return };
        request.backoffs = (request.backoffs + 1).min(cx.shared.config.backoff_limit);
        let scale = (0..request.backoffs).fold(1.0, |scale, _| scale * timing.backoff_factor());
        let wait = timing.request.draw(&mut cx.shared.rng, distance, scale);
        request.ignore_until = cx.node.now + wait / 2;
        cx.set_request(adu, wait);
    }

    fn on_request_to_answer(&mut self, cx: &mut GroupContext<'_>, id: PacketId, requestor: NodeId) {
        let (now, adu) = (cx.node.now, Adu::of(id));
        match self.repairs.get(&adu) {
            Some(Repair::Waiting { .. }) => return,
            Some(Repair::Held { .. }) => {
                cx.shared.counters.requests_held_down += 1;
                return;
            }
            None => {}
        }
        match cx.shared.retained.get(&id) {
            None => cx.shared.counters.requests_unanswerable += 1,
            Some(block) if block.is_expired(now) || self.repairs.len() >= MAX_REPAIRS => {
                cx.shared.counters.repairs_refused += 1;
            }
            Some(_) => {
                self.timing.begin_repair(cx.size());
                let distance = cx.distance(requestor);
                let wait = self.timing.repair.draw(&mut cx.shared.rng, distance, 1.0);
                self.repairs.insert(adu, Repair::Waiting { requestor, since: now });
                cx.set_repair(adu, wait);
            }
        }
    }

    /// Processes another member's repair of a packet that was not missing at this member. `other`
    /// is the repairer's distance to the requestor.
    fn on_repair_heard(&mut self, cx: &mut GroupContext<'_>, adu: Adu, other: Duration) {
        match self.repairs.get(&adu) {
            Some(Repair::Waiting { requestor, since }) => {
                let (requestor, since) = (*requestor, *since);
                let distance = cx.distance(requestor);
                self.timing.repair.note_delay(cx.node.now.since(since), distance);
                cx.shared.counters.repairs_suppressed += 1;
                self.hold_down(cx, adu, requestor, false);
            }
            Some(Repair::Held { requestor, is_own }) => {
                self.timing.repair.note_duplicate();
                if *is_own {
                    self.timing.repair.note_other(other, cx.distance(*requestor));
                }
            }
            None => {}
        }
    }

    /// Ignores requests for three times the distance to `whom`, because some may be in flight.
    fn hold_down(&mut self, cx: &mut GroupContext<'_>, adu: Adu, whom: NodeId, is_own: bool) {
        if self.repairs.contains_key(&adu) || self.repairs.len() < MAX_REPAIRS {
            self.repairs.insert(adu, Repair::Held { requestor: whom, is_own });
            cx.set_repair(adu, 3 * cx.distance(whom));
        }
    }

    /// Records the delay of a repair that arrived before any request was sent or received.
    fn note_request_delay(&mut self, cx: &GroupContext<'_>, adu: Adu) {
        let request = self.requests.get(&adu);
        if let Some(request) = request.filter(|request| request.first.is_none()) {
            let (delay, distance) = (cx.node.now.since(request.since), cx.distance(adu.source));
            self.timing.request.note_delay(delay, distance);
        }
    }
}

fn micros(distance: Duration) -> u32 {
    u32::try_from(distance.as_micros()).unwrap_or(u32::MAX)
}
