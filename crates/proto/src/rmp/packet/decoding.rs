//! Decoding of packets, with any bytes as input.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bytes::Buf;

use super::{
    ACK, Accepted, CONFIRM, DATA, DataPacket, EPOCH_BYTES, FORCE_QUORUM, FORWARD, GuestState,
    LIST_CHANGE_REQUEST, NACK, NEW_LIST, NON_MEMBER_ACK, NON_MEMBER_DATA, Nack, NewList,
    NonMemberAck, NonMemberData, ON_BEHALF, PART, PROCESS_BYTES, Packet, Part, Position, Proposal,
    RECOVERY_ABORT, RECOVERY_ACK_NEW_LIST, RECOVERY_START, RECOVERY_VOTE, RUN_BYTES, Snapshot,
    SourceState,
};
use crate::ring::{
    Epoch, Handler, ListChange, ListChangeKind, LockName, Locks, Member, Process, Qos, Quorum,
    RingView, Timestamp,
};
use crate::rmp::ring::{Data, MAX_CHANGES, Round, Run, What};
use crate::rmp::seen::Seen;
use crate::wire::{DecodeError, Header};
use crate::{NodeId, SeqNo};

impl Packet {
    /// Decodes the body of a datagram.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Self, DecodeError> {
        take_body(header, body)
    }
}

fn take_body(header: &Header, body: &[u8]) -> Result<Packet, DecodeError> {
    let mut bytes = body;
    let bytes = &mut bytes;
    let packet = match header.kind {
        DATA => return take_data(header, body).map(Packet::Data),
        NON_MEMBER_DATA => return take_non_member_data(header, body),
        NON_MEMBER_ACK => return take_non_member_ack(body),
        PART => return take_part(body),
        ACK => Packet::Ack { epoch: take_epoch(bytes)?, round: take_round(bytes)? },
        CONFIRM => Packet::Confirm { epoch: take_epoch(bytes)?, at: take_timestamp(bytes)? },
        NACK => take_nack(bytes)?,
        NEW_LIST => Packet::NewList(take_new_list(bytes)?),
        LIST_CHANGE_REQUEST => {
            let epoch = match bytes.try_get_u8()? {
                0 => None,
                1 => Some(take_epoch(bytes)?),
                _ => return Err(DecodeError::Value),
            };
            Packet::ListChangeRequest { epoch, change: take_change(bytes)? }
        }
        RECOVERY_START => Packet::RecoveryStart {
            epoch: take_epoch(bytes)?,
            ballot: take_epoch(bytes)?,
            position: take_position(bytes)?,
            refuted: take_list(bytes, EPOCH_BYTES, take_epoch)?,
            released: take_list(bytes, EPOCH_BYTES, take_epoch)?,
        },
        RECOVERY_VOTE => Packet::RecoveryVote {
            epoch: take_epoch(bytes)?,
            ballot: take_epoch(bytes)?,
            position: take_position(bytes)?,
            accepted: take_list(bytes, EPOCH_BYTES + 4, take_accepted)?,
        },
        RECOVERY_ACK_NEW_LIST => Packet::RecoveryAckNewList { ballot: take_epoch(bytes)? },
        FORCE_QUORUM => Packet::ForceQuorum {
            epoch: take_epoch(bytes)?,
            lost: take_list(bytes, size_of::<u64>(), take_node)?,
        },
        RECOVERY_ABORT => {
            Packet::RecoveryAbort { ballot: take_epoch(bytes)?, seen: take_epoch(bytes)? }
        }
        _ => return Err(DecodeError::Kind),
    };
    if bytes.is_empty() { Ok(packet) } else { Err(DecodeError::Length) }
}

fn take_non_member_data(header: &Header, body: &[u8]) -> Result<Packet, DecodeError> {
    let mut bytes = body;
    let kind = bytes.try_get_u8()?;
    let packet = match kind {
        1 | 2 => {
            let is_first = take_flag(&mut bytes)?;
            let epoch = if kind == 2 { Some(take_epoch(&mut bytes)?) } else { None };
            let data = take_data(header, bytes)?;
            if data.source.node != header.sender {
                return Err(DecodeError::Value);
            }
            NonMemberData::Data { epoch, is_first, data }
        }
        3 => {
            let (number, offset) = (bytes.try_get_u32()?, bytes.try_get_u32()?);
            if !bytes.is_empty() {
                return Err(DecodeError::Length);
            }
            NonMemberData::Pull { number, offset }
        }
        _ => return Err(DecodeError::Value),
    };
    Ok(Packet::NonMemberData(packet))
}

