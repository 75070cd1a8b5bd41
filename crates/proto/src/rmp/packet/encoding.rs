//! Encoding of packets.

use alloc::vec::Vec;

use bytes::BufMut;

use super::{
    ACK, CONFIRM, DATA, DataPacket, FORCE_QUORUM, LIST_CHANGE_REQUEST, NACK, NEW_LIST,
    NON_MEMBER_ACK, NON_MEMBER_DATA, NewList, NonMemberAck, NonMemberData, ON_BEHALF, PART, Packet,
    Position, Proposal, RECOVERY_ABORT, RECOVERY_ACK_NEW_LIST, RECOVERY_START, RECOVERY_VOTE,
    Snapshot,
};
use crate::ring::{Epoch, ListChange, ListChangeKind, Member, Process, RingView};
use crate::rmp::ring::{Round, Run, What};
use crate::wire::{self, Header, Protocol};
use crate::{GroupId, Origin};

impl Packet {
    /// Appends the datagram of `origin`, whose ring has this version, to `out`.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        group: GroupId,
        origin: impl Into<Origin>,
        version: u32,
    ) {
        self.encode_with(0, out, group, origin.into(), version);
    }

    pub(crate) fn encode_with(
        &self,
        flags: u8,
        out: &mut Vec<u8>,
        group: GroupId,
        origin: Origin,
        version: u32,
    ) {
        let Origin { node: sender, incarnation } = origin;
        let is_foreign = matches!(self, Self::Data(data) if data.source.node != sender);
        let flags = flags | if is_foreign { ON_BEHALF } else { 0 };
        let protocol = Protocol::Ordered;
        let kind = self.kind();
        let header = Header { protocol, kind, flags, group, sender, incarnation, view: version };
        let start = header.begin(out);
        put_body(self, is_foreign, out);
        wire::seal_in_parts(out, start);
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Data(_) => DATA,
            Self::Ack { .. } => ACK,
            Self::Confirm { .. } => CONFIRM,
            Self::Nack(_) => NACK,
            Self::NewList(_) => NEW_LIST,
            Self::ListChangeRequest { .. } => LIST_CHANGE_REQUEST,
            Self::RecoveryStart { .. } => RECOVERY_START,
            Self::RecoveryVote { .. } => RECOVERY_VOTE,
            Self::RecoveryAckNewList { .. } => RECOVERY_ACK_NEW_LIST,
            Self::RecoveryAbort { .. } => RECOVERY_ABORT,
            Self::NonMemberData(_) => NON_MEMBER_DATA,
            Self::NonMemberAck(_) => NON_MEMBER_ACK,
            Self::Part(_) => PART,
            Self::ForceQuorum { .. } => FORCE_QUORUM,
        }
    }
}

