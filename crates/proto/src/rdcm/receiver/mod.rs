//! The receiver of a stream (sections 3.3 and 3.5).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use self::children::Children;
use self::delivery::Delivery;
use self::feedback::Feedback;
use self::handover::Handover;
use self::liveness::SenderLiveness;
use self::rate_control::RateControl;
use self::relay_queue::RelayQueue;
use self::repair_request::RepairRequests;
use self::repair_window::{Arrival, KeptPacket, RepairWindow};
use self::stream_end::StreamEnd;
use super::config::Config;
use super::context::Context;
use super::epoch;
use super::packet::{DataPacket, Packet, Place, Report, RingAck, Way};
use super::successor::RepairTiming;
use crate::{Hops, LossCause, NodeId, Time};

mod ack_scheduler;
mod bic;
mod children;
mod delivery;
mod feedback;
mod handover;
mod liveness;
mod loss_tolerance;
mod rate_control;
mod reassembly;
mod relay_queue;
mod repair_request;
mod repair_window;
mod stream_end;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) sender: NodeId,
    pub(super) liveness: SenderLiveness,
    pub(super) place: Place,
    handover: Handover,
    window: RepairWindow,
    delivery: Delivery,
    children: Children,
    rate: RateControl,
    acknowledged_limit: u64,
    end: StreamEnd,
    pub(super) by_tree: u64,
    pub(super) by_repair: u64,
    feedback: Feedback,
    requests: RepairRequests,
    relays: RelayQueue,
    hops: Hops,
    watch_at: Time,
}

impl Receiver {
    pub(super) fn new(cx: &mut Context<'_>, sender: NodeId, place: Place) -> Self {
        let (now, config, first) = (cx.now, cx.config, place.first);
        let mut receiver = Self {
            sender,
            liveness: SenderLiveness::new(now),
            handover: Handover::default(),
            window: new_window(config, first),
            delivery: Delivery::new(sender),
            children: Children::default(),
            rate: RateControl::new(config, first),
            acknowledged_limit: first,
            end: StreamEnd::new(first),
            by_tree: 0,
            by_repair: 0,
            feedback: Feedback::new(now),
            requests: RepairRequests::new(now, first),
            relays: RelayQueue::default(),
            hops: Hops { by_multicast: false, relays: Arc::default() },
            watch_at: now + config.receiver_watch_every(),
            place,
        };
        receiver.adopt_place(cx);
        receiver
    }

    pub(super) fn on_place(&mut self, cx: &mut Context<'_>, place: Place) {
        // The sender does not know yet that this place was taken.
        self.feedback.report_at = cx.now;
        if !epoch::are_near(place.epoch, self.place.epoch) {
            // The place is forged, or earlier ones were lost. The report contains the current one.
            cx.counters.implausible += 1;
            return;
        }
        if !epoch::is_after(place.epoch, self.place.epoch) {
            return;
        }
        if place.first > self.window.own.next() {
            self.restart(cx, place.first);
        }
        let before = core::mem::replace(&mut self.place, place);
        self.handover.on_place(cx.now, cx.node, &before, &self.place);
        self.adopt_place(cx);
    }

    fn restart(&mut self, cx: &mut Context<'_>, first: u64) {
        let undelivered = self.delivery.undelivered(&self.window);
        cx.lose(self.sender, undelivered, first, LossCause::TooFarBehind);
        self.window = new_window(cx.config, first);
        self.delivery.resume(first);
        self.rate.restart(cx.config, first);
        self.end.known_to = self.end.known_to.max(first);
        self.requests = RepairRequests::new(cx.now, first);
    }

    pub(super) fn resume(&mut self) {
        self.delivery.resume(self.place.first);
    }

    fn adopt_place(&mut self, cx: &mut Context<'_>) {
        cx.counters.places_taken += 1;
        let (now, node) = (cx.now, cx.node);
        let limit = self.end.known_to + cx.config.initial_window();
        if self.children.on_place(now, node, &self.place, limit) {
            // Packets that only a former child had do not count for the branch.
            self.window.forget_branch();
        }
        let successors = self.place.seats().map(|seat| (seat.ring, seat.successor));
        let successors: Vec<(u32, NodeId)> = successors.filter(|it| it.1 != node).collect();
        let (has_children, linger) = (!self.children.is_empty(), cx.config.linger_in_ring());
        self.window.serve(now, self.place.epoch, &successors, has_children, linger);
        self.feedback.on_place(now, self.place.proxy.is_some());
        self.hops.relays = self.place.relays[..].into();
    }

