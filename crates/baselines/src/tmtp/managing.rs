//! Acknowledgments to domain managers, and retransmission if they are overdue.

use std::collections::BTreeSet;

use carom_proto::{Destination, Event, GroupId, NodeId, PacketId, SeqNo, Slow, Time};

use super::packet::Packet;
use super::{Following, TimerKey, Tmtp};
use crate::domain::{Followers, Repair};

impl Tmtp {
    /// Advances the end of a stream that this node's children must acknowledge.
    pub(super) fn advance(&mut self, now: Time, group: GroupId, source: NodeId) {
        let Some(next) = self.depot.next_number(group, source) else { return };
        let first = self.depot.reception.stream(group, source).map_or(next, |it| it.first());
        let Some(member) = self.members.get_mut(&group) else { return };
        let new = || Following { followers: Followers::new(first), is_stale: true };
        member.following.entry(source).or_insert_with(new);
        self.forget_closed_streams(group);
        self.look_who_follows(now, group, source);
        let Some(following) = self.following(group, source) else { return };
        following.followers.reach(now, next);
        self.watch_followers(now, group, source);
    }

    fn following(&mut self, group: GroupId, source: NodeId) -> Option<&mut Following> {
        self.members.get_mut(&group)?.following.get_mut(&source)
    }

    /// Bounds the memory by dropping the children's state in streams that were closed.
    fn forget_closed_streams(&mut self, group: GroupId) {
        let (own, max_streams) = (self.id, self.config.domains.max_streams);
        let Some(member) = self.members.get_mut(&group) else { return };
        if member.following.len() <= max_streams + 1 {
            return;
        }
        let reception = &self.depot.reception;
        let is_closed = |source: &NodeId, _: &mut Following| {
            *source != own && reception.stream(group, *source).is_none()
        };
        for (source, _) in member.following.extract_if(.., is_closed) {
            self.timers.cancel(TimerKey::Retransmit(group, source));
        }
    }

    /// Updates the children of this node in a stream after a view change.
    pub(super) fn look_who_follows(&mut self, now: Time, group: GroupId, source: NodeId) {
        if self.following(group, source).is_none_or(|it| !it.is_stale) {
            return;
        }
        let children = self.depot.children(group, source);
        let Some(following) = self.following(group, source) else { return };
        following.is_stale = false;
        following.followers.follow(now, &children);
    }

    /// Sets the retransmission timer while a child is behind.
    fn watch_followers(&mut self, now: Time, group: GroupId, source: NodeId) {
        let key = TimerKey::Retransmit(group, source);
        let is_any_behind =
            self.following(group, source).is_some_and(|it| it.followers.is_any_behind());
        if is_any_behind && !self.timers.is_set(key) {
            self.timers.set(key, now + self.config.retransmit_after);
        }
    }

