//! NAK recovery (Slingshot, algorithm 1, lines 34 to 40), acknowledgments, and the sender's side:
//! its own packets, heartbeats, joiners and the window.

pub(crate) mod cookies;
pub(crate) mod nak_targets;

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::{CONFIRM_INTERVAL, Lateral, StreamStart, TimerKey};
use crate::lateral::groups::{GroupIx, SampleChange};
use crate::lateral::packet::symbol::Symbol;
use crate::lateral::packet::{Packet, WireId, ids_that_fit};
use crate::lateral::streams::data_buffer::Arrival;
use crate::lateral::streams::loss_list::{Missing, MissingIx};
use crate::lateral::streams::{Stream, StreamIx};
use crate::{
    Destination, Event, GroupId, LossCause, NodeId, Origin, PacketId, Safe, SeqNo, Slow, Time,
    ViewChange, ViewChangeKind,
};

impl Lateral {
    /// Handles every missing packet that is due: gives it up or requests it.
    pub(crate) fn look_after_missing(&mut self, now: Time) {
        let mut asked: BTreeMap<NodeId, Vec<WireId>> = BTreeMap::new();
        while let Some(ix) = self.missing.pop_due(now) {
            if let Some((node, id)) = self.look_after(now, ix) {
                asked.entry(node).or_default().push(id.into());
            }
        }
        let fit = ids_that_fit(self.config.max_datagram_bytes());
        for (node, ids) in asked {
            for ids in ids.chunks(fit) {
                self.send_nak(node, ids);
            }
        }
    }

    /// Handles one missing packet. Returns the node to request it from, if it is to be requested.
    fn look_after(&mut self, now: Time, ix: MissingIx) -> Option<(NodeId, PacketId)> {
        let missing = *self.missing.get(ix);
        let end = missing.noticed_at + self.config.give_up_after;
        let is_over = now >= end || self.is_spent(&missing);
        if let Some(wait) = self.needs_word(now, missing.stream, missing.seqno, is_over) {
            self.missing.set_due(ix, now + wait);
            return None;
        }
        if now >= end {
            self.give_up(ix, LossCause::DeadlinePassed);
            return None;
        }
        let Some(nak) = &self.config.nak else {
            self.missing.set_due(ix, end);
            return None;
        };
        if missing.attempts >= nak.attempts {
            self.give_up(ix, LossCause::AttemptsSpent);
            return None;
        }
        if !self.nak_limit.take(now) {
            // At least a millisecond later, so that many packets are requested together.
            let next = self.nak_limit.next_at(now).max(now + Duration::from_millis(1));
            if next < end {
                self.missing.pause(now, ix, next);
            } else {
                self.missing.set_due(ix, end);
            }
            return None;
        }
        let stream = self.streams.get(missing.stream);
        let (id, members) = (stream.id(missing.seqno), &self.groups.get(stream.group).members);
        let whom =
            nak_targets::nak_target(nak.first, &missing, stream.sender, members, &mut self.rng);
        let wait = nak_targets::patience(nak, missing.attempts + 1, &mut self.rng);
        self.missing.get_mut(ix).attempts += 1;
        self.missing.set_due(ix, (now + wait).min(end));
        Some((whom, id))
    }

    /// Returns `true` if the packet will not be requested any more.
    fn is_spent(&self, missing: &Missing) -> bool {
        self.config.nak.as_ref().is_some_and(|nak| missing.attempts >= nak.attempts)
    }

    fn send_nak(&mut self, node: NodeId, ids: &[WireId]) {
        self.counters.naks_sent += 1;
        self.counters.ids_asked += ids.len() as u64;
        let cookie = self.cookies.given_by(node);
        self.transmit(Destination::Node(node), GroupId::NONE, Packet::Nak { cookie, ids });
    }

    /// Repeats a request for the packets that are still missing, with the cookie that the queried
    /// node requires.
    pub(crate) fn on_challenge(&mut self, now: Time, from: NodeId, cookie: u64, ids: &[WireId]) {
        self.cookies.keep(from, cookie);
        let mut still_missing = Vec::with_capacity(ids.len());
        for wire_id in ids {
            let id = PacketId::from(*wire_id);
            let record = self.stream_with(id).and_then(|ix| self.streams.get(ix).missing(id.seqno));
            let was_asked = record.is_some_and(|ix| self.missing.get(ix).attempts > 0);
            if was_asked && self.nak_limit.take(now) {
                still_missing.push(*wire_id);
            }
        }
        if !still_missing.is_empty() {
            self.send_nak(from, &still_missing);
        }
    }

