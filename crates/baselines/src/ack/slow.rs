//! Members that do not acknowledge: how they stop being waited for, and how they come back.

use carom_proto::{Destination, Event, GroupId, LossCause, NodeId, PacketId, SeqNo, Slow, Time};

use super::packet::Packet;
use super::{AckTimeout, TimerKey};

/// How a slow member stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    /// Everything before this is settled there.
    pub(super) settled_to: SeqNo,
    /// Nothing before this is sent to it again.
    pub(super) horizon: SeqNo,
    /// It is heard of again: what is sent from the horizon on is acknowledged by it too.
    pub(super) is_waited_for: bool,
}

impl AckTimeout {
    /// A slow member is there again. Once it has settled what is before the horizon it is waited
    /// for from now on, and once it has settled what was sent until then it is not slow any more.
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

    /// The member is not waited for any more.
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

    /// The sender waits for this node no longer: what is missing from before `next` is lost.
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
