//! Asking and answering: NAKs (Slingshot, algorithm 1, lines 34 to 40), heartbeats, opens and
//! acknowledgements, and the sender's side of them.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::asking;
use super::block::Block;
use super::data_buffer::Came;
use super::groups::{GroupIx, SampleChange};
use super::missing::{Missing, MissingIx};
use super::packet::{Packet, WireId, ids_that_fit};
use super::streams::{Stream, StreamIx};
use super::{CONFIRM_INTERVAL, Lateral, StreamStart, TimerKey};
use crate::{
    Destination, Event, GroupId, LossCause, NodeId, Origin, PacketId, Safe, SeqNo, Slow, Time,
    ViewChange, ViewChangeKind,
};

impl Lateral {
    /// Looks after every missing packet that is due: gives it up, or asks for it.
    pub(super) fn look_after_missing(&mut self, now: Time) {
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

    /// Decides over one missing packet; returns whom to ask for it, if anybody.
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
            // At least a millisecond on, so that many are asked for together.
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
        let whom = asking::whom_to_ask(nak.first, &missing, stream.sender, members, &mut self.rng);
        let wait = asking::patience(nak, missing.attempts + 1, &mut self.rng);
        self.missing.get_mut(ix).attempts += 1;
        self.missing.set_due(ix, (now + wait).min(end));
        Some((whom, id))
    }

    /// Returns `true` if nobody will be asked for the packet any more.
    fn is_spent(&self, missing: &Missing) -> bool {
        self.config.nak.as_ref().is_some_and(|nak| missing.attempts >= nak.attempts)
    }

    fn send_nak(&mut self, node: NodeId, ids: &[WireId]) {
        self.counters.naks_sent += 1;
        self.counters.ids_asked += ids.len() as u64;
        let cookie = self.cookies.given_by(node);
        self.transmit(Destination::Node(node), GroupId::NONE, Packet::Nak { cookie, ids });
    }

