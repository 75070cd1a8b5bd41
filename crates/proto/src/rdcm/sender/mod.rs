//! The sender of a stream (sections 3.3 and 3.5).

use core::ops::Range;
use core::time::Duration;

use bytes::Bytes;

use self::announcements::Announcements;
use self::children::Children;
use self::confirmations::{Confirmations, clamped};
pub(super) use self::farewell::Farewells;
pub use self::manager_client::ManagedBy;
pub(super) use self::manager_client::ManagerEvent;
use self::pacer::Pacer;
use self::receiver_record::EvictionCause;
pub use self::receiver_record::ReceiverState;
pub(super) use self::receivers::Receivers;
use self::receivers::Standing;
pub use self::relay_tree::RelayTree;
use self::send_buffer::SendBuffer;
use self::stall::StallDetector;
use self::waits::{Delay, LATELY, Waits, costly_silence};
use super::config::Config;
use super::context::{Context, seqno};
use super::epoch;
use super::limits::UDP_AND_IP_BYTES;
use super::manager::ManagerError;
use super::packet::{DATA_BYTES, Packet, Report, RingAck, Way};
use super::slowest::Slowest;
use crate::{Confirmed, Event, GroupId, Limiting, LossCause, NodeId, SendError, SeqNo, Slow, Time};

mod announcements;
mod children;
mod confirmations;
mod farewell;
mod manager_client;
mod pacer;
mod receiver_record;
mod receivers;
mod relay_tree;
mod relays;
mod send_buffer;
mod stall;
mod waits;

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) receivers: Receivers,
    buffer: SendBuffer,
    children: Children,
    pacer: Pacer,
    starts_at: Option<Time>,
    announcements: Announcements,
    confirmations: Confirmations,
    stall: StallDetector,
    waits: Waits,
    watch_at: Time,
}