fn put_body(packet: &Packet, is_foreign: bool, out: &mut Vec<u8>) {
    match packet {
        Packet::Data(data) => put_data(data, is_foreign, out),
        Packet::Ack { epoch, round } => {
            put_epoch(*epoch, out);
            put_round(round, out);
        }
        Packet::Confirm { epoch, at } => {
            put_epoch(*epoch, out);
            out.put_u64(at.0);
        }
        Packet::Nack(nack) => {
            put_epoch(nack.epoch, out);
            out.put_u64(nack.asked.map_or(0, |node| node.0));
            out.put_u64(nack.from.0);
            out.put_u64(nack.to.0);
            put_list(&nack.runs, out, put_run);
        }
        Packet::NewList(list) => put_new_list(list, out),
        Packet::ListChangeRequest { epoch, change } => {
            out.put_u8(epoch.is_some().into());
            epoch.iter().for_each(|epoch| put_epoch(*epoch, out));
            put_change(change, out);
        }
        Packet::RecoveryStart { epoch, ballot, position, refuted, released } => {
            put_epoch(*epoch, out);
            put_epoch(*ballot, out);
            put_position(position, out);
            put_list(refuted, out, |epoch, out| put_epoch(*epoch, out));
            put_list(released, out, |epoch, out| put_epoch(*epoch, out));
        }
        Packet::RecoveryVote { epoch, ballot, position, accepted } => {
            put_epoch(*epoch, out);
            put_epoch(*ballot, out);
            put_position(position, out);
            put_list(accepted, out, |accepted, out| {
                put_epoch(accepted.ballot, out);
                out.put_u16(accepted.least);
                put_list(&accepted.members, out, |process, out| put_process(*process, out));
            });
        }
        Packet::RecoveryAckNewList { ballot } => put_epoch(*ballot, out),
        Packet::ForceQuorum { epoch, lost } => {
            put_epoch(*epoch, out);
            put_list(lost, out, |node, out| out.put_u64(node.0));
        }
        Packet::RecoveryAbort { ballot, seen } => {
            put_epoch(*ballot, out);
            put_epoch(*seen, out);
        }
        Packet::NonMemberData(NonMemberData::Data { epoch, is_first, data }) => {
            out.put_u8(1 + u8::from(epoch.is_some()));
            out.put_u8((*is_first).into());
            epoch.iter().for_each(|epoch| put_epoch(*epoch, out));
            put_data(data, false, out);
        }
        Packet::NonMemberData(NonMemberData::Pull { number, offset }) => {
            out.put_u8(3);
            out.put_u32(*number);
            out.put_u32(*offset);
        }
        Packet::NonMemberAck(ack) => put_non_member_ack(ack, out),
        Packet::Part(part) => {
            out.put_u32(part.id);
            out.put_u8(part.index);
            out.put_u8(part.count);
            out.put_slice(&part.bytes);
        }
    }
}

fn put_non_member_ack(ack: &NonMemberAck, out: &mut Vec<u8>) {
    match ack {
        NonMemberAck::Placed { epoch, life, to } => {
            out.put_u8(1);
            put_epoch(*epoch, out);
            out.put_u64(*life);
            out.put_u32(to.0);
        }
        NonMemberAck::Delivered { epoch, number } => {
            out.put_u8(2);
            put_epoch(*epoch, out);
            out.put_u32(*number);
        }
        NonMemberAck::Reply { epoch, number, total, offset, is_end, bytes } => {
            out.put_u8(if *is_end { 4 } else { 3 });
            put_epoch(*epoch, out);
            out.put_u32(*number);
            out.put_u32(*total);
            out.put_u32(*offset);
            out.put_slice(bytes);
        }
    }
}

