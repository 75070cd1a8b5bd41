use bytes::Bytes;

use super::config::Config;
use super::context::Context;
use super::epoch;
use super::packet::{Packet, Place, Report, Way};
use super::receiver::Receiver;
use super::sender::{Farewells, ManagerEvent, Sender};
use crate::recent::Recent;
use crate::{Confirmed, Event, GroupId, Hops, LossCause, NodeId, SendError, SeqNo, Time};

#[derive(Debug, Default)]
pub(super) struct Group {
    /// Other members, sorted.
    members: Vec<NodeId>,
    role: Role,
    stream: u32,
    /// The last sender that was heard, and the time, if this node has no place in its stream yet.
    heard: Option<(NodeId, Time)>,
    /// Streams that have ended on this node, by sender and number. A sender may continue such a
    /// stream if this node wrongly considered it gone or follows another sender.
    ended: Recent<(NodeId, u32), EndedStream>,
    pub(super) farewells: Farewells,
    /// Confirmed packets of this node's last stream, if it has yielded to another sender.
    settled: Option<Confirmed>,
    report_again_at: Time,
}

#[derive(Debug, Default)]
enum Role {
    /// No sender is known, or the node has no place in the stream yet.
    #[default]
    Waiting,
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

#[derive(Debug)]
struct EndedStream {
    /// All packets before this one were delivered or reported as lost.
    accounted_to: u64,
    epoch: u32,
}

/// Maximum number of streams whose end is remembered. Packets of others may be delivered again.
const MAX_ENDED: usize = 64;

impl Group {
    pub(super) fn as_sender(&self) -> Option<&Sender> {
        match &self.role {
            Role::Sender(sender) => Some(sender),
            Role::Waiting | Role::Receiver(_) => None,
        }
    }

    pub(super) fn as_receiver(&self) -> Option<&Receiver> {
        match &self.role {
            Role::Receiver(receiver) => Some(receiver),
            Role::Waiting | Role::Sender(_) => None,
        }
    }

    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Accepts a message to be sent. `stream` is the number of the stream if one begins now.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        payload: &Bytes,
    ) -> Result<SeqNo, SendError> {
        if let Some(sender) = self.sender(cx.now, cx.config) {
            return Err(SendError::HasSender { sender });
        }
        self.end_stream(cx);
        if let Role::Waiting = self.role {
            cx.stream = stream;
            let sender = Sender::new(cx, &self.members).map_err(|_| SendError::NoPlace)?;
            self.stream = stream;
            self.settled = None;
            self.role = Role::Sender(Box::new(sender));
        }
        match &mut self.role {
            Role::Sender(sender) => sender.send(cx, payload),
            Role::Waiting | Role::Receiver(_) => Err(SendError::NotReady),
        }
    }

    /// Returns the other node that sends, unless it is no longer heard and may have yielded.
    pub(super) fn sender(&self, now: Time, config: &Config) -> Option<NodeId> {
        match &self.role {
            Role::Receiver(receiver) if receiver.hears_sender(now, config) => Some(receiver.sender),
            Role::Waiting => {
                let (sender, at) = self.heard?;
                (now.since(at) < config.sender_gone_after()).then_some(sender)
            }
            Role::Receiver(_) | Role::Sender(_) => None,
        }
    }

    pub(super) fn confirm(&mut self, cx: &mut Context<'_>) {
        match &mut self.role {
            Role::Sender(sender) => sender.confirm(cx),
            Role::Waiting | Role::Receiver(_) => {
                // A node that has sent nothing has nothing to be confirmed.
                let nothing = || Confirmed {
                    group: cx.group,
                    up_to: cx.config.first_number.minus(1),
                    members: self.members.len(),
                    incomplete: Vec::new(),
                };
                let confirmed = self.settled.clone().unwrap_or_else(nothing);
                cx.events.push_back(Event::Confirmed(confirmed));
            }
        }
    }

    pub(super) fn on_reach(&mut self, cx: &mut Context<'_>) {
        if let Role::Sender(sender) = &mut self.role {
            sender.receivers.update_places(cx);
        }
    }