    pub(super) fn on_data(&mut self, cx: &mut Context<'_>, from: NodeId, data: DataPacket) {
        let DataPacket { number, fragment, way, is_relayed } = data;
        if number >= self.window.end() {
            // The sender exceeds the window of a receiver while its acknowledgments are late, or
            // after evicting it. It then announces the end with the epoch of the receiver's place.
            // Other claims are not trusted.
            cx.counters.data_beyond += 1;
            return;
        }
        let is_repair = way == Way::Repair;
        let is_first_time = matches!(way, Way::Tree { .. });
        let is_news = self.end.on_packet(number, !is_repair && !is_relayed);
        self.children.expect_acks(cx.now, self.end.known_to);
        if let Way::Tree { doublings } = way {
            cx.counters.data_received += 1;
            if self.rate.on_packet(number, 2 << doublings) {
                self.feedback.on_gap(cx.now);
            }
        }
        if is_repair {
            cx.counters.repairs_received += 1;
            self.window.on_repair_from(from, number);
            self.handover.on_repair(cx.now, from, number, &self.place);
        }
        let repaired_by = is_repair.then_some(from);
        let packet = KeptPacket { fragment: fragment.clone(), repaired_by };
        let arrival = self.window.on_packet(cx.now, number, packet);
        if !is_repair {
            let data = DataPacket { number, fragment, way, is_relayed: true };
            self.relays.offer(cx, arrival, data, !self.place.relays.is_empty());
        }
        match arrival {
            Arrival::Beyond => return,
            Arrival::Known => {
                if !is_first_time {
                    // The node that sent it does not know that this receiver has the packet.
                    cx.counters.repairs_useless += 1;
                    self.feedback.ack_soon(cx.now, cx.config);
                }
                return;
            }
            Arrival::New => {}
        }
        if is_relayed {
            // The sender must have sent the packet recently.
            self.liveness.on_heard(cx.now);
        }
        if is_first_time {
            self.by_tree += 1;
            self.feedback.ack_soon(cx.now, cx.config);
        } else {
            self.by_repair += 1;
            self.feedback.on_repair(cx.now, cx.config.ack_delay);
            self.pass_on(cx, number, is_news);
        }
        self.on_progress(cx);
    }