    /// A node that was asked wants to see first that its answers arrive here: it is asked again,
    /// with the cookie that it gave, for what is still missing.
    pub(super) fn on_challenge(&mut self, now: Time, from: NodeId, cookie: u64, ids: &[WireId]) {
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

    pub(super) fn on_nak(&mut self, now: Time, from: NodeId, cookie: u64, ids: &[WireId]) {
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
                Answer::Block(_) if !self.answer_limit.take(now) => {
                    self.counters.answers_suppressed += 1;
                }
                Answer::Block(block) => {
                    self.counters.retransmissions_sent += 1;
                    let (origin, seqno, block) = (id.sender, id.seqno, block.bytes());
                    let packet = Packet::Retransmission { origin, seqno, block };
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
            Some(held) => match held.block().deadline() {
                Some(deadline) if now > held.received_at + deadline => Answer::Expired,
                _ => Answer::Block(held.block().clone()),
            },
        }
    }

    pub(super) fn on_have_not(&mut self, now: Time, from: NodeId, ids: &[WireId], expired: bool) {
        self.counters.have_nots_received += 1;
        for id in ids.iter().map(|id| PacketId::from(*id)) {
            let Some(ix) = self.stream_with(id) else { continue };
            if !self.may_know(self.streams.get(ix).group, from, id.sender) {
                self.counters.from_strangers += 1;
                continue;
            }
            match self.streams.get(ix).missing(id.seqno) {
                Some(missing) if expired => self.give_up(missing, LossCause::DeadlinePassed),
                // Somebody else is asked a little later; not at once, so that two nodes that both
                // lack it do not keep each other busy.
                Some(missing) => {
                    let next = now + Duration::from_millis(1);
                    let end = self.missing.get(missing).noticed_at + self.config.give_up_after;
                    self.missing.set_due(missing, next.min(end));
                }
                None => {}
            }
        }
    }

    /// This node leaves: every sender gets its last word on what it has, so that a loss does not
    /// go unnoticed because the loser has left.
    pub(super) fn bid_farewell(&mut self, ix: GroupIx) {
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

    /// Tells a stream's sender how far this node has come, once it is known where it began.
    pub(super) fn acknowledge(&mut self, now: Time, ix: StreamIx) {
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

    pub(super) fn on_ack(
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

    /// Sends a message of this node and keeps it.
    pub(super) fn multicast(&mut self, now: Time, ix: GroupIx, block: Block) -> SeqNo {
        let window = self.window_of(ix);
        let group = self.groups.get_mut(ix);
        let confirm = group.own.asks_to_confirm(window);
        let (id, seqno) = (group.id, group.own.take_number());
        let stream = self.streams.find(ix, self.id);
        let stream = stream.unwrap_or_else(|| self.streams.open(self.id, ix, id, seqno, true));
        self.streams.hold(now, stream, seqno, block.clone(), Came::ByMulticast);
        let packet = Packet::Data { seqno, confirm, block: block.bytes() };
        self.transmit(Destination::Group(id), id, packet);
        self.counters.data_sent += 1;
        if self.config.own_packets {
            self.account(now, ix, self.streams.get(stream).id(seqno), &block);
        }
        self.schedule_heartbeat(now, ix);
        seqno
    }

    /// After a message: the heartbeats begin anew, unless confirmations are being collected.
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

    pub(super) fn on_heartbeat_due(&mut self, now: Time, ix: GroupIx) {
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
        // At the longest interval the members are asked to confirm, once for a stream that has
        // paused: when all of them know its end, there is nothing more to say.
        let confirm = is_waiting || longest.is_some_and(|longest| interval >= longest);
        // They continue until then: a member that was cut off would otherwise never learn that it
        // lost something.
        if doubled.is_some() {
            self.timers.set(TimerKey::Heartbeat(ix), now + interval);
        }
        self.counters.heartbeats_sent += 1;
        let packet = Packet::Heartbeat { next, first: None, nonce: 0, confirm };
        self.transmit(Destination::Group(id), id, packet);
    }

    /// A member joined, left or failed.
    pub(super) fn on_view_change(&mut self, now: Time, ix: GroupIx, change: &ViewChange) {
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
                // Claims in the sender's name were believed while it was no member.
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

    /// A member joined: it is told soon where the stream ends, for it may have been a member before
    /// and have missed something, and its sender may be silent from now on.
    fn on_joined(&mut self, now: Time, ix: GroupIx, change: &ViewChange) {
        let Some(interval) = self.config.heartbeat else { return };
        let own = &mut self.groups.get_mut(ix).own;
        if change.kind == ViewChangeKind::Joined && own.is_joiner(change.node) {
            own.joiners_interval = interval;
            // Not all senders at once.
            let at = now + interval / 2 + interval.mul_f64(self.rng.fraction() / 2.0);
            self.timers.set_no_later(TimerKey::Joiners(ix), at);
        }
    }

    /// Tells the joiners that are not known to know it where the stream ends.
    pub(super) fn on_joiners_due(&mut self, now: Time, ix: GroupIx) {
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
        // One multicast where that is less than a copy for each.
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

    /// The application was refused: asks the members to confirm, and begins to lose patience.
    pub(super) fn on_held_back(&mut self, now: Time, ix: GroupIx) {
        let own = &mut self.groups.get_mut(ix).own;
        if own.held_back_since.is_none() {
            own.held_back_since = Some(now);
            own.heartbeat_interval = CONFIRM_INTERVAL;
            self.timers.set(TimerKey::Patience(ix), now + self.config.patience);
            self.on_heartbeat_due(now, ix);
        }
    }

    pub(super) fn on_patience_ended(&mut self, now: Time, ix: GroupIx) {
        let window = self.window_of(ix);
        let group = self.groups.get_mut(ix);
        let id = group.id;
        for (node, behind) in group.own.give_up_waiting(window) {
            self.events.push_back(Event::Slow(Slow { group: id, node, behind }));
        }
        self.look_whether_free(now, ix);
    }

    /// Ends the holding back if nobody holds back any more.
    pub(super) fn look_whether_free(&mut self, now: Time, ix: GroupIx) {
        let window = self.window_of(ix);
        let own = &mut self.groups.get_mut(ix).own;
        if own.held_back_since.is_some() && own.held_back_by(window).is_none() {
            own.held_back_since = None;
            self.timers.cancel(TimerKey::Patience(ix));
            self.schedule_heartbeat(now, ix);
            self.go_on_sending(now, ix);
        }
    }

    /// Tells the application if all members have confirmed what it asked for; says whether they
    /// have.
    pub(super) fn look_whether_safe(&mut self, now: Time, ix: GroupIx) -> bool {
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
            // Whoever holds back has to be asked on.
            return true;
        }
        self.timers.cancel(TimerKey::Heartbeat(ix));
        if sent_since {
            self.schedule_heartbeat(now, ix);
        }
        true
    }
}

/// The answer to one id of a NAK.
enum Answer {
    Block(Block),
    HaveNot,
    Expired,
}

/// The longest interval between heartbeats, as a multiple of the first.
const LONGEST_HEARTBEAT: u32 = 64;

/// What this node has of the stream, for the start of its sender that is known; `None` if none is.
fn ack_of(stream: &Stream) -> Option<Packet<'static>> {
    let to = Origin { node: stream.sender, incarnation: stream.incarnation? };
    Some(Packet::Ack { to, settled_to: stream.settled_to(), lost: stream.lost })
}