    pub(crate) fn on_nak(&mut self, now: Time, from: NodeId, cookie: u64, ids: &[WireId]) {
        self.counters.naks_received += 1;
        if cookie != self.cookies.of(from) {
            self.counters.challenges_sent += 1;
            let packet = Packet::Challenge { cookie: self.cookies.of(from), ids };
            self.transmit(Destination::Node(from), GroupId::NONE, packet);
            return;
        }
        let (mut have_not, mut expired) = (Vec::new(), Vec::new());
        for wire_id in ids {
            let id = PacketId::from(*wire_id);
            match self.answer(now, id) {
                Answer::Symbol(_) if !self.answer_limit.take(now) => {
                    self.counters.answers_suppressed += 1;
                }
                Answer::Symbol(symbol) => {
                    self.counters.retransmissions_sent += 1;
                    let (origin, seqno, symbol) = (id.sender, id.seqno, symbol.bytes());
                    let packet = Packet::Retransmission { origin, seqno, symbol };
                    self.transmit(Destination::Node(from), id.group, packet);
                }
                Answer::HaveNot => have_not.push(*wire_id),
                Answer::Expired => expired.push(*wire_id),
            }
        }
        let fit = ids_that_fit(self.config.max_datagram_bytes());
        for (ids, expired) in [(have_not, false), (expired, true)] {
            for ids in ids.chunks(fit) {
                self.counters.have_nots_sent += 1;
                let packet = Packet::HaveNot { ids, expired };
                self.transmit(Destination::Node(from), GroupId::NONE, packet);
            }
        }
    }

    fn answer(&self, now: Time, id: PacketId) -> Answer {
        let stream = self.stream_with(id);
        let held = stream.and_then(|ix| self.streams.held(ix, id.seqno));
        match held {
            None => Answer::HaveNot,
            Some(held) => match held.symbol().deadline() {
                Some(deadline) if now > held.received_at + deadline => Answer::Expired,
                _ => Answer::Symbol(held.symbol().clone()),
            },
        }
    }

    pub(crate) fn on_have_not(&mut self, now: Time, from: NodeId, ids: &[WireId], expired: bool) {
        self.counters.have_nots_received += 1;
        for id in ids.iter().map(|id| PacketId::from(*id)) {
            let Some(ix) = self.stream_with(id) else { continue };
            if !self.may_know(self.streams.get(ix).group, from, id.sender) {
                self.counters.from_strangers += 1;
                continue;
            }
            match self.streams.get(ix).missing(id.seqno) {
                Some(missing) if expired => self.give_up(missing, LossCause::DeadlinePassed),
                // Another node is queried after a short delay. Without it, two nodes that both lack
                // the packet would keep each other busy.
                Some(missing) => {
                    let next = now + Duration::from_millis(1);
                    let end = self.missing.get(missing).noticed_at + self.config.give_up_after;
                    self.missing.set_due(missing, next.min(end));
                }
                None => {}
            }
        }
    }

    /// Sends a last acknowledgment to every sender when this node leaves, so that its losses do not
    /// go unnoticed.
    pub(crate) fn bid_farewell(&mut self, ix: GroupIx) {
        for stream in self.streams.of_group(ix) {
            if let Some(packet) = ack_of(stream)
                && stream.opened
                && stream.sender != self.id
            {
                let view = self.groups.get(ix).view_version;
                let to = [Destination::Node(stream.sender)];
                self.counters.acks_sent += 1;
                let (origin, group) = (self.origin, stream.group_id);
                self.outbox.push(packet.class(), to, |out| packet.encode(origin, group, view, out));
            }
        }
    }

