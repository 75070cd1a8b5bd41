//! The part of an engine that all protocols in this crate share.

use bytes::Bytes;
use carom_proto::wire;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Origin, Outbox,
    PacketId, Profile, SendError, SendOptions, SeqNo, Time, Transmit, ViewChange, Wakeup,
};

use crate::block::Block;
use crate::guest::{Datagram, GuestPacket};
use crate::reception::{Reception, Terms};
use crate::retained::Retained;

/// An engine for groups of the profile [`Guest`](Profile::Guest). It receives and delivers
/// messages, and reports losses. The protocol `P` detects losses and repairs them.
#[derive(Debug)]
pub struct Shell<P> {
    context: Context,
    payload_limit: usize,
    policy: P,
}

/// The state of a node that its policy uses.
#[derive(Debug)]
pub struct Context {
    pub(crate) id: NodeId,
    origin: Origin,
    pub(crate) now: Time,
    pub(crate) reception: Reception,
    outbox: Outbox,
    outbox_dropped: u64,
    bytes_sent: u64,
    data_sent: u64,
    /// Number of datagrams of groups that this node has not joined, or from its own id.
    foreign: u64,
    /// Number of datagrams that cannot be decoded, or acknowledge packets that were never sent.
    pub(crate) malformed: u64,
}

/// Maximum number of datagrams in the outbox, which bounds the memory if the driver does not poll.
const MAX_WAITING: usize = 1 << 16;
/// Maximum capacity, in bytes, that the buffer of the empty outbox keeps.
const KEPT_BYTES: usize = 1 << 20;

/// A protocol. Its methods, except `on_view`, are called only for groups that the node has joined.
pub trait Policy: Send {
    /// The packets of the protocol, in addition to messages and repairs.
    type Packet<'a>: GuestPacket<'a>;

    fn join(&mut self, cx: &mut Context, group: GroupId);

    /// Removes the state of `group`, which the node is about to leave. Its streams are still open.
    fn leave(&mut self, cx: &mut Context, group: GroupId);

    fn admit(&mut self, _: &Context, _: GroupId) -> Result<(), SendError> {
        Ok(())
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block);

    /// Requests confirmation. The default does nothing, for protocols in which a sender does not
    /// hear from all receivers.
    fn confirm(&mut self, _: &mut Context, _: GroupId) {}

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, from: Option<NodeId>);

    fn on_packet(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        from: NodeId,
        packet: Self::Packet<'_>,
    );

    /// Processes a view change. `is_new` is `false` if it changed no view of a joined group.
    fn on_view(&mut self, _: &mut Context, _: &ViewChange, _is_new: bool) {}

    fn handle_timeout(&mut self, cx: &mut Context);

    fn wakeup(&self) -> Option<Wakeup>;

    fn retained(&self) -> Option<&Retained> {
        None
    }

    /// Returns the size, in bytes, of all messages and packets that are held outside `retained`.
    fn held_bytes(&self) -> usize {
        0
    }

    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Returns the named counters of requests and repairs, for protocols with domains.
    fn repair_counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn check(&self, cx: &Context);
}

impl Context {
    pub(crate) fn transmit<'p>(
        &mut self,
        destination: Destination,
        group: GroupId,
        packet: impl GuestPacket<'p>,
    ) {
        self.push(destination, group, Datagram::Own(packet));
    }

    pub(crate) fn push<'p, P: GuestPacket<'p>>(
        &mut self,
        destination: Destination,
        group: GroupId,
        datagram: Datagram<'_, P>,
    ) {
        if self.outbox.len() >= MAX_WAITING {
            self.outbox_dropped += 1;
            return;
        }
        let view = self.reception.view_version(group);
        let transmit = Transmit { destination, class: datagram.class() };
        let encode = |out: &mut Vec<u8>| datagram.encode(self.origin, group, view, out);
        self.bytes_sent += self.outbox.push(transmit, encode) as u64;
    }

    pub(crate) fn block(&mut self, bytes: &[u8]) -> Option<Block> {
        let block = Block::copy(bytes).ok();
        self.malformed += u64::from(block.is_none());
        block
    }

    /// Returns the sequence number after the last known message of `source`.
    pub(crate) fn next_seqno(&self, group: GroupId, source: NodeId) -> Option<SeqNo> {
        if source == self.id {
            return self.reception.group(group).map(|it| it.next());
        }
        Some(self.reception.stream(group, source)?.next())
    }
}

impl<P: Policy> Shell<P> {
    /// Creates the engine of the node `origin`. `payload_limit` is in bytes.
    pub(crate) fn new(
        origin: impl Into<Origin>,
        terms: Terms,
        payload_limit: usize,
        policy: P,
    ) -> Self {
        let origin = origin.into();
        let context = Context {
            id: origin.node,
            origin,
            now: Time::default(),
            reception: Reception::new(origin.node, terms),
            outbox: Outbox::keeping(KEPT_BYTES),
            outbox_dropped: 0,
            bytes_sent: 0,
            data_sent: 0,
            foreign: 0,
            malformed: 0,
        };
        Self { context, payload_limit, policy }
    }