fn put_data(packet: &DataPacket, is_foreign: bool, out: &mut Vec<u8>) {
    let DataPacket { source, seqno, data } = packet;
    out.put_u64(source.life);
    out.put_u32(seqno.0);
    out.put_u32(data.message.0);
    out.put_slice(&data.qos.to_wire());
    out.put_u8(data.handler.map_or(0, |handler| handler.number() + 1));
    let flags = [(data.is_first, 1), (data.is_last, 2), (data.may_wait, 4), (data.is_call, 8)];
    out.put_u8(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
    if is_foreign {
        out.put_u64(source.node.0);
    }
    out.put_slice(&data.payload);
}

fn put_new_list(list: &NewList, out: &mut Vec<u8>) {
    match list {
        NewList::Change { epoch, round } => {
            out.put_u8(1);
            put_epoch(*epoch, out);
            put_round(round, out);
        }
        NewList::Whole(snapshot) => {
            out.put_u8(2);
            put_snapshot(snapshot, out);
        }
        NewList::Formation { proposal, is_committed } => {
            out.put_u8(if *is_committed { 4 } else { 3 });
            put_proposal(proposal, out);
        }
    }
}

fn put_snapshot(snapshot: &Snapshot, out: &mut Vec<u8>) {
    put_view(&snapshot.view, out);
    out.put_u64(snapshot.next.0);
    out.put_u64(snapshot.ordered.0);
    put_process(snapshot.token, out);
    out.put_u8(snapshot.is_working.into());
    put_list(&snapshot.sources, out, |state, out| {
        put_process(state.source, out);
        out.put_u32(state.open_from.0);
        out.put_u32(state.ordered_to.0);
        out.put_u32(state.request);
    });
    put_list(&snapshot.guests, out, |state, out| {
        put_process(state.source, out);
        out.put_u32(state.open_from.0);
        out.put_u32(state.ordered_to.0);
        out.put_u64(state.used.0);
    });
    put_list(&snapshot.seen, out, |(node, seen), out| {
        out.put_u64(node.0);
        out.put_u32(seen.base);
        out.put_u128(seen.bits);
    });
}

fn put_proposal(proposal: &Proposal, out: &mut Vec<u8>) {
    put_epoch(proposal.base, out);
    put_position(&proposal.position, out);
    put_view(&proposal.view, out);
    put_list(&proposal.refuted, out, |epoch, out| put_epoch(*epoch, out));
}

fn put_round(round: &Round, out: &mut Vec<u8>) {
    out.put_u64(round.at.0);
    put_process(round.site, out);
    put_process(round.next, out);
    match &round.what {
        What::Order(runs) => {
            out.put_u8(0);
            put_list(runs, out, put_run);
        }
        What::List(changes) => {
            out.put_u8(1);
            put_list(changes, out, put_change);
        }
    }
}

fn put_run(run: &Run, out: &mut Vec<u8>) {
    put_process(run.source, out);
    out.put_u32(run.first.0);
    out.put_u16(run.count);
}

fn put_change(change: &ListChange, out: &mut Vec<u8>) {
    put_process(change.process, out);
    out.put_u32(change.request);
    match &change.kind {
        ListChangeKind::Join { member, name_check } => {
            out.put_u8(1);
            put_member(member, out);
            out.put_u32(*name_check);
        }
        ListChangeKind::Leave => out.put_u8(2),
        ListChangeKind::Lock { name, waits } => {
            out.put_u8(if *waits { 3 } else { 6 });
            out.put_u64(name.0);
        }
        ListChangeKind::Unlock(name) => {
            out.put_u8(4);
            out.put_u64(name.0);
        }
        ListChangeKind::Refused(name) => {
            out.put_u8(5);
            out.put_u64(name.0);
        }
    }
}

fn put_view(view: &RingView, out: &mut Vec<u8>) {
    put_epoch(view.epoch, out);
    out.put_u32(view.version);
    put_epoch(view.origin, out);
    out.put_u32(view.name_check);
    out.put_u8(view.is_forced.into());
    put_list(&view.members, out, put_member);
    let queues: Vec<_> = view.locks.queues().collect();
    put_list(&queues, out, |(name, queue), out| {
        out.put_u64(name.0);
        out.put_u16(queue.len() as u16);
        queue.iter().for_each(|process| put_process(*process, out));
    });
}

fn put_member(member: &Member, out: &mut Vec<u8>) {
    put_process(member.process, out);
    out.put_u16(member.quorum.to_wire());
    out.put_u8(u8::from(member.is_multicast) | u8::from(member.is_voter) << 1);
}

fn put_position(position: &Position, out: &mut Vec<u8>) {
    out.put_u64(position.next.0);
    out.put_u8(position.is_whole.into());
    put_list(&position.received, out, |(source, to), out| {
        put_process(*source, out);
        out.put_u32(to.0);
    });
}

fn put_epoch(epoch: Epoch, out: &mut Vec<u8>) {
    out.put_u32(epoch.version);
    put_process(epoch.creator, out);
}

fn put_process(process: Process, out: &mut Vec<u8>) {
    out.put_u64(process.node.0);
    out.put_u64(process.life);
}

fn put_list<T>(items: &[T], out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    debug_assert!(items.len() <= usize::from(u16::MAX), "a list of {} entries", items.len());
    out.put_u16(items.len() as u16);
    items.iter().for_each(|item| put(item, out));
}