    pub(super) fn may_have_data(&self) -> bool {
        match &self.role {
            Role::Waiting => false,
            Role::Sender(_) => true,
            Role::Receiver(receiver) => receiver.has_to_relay(),
        }
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Option<Hops> {
        match &mut self.role {
            Role::Waiting => None,
            Role::Sender(sender) => sender.poll_data(cx, out).then(|| sender.receivers.hops()),
            Role::Receiver(receiver) => receiver.poll_data(cx, out),
        }
    }

    pub(super) fn hold(&mut self, cx: &mut Context<'_>, is_held: bool) {
        if let Role::Receiver(receiver) = &mut self.role {
            receiver.hold(cx, is_held);
        }
    }

    pub(super) fn on_joined(&mut self, cx: &mut Context<'_>, node: NodeId) {
        if let Err(place) = self.members.binary_search(&node) {
            self.members.insert(place, node);
            self.farewells.on_joined(cx.now, node);
            match &mut self.role {
                Role::Sender(sender) => sender.on_joined(cx, node),
                Role::Receiver(receiver) if receiver.sender == node => {
                    receiver.liveness.on_back(cx.now);
                }
                Role::Receiver(_) | Role::Waiting => {}
            }
        }
    }

    pub(super) fn on_gone(&mut self, cx: &mut Context<'_>, node: NodeId) {
        let Ok(place) = self.members.binary_search(&node) else { return };
        self.members.remove(place);
        self.heard = self.heard.filter(|(heard, _)| *heard != node);
        self.farewells.on_gone(node);
        match &mut self.role {
            Role::Sender(sender) => sender.on_gone(cx, node),
            Role::Receiver(receiver) if receiver.sender == node => {
                receiver.on_sender_gone(cx);
            }
            Role::Receiver(_) | Role::Waiting => {}
        }
    }

    pub(super) fn on_packet(
        &mut self,
        cx: &mut Context<'_>,
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
            matches!(packet, Packet::Place { receiver, .. } if receiver != cx.node);
        if is_for_another || is_of_sender && !self.accepts_sender(cx, from, stream) {
            cx.counters.foreign += 1;
            return;
        }
        if let Role::Receiver(receiver) = &mut self.role
            && (receiver.sender, self.stream) == (from, stream)
        {
            receiver.liveness.on_heard(cx.now);
        }
        if let Packet::Farewell { epoch, end } = packet {
            self.on_farewell(cx, from, (stream, epoch), end);
        } else if packet == Packet::FarewellHeard {
            self.farewells.on_acknowledged(stream, from);
        } else if let Packet::Place { place, .. } = packet {
            self.on_place(cx, from, stream, place);
        } else if stream == self.stream && !matches!(self.role, Role::Waiting) {
            self.on_packet_of_stream(cx, from, packet);
        } else if is_of_sender {
            cx.counters.data_unplaced += 1;
            self.report_no_place(cx, from, stream);
        } else if let Packet::Data(_) = packet {
            cx.counters.data_unplaced += 1;
        }
    }

    /// Reports to a sender that this node has no place, unless it has just done so.
    fn report_no_place(&mut self, cx: &mut Context<'_>, sender: NodeId, stream: u32) {
        if self.report_again_at > cx.now {
            return;
        }
        self.report_again_at = cx.now + cx.config.report_every;
        cx.stream = stream;
        cx.counters.reports_sent += 1;
        // A node that had a place continues after the packets that it has reported as lost.
        let next = self.ended.get((sender, stream)).map_or(0, |ended| ended.accounted_to);
        let report = Report { epoch: epoch::NONE, next, limit: 0, by_tree: 0, by_repair: 0 };
        cx.unicast(sender, &Packet::Report(report));
    }

    fn on_packet_of_stream(&mut self, cx: &mut Context<'_>, from: NodeId, packet: Packet) {
        let is_member = self.members.binary_search(&from).is_ok();
        match (&mut self.role, packet) {
            // A packet of a non-member must not trigger many packets (amplification).
            (Role::Sender(_), _) if !is_member => cx.counters.foreign += 1,
            (Role::Receiver(receiver), Packet::Data(data)) => {
                receiver.on_data(cx, from, data);
            }
            (Role::Receiver(receiver), Packet::Announce { epoch, end }) => {
                receiver.on_announce(cx, epoch, end);
            }
            (Role::Receiver(receiver), Packet::Ack(acks)) => {
                cx.counters.acks_received += 1;
                receiver.on_ack(cx, from, &acks);
            }
            (Role::Receiver(receiver), Packet::Release { ring, epoch, from: number }) => {
                receiver.on_release(from, ring, epoch, number);
            }
            (Role::Sender(sender), Packet::Ack(acks)) => {
                cx.counters.acks_received += 1;
                sender.on_ack(cx, from, &acks);
            }
            (Role::Sender(sender), Packet::Report(report)) => {
                sender.on_report(cx, from, &report);
            }
            (Role::Sender(sender), Packet::Ask(ranges)) => sender.on_request(cx, from, &ranges),
            (Role::Sender(sender), Packet::Cut { ring, successor }) => {
                sender.on_cut(cx, ring, successor);
            }
            (Role::Sender(sender), Packet::Silent { successor }) => {
                sender.on_silent(cx, successor);
            }
            _ => cx.counters.foreign += 1,
        }
    }

    /// Returns `true` if `from` may be the sender of the group. Of two senders, the one with the
    /// larger id yields, which may be this node. Packets of a non-member may be late.
    fn accepts_sender(&mut self, cx: &mut Context<'_>, from: NodeId, stream: u32) -> bool {
        let is_member = self.members.binary_search(&from).is_ok();
        // The numbers of streams wrap around, like the numbers of packets.
        let is_later = || SeqNo(stream).is_after(SeqNo(self.stream));
        match &mut self.role {
            Role::Receiver(receiver) if receiver.sender == from => {
                // A restarted sender begins its streams with another number.
                let may_be_over = receiver.follows_another(cx.now, cx.config);
                stream == self.stream || is_member && (is_later() || may_be_over)
            }
            _ if !is_member => false,
            Role::Waiting => {
                self.heard = Some((from, cx.now));
                true
            }
            Role::Sender(sender) => {
                if from > cx.node {
                    return false;
                }
                self.settled = Some(sender.settled(cx));
                let (end, epoch, complete) = sender.yield_stream(cx);
                let (now, members) = (cx.now, self.members.iter().copied());
                self.farewells.push(now, (self.stream, end, epoch), members, complete);
                self.role = Role::Waiting;
                self.heard = Some((from, cx.now));
                true
            }
            Role::Receiver(receiver) => {
                from < receiver.sender || receiver.follows_another(cx.now, cx.config)
            }
        }
    }

    fn on_place(&mut self, cx: &mut Context<'_>, from: NodeId, stream: u32, mut place: Place) {
        if let Role::Receiver(receiver) = &mut self.role
            && (receiver.sender, self.stream) == (from, stream)
        {
            receiver.on_place(cx, place);
            return;
        }
        self.end_stream(cx);
        let ended = self.ended.remove((from, stream));
        let lost_from = ended.as_ref().map_or(place.owed_from, |ended| ended.accounted_to);
        cx.lose(from, lost_from, place.first, LossCause::TooFarBehind);
        place.first = place.first.max(lost_from);
        self.stream = stream;
        cx.stream = stream;
        self.heard = None;
        let mut receiver = Receiver::new(cx, from, place);
        if ended.is_some() {
            receiver.resume();
        }
        self.role = Role::Receiver(Box::new(receiver));
    }

    fn end_stream(&mut self, cx: &mut Context<'_>) {
        if let Role::Receiver(receiver) = &mut self.role {
            let (accounted_to, epoch) = (receiver.finish(cx), receiver.place.epoch);
            let ended = EndedStream { accounted_to, epoch };
            self.ended.insert((receiver.sender, self.stream), ended, MAX_ENDED);
            self.role = Role::Waiting;
        }
    }

    /// Ends the stream of a former sender. Packets before `end` that do not arrive soon are lost.
    fn on_farewell(
        &mut self,
        cx: &mut Context<'_>,
        from: NodeId,
        (stream, epoch): (u32, u32),
        end: u64,
    ) {
        if let Role::Receiver(receiver) = &mut self.role
            && (receiver.sender, self.stream) == (from, stream)
        {
            if !epoch::are_near(receiver.place.epoch, epoch) {
                cx.counters.implausible += 1;
                return;
            }
            receiver.on_farewell(cx, end);
        } else if let Some(ended) = self.ended.get_mut((from, stream)) {
            if !epoch::are_near(ended.epoch, epoch) {
                cx.counters.implausible += 1;
                return;
            }
            cx.lose(from, ended.accounted_to, end, LossCause::AttemptsSpent);
            ended.accounted_to = ended.accounted_to.max(end);
        }
        cx.counters.farewells_heard += 1;
        let own = core::mem::replace(&mut cx.stream, stream);
        cx.unicast(from, &Packet::FarewellHeard);
        cx.stream = own;
    }

    pub(super) fn on_manager(&mut self, cx: &mut Context<'_>, event: ManagerEvent) {
        match (&mut self.role, event) {
            (Role::Sender(sender), event) => sender.on_manager(cx, event),
            (_, ManagerEvent::Answer(_)) => cx.counters.manager_late += 1,
            (Role::Waiting | Role::Receiver(_), _) => {}
        }
    }

    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        if let Role::Sender(sender) = &mut self.role {
            sender.receivers.manager.close(cx);
        }
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.farewells.handle_timeout(cx);
        match &mut self.role {
            Role::Waiting => {}
            Role::Sender(sender) => sender.handle_timeout(cx),
            Role::Receiver(receiver) => {
                receiver.handle_timeout(cx);
                if receiver.liveness.over_at(cx.config) <= cx.now {
                    self.end_stream(cx);
                }
            }
        }
    }

    /// Returns the time of the next timer. Ignores unsent data while the network is blocked.
    pub(super) fn poll_timeout(&mut self, now: Time, config: &Config, is_blocked: bool) -> Time {
        let due = match &mut self.role {
            Role::Waiting => Time::MAX,
            Role::Sender(sender) => sender.poll_timeout(now, config, is_blocked),
            Role::Receiver(receiver) => receiver.poll_timeout(config),
        };
        due.min(self.farewells.poll_timeout())
    }

    pub(super) fn held_bytes(&self) -> usize {
        match &self.role {
            Role::Waiting => 0,
            Role::Sender(sender) => sender.held_bytes(),
            Role::Receiver(receiver) => receiver.held_bytes(),
        }
    }

    pub(super) fn check(&self, config: &Config, group: GroupId) {
        match &self.role {
            Role::Waiting => {}
            Role::Sender(sender) => sender.check(config, group),
            Role::Receiver(receiver) => receiver.check(),
        }
    }
}