    #[cfg(test)]
    pub(crate) fn policy(&self) -> &P {
        &self.policy
    }

    fn on_block(&mut self, id: PacketId, bytes: &[u8], from: Option<NodeId>) {
        if let Some(block) = self.context.block(bytes) {
            self.policy.on_block(&mut self.context, id, block, from);
        }
    }
}

impl<P: Policy> Engine for Shell<P> {
    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.context.now = now;
        self.context.reception.join(group, &settings)?;
        self.policy.join(&mut self.context, group);
        Ok(())
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.context.now = now;
        if self.context.reception.group(group).is_some() {
            self.policy.leave(&mut self.context, group);
            self.context.reception.leave(group);
        }
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let Self { context, payload_limit: limit, policy } = self;
        context.now = now;
        if context.reception.group(group).is_none() {
            return Err(SendError::NotJoined);
        }
        if payload.len() > *limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit: *limit });
        }
        policy.admit(context, group)?;
        let seqno = context.reception.take_seqno(group).ok_or(SendError::NotJoined)?;
        let block = Block::of_message(now, options.deadline, &payload);
        context.data_sent += 1;
        let data: Datagram<'_, P::Packet<'_>> = Datagram::Data { seqno, block: block.bytes() };
        context.push(Destination::Group(group), group, data);
        let id = PacketId { sender: context.id, group, seqno };
        policy.on_sent(context, id, block);
        Ok(seqno)
    }

    fn confirm(&mut self, now: Time, group: GroupId) {
        self.context.now = now;
        if self.context.reception.group(group).is_some() {
            self.policy.confirm(&mut self.context, group);
        }
    }

    fn handle_datagram(&mut self, now: Time, datagram: &wire::Datagram<'_>) -> Option<NodeId> {
        self.context.now = now;
        let header = datagram.header();
        let decoded = datagram.body().and_then(|it| <P::Packet<'_>>::decode_body(header, it));
        let Ok(datagram) = decoded else {
            self.context.malformed += 1;
            return None;
        };
        let (group, from) = (header.group, header.sender);
        if from == self.context.id || self.context.reception.group(group).is_none() {
            self.context.foreign += 1;
            return None;
        }
        match datagram {
            Datagram::Data { seqno, block } => {
                self.on_block(PacketId { sender: from, group, seqno }, block, None);
            }
            Datagram::Repair { source, seqno, block } => {
                self.on_block(PacketId { sender: source, group, seqno }, block, Some(from));
            }
            Datagram::Own(packet) => {
                self.policy.on_packet(&mut self.context, group, from, packet);
            }
        }
        Some(from)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        self.context.now = now;
        let is_new = self.context.reception.handle_view(change);
        self.policy.on_view(&mut self.context, change, is_new);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.context.now = now;
        self.context.reception.handle_timeout(now);
        self.policy.handle_timeout(&mut self.context);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.context.outbox.pop(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.context.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let lost = self.context.reception.next_due();
        let lost = lost.map(|at| Wakeup { at, reason: "give up on a packet" });
        Wakeup::earlier(self.policy.wakeup(), lost)
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.payload_limit } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.policy.retained().map_or(0, Retained::bytes) + self.policy.held_bytes()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let Context { data_sent, foreign, malformed, reception, .. } = &self.context;
        let Context { outbox_dropped, bytes_sent, .. } = &self.context;
        let mut stats = vec![("data_sent", *data_sent)];
        stats.extend(self.policy.counters());
        stats.extend([("foreign", *foreign), ("malformed", *malformed)]);
        stats.extend(self.policy.repair_counters());
        stats.extend(reception.by_name());
        stats.extend(self.policy.retained().into_iter().flat_map(Retained::by_name));
        stats.extend([("outbox_dropped", *outbox_dropped), ("bytes_sent", *bytes_sent)]);
        stats
    }

    fn check(&self) {
        self.context.reception.check();
        self.policy.retained().into_iter().for_each(Retained::check);
        self.policy.check(&self.context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::{AckTimeout, Config, packet::Packet};

    #[test]
    fn datagrams_leave_in_order_and_overflow_is_counted() {
        let mut shell = AckTimeout::new(NodeId(1), Config::default(), 1);
        let count = MAX_WAITING as u32;
        for number in 0..count + 3 {
            let horizon = Packet::Horizon { next: SeqNo(number) };
            shell.context.transmit(Destination::Lan, GroupId(1), horizon);
        }
        let mut out = Vec::new();
        for number in 0..count {
            assert!(shell.poll_transmit(&mut out).is_some());
            assert_eq!(out[wire::HEADER_BYTES..], number.to_be_bytes());
            out.clear();
        }
        assert_eq!(shell.poll_transmit(&mut out), None);
        let bytes = u64::from(count) * (wire::HEADER_BYTES as u64 + 4);
        assert!(shell.stats().ends_with(&[("outbox_dropped", 3), ("bytes_sent", bytes)]));
    }
}
