//! One group, in which this node sends, receives, or waits.

use alloc::vec::Vec;

use bytes::Bytes;

use super::around::Around;
use super::config::Config;
use super::ended::{Ended, EndedStreams};
use super::epochs;
use super::farewell::{self, Farewells};
use super::managed::GroupNews;
use super::packet::{Packet, Place, Report, Way};
use super::reception::Reception;
use super::sending::Sending;
use crate::{Event, GroupId, Hops, LossCause, NodeId, Safe, SendError, SeqNo, Time};

/// A group that this node has joined.
#[derive(Debug)]
pub(super) struct Group {
    /// Other members, sorted.
    pub(super) members: Vec<NodeId>,
    pub(super) role: Role,
    /// Number of the stream that this node sends or receives.
    pub(super) stream: u32,
    /// Last sender that was heard here, and when, if this node has no place in its stream yet.
    heard: Option<(NodeId, Time)>,
    /// Streams that this node received and that are over here.
    ended: EndedStreams,
    /// Unacknowledged ends of this node's own streams.
    farewells: Farewells,
    /// When this node may next report to a sender that it has no place.
    asks_again_at: Time,
}

/// Role of the node in a group.
#[derive(Debug)]
pub(super) enum Role {
    /// No sender is known here, or the node has no place yet.
    Waiting,
    Sending(Box<Sending>),
    Receiving(Box<Reception>),
}

impl Group {
    pub(super) fn new() -> Self {
        Self {
            members: Vec::new(),
            role: Role::Waiting,
            stream: 0,
            heard: None,
            ended: EndedStreams::default(),
            farewells: Farewells::default(),
            asks_again_at: Time::ZERO,
        }
    }

    /// Accepts a message to be sent. `stream` is the number of the stream if one begins now.
    pub(super) fn send(
        &mut self,
        around: &mut Around<'_>,
        stream: u32,
        payload: Bytes,
    ) -> Result<SeqNo, SendError> {
        if let Some(sender) = self.sender(around.now, around.config) {
            return Err(SendError::HasSender { sender });
        }
        self.end_reception(around);
        if let Role::Waiting = self.role {
            around.stream = stream;
            let Ok(sending) = Sending::new(around, &self.members) else {
                return Err(SendError::NoPlace);
            };
            self.stream = stream;
            self.role = Role::Sending(Box::new(sending));
        }
        match &mut self.role {
            Role::Sending(sending) => sending.send(around, payload),
            Role::Waiting | Role::Receiving(_) => Err(SendError::NotReady),
        }
    }

    /// Returns the other node that sends here. A sender that is no longer heard is not returned: it
    /// may have yielded to another sender, or only late packets of an earlier stream were heard.
    pub(super) fn sender(&self, now: Time, config: &Config) -> Option<NodeId> {
        match &self.role {
            Role::Receiving(reception) if reception.hears_sender(now, config) => {
                Some(reception.sender)
            }
            Role::Waiting => {
                let (sender, at) = self.heard?;
                (now.since(at) < config.sender_gone_after()).then_some(sender)
            }
            Role::Receiving(_) | Role::Sending(_) => None,
        }
    }

    /// Requests a confirmation. A node that has sent nothing gets it at once.
    pub(super) fn confirm(&mut self, around: &mut Around<'_>) {
        match &mut self.role {
            Role::Sending(sending) => sending.confirm(around),
            Role::Waiting | Role::Receiving(_) => around.events.push_back(Event::Safe(Safe {
                group: around.group,
                up_to: around.config.first_number.minus(1),
                members: self.members.len(),
                incomplete: Vec::new(),
            })),
        }
    }

    /// Notifies the group that multicast reaches other nodes than before.
    pub(super) fn on_reach(&mut self, around: &mut Around<'_>) {
        if let Role::Sending(sending) = &mut self.role {
            sending.placing.on_reach(around);
        }
    }

