//! Heartbeats, which announce the next sequence number of a stream to the group, to joiners, and in
//! reply to queries.

use super::Sender;
use crate::lateral::context::{Context, TimerKey};
use crate::lateral::index::GroupIx;
use crate::lateral::packet::Packet;
use crate::{Destination, NodeId};

impl Sender {
    pub(crate) fn restart_heartbeats(&mut self, cx: &mut Context, ix: GroupIx) {
        if let Some(interval) = cx.config.heartbeat
            && self.get_mut(ix).restart_heartbeats(interval)
        {
            cx.timers.set(TimerKey::Heartbeat(ix), cx.now + interval);
        }
    }

    pub(crate) fn on_heartbeat_due(&mut self, cx: &mut Context, ix: GroupIx) {
        let own = self.get_mut(ix);
        let Some(due) = own.next_heartbeat(cx.config.heartbeat) else { return };
        if let Some(after) = due.next_after {
            cx.timers.set(TimerKey::Heartbeat(ix), cx.now + after);
        }
        cx.counters.heartbeats_sent += 1;
        let next = own.next.seqno();
        let packet = Packet::Heartbeat { next, first: None, nonce: 0, confirm: due.confirm };
        cx.transmit(Destination::Group(cx.groups.get(ix).id), ix, packet);
    }

    /// Schedules a heartbeat to a member that joined. The node may have been a member before and
    /// have missed packets, and this node may send nothing else that would reveal the loss.
    pub(crate) fn on_joined(&mut self, cx: &mut Context, ix: GroupIx, node: NodeId) {
        let Some(interval) = cx.config.heartbeat else { return };
        let own = self.get_mut(ix);
        if own.is_joiner(node) {
            own.begin_joiner_heartbeats(interval);
            // The delay is random, so that not all senders send at the same time.
            let at = cx.now + interval / 2 + interval.mul_f64(cx.rng.fraction() / 2.0);
            cx.timers.set_no_later(TimerKey::Joiners(ix), at);
        }
    }

    pub(crate) fn on_joiners_due(&mut self, cx: &mut Context, ix: GroupIx) {
        let Some(first_interval) = cx.config.heartbeat else { return };
        let own = self.get_mut(ix);
        let next = own.next.seqno();
        let joiners: Vec<NodeId> = own.joiners().collect();
        if joiners.is_empty() {
            return;
        }
        let again_after = own.next_joiner_heartbeat(first_interval);
        cx.timers.set(TimerKey::Joiners(ix), cx.now + again_after);
        let is_most = joiners.len() > 1 && joiners.len() * 2 > own.count();
        let destinations = if is_most {
            vec![Destination::Group(cx.groups.get(ix).id)]
        } else {
            joiners.into_iter().map(Destination::Node).collect()
        };
        cx.counters.heartbeats_sent += destinations.len() as u64;
        for destination in destinations {
            let packet = Packet::Heartbeat { next, first: None, nonce: 0, confirm: true };
            cx.transmit(destination, ix, packet);
        }
    }

    pub(crate) fn on_open(&self, cx: &mut Context, ix: GroupIx, from: NodeId, nonce: u64) {
        let own = self.get(ix);
        let (next, first) = (own.next.seqno(), Some(own.first_for(from)));
        let confirm = own.awaits_confirmation();
        cx.counters.heartbeats_sent += 1;
        let packet = Packet::Heartbeat { next, first, nonce, confirm };
        cx.transmit(Destination::Node(from), ix, packet);
    }
}
