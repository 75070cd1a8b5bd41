use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use super::{
    Accepted, DataPacket, GuestState, Nack, NewList, NonMemberAck, NonMemberData, Part, Position,
    Proposal, Snapshot, SourceState,
};
use crate::codec::Field;
use crate::ring::{
    Epoch, Handler, ListChange, ListChangeKind, LockName, Locks, Member, Process, Qos, Quorum,
    RingView, Timestamp,
};
use crate::rmp::ring::{Data, MAX_CHANGES, MAX_SLOTS, Round, Run, What};
use crate::rmp::seen::Seen;
use crate::wire::DecodeError;
use crate::{NodeId, SeqNo};

crate::fields! {
    Timestamp { 0 };
    LockName { 0 };
    Process { node, life };
    Epoch { version, creator };
    Seen { base, bits };
    Run { source, first, count } if |run| run.count > 0;
    Round { at, site, next, what };
    ListChange { process, request, kind };
    Position { next, is_whole, received };
    Proposal { base, position, view, refuted };
    Accepted { ballot, least, members };
    Nack { epoch, asked with zero_for_none, from, to, runs };
    Part { id, index, count, bytes } if |part| part.index < part.count;
    SourceState { source, open_from, ordered_to, request }
        if |state| fits_window(state.open_from, state.ordered_to);
    GuestState { source, open_from, ordered_to, used }
        if |state| fits_window(state.open_from, state.ordered_to);
    Snapshot { view, next, ordered, token, is_working, sources, guests, seen } if |it| {
        it.view.contains(it.token) && !it.guests.iter().any(|guest| it.view.contains(guest.source))
    };
    RingView { epoch, version, origin, name_check, is_forced, members, locks } if |view| {
        let nodes: BTreeSet<NodeId> = view.processes().map(|process| process.node).collect();
        !nodes.is_empty() && nodes.len() == view.members.len()
    };
}

crate::variants! {
    What {
        0 => Order(runs),
        1 => List(changes),
    } if |what| match what {
        What::Order(_) => true,
        What::List(changes) => (1..=MAX_CHANGES).contains(&changes.len()),
    };

    ListChangeKind {
        1 => Join { member, name_check },
        2 => Leave,
        3 => Lock { name, waits = true },
        4 => Unlock(name),
        5 => Refused(name),
        6 => Lock { name, waits = false },
    };

    NewList {
        1 => Change { epoch, round },
        2 => Whole(snapshot),
        3 => Formation { proposal, is_committed = false },
        4 => Formation { proposal, is_committed = true },
    };

    NonMemberAck {
        1 => Placed { epoch, life, to },
        2 => Delivered { epoch, number },
        3 => Reply { epoch, number, total, offset, is_end = false, bytes },
        4 => Reply { epoch, number, total, offset, is_end = true, bytes },
    } if |ack| match ack {
        NonMemberAck::Reply { total, offset, bytes, .. } => {
            u64::from(*offset) + bytes.len() as u64 <= u64::from(*total)
        }
        _ => true,
    };
}

fn fits_window(open_from: SeqNo, ordered_to: SeqNo) -> bool {
    (0..MAX_SLOTS as i32).contains(&ordered_to.distance_from(open_from))
}

mod zero_for_none {
    use super::{DecodeError, Field, NodeId};

    pub(super) fn put(node: &Option<NodeId>, out: &mut Vec<u8>) {
        node.unwrap_or(NodeId(0)).put(out);
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Result<Option<NodeId>, DecodeError> {
        NodeId::take(bytes).map(|node| Some(node).filter(|node| node.0 != 0))
    }
}

/// A call begins with 1, or with 2 if it names a ring. The flag `is_first` and then the ring
/// follow. A pull begins with 3.
impl<'a> Field<'a> for NonMemberData {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data { epoch, is_first, data } => {
                (1 + u8::from(epoch.is_some()), *is_first).put(out);
                epoch.iter().for_each(|epoch| epoch.put(out));
                data.put(out);
            }
            Self::Pull { number, offset } => (3_u8, *number, *offset).put(out),
        }
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let kind = u8::take(bytes)?;
        match kind {
            1 | 2 => {
                let is_first = Field::take(bytes)?;
                let epoch = (kind == 2).then(|| Epoch::take(bytes)).transpose()?;
                Ok(Self::Data { epoch, is_first, data: Field::take(bytes)? })
            }
            3 => Ok(Self::Pull { number: Field::take(bytes)?, offset: Field::take(bytes)? }),
            _ => Err(DecodeError::Value),
        }
    }
}

