//! A guest: this node as a caller of a group of which it is not a member (4.5).
//!
//! A guest sends Non Member Data packets that name the group and, once a ring has answered, the
//! ring. The packets are repeated until they have places in the order, under the same flow control
//! as a member's.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;

use super::client::Client;
use crate::ring::{Epoch, Process, Qos, RequestOptions};
use crate::rmp::context::{Context, Timer};
use crate::rmp::flow::FragmentSizes;
use crate::rmp::packet::{
    DataPacket, NON_MEMBER_BYTES, NewList, NonMemberAck, NonMemberData, Packet,
};
use crate::rmp::ring::Data;
use crate::rmp::sender::Sender;
use crate::{NodeId, SeqNo, ViewChangeKind};

#[derive(Debug)]
pub(crate) struct Guest {
    me: Process,
    pub(crate) client: Client,
    pub(crate) sender: Sender,
    packets: BTreeMap<u32, Data>,
    epoch: Option<Epoch>,
    answered_by: Option<NodeId>,
    known: BTreeSet<NodeId>,
    pub(crate) is_over: bool,
}

impl Guest {
    pub(crate) fn new(me: Process, sender: Sender) -> Self {
        Self {
            me,
            client: Client::default(),
            sender,
            packets: BTreeMap::new(),
            epoch: None,
            answered_by: None,
            known: BTreeSet::new(),
            is_over: false,
        }
    }

    pub(crate) fn request(
        &mut self,
        cx: &mut Context<'_>,
        number: u32,
        payload: Bytes,
        options: RequestOptions,
    ) {
        cx.cancel(Timer::Forget);
        self.client.request(cx, &mut self.sender, number, payload, options);
        self.send_waiting(cx);
        self.client.set_timer(cx);
    }

    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {
        self.client.give_up_all(cx);
        self.is_over = true;
    }

    pub(crate) fn on_node(&mut self, node: NodeId, kind: ViewChangeKind) {
        match kind {
            ViewChangeKind::Joined => self.known.insert(node),
            ViewChangeKind::Left | ViewChangeKind::Failed => self.known.remove(&node),
        };
    }

    /// Handles a packet. Those between members are at most counted.
    pub(crate) fn on_packet(&mut self, cx: &mut Context<'_>, from: NodeId, packet: Packet) {
        match packet {
            Packet::NonMemberAck(ack) => self.on_ack(cx, from, ack),
            Packet::Data(_) => cx.counters.data_received += 1,
            Packet::Ack { .. } | Packet::NewList(NewList::Change { .. }) => {
                cx.counters.rounds_received += 1;
                cx.counters.foreign += 1;
            }
            Packet::Nack(_) | Packet::RecoveryStart { .. } | Packet::RecoveryAbort { .. } => {
                cx.counters.foreign += 1;
            }
            Packet::NewList(_)
            | Packet::Confirm { .. }
            | Packet::RecoveryVote { .. }
            | Packet::RecoveryAckNewList { .. }
            | Packet::ForceQuorum { .. }
            | Packet::NonMemberData(NonMemberData::Data { .. }) => {}
            Packet::NonMemberData(NonMemberData::Pull { .. }) => cx.counters.calls_foreign += 1,
            Packet::ListChangeRequest { change, .. } => {
                cx.counters.malformed += u64::from(change.process.node != from);
            }
            Packet::Part(_) => cx.counters.malformed += 1,
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Retransmit => self.on_retransmit_timer(cx),
            Timer::Call => {
                self.client.on_timer(cx, &mut self.sender);
                self.send_waiting(cx);
                self.client.set_timer(cx);
                self.forget_if_idle(cx);
            }
            Timer::Forget => self.is_over = true,
            _ => {}
        }
    }

    fn on_ack(&mut self, cx: &mut Context<'_>, from: NodeId, ack: NonMemberAck) {
        (self.answered_by, self.epoch) = (Some(from), Some(ack.epoch()));
        match ack {
            NonMemberAck::Placed { life, .. } if life != self.me.life => {
                cx.counters.calls_foreign += 1;
            }
            NonMemberAck::Placed { to, .. } => {
                self.sender.on_ordered(cx.now, to);
                self.packets.retain(|seqno, _| SeqNo(*seqno).distance_from(to) >= 0);
                self.client.on_placed(cx, self.sender.unplaced_from());
                self.send_waiting(cx);
            }
            _ => self.client.on_ack(cx, from, ack),
        }
        self.forget_if_idle(cx);
    }

    fn forget_if_idle(&self, cx: &mut Context<'_>) {
        if self.client.len() == 0 {
            cx.set_no_later(Timer::Forget, cx.config.call_forget);
        }
    }

    fn send_waiting(&mut self, cx: &mut Context<'_>) {
        let sizes = cx.config.fragment_sizes();
        let sizes = FragmentSizes { largest: sizes.largest - NON_MEMBER_BYTES, ..sizes };
        while let Some(data) = self.sender.next_unreliable() {
            let packet = self.packet(data.message, data);
            self.send(cx, &packet, false);
        }
        while let Some((seqno, data)) = self.sender.next_packet(cx.now, sizes) {
            let packet = self.packet(seqno, data.clone());
            self.packets.insert(seqno.0, data);
            cx.counters.data_sent += 1;
            self.send(cx, &packet, false);
        }
        self.sender.set_timer(cx, true);
    }

    fn packet(&self, seqno: SeqNo, data: Data) -> Packet {
        let is_first = seqno == self.sender.first && data.qos != Qos::Unreliable;
        let data = DataPacket { source: self.me, seqno, data };
        Packet::NonMemberData(NonMemberData::Data { epoch: self.epoch, is_first, data })
    }

    /// Multicasts the packet. A retransmission, or any packet if `via` is set, also goes to a
    /// member that forwards it.
    fn send(&mut self, cx: &mut Context<'_>, packet: &Packet, is_again: bool) {
        cx.multicast(packet);
        let known = self.known.iter().next().copied();
        let other = self.answered_by.or(known).filter(|_| is_again);
        if let Some(node) = self.client.via.or(other) {
            cx.unicast_to_forward(node, packet);
        }
    }

    fn on_retransmit_timer(&mut self, cx: &mut Context<'_>) {
        if !self.sender.is_due(cx) {
            return self.send_waiting(cx);
        }
        let (again, tries) = self.sender.on_timeout(cx.now);
        if tries > cx.config.tries {
            return self.begin_again(cx);
        }
        let packets: Vec<Packet> = again
            .into_iter()
            .filter_map(|seqno| Some(self.packet(seqno, self.packets.get(&seqno.0)?.clone())))
            .collect();
        for packet in packets {
            cx.counters.data_resent += 1;
            self.send(cx, &packet, true);
        }
        self.send_waiting(cx);
    }

    // The ring has flushed this guest or is another ring. The guest introduces itself again.
    fn begin_again(&mut self, cx: &mut Context<'_>) {
        self.me = cx.next_life();
        self.sender = Sender::new(cx.config);
        self.packets.clear();
        (self.epoch, self.answered_by) = (None, None);
        self.client.queue_all(cx, &mut self.sender);
        self.forget_if_idle(cx);
        self.send_waiting(cx);
    }
}