fn take_non_member_ack(body: &[u8]) -> Result<Packet, DecodeError> {
    let mut bytes = body;
    let (kind, epoch) = (bytes.try_get_u8()?, take_epoch(&mut bytes)?);
    let ack = match kind {
        1 => {
            NonMemberAck::Placed { epoch, life: bytes.try_get_u64()?, to: take_seqno(&mut bytes)? }
        }
        2 => NonMemberAck::Delivered { epoch, number: bytes.try_get_u32()? },
        3 | 4 => {
            let (number, total) = (bytes.try_get_u32()?, bytes.try_get_u32()?);
            let offset = bytes.try_get_u32()?;
            let piece = DataPacket::piece(bytes);
            bytes = &[];
            if u64::from(offset) + piece.len() as u64 > total.into() {
                return Err(DecodeError::Value);
            }
            NonMemberAck::Reply { epoch, number, total, offset, is_end: kind == 4, bytes: piece }
        }
        _ => return Err(DecodeError::Value),
    };
    if bytes.is_empty() { Ok(Packet::NonMemberAck(ack)) } else { Err(DecodeError::Length) }
}

fn take_data(header: &Header, body: &[u8]) -> Result<DataPacket, DecodeError> {
    let mut bytes = body;
    let bytes = &mut bytes;
    let (life, seqno) = (bytes.try_get_u64()?, take_seqno(bytes)?);
    let message = take_seqno(bytes)?;
    let qos = Qos::from_wire([bytes.try_get_u8()?, bytes.try_get_u8()?])?;
    let handler = match bytes.try_get_u8()? {
        0 => None,
        above => Some(Handler::new(above - 1).ok_or(DecodeError::Value)?),
    };
    let flags = bytes.try_get_u8()?;
    if flags > 15 || header.flags & !(ON_BEHALF | FORWARD) != 0 {
        return Err(DecodeError::Value);
    }
    let node = match header.flags & ON_BEHALF {
        0 => header.sender,
        _ => take_node(bytes)?,
    };
    let data = Data {
        message,
        qos,
        handler,
        is_first: flags & 1 != 0,
        is_last: flags & 2 != 0,
        may_wait: flags & 4 != 0,
        is_call: flags & 8 != 0,
        payload: DataPacket::piece(bytes),
    };
    Ok(DataPacket { source: Process { node, life }, seqno, data })
}

fn take_part(body: &[u8]) -> Result<Packet, DecodeError> {
    let mut bytes = body;
    let bytes = &mut bytes;
    let (id, index, count) = (bytes.try_get_u32()?, bytes.try_get_u8()?, bytes.try_get_u8()?);
    if index >= count {
        return Err(DecodeError::Value);
    }
    Ok(Packet::Part(Part { id, index, count, bytes: DataPacket::piece(bytes) }))
}

fn take_nack(bytes: &mut &[u8]) -> Result<Packet, DecodeError> {
    let epoch = take_epoch(bytes)?;
    let asked = Some(take_node(bytes)?).filter(|node| node.0 != 0);
    let (from, to) = (take_timestamp(bytes)?, take_timestamp(bytes)?);
    let runs = take_list(bytes, RUN_BYTES, take_run)?;
    Ok(Packet::Nack(Nack { epoch, asked, from, to, runs }))
}

fn take_new_list(bytes: &mut &[u8]) -> Result<NewList, DecodeError> {
    Ok(match bytes.try_get_u8()? {
        1 => NewList::Change { epoch: take_epoch(bytes)?, round: take_round(bytes)? },
        2 => NewList::Whole(take_snapshot(bytes)?),
        3 => NewList::Formation { proposal: take_proposal(bytes)?, is_committed: false },
        4 => NewList::Formation { proposal: take_proposal(bytes)?, is_committed: true },
        _ => return Err(DecodeError::Value),
    })
}