    pub(super) fn has_to_relay(&self) -> bool {
        !self.relays.is_empty()
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Option<Hops> {
        let data = self.relays.poll(cx, !self.place.relays.is_empty())?;
        Packet::Data(data).encode(cx.group, cx.origin, cx.stream, out);
        Some(self.hops.clone())
    }

    fn pass_on(&mut self, cx: &mut Context<'_>, number: u64, is_news: bool) {
        for node in self.window.pass_on(cx.now, number, is_news) {
            cx.counters.repairs_passed_on += 1;
            self.repair(cx, node, number);
        }
    }

    fn send_repairs(&mut self, cx: &mut Context<'_>) {
        while let Some((node, number)) = self.window.poll_repair(cx.now) {
            self.repair(cx, node, number);
        }
    }

    fn repair(&mut self, cx: &mut Context<'_>, to: NodeId, number: u64) {
        let Some(packet) = self.window.packet(number) else { return };
        let repair = Packet::data(number, packet.fragment.clone(), Way::Repair);
        cx.counters.repairs_sent += 1;
        cx.unicast(to, &repair);
    }

    fn on_progress(&mut self, cx: &mut Context<'_>) {
        let next = self.window.own.next();
        self.requests.on_progress(cx.now, next);
        self.delivery.deliver(cx, &mut self.window);
        if next < self.end.known_to {
            return;
        }
        self.requests.requested_to = None;
        if self.end.announced == next && self.feedback.reported_next < next {
            // The sender may be waiting. The jitter spreads the reports of all receivers.
            let jitter = cx.rng.fraction() * f64::from(self.place.receivers.min(10_000));
            let soon = cx.now + Duration::from_micros(jitter as u64 * 100);
            self.feedback.report_at = self.feedback.report_at.min(soon);
        }
    }

    pub(super) fn hold(&mut self, cx: &mut Context<'_>, is_held: bool) {
        self.delivery.is_held = is_held;
        self.delivery.deliver(cx, &mut self.window);
        self.feedback.ack_at_once(cx.now);
    }

    pub(super) fn on_announce(&mut self, cx: &mut Context<'_>, epoch: u32, end: u64) {
        let is_trusted = epoch::are_near(epoch, self.place.epoch) && epoch != epoch::NONE;
        let end = if is_trusted { end } else { end.min(self.window.end()) };
        self.end.on_announce(end);
        self.children.expect_acks(cx.now, self.end.known_to);
        if self.window.own.next() < self.end.known_to {
            self.feedback.ack_at_once(cx.now);
        } else {
            self.feedback.ack_soon(cx.now, cx.config);
            self.on_progress(cx);
        }
    }

    pub(super) fn on_ack(&mut self, cx: &mut Context<'_>, from: NodeId, acks: &[RingAck]) {
        for ack in acks {
            let (end, known_to) = (self.window.end(), self.end.known_to);
            let is_child = self.children.on_ack(cx.now, from, ack, end, known_to);
            self.window.on_ack(cx.now, from, ack, is_child);
            if is_child {
                let known_to = self.children.known_to(self.end.known_to);
                let has_all = |range| self.window.branch().is_none_or(|it| it.contains_all(range));
                self.feedback.on_child(cx.now, cx.config.ack_delay, known_to, has_all);
            }
        }
        self.report_room(cx);
        self.send_repairs(cx);
    }

    /// Acknowledges at once if there is room again after the sender has used up the window.
    fn report_room(&mut self, cx: &Context<'_>) {
        let is_used_up = self.acknowledged_limit <= self.end.known_to;
        if is_used_up && self.limit(cx.config) > self.acknowledged_limit {
            self.feedback.ack_at_once(cx.now);
        }
    }

    pub(super) fn on_release(&mut self, node: NodeId, ring: u32, epoch: u32, from: u64) {
        self.window.on_release(node, ring, epoch, from);
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        self.window.handle_timeout(now);
        self.send_repairs(cx);
        self.acknowledge(cx);
        if !self.liveness.is_gone() {
            if self.feedback.report_at <= now {
                self.report(cx);
            }
            if self.request_at(cx.config).is_some_and(|at| at <= now) {
                self.request(cx);
            }
        }
        if self.watch_at <= now {
            self.make_up_for_stop(now);
            self.watch_at = now + cx.config.receiver_watch_every();
            self.report_successors(cx);
            let is_whole = !self.window.branch_lacks();
            let (known_to, gone_after) = (self.end.known_to, cx.config.gone_after);
            let is_heard = self.children.check_silence(now, is_whole, known_to, gone_after);
            self.window.check_silence(now, gone_after, is_heard);
        }
        if self.children.find_late(now, cx.config.late_after()) {
            self.feedback.ack_branch(now);
        }
    }

    fn acknowledge(&mut self, cx: &mut Context<'_>) {
        let (leaf, config) = (self.place.leaf, cx.config);
        let due = self.feedback.take_due(cx.now, leaf.predecessor == leaf.parent);
        let own = (due.own || due.parent).then(|| self.own_ack(config));
        let proxy = self.place.proxy.filter(|_| due.branch);
        let branch = proxy.map(|seat| self.branch_ack(seat.ring, config));
        let mut packets = due.packets(&self.place, own.as_ref(), branch.as_ref());
        packets.remove(&cx.node);
        for (node, acks) in packets {
            cx.counters.acks_sent += 1;
            cx.unicast(node, &Packet::Ack(acks));
        }
        let (own, known_to) = (own.filter(|_| due.own), self.end.known_to);
        self.handover.acknowledge(cx, &self.place, known_to, own.as_ref(), branch.as_ref());
    }

    fn own_ack(&mut self, config: &Config) -> RingAck {
        self.acknowledged_limit = self.limit(config);
        let (own, known_to, limit) = (&self.window.own, self.end.known_to, self.acknowledged_limit);
        RingAck::new(self.place.leaf.ring, own, known_to, limit, self.by_tree as u32)
    }

    fn branch_ack(&self, ring: u32, config: &Config) -> RingAck {
        let has = self.window.branch().unwrap_or_else(|| self.window.own.clone());
        let limit = self.children.limit(self.limit(config));
        let known_to = self.children.known_to(self.end.known_to);
        RingAck::new(ring, &has, known_to, limit, self.children.by_tree(self.by_tree as u32))
    }

    fn limit(&self, config: &Config) -> u64 {
        self.rate.limit(config, &self.window.own, self.end.known_to, self.window.end())
    }

    fn report(&mut self, cx: &mut Context<'_>) {
        let next = self.window.own.next();
        self.feedback.reported_next = next;
        self.feedback.report_at = cx.now + cx.config.report_interval(self.place.receivers);
        let report = Report {
            epoch: self.place.epoch,
            next,
            limit: self.limit(cx.config),
            by_tree: self.by_tree,
            by_repair: self.by_repair,
        };
        cx.counters.reports_sent += 1;
        cx.unicast(self.sender, &Packet::Report(report));
    }

    fn request_at(&self, config: &Config) -> Option<Time> {
        let end = self.end.known_to.min(self.window.end());
        self.requests.due(config, &self.window.own, end)
    }

    fn request(&mut self, cx: &mut Context<'_>) {
        let end = self.end.known_to.min(self.window.end());
        let ranges = self.requests.request(cx.now, &self.window.own, end);
        if !ranges.is_empty() {
            cx.counters.asks_sent += 1;
            cx.unicast(self.sender, &Packet::Ask(ranges));
        }
    }

    fn report_successors(&mut self, cx: &mut Context<'_>) {
        let current = self.window.successors.iter_mut().filter(|it| it.until().is_none());
        for successor in current {
            let (ring, node) = (successor.ring, successor.node);
            if successor.is_cut(cx.now, self.by_tree, cx.config.cut_after) {
                cx.counters.cuts_reported += 1;
                cx.unicast(self.sender, &Packet::Cut { ring, successor: node });
            } else if successor.is_silent(cx.now, cx.config.gone_after) {
                cx.counters.silences_reported += 1;
                cx.unicast(self.sender, &Packet::Silent { successor: node });
            }
        }
    }

    /// Excludes the time for which this node was suspended from the silence of all other nodes.
    fn make_up_for_stop(&mut self, now: Time) {
        let stopped_for = now.since(self.watch_at);
        self.liveness.make_up_for_stop(now, stopped_for);
        self.children.make_up_for_stop(now, stopped_for);
        self.window.successors.iter_mut().for_each(|it| it.make_up_for_stop(now, stopped_for));
    }

    pub(super) fn on_sender_gone(&mut self, cx: &mut Context<'_>) {
        self.liveness.on_gone(cx.now, cx.config.linger);
    }

    pub(super) fn on_farewell(&mut self, cx: &mut Context<'_>, end: u64) {
        self.end.on_end(end);
        self.on_sender_gone(cx);
    }

    pub(super) fn hears_sender(&self, now: Time, config: &Config) -> bool {
        self.liveness.is_heard(now, now.since(self.watch_at), config)
    }

    pub(super) fn follows_another(&self, now: Time, config: &Config) -> bool {
        self.liveness.is_doubtful() || !self.hears_sender(now, config)
    }

    pub(super) fn finish(&mut self, cx: &mut Context<'_>) -> u64 {
        self.delivery.is_held = false;
        self.delivery.deliver(cx, &mut self.window);
        // A packet that has arrived was sent, even if the sender itself was not heard.
        let end = self.end.by_sender.max(self.window.own.end());
        let undelivered = self.delivery.undelivered(&self.window);
        cx.lose(self.sender, undelivered, end, LossCause::AttemptsSpent);
        end
    }

    pub(super) fn poll_timeout(&mut self, config: &Config) -> Time {
        let mut due = self.watch_at.min(self.liveness.over_at(config));
        if !self.liveness.is_gone() {
            due = due.min(self.feedback.report_at);
            due = due.min(self.request_at(config).unwrap_or(Time::MAX));
        }
        let acks = self.feedback.poll_timeout();
        let late_at = self.children.late_at(config.late_after());
        let times = [acks, late_at, self.window.next_repair(), self.window.poll_timeout()];
        times.into_iter().flatten().fold(due, Time::min)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.window.kept_bytes + self.delivery.reassembly.held_bytes() + self.relays.waiting_bytes
    }

    pub(super) fn check(&self) {
        self.window.check();
        let known_to = self.end.known_to;
        assert!(self.window.own.end() <= known_to, "a packet beyond the known end has arrived");
        assert!(self.rate.next <= known_to, "the tree is ahead of the known end");
    }
}

fn new_window(config: &Config, first: u64) -> RepairWindow {
    RepairWindow::new(first, config.window_packets, RepairTiming::new(config))
}