    /// Sends an acknowledgment to the stream's sender, or an open if the start of the stream is
    /// unknown.
    pub(crate) fn acknowledge(&mut self, now: Time, ix: StreamIx) {
        let stream = self.streams.get(ix);
        if !stream.opened {
            self.ask_again_to_open(now, ix);
            return;
        }
        let Some(packet) = ack_of(stream) else { return };
        let (sender, group) = (stream.sender, stream.group_id);
        self.counters.acks_sent += 1;
        self.transmit(Destination::Node(sender), group, packet);
    }

    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        from: NodeId,
        ix: GroupIx,
        settled_to: SeqNo,
        lost: u32,
    ) {
        let window = self.window_of(ix);
        self.groups.get_mut(ix).own.on_ack(from, settled_to, lost, window);
        self.look_whether_safe(now, ix);
        self.look_whether_free(now, ix);
    }

    /// Multicasts a packet of this node, buffers it and adds it to the bins.
    pub(crate) fn multicast(&mut self, now: Time, ix: GroupIx, symbol: Symbol) -> SeqNo {
        let window = self.window_of(ix);
        let group = self.groups.get_mut(ix);
        let confirm = group.own.asks_to_confirm(window);
        let (id, seqno) = (group.id, group.own.take_number());
        let stream = self.streams.find(ix, self.id);
        let stream = stream.unwrap_or_else(|| self.streams.open(self.id, ix, id, seqno, true));
        self.streams.hold(now, stream, seqno, symbol.clone(), Arrival::Multicast);
        let packet = Packet::Data { seqno, confirm, symbol: symbol.bytes() };
        self.transmit(Destination::Group(id), id, packet);
        self.counters.data_sent += 1;
        if self.config.own_packets {
            self.account(now, ix, self.streams.get(stream).id(seqno), &symbol);
        }
        self.schedule_heartbeat(now, ix);
        seqno
    }

    /// Restarts the heartbeats after a message, unless acknowledgments are being collected.
    fn schedule_heartbeat(&mut self, now: Time, ix: GroupIx) {
        let own = &mut self.groups.get_mut(ix).own;
        if own.confirm.is_some() || own.held_back_since.is_some() {
            return;
        }
        if let Some(interval) = self.config.heartbeat
            && !own.are_all_informed()
        {
            own.heartbeat_interval = interval;
            self.timers.set(TimerKey::Heartbeat(ix), now + interval);
        }
    }

    pub(crate) fn on_heartbeat_due(&mut self, now: Time, ix: GroupIx) {
        let group = self.groups.get_mut(ix);
        let (id, next) = (group.id, group.own.next.seqno());
        let is_waiting = group.own.confirm.is_some() || group.own.held_back_since.is_some();
        if !is_waiting && group.own.are_all_informed() {
            return;
        }
        let interval = group.own.heartbeat_interval;
        let longest = match self.config.heartbeat {
            _ if is_waiting => Some(CONFIRM_INTERVAL * 16),
            heartbeat => heartbeat.map(|first| first * LONGEST_HEARTBEAT),
        };
        let doubled = longest.map(|longest| (interval * 2).min(longest));
        group.own.heartbeat_interval = doubled.unwrap_or(interval);
        // At the longest interval, acknowledgments are requested. When all members have confirmed
        // the end of a stream that has paused, the heartbeats stop.
        let confirm = is_waiting || longest.is_some_and(|longest| interval >= longest);
        // They continue until then. Otherwise, a member that was disconnected would never learn of
        // its losses.
        if doubled.is_some() {
            self.timers.set(TimerKey::Heartbeat(ix), now + interval);
        }
        self.counters.heartbeats_sent += 1;
        let packet = Packet::Heartbeat { next, first: None, nonce: 0, confirm };
        self.transmit(Destination::Group(id), id, packet);
    }

    /// Applies the join, leave or failure of a member.
    pub(crate) fn on_view_change(&mut self, now: Time, ix: GroupIx, change: &ViewChange) {
        if change.node == self.id {
            return;
        }
        let group = self.groups.get_mut(ix);
        group.view_version = change.version;
        let sampled = match change.kind {
            ViewChangeKind::Joined => group.add_member(now, change.node, &mut self.rng),
            ViewChangeKind::Left | ViewChangeKind::Failed => {
                group.remove_member(change.node, &mut self.rng)
            }
        };
        if let Some(stream) = self.streams.find(ix, change.node) {
            let has_left = change.kind != ViewChangeKind::Joined;
            let end = self.streams.get(stream).end();
            let left_at = &mut self.streams.get_mut(stream).left_at;
            let left_at = core::mem::replace(left_at, has_left.then_some(end));
            let is_claimed = left_at.is_some_and(|before| end.is_beyond(before));
            if is_claimed && !has_left && self.config.stream_start == StreamStart::AskSender {
                // Claims in the sender's name were believed while it was not a member.
                self.want_word(now, stream);
            }
        }
        if let Some(SampleChange { added, removed }) = sampled {
            removed.into_iter().for_each(|node| self.bins.remove_node(node, ix));
            added.into_iter().for_each(|node| self.bins.add_node(node, ix));
            self.look_whether_safe(now, ix);
            self.look_whether_free(now, ix);
            self.on_joined(now, ix, change);
        }
    }

    /// Schedules a heartbeat to a member that joined. It may have been a member before and have
    /// missed packets, and this node may send nothing that would reveal them.
    fn on_joined(&mut self, now: Time, ix: GroupIx, change: &ViewChange) {
        let Some(interval) = self.config.heartbeat else { return };
        let own = &mut self.groups.get_mut(ix).own;
        if change.kind == ViewChangeKind::Joined && own.is_joiner(change.node) {
            own.joiners_interval = interval;
            // Randomized, so that senders do not all send at once.
            let at = now + interval / 2 + interval.mul_f64(self.rng.fraction() / 2.0);
            self.timers.set_no_later(TimerKey::Joiners(ix), at);
        }
    }

    /// Sends a heartbeat to the joiners that have not confirmed the end that the stream had at
    /// their join.
    pub(crate) fn on_joiners_due(&mut self, now: Time, ix: GroupIx) {
        let Some(first_interval) = self.config.heartbeat else { return };
        let group = self.groups.get_mut(ix);
        let (id, next) = (group.id, group.own.next.seqno());
        let joiners: Vec<NodeId> = group.own.joiners().collect();
        if joiners.is_empty() {
            return;
        }
        let interval = group.own.joiners_interval;
        group.own.joiners_interval = (interval * 2).min(first_interval * LONGEST_HEARTBEAT);
        self.timers.set(TimerKey::Joiners(ix), now + interval);
        // One multicast if most members are joiners, otherwise unicast.
        let is_most = joiners.len() > 1 && joiners.len() * 2 > group.own.count();
        let destinations = match is_most {
            true => vec![Destination::Group(id)],
            false => joiners.into_iter().map(Destination::Node).collect(),
        };
        self.counters.heartbeats_sent += destinations.len() as u64;
        for destination in destinations {
            let packet = Packet::Heartbeat { next, first: None, nonce: 0, confirm: true };
            self.transmit(destination, id, packet);
        }
    }

    /// Requests acknowledgments and starts the patience timer when a member holds this node back.
    pub(crate) fn on_held_back(&mut self, now: Time, ix: GroupIx) {
        let own = &mut self.groups.get_mut(ix).own;
        if own.held_back_since.is_none() {
            own.held_back_since = Some(now);
            own.heartbeat_interval = CONFIRM_INTERVAL;
            self.timers.set(TimerKey::Patience(ix), now + self.config.patience);
            self.on_heartbeat_due(now, ix);
        }
    }

    pub(crate) fn on_patience_ended(&mut self, now: Time, ix: GroupIx) {
        let window = self.window_of(ix);
        let group = self.groups.get_mut(ix);
        let id = group.id;
        for (node, behind) in group.own.give_up_waiting(window) {
            self.events.push_back(Event::Slow(Slow { group: id, node, behind }));
        }
        self.look_whether_free(now, ix);
    }

    /// Resumes sending if no member holds this node back any more.
    pub(crate) fn look_whether_free(&mut self, now: Time, ix: GroupIx) {
        let window = self.window_of(ix);
        let own = &mut self.groups.get_mut(ix).own;
        if own.held_back_since.is_some() && own.held_back_by(window).is_none() {
            own.held_back_since = None;
            self.timers.cancel(TimerKey::Patience(ix));
            self.schedule_heartbeat(now, ix);
            self.go_on_sending(now, ix);
        }
    }

    /// Reports [`Event::Safe`] if all members have confirmed all messages that the application
    /// wants confirmed. Returns `true` if they have.
    pub(crate) fn look_whether_safe(&mut self, now: Time, ix: GroupIx) -> bool {
        let group = self.groups.get_mut(ix);
        let Some(up_to) = group.own.confirm else { return false };
        if group.own.unconfirmed(up_to).next().is_some() {
            return false;
        }
        group.own.confirm = None;
        let safe = Safe {
            group: group.id,
            up_to: up_to.seqno().minus(1),
            members: group.own.confirmed(up_to),
            incomplete: group.own.take_incomplete(),
        };
        let sent_since = group.own.next > up_to;
        let is_held_back = group.own.held_back_since.is_some();
        self.events.push_back(Event::Safe(safe));
        if is_held_back {
            // Members that hold back are still queried for acknowledgments.
            return true;
        }
        self.timers.cancel(TimerKey::Heartbeat(ix));
        if sent_since {
            self.schedule_heartbeat(now, ix);
        }
        true
    }
}

/// Answer to one id of a NAK.
enum Answer {
    Symbol(Symbol),
    HaveNot,
    Expired,
}

/// Longest interval between heartbeats, as a multiple of the first.
const LONGEST_HEARTBEAT: u32 = 64;

/// Returns the acknowledgment of a stream; `None` if the incarnation of its sender is unknown.
fn ack_of(stream: &Stream) -> Option<Packet<'static>> {
    let to = Origin { node: stream.sender, incarnation: stream.incarnation? };
    Some(Packet::Ack { to, settled_to: stream.settled_to(), lost: stream.lost })
}