fn take_snapshot(bytes: &mut &[u8]) -> Result<Snapshot, DecodeError> {
    let view = take_view(bytes)?;
    let (next, ordered) = (take_timestamp(bytes)?, take_timestamp(bytes)?);
    let token = take_process(bytes)?;
    let is_working = take_flag(bytes)?;
    if !view.contains(token) {
        return Err(DecodeError::Value);
    }
    let sources = take_list(bytes, PROCESS_BYTES + 12, |bytes| {
        let source = take_process(bytes)?;
        let (open_from, ordered_to) = take_open(bytes)?;
        Ok(SourceState { source, open_from, ordered_to, request: bytes.try_get_u32()? })
    })?;
    let guests = take_list(bytes, PROCESS_BYTES + 16, |bytes| {
        let source = take_process(bytes)?;
        let (open_from, ordered_to) = take_open(bytes)?;
        Ok(GuestState { source, open_from, ordered_to, used: take_timestamp(bytes)? })
    })?;
    if guests.iter().any(|guest| view.contains(guest.source)) {
        return Err(DecodeError::Value);
    }
    let seen = take_list(bytes, 28, |bytes| {
        let node = take_node(bytes)?;
        let (base, bits) = (bytes.try_get_u32()?, bytes.try_get_u128()?);
        Ok((node, Seen { base, bits }))
    })?;
    Ok(Snapshot { view, next, ordered, token, is_working, sources, guests, seen })
}

fn take_open(bytes: &mut &[u8]) -> Result<(SeqNo, SeqNo), DecodeError> {
    let (open_from, ordered_to) = (take_seqno(bytes)?, take_seqno(bytes)?);
    let open = ordered_to.distance_from(open_from);
    let is_in_window = (0..crate::rmp::ring::MAX_SLOTS as i32).contains(&open);
    if is_in_window { Ok((open_from, ordered_to)) } else { Err(DecodeError::Value) }
}

fn take_proposal(bytes: &mut &[u8]) -> Result<Proposal, DecodeError> {
    let (base, position) = (take_epoch(bytes)?, take_position(bytes)?);
    let view = take_view(bytes)?;
    let refuted = take_list(bytes, EPOCH_BYTES, take_epoch)?;
    Ok(Proposal { base, position, view, refuted })
}

fn take_accepted(bytes: &mut &[u8]) -> Result<Accepted, DecodeError> {
    let (ballot, least) = (take_epoch(bytes)?, bytes.try_get_u16()?);
    Ok(Accepted { ballot, least, members: take_list(bytes, PROCESS_BYTES, take_process)? })
}

fn take_round(bytes: &mut &[u8]) -> Result<Round, DecodeError> {
    let at = take_timestamp(bytes)?;
    let (site, next) = (take_process(bytes)?, take_process(bytes)?);
    let what = match bytes.try_get_u8()? {
        0 => What::Order(take_list(bytes, RUN_BYTES, take_run)?),
        1 => match take_list(bytes, PROCESS_BYTES + 5, take_change)? {
            changes if (1..=MAX_CHANGES).contains(&changes.len()) => What::List(changes),
            _ => return Err(DecodeError::Value),
        },
        _ => return Err(DecodeError::Value),
    };
    Ok(Round { at, site, next, what })
}

fn take_run(bytes: &mut &[u8]) -> Result<Run, DecodeError> {
    let (source, first, count) = (take_process(bytes)?, take_seqno(bytes)?, bytes.try_get_u16()?);
    if count == 0 {
        return Err(DecodeError::Value);
    }
    Ok(Run { source, first, count })
}