/// The node of the source is that of the header. This decoder sets it to 0.
impl<'a> Field<'a> for DataPacket {
    fn put(&self, out: &mut Vec<u8>) {
        self.put_with(None, out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        Self::take_with(bytes, |_| Ok(NodeId(0)))
    }
}

impl DataPacket {
    pub(super) fn put_with(&self, node: Option<NodeId>, out: &mut Vec<u8>) {
        let Self { source, seqno, data } = self;
        (source.life, *seqno, data.message, data.qos).put(out);
        let handler = data.handler.map_or(0, |handler| handler.number() + 1);
        (handler, [data.is_first, data.is_last, data.may_wait, data.is_call]).put(out);
        node.iter().for_each(|node| node.put(out));
        data.payload.put(out);
    }

    pub(super) fn take_on_behalf(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::take_with(&mut bytes, NodeId::take)
    }

    fn take_with<'a>(
        bytes: &mut &'a [u8],
        take_node: impl Fn(&mut &'a [u8]) -> Result<NodeId, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let (life, seqno, message, qos) = Field::take(bytes)?;
        let handler = match u8::take(bytes)? {
            0 => None,
            above => Some(Handler::new(above - 1).ok_or(DecodeError::Value)?),
        };
        let [is_first, is_last, may_wait, is_call] = Field::take(bytes)?;
        let node = take_node(bytes)?;
        let payload = Bytes::take(bytes)?;
        let data = Data { message, qos, handler, is_call, is_first, is_last, may_wait, payload };
        Ok(Self { source: Process { node, life }, seqno, data })
    }
}

impl<'a> Field<'a> for Qos {
    fn put(&self, out: &mut Vec<u8>) {
        let level: [u8; 2] = match self {
            Self::Unreliable => [0, 0],
            Self::Unordered => [1, 0],
            Self::SourceOrdered => [2, 0],
            Self::TotallyOrdered => [3, 0],
            Self::Resilient(k) => [4, *k],
            Self::MajorityResilient => [5, 0],
            Self::TotallyResilient => [6, 0],
        };
        level.put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        match <[u8; 2]>::take(bytes)? {
            [0, 0] => Ok(Self::Unreliable),
            [1, 0] => Ok(Self::Unordered),
            [2, 0] => Ok(Self::SourceOrdered),
            [3, 0] => Ok(Self::TotallyOrdered),
            [4, k] if k > 0 => Ok(Self::Resilient(k)),
            [5, 0] => Ok(Self::MajorityResilient),
            [6, 0] => Ok(Self::TotallyResilient),
            _ => Err(DecodeError::Value),
        }
    }
}

impl<'a> Field<'a> for Quorum {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_wire().put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        Self::from_wire(u16::take(bytes)?).ok_or(DecodeError::Value)
    }
}

impl<'a> Field<'a> for Member {
    fn put(&self, out: &mut Vec<u8>) {
        (self.process, self.quorum, [self.is_multicast, self.is_voter]).put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (process, quorum, [is_multicast, is_voter]) = Field::take(bytes)?;
        Ok(Self { process, quorum, is_multicast, is_voter })
    }
}

/// A list of locks. Each lock has a list of its holder and its waiting processes.
impl<'a> Field<'a> for Locks {
    fn put(&self, out: &mut Vec<u8>) {
        let queue = |queue: &VecDeque<Process>| queue.iter().copied().collect::<Vec<_>>();
        let queues: Vec<_> = self.queues().map(|(name, it)| (name, queue(it))).collect();
        queues.put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let mut locks = Self::default();
        for (name, queue) in Vec::<(LockName, Vec<Process>)>::take(bytes)? {
            let is_new = locks.holder(name).is_none() && !queue.is_empty();
            let distinct: BTreeSet<Process> = queue.iter().copied().collect();
            if !is_new || distinct.len() != queue.len() || !locks.has_room_for(queue.len()) {
                return Err(DecodeError::Value);
            }
            queue.into_iter().for_each(|process| locks.ask(name, process));
        }
        Ok(locks)
    }
}