    /// Returns the destinations of data from this node.
    pub(super) fn hops(&self) -> Hops<'_> {
        match &self.role {
            Role::Waiting => Hops { by_multicast: false, relays: &[] },
            Role::Sending(sending) => sending.placing.hops(),
            Role::Receiving(reception) => {
                Hops { by_multicast: false, relays: &reception.place().relays }
            }
        }
    }

    /// Returns `true` if a packet of the stream may be ready to go along the tree.
    pub(super) fn may_have_data(&self) -> bool {
        match &self.role {
            Role::Waiting => false,
            Role::Sending(_) => true,
            Role::Receiving(reception) => reception.has_to_relay(),
        }
    }

    /// Appends the next packet of the stream that goes along the tree to `out`. Returns `false` if
    /// no packet is ready.
    pub(super) fn poll_data(&mut self, around: &mut Around<'_>, out: &mut Vec<u8>) -> bool {
        match &mut self.role {
            Role::Waiting => false,
            Role::Sending(sending) => sending.poll_data(around, out),
            Role::Receiving(reception) => reception.poll_data(around, out),
        }
    }

    pub(super) fn hold(&mut self, around: &mut Around<'_>, is_held: bool) {
        if let Role::Receiving(reception) = &mut self.role {
            reception.hold(around, is_held);
        }
    }

    pub(super) fn on_joined(&mut self, around: &mut Around<'_>, node: NodeId) {
        if let Err(place) = self.members.binary_search(&node) {
            self.members.insert(place, node);
            self.farewells.on_joined(around.now, node);
            match &mut self.role {
                Role::Sending(sending) => sending.on_joined(around, node),
                Role::Receiving(reception) if reception.sender == node => {
                    reception.on_sender_back(around.now);
                }
                Role::Receiving(_) | Role::Waiting => {}
            }
        }
    }

    pub(super) fn on_gone(&mut self, around: &mut Around<'_>, node: NodeId) {
        let Ok(place) = self.members.binary_search(&node) else { return };
        self.members.remove(place);
        self.heard = self.heard.filter(|(heard, _)| *heard != node);
        self.farewells.on_gone(node);
        match &mut self.role {
            Role::Sending(sending) => sending.on_gone(around, node),
            Role::Receiving(reception) if reception.sender == node => {
                reception.on_sender_gone(around);
            }
            Role::Receiving(_) | Role::Waiting => {}
        }
    }

    pub(super) fn on_packet(
        &mut self,
        around: &mut Around<'_>,
        from: NodeId,
        stream: u32,
        packet: Packet,
    ) {
        let is_of_sender = match &packet {
            Packet::Data(data) => data.way != Way::Repair && !data.is_relayed,
            Packet::Announce { .. } | Packet::Place { .. } => true,
            _ => false,
        };
        let is_for_another =
            matches!(packet, Packet::Place { receiver, .. } if receiver != around.node);
        if is_for_another || is_of_sender && !self.accepts_sender(around, from, stream) {
            around.counters.foreign += 1;
            return;
        }
        if let Role::Receiving(reception) = &mut self.role
            && (reception.sender, self.stream) == (from, stream)
        {
            reception.sender_heard_at = around.now;
        }
        if let Packet::Farewell { epoch, end } = packet {
            self.on_farewell(around, from, (stream, epoch), end);
        } else if packet == Packet::FarewellHeard {
            self.farewells.on_heard(stream, from);
        } else if let Packet::Place { place, .. } = packet {
            self.on_place(around, from, stream, place);
        } else if stream == self.stream && !matches!(self.role, Role::Waiting) {
            self.on_packet_of_stream(around, from, packet);
        } else if is_of_sender {
            around.counters.data_unplaced += 1;
            self.ask_for_place(around, from, stream);
        } else if let Packet::Data(_) = packet {
            around.counters.data_unplaced += 1;
        }
    }

    /// Reports to a sender that this node has no place. If the sender has evicted this node for
    /// that reason, the report requests readmission.
    fn ask_for_place(&mut self, around: &mut Around<'_>, sender: NodeId, stream: u32) {
        if self.asks_again_at > around.now {
            return;
        }
        self.asks_again_at = around.now + around.config.report_every;
        around.stream = stream;
        around.counters.reports_sent += 1;
        // A node that had a place continues after the packets that it has reported as lost.
        let next = self.ended.of(sender, stream).map_or(0, |ended| ended.told_to);
        let report = Report { epoch: epochs::NONE, next, limit: 0, by_tree: 0, by_repair: 0 };
        around.unicast(sender, &Packet::Report(report));
    }

    fn on_packet_of_stream(&mut self, around: &mut Around<'_>, from: NodeId, packet: Packet) {
        let is_member = self.members.binary_search(&from).is_ok();
        match (&mut self.role, packet) {
            // A node that is not a member must not trigger many packets with one (amplification).
            (Role::Sending(_), _) if !is_member => around.counters.foreign += 1,
            (Role::Receiving(reception), Packet::Data(data)) => {
                reception.on_data(around, from, data);
            }
            (Role::Receiving(reception), Packet::Announce { epoch, end }) => {
                reception.on_announce(around, epoch, end);
            }
            (Role::Receiving(reception), Packet::Ack(acks)) => {
                around.counters.acks_received += 1;
                reception.on_ack(around, from, &acks);
            }
            (Role::Receiving(reception), Packet::Release { ring, epoch, from: number }) => {
                reception.on_release(from, ring, epoch, number);
            }
            (Role::Sending(sending), Packet::Ack(acks)) => {
                around.counters.acks_received += 1;
                sending.on_ack(around, from, &acks);
            }
            (Role::Sending(sending), Packet::Report(report)) => {
                sending.on_report(around, from, &report);
            }
            (Role::Sending(sending), Packet::Ask(ranges)) => sending.on_ask(around, from, &ranges),
            (Role::Sending(sending), Packet::Cut { ring, successor }) => {
                sending.on_cut(around, ring, successor);
            }
            (Role::Sending(sending), Packet::Silent { successor }) => {
                sending.on_silent(around, successor);
            }
            _ => around.counters.foreign += 1,
        }
    }

    /// Returns `true` if `from` may be the sender of the group. Of two senders, the one with the
    /// smaller id continues and the other one yields. A node that is not a member does not send
    /// here: late packets of a sender that is gone begin nothing.
    fn accepts_sender(&mut self, around: &mut Around<'_>, from: NodeId, stream: u32) -> bool {
        let is_member = self.members.binary_search(&from).is_ok();
        // Numbers of streams wrap around, like those of packets.
        let is_later = || SeqNo(stream).is_after(SeqNo(self.stream));
        match &mut self.role {
            Role::Receiving(reception) if reception.sender == from => {
                // A restarted sender numbers its streams from another start.
                let may_be_over = reception.follows_another(around.now, around.config);
                stream == self.stream || is_member && (is_later() || may_be_over)
            }
            _ if !is_member => false,
            Role::Waiting => {
                self.heard = Some((from, around.now));
                true
            }
            Role::Sending(sending) => {
                if from > around.node {
                    return false;
                }
                let (end, epoch, whole) = sending.give_way(around);
                let (now, members) = (around.now, self.members.iter().copied());
                self.farewells.push(now, (self.stream, end, epoch), members, whole);
                self.role = Role::Waiting;
                self.heard = Some((from, around.now));
                true
            }
            Role::Receiving(reception) => {
                from < reception.sender || reception.follows_another(around.now, around.config)
            }
        }
    }

    fn on_place(&mut self, around: &mut Around<'_>, from: NodeId, stream: u32, mut place: Place) {
        if let Role::Receiving(reception) = &mut self.role
            && (reception.sender, self.stream) == (from, stream)
        {
            reception.on_place(around, place);
            return;
        }
        self.end_reception(around);
        let told_to = self.ended.take(from, stream).map(|ended| ended.told_to);
        let lost_from = told_to.unwrap_or(place.owed_from);
        around.lose(from, lost_from, place.first, LossCause::TooFarBehind);
        place.first = place.first.max(lost_from);
        self.stream = stream;
        around.stream = stream;
        self.heard = None;
        let mut reception = Reception::new(around, from, place);
        if told_to.is_some() {
            reception.resume();
        }
        self.role = Role::Receiving(Box::new(reception));
    }

    /// Ends the stream that is being received, if any.
    fn end_reception(&mut self, around: &mut Around<'_>) {
        if let Role::Receiving(reception) = &mut self.role {
            reception.end(around);
            self.ended.push(Ended {
                sender: reception.sender,
                stream: self.stream,
                told_to: reception.told_to(),
                epoch: reception.place().epoch,
            });
            self.role = Role::Waiting;
        }
    }

    /// Handles the end of the stream of a former sender. The packets that have not arrived here are
    /// lost, or will be soon.
    fn on_farewell(
        &mut self,
        around: &mut Around<'_>,
        from: NodeId,
        (stream, epoch): (u32, u32),
        end: u64,
    ) {
        if let Role::Receiving(reception) = &mut self.role
            && (reception.sender, self.stream) == (from, stream)
        {
            if !farewell::is_of(reception.place().epoch, epoch) {
                around.counters.implausible += 1;
                return;
            }
            reception.on_farewell(around, end);
        } else if let Some(ended) = self.ended.of_mut(from, stream) {
            if !farewell::is_of(ended.epoch, epoch) {
                around.counters.implausible += 1;
                return;
            }
            around.lose(from, ended.told_to, end, LossCause::AttemptsSpent);
            ended.told_to = ended.told_to.max(end);
        }
        around.counters.farewells_heard += 1;
        let own = core::mem::replace(&mut around.stream, stream);
        around.unicast(from, &Packet::FarewellHeard);
        around.stream = own;
    }

    pub(super) fn pending_farewells(&self) -> usize {
        self.farewells.pending()
    }

    pub(super) fn on_manager(&mut self, around: &mut Around<'_>, news: GroupNews) {
        match (&mut self.role, news) {
            (Role::Sending(sending), news) => sending.on_manager(around, news),
            (_, GroupNews::Answer(_)) => around.counters.manager_late += 1,
            (Role::Waiting | Role::Receiving(_), _) => {}
        }
    }

    /// Ends the group, which the node leaves.
    pub(super) fn close(&mut self, around: &mut Around<'_>) {
        if let Role::Sending(sending) = &mut self.role {
            sending.placing.close(around);
        }
    }

    pub(super) fn handle_timeout(&mut self, around: &mut Around<'_>) {
        self.farewells.handle_timeout(around);
        match &mut self.role {
            Role::Waiting => {}
            Role::Sending(sending) => sending.handle_timeout(around),
            Role::Receiving(reception) => {
                reception.handle_timeout(around);
                if reception.is_over(around.now, around.config) {
                    self.end_reception(around);
                }
            }
        }
    }

    /// Returns when [`Group::handle_timeout`] is to be called. Data to be sent does not count while
    /// the network is blocked.
    pub(super) fn poll_timeout(&mut self, now: Time, config: &Config, is_blocked: bool) -> Time {
        let due = match &mut self.role {
            Role::Waiting => Time::MAX,
            Role::Sending(sending) => sending.poll_timeout(now, config, is_blocked),
            Role::Receiving(reception) => reception.poll_timeout(config),
        };
        due.min(self.farewells.poll_timeout())
    }

    pub(super) fn held_bytes(&self) -> usize {
        match &self.role {
            Role::Waiting => 0,
            Role::Sending(sending) => sending.held_bytes(),
            Role::Receiving(reception) => reception.held_bytes(),
        }
    }

    pub(super) fn check(&self, config: &Config, group: GroupId) {
        match &self.role {
            Role::Waiting => {}
            Role::Sending(sending) => sending.check(config, group),
            Role::Receiving(reception) => reception.check(),
        }
    }
}