fn take_change(bytes: &mut &[u8]) -> Result<ListChange, DecodeError> {
    let (process, request) = (take_process(bytes)?, bytes.try_get_u32()?);
    let kind = match bytes.try_get_u8()? {
        1 => ListChangeKind::Join { member: take_member(bytes)?, name_check: bytes.try_get_u32()? },
        2 => ListChangeKind::Leave,
        3 => ListChangeKind::Lock { name: LockName(bytes.try_get_u64()?), waits: true },
        4 => ListChangeKind::Unlock(LockName(bytes.try_get_u64()?)),
        5 => ListChangeKind::Refused(LockName(bytes.try_get_u64()?)),
        6 => ListChangeKind::Lock { name: LockName(bytes.try_get_u64()?), waits: false },
        _ => return Err(DecodeError::Value),
    };
    Ok(ListChange { process, request, kind })
}

fn take_view(bytes: &mut &[u8]) -> Result<RingView, DecodeError> {
    let (epoch, version, origin) = (take_epoch(bytes)?, bytes.try_get_u32()?, take_epoch(bytes)?);
    let (name_check, is_forced) = (bytes.try_get_u32()?, take_flag(bytes)?);
    let members = take_list(bytes, PROCESS_BYTES + 3, take_member)?;
    let queues = take_list(bytes, PROCESS_BYTES + 10, |bytes| {
        Ok((LockName(bytes.try_get_u64()?), take_list(bytes, PROCESS_BYTES, take_process)?))
    })?;
    let distinct: BTreeSet<NodeId> = members.iter().map(|member| member.process.node).collect();
    if members.is_empty() || distinct.len() != members.len() {
        return Err(DecodeError::Value);
    }
    let mut locks = Locks::default();
    for (name, queue) in queues {
        let is_new = locks.holder(name).is_none() && !queue.is_empty();
        let distinct: BTreeSet<Process> = queue.iter().copied().collect();
        if !is_new || distinct.len() != queue.len() || !locks.has_room_for(queue.len()) {
            return Err(DecodeError::Value);
        }
        queue.into_iter().for_each(|process| locks.ask(name, process));
    }
    Ok(RingView { epoch, version, origin, name_check, is_forced, members, locks })
}

fn take_member(bytes: &mut &[u8]) -> Result<Member, DecodeError> {
    let process = take_process(bytes)?;
    let quorum = Quorum::from_wire(bytes.try_get_u16()?).ok_or(DecodeError::Value)?;
    let flags = bytes.try_get_u8()?;
    if flags > 3 {
        return Err(DecodeError::Value);
    }
    Ok(Member { process, quorum, is_multicast: flags & 1 != 0, is_voter: flags & 2 != 0 })
}

fn take_position(bytes: &mut &[u8]) -> Result<Position, DecodeError> {
    let next = take_timestamp(bytes)?;
    let is_whole = take_flag(bytes)?;
    let received = take_list(bytes, PROCESS_BYTES + 4, |bytes| {
        Ok((take_process(bytes)?, take_seqno(bytes)?))
    })?;
    Ok(Position { next, is_whole, received })
}

fn take_epoch(bytes: &mut &[u8]) -> Result<Epoch, DecodeError> {
    Ok(Epoch { version: bytes.try_get_u32()?, creator: take_process(bytes)? })
}

fn take_process(bytes: &mut &[u8]) -> Result<Process, DecodeError> {
    Ok(Process { node: take_node(bytes)?, life: bytes.try_get_u64()? })
}

fn take_node(bytes: &mut &[u8]) -> Result<NodeId, DecodeError> {
    Ok(NodeId(bytes.try_get_u64()?))
}

fn take_seqno(bytes: &mut &[u8]) -> Result<SeqNo, DecodeError> {
    Ok(SeqNo(bytes.try_get_u32()?))
}

fn take_timestamp(bytes: &mut &[u8]) -> Result<Timestamp, DecodeError> {
    Ok(Timestamp(bytes.try_get_u64()?))
}

/// Decodes a count u16 and that number of entries. Each entry has at least `least` bytes, so that
/// no more memory is reserved than the input can fill.
fn take_list<T>(
    bytes: &mut &[u8],
    least: usize,
    take: impl Fn(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::from(bytes.try_get_u16()?);
    if count * least > bytes.len() {
        return Err(DecodeError::Length);
    }
    (0..count).map(|_| take(bytes)).collect()
}

fn take_flag(bytes: &mut &[u8]) -> Result<bool, DecodeError> {
    match bytes.try_get_u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Value),
    }
}
