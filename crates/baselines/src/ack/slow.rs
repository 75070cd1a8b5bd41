//! Lagging members: how the sender stops waiting for them, and how they catch up.

use carom_proto::{Destination, Event, GroupId, LossCause, NodeId, PacketId, SeqNo, Slow, Time};

use super::packet::Packet;
use super::{AckTimeout, TimerKey};

/// State of a lagging member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    /// Position before which all packets are settled at the member.
    pub(super) settled_to: SeqNo,
    /// Position before which nothing is retransmitted to the member.
    pub(super) horizon: SeqNo,
    /// `true` if the member has returned. It must then acknowledge the packets from the horizon on.
    pub(super) is_waited_for: bool,
}

impl AckTimeout {
    /// Processes an acknowledgment from a lagging member.
    ///
    /// Once the member has settled everything before the horizon, the sender waits for it again.
    /// Once it has also settled what was sent until then, it is no longer lagging.
    pub(super) fn on_slow_ack(&mut self, now: Time, group: GroupId, node: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let next = member.window.next();
        let Some(lag) = member.slow.get_mut(&node) else { return };
        if lag.horizon.is_after(lag.settled_to) {
            return;
        }
        if lag.is_waited_for || lag.horizon == next {
            member.slow.remove(&node);
            self.timers.cancel(TimerKey::Horizon(group, node));
            return;
        }
        (lag.horizon, lag.is_waited_for) = (next, true);
        self.send_horizon(now, group, node);
    }

    /// Stops waiting for the member.
    pub(super) fn make_slow(&mut self, now: Time, group: GroupId, node: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let behind = member.window.forget(node);
        let horizon = member.window.next();
        let settled_to = horizon.minus(behind);
        let lag = Lag { settled_to, horizon, is_waited_for: false };
        if member.slow.insert(node, lag).is_none() {
            self.counters.slow += 1;
            self.counters.abandoned_by_sender += u64::from(behind);
            self.reception.push_event(Event::Slow(Slow { group, node, behind }));
        }
        self.send_horizon(now, group, node);
        self.look_whether_safe(group);
    }

    pub(super) fn send_horizon(&mut self, now: Time, group: GroupId, node: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(lag) = member.slow.get_mut(&node) else { return };
        if !lag.is_waited_for {
            lag.horizon = member.window.next();
        }
        let next = lag.horizon;
        self.timers.set(TimerKey::Horizon(group, node), now + self.config.timeouts.most);
        self.counters.horizons_sent += 1;
        self.transmit(Destination::Node(node), group, Packet::Horizon { next });
    }

    /// Processes the sender's horizon: packets missing before `next` are lost.
    pub(super) fn on_horizon(&mut self, now: Time, group: GroupId, sender: NodeId, next: SeqNo) {
        self.reception.on_announced(now, group, sender, next);
        let Some(stream) = self.reception.stream(group, sender) else { return };
        let lost: Vec<SeqNo> = stream.missing().filter(|seqno| next.is_after(*seqno)).collect();
        for seqno in lost {
            let id = PacketId { sender, group, seqno };
            self.reception.give_up_one(id, LossCause::AttemptsSpent);
        }
        self.acknowledge(group, sender, next.minus(1));
    }
}