    /// Processes a child's acknowledgment of everything before `settled_to`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        (group, source): (GroupId, NodeId),
        child: NodeId,
        settled_to: SeqNo,
    ) {
        if source == self.id {
            let next = self.depot.next_number(group, source);
            if next.is_none_or(|next| settled_to.is_after(next)) {
                self.counters.malformed += 1;
                return;
            }
        } else {
            let gap = self.depot.reception.on_reported(now, group, source, settled_to);
            self.ask_for(now, group, source, &gap);
        }
        self.counters.acks_received += 1;
        self.look_who_follows(now, group, source);
        if let Some(following) = self.following(group, source) {
            following.followers.on_ack(now, child, settled_to);
        }
    }

    /// Processes overdue acknowledgments. Retransmits the oldest packet that a child lacks, lagging
    /// children excepted, and sends the end of the stream to all children that are behind.
    pub(super) fn on_retransmit_due(&mut self, now: Time, group: GroupId, source: NodeId) {
        self.look_who_follows(now, group, source);
        let (retransmit_after, slow_after) = (self.config.retransmit_after, self.config.slow_after);
        let is_own = source == self.id;
        let Some(Following { followers, .. }) = self.following(group, source) else { return };
        let slow = followers.give_up_on(now, slow_after);
        let stuck: Vec<(NodeId, SeqNo, bool)> = followers.stuck(now, retransmit_after).collect();
        let next = followers.next();
        let again = followers.is_any_behind().then(|| {
            let is_waited = followers.behind() > 0;
            now + if is_waited { retransmit_after } else { slow_after }
        });
        if let Some(at) = again {
            self.timers.set(TimerKey::Retransmit(group, source), at);
        }
        self.counters.slow += slow.len() as u64;
        for (node, behind) in slow.into_iter().filter(|_| is_own) {
            self.depot.reception.push_event(Event::Slow(Slow { group, node, behind }));
        }
        self.send_again(now, (group, source), &stuck, next);
    }

    fn send_again(
        &mut self,
        now: Time,
        (group, source): (GroupId, NodeId),
        stuck: &[(NodeId, SeqNo, bool)],
        next: SeqNo,
    ) {
        let behind: BTreeSet<NodeId> = stuck.iter().map(|(node, ..)| *node).collect();
        for destination in self.depot.destinations(group, behind) {
            self.transmit(destination, group, Packet::Status { source, next });
        }
        let waited = || stuck.iter().filter(|(_, _, is_slow)| !is_slow);
        let oldest = waited().map(|(_, seqno, _)| *seqno).reduce(SeqNo::earlier);
        let Some(oldest) = oldest else { return };
        self.counters.timeouts += 1;
        let lacking = waited().filter(|(_, seqno, _)| *seqno == oldest);
        let lacking: BTreeSet<NodeId> = lacking.map(|(node, ..)| *node).collect();
        let id = PacketId { sender: source, group, seqno: oldest };
        if let Some(repair) = self.depot.repair(now, id, lacking) {
            self.send_repair(&repair);
        }
    }

    pub(super) fn send_repair(&mut self, repair: &Repair) {
        let Repair { id, block, destinations } = repair;
        let PacketId { sender: source, group, seqno } = *id;
        let packet = Packet::Repair { source, seqno, block: block.bytes() };
        for destination in destinations {
            self.transmit(*destination, group, packet);
        }
    }

    /// Processes the status packet of a manager or of the source itself, which waits for this node.
    ///
    /// It opens the stream if the source is in the view, because a member that lost the first
    /// messages would not detect that otherwise. Acknowledgments are spread at random, so that
    /// members do not send them at the same time.
    pub(super) fn on_status(
        &mut self,
        now: Time,
        (group, source): (GroupId, NodeId),
        from: NodeId,
        next: SeqNo,
    ) {
        let group_view = self.depot.reception.group(group).map(|it| &it.view);
        let is_there = group_view.is_some_and(|view| view.contains(source) && view.contains(from));
        let gap = if from == source || is_there {
            self.depot.reception.on_announced(now, group, source, next)
        } else {
            self.depot.reception.on_reported(now, group, source, next)
        };
        self.ask_for(now, group, source, &gap);
        let spread = self.config.ack_interval.mul_f64(self.rng.fraction());
        self.owe_ack(now + spread, group, source);
    }

    /// Schedules an acknowledgment of a stream, if the stream is open.
    pub(super) fn owe_ack(&mut self, at: Time, group: GroupId, source: NodeId) {
        if self.depot.reception.stream(group, source).is_some() {
            self.timers.set_no_later(TimerKey::Ack(group, source), at);
        }
    }

    pub(super) fn send_ack(&mut self, group: GroupId, source: NodeId) {
        let Some(stream) = self.depot.reception.stream(group, source) else { return };
        let settled_to = stream.settled_to();
        let Some(manager) = self.depot.parent(group, source, 0) else {
            self.counters.nobody_to_ask += 1;
            return;
        };
        self.counters.acks_sent += 1;
        let ack = Packet::Ack { source, settled_to };
        self.transmit(Destination::Node(manager), group, ack);
    }
}