impl Sender {
    pub(super) fn new(cx: &mut Context<'_>, view: &[NodeId]) -> Result<Self, ManagerError> {
        let (now, config) = (cx.now, cx.config);
        let first = u64::from(config.first_number.minus(1).0) + 1;
        let mut receivers = Receivers::new(cx)?;
        receivers.join(cx, view, first);
        let burst = config.burst_packets as usize * usize::from(config.path_mtu);
        let mut sender = Self {
            receivers,
            buffer: SendBuffer::new(first),
            children: Children::new(now, cx.node, first),
            pacer: Pacer::new(now, burst, config.rate),
            starts_at: Some(now + START_WITHIN),
            announcements: Announcements::new(now + config.announce_every),
            confirmations: Confirmations::default(),
            stall: StallDetector::default(),
            waits: Waits::default(),
            watch_at: now + config.sender_watch_every(),
        };
        sender.on_places(cx);
        Ok(sender)
    }

    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        payload: &Bytes,
    ) -> Result<SeqNo, SendError> {
        if let Some(first) = self.buffer.push(cx.config, payload) {
            return Ok(seqno(first));
        }
        let slowest = self.receivers.current().min_by_key(|(_, state)| state.next);
        match slowest {
            Some((by, state)) if state.next < self.buffer.next => {
                Err(SendError::HeldBack { by, behind: clamped(self.buffer.next - state.next) })
            }
            _ => Err(SendError::QueueFull { waiting_bytes: self.buffer.bytes }),
        }
    }

    pub(super) fn on_joined(&mut self, cx: &mut Context<'_>, node: NodeId) {
        self.receivers.join(cx, &[node], self.buffer.next_message());
        self.on_places(cx);
    }

    pub(super) fn on_gone(&mut self, cx: &mut Context<'_>, node: NodeId) {
        if let Some(state) = self.receivers.get(node) {
            self.confirmations.record_left(node, state.next);
        }
        self.receivers.leave(cx, node);
        self.waits.forget(node);
        self.on_places(cx);
    }

    /// Adapts to changed places. No packets are kept for receivers that have none.
    fn on_places(&mut self, cx: &mut Context<'_>) {
        for (node, next) in self.receivers.evict_unplaced(cx) {
            let behind = clamped(self.buffer.next.saturating_sub(next));
            cx.events.push_back(Event::Slow(Slow { group: cx.group, node, behind }));
        }
        let limit = self.buffer.next + cx.config.initial_window();
        self.children.set(&self.receivers.children, limit);
        self.on_progress(cx);
    }

    fn has_data(&self) -> bool {
        self.starts_at.is_none() && self.buffer.has_unsent()
    }

    fn may_send(&self) -> bool {
        self.has_data() && self.buffer.next < self.children.limit()
    }

    fn next_data_at(&mut self, now: Time, config: &Config) -> Time {
        self.pacer.next_at(now, self.children.span(config, self.buffer.base))
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        self.update_waits(cx);
        let (now, config) = (cx.now, cx.config);
        if !self.may_send() || self.next_data_at(now, config) > now {
            return false;
        }
        let (number, base) = (self.buffer.next, self.buffer.base);
        let acknowledged = self.children.known_to().unwrap_or(number).max(base);
        let Some(fragment) = self.buffer.take_next() else { return false };
        self.pacer.on_sent(UDP_AND_IP_BYTES + DATA_BYTES + fragment.bytes.len());
        let way = Way::tree(number - acknowledged + 1);
        Packet::data(number, fragment, way).encode(cx.group, cx.origin, cx.stream, out);
        cx.counters.data_sent += 1;
        self.children.on_sent(now, number, config);
        if self.children.is_empty() {
            self.on_progress(cx);
        }
        self.announcements.on_data(now, config, &self.buffer);
        true
    }

    pub(super) fn on_ack(&mut self, cx: &mut Context<'_>, from: NodeId, acks: &[RingAck]) {
        // The sender is the parent in the highest ring of a child, which is the last in the packet.
        // A joiner also acknowledges packets before its first, which may not have been sent yet.
        let Some(ack) = acks.last().map(|ack| ack.below(self.buffer.next)) else { return };
        let has_stopped = !self.stopped_for(cx.now, cx.config).is_zero();
        let sent = self.buffer.base..self.buffer.next;
        if self.children.on_ack(cx, from, &ack, sent, has_stopped) {
            self.pacer.on_reduction();
        }
    }

    pub(super) fn on_report(&mut self, cx: &mut Context<'_>, from: NodeId, report: &Report) {
        cx.counters.reports_received += 1;
        if report.next > self.buffer.end() {
            cx.counters.malformed += 1;
            return;
        }
        let silence = self.silence_of(cx, from);
        let before = self.receivers.get(from).map(|state| state.next);
        let standing = self.receivers.on_report(cx, from, report);
        let is_genuine = self.receivers.get(from).is_some_and(|it| it.heard_at == cx.now);
        if is_genuine {
            self.waits.on_report(cx.now, from, silence, cx.config.late_after());
        }
        match standing {
            Standing::Current if before == Some(report.next) => {
                self.announce_overrun(cx, from, report);
            }
            Standing::Current => {}
            Standing::Restarted => self.resume(cx, from, report.next),
            Standing::Evicted => self.readmit(cx, from, report),
        }
        if self.starts_at.is_some() && self.receivers.are_settled() {
            self.starts_at = None;
        }
        self.update_waits(cx);
        self.waits.find_suspects(cx.now, self.buffer.next, self.receivers.current());
        self.on_progress(cx);
    }

    /// Announces the packets within its window to a receiver that makes no progress while others
    /// are beyond it. It may hear nothing else, and requests these packets.
    fn announce_overrun(&self, cx: &mut Context<'_>, node: NodeId, report: &Report) {
        if report.next < report.limit && report.limit < self.buffer.next {
            cx.counters.announces_sent += 1;
            cx.unicast(node, &Packet::Announce { epoch: epoch::NONE, end: report.limit });
        }
    }

    pub(super) fn on_request(&mut self, cx: &mut Context<'_>, from: NodeId, ranges: &[Range<u64>]) {
        cx.counters.asks_answered += 1;
        for (number, fragment) in self.buffer.sent_in(ranges) {
            // A receiver that gets only some of the packets repeats the request.
            if cx.outbox.waiting_bytes() >= MAX_QUEUED_BYTES {
                return;
            }
            cx.counters.repairs_asked_for += 1;
            cx.unicast(from, &Packet::data(number, fragment, Way::Repair));
        }
    }

    pub(super) fn on_cut(&mut self, cx: &mut Context<'_>, ring: u32, successor: NodeId) {
        cx.counters.cuts_heard += 1;
        if self.receivers.on_cut(cx, ring, successor) {
            self.on_places(cx);
        }
    }

    pub(super) fn on_silent(&mut self, cx: &mut Context<'_>, successor: NodeId) {
        cx.counters.silences_heard += 1;
        // The predecessor may be suspended or cut off. The receiver's own reports decide.
        let interval = self.receivers.report_interval(cx.config);
        let gone_after = cx.config.gone_after.max(interval * 2);
        let stopped_for = self.stopped_for(cx.now, cx.config);
        let heard_at = self.receivers.get(successor).map(|state| state.heard_at);
        if heard_at.is_some_and(|at| cx.now.since(at + stopped_for) >= gone_after) {
            self.evict(cx, successor, EvictionCause::Silent);
        }
    }

    fn on_progress(&mut self, cx: &mut Context<'_>) {
        let all_below = self.receivers.current().map(|(_, state)| state.next).min();
        self.buffer.release(all_below.unwrap_or(u64::MAX));
        loop {
            let confirmed = self.confirmations.pop(self.buffer.base, self.receivers.evicted());
            let Some((end, incomplete)) = confirmed else { return };
            let (up_to, members) = (seqno(end - 1), self.receivers.confirmed(end));
            cx.events.push_back(Event::Confirmed(Confirmed {
                group: cx.group,
                up_to,
                members,
                incomplete,
            }));
        }
    }

    pub(super) fn confirm(&mut self, cx: &mut Context<'_>) {
        self.confirmations.request(self.buffer.end());
        self.on_progress(cx);
    }

    /// Returns the confirmation of all packets that no receiver is waited for any more. Receivers
    /// that were evicted, or left during a pending confirmation, may have lost some of them.
    pub(super) fn settled(&self, cx: &Context<'_>) -> Confirmed {
        let end = self.buffer.base;
        Confirmed {
            group: cx.group,
            up_to: seqno(end - 1),
            members: self.receivers.confirmed(end),
            incomplete: self.confirmations.incomplete(end, self.receivers.evicted()),
        }
    }

    pub(super) fn unconfirmed(&self) -> Vec<NodeId> {
        let lacks = |it: &(NodeId, &ReceiverState)| it.1.next < self.buffer.end();
        self.receivers.all().filter(lacks).map(|(node, _)| node).collect()
    }

    /// Evicts a receiver, except for the last one, because data sent to no receiver is lost.
    /// Returns `true` if it is evicted now.
    fn evict(&mut self, cx: &mut Context<'_>, node: NodeId, cause: EvictionCause) -> bool {
        let Some(state) = self.receivers.get(node) else { return false };
        if self.receivers.current().all(|(other, _)| other == node) {
            return false;
        }
        let behind = clamped(self.buffer.next.saturating_sub(state.next));
        let is_new = self.receivers.evict(cx, node, cause);
        if is_new {
            tracing::info!(group = %cx.group, %node, behind, "evicted");
            cx.events.push_back(Event::Slow(Slow { group: cx.group, node, behind }));
            self.on_places(cx);
        }
        is_new
    }

    fn readmit(&mut self, cx: &mut Context<'_>, node: NodeId, report: &Report) {
        let Some(state) = self.receivers.get(node) else { return };
        let accepts_more = report.epoch == epoch::NONE || report.limit > report.next;
        if !accepts_more || !self.receivers.may_readmit(cx.now, node) {
            return;
        }
        let next = self.receivers.reported_next(node, report);
        let is_kept = next >= self.buffer.base;
        let first = if is_kept { next } else { self.buffer.next_message() };
        let missed = first.saturating_sub(next.max(state.next));
        self.confirmations.record_missed(node, missed);
        self.receivers.readmit(cx, node, first);
        self.on_places(cx);
    }

    /// Resumes the stream to a receiver that has ended it, for example because it heard no sender.
    ///
    /// Packets that the receiver lacks and that are no longer kept are lost to it. This affects
    /// only the last receiver, which is never evicted.
    fn resume(&mut self, cx: &mut Context<'_>, node: NodeId, next: u64) {
        let Some(state) = self.receivers.get(node) else { return };
        let is_kept = next >= self.buffer.base;
        let missed = if is_kept { 0 } else { state.next - next };
        let first = if is_kept { next.min(state.next) } else { state.next };
        // A receiver that does not know of any packet has missed nothing.
        if self.receivers.resume(cx.now, node, first) && missed > 0 && next > 0 {
            self.confirmations.record_missed(node, missed);
            let slow = Slow { group: cx.group, node, behind: clamped(missed) };
            cx.events.push_back(Event::Slow(slow));
        }
    }

    /// Returns the time for which this node was suspended, or zero if a busy machine explains it.
    fn stopped_for(&self, now: Time, config: &Config) -> Duration {
        let late = now.since(self.watch_at);
        if late >= config.sender_watch_every() / 4 { late } else { Duration::ZERO }
    }

    fn watch(&mut self, cx: &mut Context<'_>) {
        let (now, config) = (cx.now, cx.config);
        let silent = (config.gone_after * 2).max(self.receivers.report_interval(config) * 8);
        let gone = self.receivers.current().filter(|(_, it)| now.since(it.heard_at) >= silent);
        let gone: Vec<NodeId> = gone.map(|(node, _)| node).collect();
        for node in gone {
            self.evict(cx, node, EvictionCause::Silent);
        }
        self.receivers.rejoin_unplaced(cx);
        self.on_places(cx);
        self.receivers.announce_to_evicted(cx, self.buffer.next);
        self.report_slow(cx);
        let slow_after = config.slow_after.filter(|_| config.slowest != Slowest::Wait);
        let Some(slow_after) = slow_after else { return };
        let next = self.buffer.has_unsent().then_some(self.buffer.next);
        if let Some(node) = self.stall.check(now, slow_after, next, self.receivers.current()) {
            self.evict(cx, node, EvictionCause::Stall);
        }
    }

    fn report_slow(&mut self, cx: &mut Context<'_>) {
        self.update_waits(cx);
        let slowest = cx.config.slowest;
        for delay in self.waits.delays(cx.now, slowest.span()) {
            let Delay { node, total, lately, since, is_news } = delay;
            let cause = EvictionCause::Pace(total);
            let is_evicted = total > slowest.most_waits() && self.evict(cx, node, cause);
            if !is_evicted && !is_news {
                continue;
            }
            cx.events.push_back(Event::Limiting(Limiting {
                group: cx.group,
                node,
                held: lately,
                over: LATELY,
                since: cx.now.since(since),
                is_left_behind: is_evicted,
            }));
            self.waits.on_reported(cx.now, node);
            if is_evicted {
                // The other receivers may have waited for more than one receiver.
                self.waits = Waits::default();
                return;
            }
        }
    }

    fn update_waits(&mut self, cx: &Context<'_>) {
        let is_waiting = self.has_data() && !cx.is_blocked && !self.may_send();
        self.waits.update(cx.now, is_waiting, self.receivers.settled_after(cx.config));
    }

    fn silence_of(&self, cx: &Context<'_>, node: NodeId) -> Option<Duration> {
        let state = self.receivers.get(node).filter(|it| it.evicted_at.is_none())?;
        let has_stopped = !self.stopped_for(cx.now, cx.config).is_zero();
        if !self.has_data() || has_stopped {
            return None;
        }
        let (next, settled_after) = (self.buffer.next, self.receivers.settled_after(cx.config));
        costly_silence(cx.now, next, settled_after, state, self.receivers.current())
    }

    pub(super) fn on_manager(&mut self, cx: &mut Context<'_>, event: ManagerEvent) {
        self.receivers.on_manager(cx, event);
        self.on_places(cx);
    }

    /// Ends the stream and reports unconfirmed packets as lost. Returns the number after the last
    /// packet, the epoch of the places, and the receivers that have everything.
    pub(super) fn yield_stream(&mut self, cx: &mut Context<'_>) -> (u64, u32, Vec<NodeId>) {
        let end = self.buffer.next;
        let complete = self.receivers.all().filter(|(_, state)| state.next >= end);
        let complete = complete.map(|(node, _)| node).collect();
        self.receivers.manager.close(cx);
        cx.lose(cx.node, self.buffer.base, self.buffer.end(), LossCause::AnotherSender);
        (end, self.receivers.epoch, complete)
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.receivers.handle_timeout(cx) {
            self.on_places(cx);
        }
        self.starts_at = self.starts_at.filter(|at| *at > now);
        self.multicast_again(cx);
        if self.announcements.next_at <= now {
            cx.counters.announces_sent += 1;
            self.announcements.on_sent(now, cx.config, &self.buffer);
            cx.multicast(&Packet::Announce { epoch: epoch::NONE, end: self.buffer.next });
        }
        if self.watch_at <= now {
            let stopped_for = self.stopped_for(now, cx.config);
            self.receivers.make_up_for_stop(now, stopped_for);
            self.children.make_up_for_stop(now, stopped_for);
            self.watch_at = now + cx.config.sender_watch_every();
            self.watch(cx);
        }
        self.children.find_late(now, cx.config);
    }

    /// Multicasts again the packets that no receiver has (3.3), at the pacer's rate.
    fn multicast_again(&mut self, cx: &mut Context<'_>) {
        if cx.is_blocked {
            return;
        }
        let sent = self.buffer.base..self.buffer.next;
        while self.children.next_repair(cx.config).is_some_and(|at| at <= cx.now)
            && self.next_data_at(cx.now, cx.config) <= cx.now
            && let Some(number) =
                self.children.poll_repair(cx.now, cx.config, |number| sent.contains(&number))
        {
            let fragment = self.buffer.get(number).clone();
            self.pacer.on_sent(UDP_AND_IP_BYTES + DATA_BYTES + fragment.bytes.len());
            cx.counters.data_multicast_again += 1;
            cx.along_tree(self.receivers.hops(), &Packet::data(number, fragment, Way::Again));
        }
    }

    pub(super) fn poll_timeout(&mut self, now: Time, config: &Config, is_blocked: bool) -> Time {
        let mut due = self.announcements.next_at.min(self.watch_at);
        due = due.min(self.receivers.poll_timeout()).min(self.starts_at.unwrap_or(Time::MAX));
        due = due.min(self.children.late_at(config).unwrap_or(Time::MAX));
        let repair_at = self.children.next_repair(config).filter(|_| !is_blocked);
        let may_repair = repair_at.is_some_and(|at| at <= now);
        if may_repair || self.may_send() && !is_blocked {
            due = due.min(self.next_data_at(now, config));
        } else {
            self.pacer.rest();
        }
        if let Some(at) = repair_at.filter(|at| *at > now) {
            due = due.min(at);
        }
        due
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.buffer.bytes
    }

    pub(super) fn check(&self, config: &Config, group: GroupId) {
        self.receivers.check(self.buffer.base);
        self.buffer.check(config, group);
    }
}

const START_WITHIN: Duration = Duration::from_millis(500);
const MAX_QUEUED_BYTES: usize = 1 << 20;
