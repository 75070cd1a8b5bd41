use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{
    Confirmed, Event, GroupId, Lost, Message, NodeId, PacketId, SeqNo, Time, ViewChangeKind,
};

use crate::harness::Record;
use crate::memory::MemoryUse;

/// The record of one run, with the messages sent, the events of each node, and the views over time.
#[derive(Debug, Default)]
pub struct History {
    pub(super) sent: BTreeMap<MessageId, Sent>,
    pub(super) got: BTreeMap<(Start, MessageId), Got>,
    /// Lost packets other than the first of a message. Counts the reports of each number.
    pub(super) lost_fragments: BTreeMap<(Start, MessageId), BTreeMap<u32, u32>>,
    pub(super) members: BTreeMap<GroupId, BTreeSet<Start>>,
    /// Current view of each member. It contains the start of each node that was current when the
    /// member was notified of the node.
    pub(super) views: BTreeMap<(Start, GroupId), BTreeSet<Start>>,
    /// Time when an observer last saw a node leave a group, or left the group itself.
    gone: BTreeMap<(Start, GroupId, Start), Time>,
    joined: BTreeMap<(Start, GroupId), Time>,
    starts: BTreeMap<NodeId, u32>,
    /// Last start of each sender from which each node has a message or a loss.
    last_heard: BTreeMap<(Start, GroupId, NodeId), u32>,
    firsts: BTreeMap<(Start, GroupId), u32>,
    pub(super) healed: Option<Time>,
    owed_from: OwedFrom,
    /// `true` if messages without a deadline in the healed world must be delivered, not lost.
    pub(super) must_deliver: bool,
    pub(super) awaited: BTreeMap<(NodeId, GroupId), Awaited>,
    /// Messages that were confirmed as settled at a member that did not have them.
    pub(super) not_safe: Vec<(Start, MessageId)>,
    pub(super) held_back: Vec<(NodeId, GroupId)>,
    /// Guarantees of the protocol that the final counters violate.
    pub(super) broken: Vec<(NodeId, String)>,
    pub(super) unstored: Vec<(GroupId, NodeId)>,
    pub(super) stored: Option<BTreeMap<GroupId, BTreeSet<NodeId>>>,
    pub(super) processes: usize,
    pub(super) unsettled: Vec<NodeId>,
    /// Memory of all engines.
    pub memory: MemoryUse,
}

/// The point from which a receiver is owed a sender's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwedFrom {
    /// The time at which the sender's view includes the receiver.
    #[default]
    View,
    /// The first message that the receiver got or lost. The loss of a last message may go
    /// undetected.
    FirstHeard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    pub(super) node: NodeId,
    pub(super) number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageId {
    pub(super) sender: Start,
    pub(super) group: GroupId,
    pub(super) place: Offset,
}

/// The position of a packet in its stream, counted from an origin so early that it never wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offset(u32);

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) payload: Vec<u8>,
    pub(super) has_deadline: bool,
    pub(super) to: BTreeSet<Start>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    /// Last message that the confirmation must include, or `None` if no message was sent.
    pub(super) up_to: Option<Offset>,
    pub(super) is_there: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) delivered: u32,
    pub(super) lost: u32,
    pub(super) at: Time,
    pub(super) is_altered: bool,
}

impl History {
    /// Creates an empty record.
    pub fn new(owed_from: OwedFrom) -> Self {
        Self { owed_from, ..Self::default() }
    }

    /// Records a message that a node sent.
    pub fn sent(&mut self, now: Time, id: PacketId, payload: Vec<u8>, has_deadline: bool) {
        let sender = self.start_of(id.sender);
        let to = self.views.get(&(sender, id.group)).cloned().unwrap_or_default();
        self.firsts.entry((sender, id.group)).or_insert(id.seqno.0);
        let place = self.place(sender, id.group, id.seqno);
        let id = MessageId { sender, group: id.group, place };
        self.sent.insert(id, Sent { at: now, payload, has_deadline, to });
    }

    fn delivered(&mut self, now: Time, receiver: Start, message: &Message) {
        let (group, sender, seqno) = (message.group, message.sender, message.seqno);
        let is_it =
            |id: &MessageId| self.sent.get(id).is_some_and(|sent| sent.payload == message.payload);
        let mut ids = self.ids(sender, group, seqno);
        let id = ids.find(is_it).unwrap_or_else(|| self.id(self.start_of(sender), group, seqno));
        drop(ids);
        let is_altered = !is_it(&id);
        let got = self.got.entry((receiver, id)).or_insert(Got { at: now, ..Got::default() });
        got.delivered += 1;
        got.is_altered |= is_altered;
        self.hears(receiver, id);
    }

    fn lost(&mut self, now: Time, receiver: Start, lost: &Lost) {
        for number in 0..lost.count().min(MAX_LOST) {
            let number = SeqNo(lost.first.0.wrapping_add(number));
            let id = self.lost_id(receiver, lost, number);
            if let Some(message) = self.message_with_fragment(id) {
                let fragments = self.lost_fragments.entry((receiver, message)).or_default();
                *fragments.entry(number.0).or_default() += 1;
                continue;
            }
            let got = self.got.entry((receiver, id)).or_insert(Got { at: now, ..Got::default() });
            got.lost += 1;
            self.hears(receiver, id);
        }
    }

    /// Returns the packet that was reported as lost.
    ///
    /// Several starts of a node may use the same number. Starts are considered from the last one
    /// that the receiver has heard of. The packet belongs to the first start that used the number
    /// and whose packet the receiver has neither delivered nor reported. If there is none, it
    /// belongs to an earlier start: the receiver may mistake late packets for current ones while
    /// the sender does not answer.
    fn lost_id(&self, receiver: Start, lost: &Lost, number: SeqNo) -> MessageId {
        let last = self.last_heard.get(&(receiver, lost.group, lost.sender)).copied();
        let is_open = |id: &MessageId| {
            let message = self.message_with_fragment(*id);
            let of_piece =
                message.and_then(|message| self.lost_fragments.get(&(receiver, message)));
            let is_reported = self.got.contains_key(&(receiver, *id))
                || of_piece.is_some_and(|pieces| pieces.contains_key(&number.0));
            (self.sent.contains_key(id) || message.is_some()) && !is_reported
        };
        let ids = || self.ids(lost.sender, lost.group, number);
        let mut from = ids().filter(|id| last.is_none_or(|last| id.sender.number >= last));
        let found = from.find(is_open).or_else(|| ids().find(is_open));
        found.unwrap_or_else(|| self.id(self.start_of(lost.sender), lost.group, number))
    }

    fn hears(&mut self, receiver: Start, MessageId { sender, group, .. }: MessageId) {
        let last = self.last_heard.entry((receiver, group, sender.node)).or_default();
        *last = sender.number.max(*last);
    }

    fn start_of(&self, node: NodeId) -> Start {
        Start { node, number: self.starts.get(&node).copied().unwrap_or(0) }
    }

    fn ids(&self, sender: NodeId, group: GroupId, seqno: SeqNo) -> impl Iterator<Item = MessageId> {
        let starts = 0..=self.start_of(sender).number;
        starts.map(move |number| self.id(Start { node: sender, number }, group, seqno))
    }

    fn id(&self, sender: Start, group: GroupId, seqno: SeqNo) -> MessageId {
        MessageId { sender, group, place: self.place(sender, group, seqno) }
    }

    fn place(&self, sender: Start, group: GroupId, SeqNo(number): SeqNo) -> Offset {
        let first = self.firsts.get(&(sender, group)).copied().unwrap_or(0);
        Offset(number.wrapping_sub(first.wrapping_sub(BEFORE_FIRST)))
    }

    /// Returns the message that contains the packet with this number, unless it is the message's
    /// first packet. A large message uses the numbers up to that of the next message.
    fn message_with_fragment(&self, id: MessageId) -> Option<MessageId> {
        let mut before = self.sent.range(MessageId { place: Offset(0), ..id }..=id);
        let (message, sent) = before.next_back()?;
        let after = id.place.0 - message.place.0;
        (after > 0 && after as usize <= sent.payload.len() / LEAST_FRAGMENT_BYTES)
            .then_some(*message)
    }

    /// Records the end of all faults. If `must_deliver` is `true`, messages that are sent from now
    /// on without a deadline must be delivered.
    pub fn healed(&mut self, now: Time, must_deliver: bool) {
        self.healed = Some(now);
        self.must_deliver = must_deliver;
    }

    /// Records that a node requests confirmation in a group of the healed world.
    pub fn awaits(&mut self, node: NodeId, group: GroupId) {
        let up_to = self.sent_by(self.start_of(node), group).map(|(id, _)| id.place).last();
        self.awaited.insert((node, group), Awaited { up_to, is_there: false });
    }

    /// Returns `true` if all confirmations that were requested in the healed world have arrived.
    pub fn is_all_confirmed(&self) -> bool {
        self.awaited.values().all(|awaited| awaited.is_there)
    }

    /// Returns the receivers that are owed the message: those in the sender's view when it was
    /// sent, if both have stayed members since, neither has seen the other leave, the sender is in
    /// the receiver's view, and `owed_from` has been reached.
    pub(super) fn owed<'a>(
        &'a self,
        id: &'a MessageId,
        sent: &'a Sent,
    ) -> impl Iterator<Item = Start> + 'a {
        let members = self.members.get(&id.group);
        let is_member = move |start: &Start| members.is_some_and(|all| all.contains(start));
        let has_seen_go = |observer: Start, start: Start| {
            let gone = self.gone.get(&(observer, id.group, start));
            gone.is_some_and(|at| *at >= sent.at)
        };
        let both_stayed = move |start: &Start| {
            let (sender, start) = (id.sender, *start);
            let in_view = self.views.get(&(start, id.group)).is_some_and(|it| it.contains(&sender));
            // A member that rejoined before the sender could notice counts as another member.
            let joined = self.joined.get(&(start, id.group)).copied().unwrap_or_default();
            let has_seen_go = has_seen_go(sender, start) || has_seen_go(start, sender);
            in_view && joined <= sent.at && !has_seen_go
        };
        let has_heard = move |start: &Start| {
            let first = MessageId { place: Offset(0), ..*id };
            let joined = self.joined.get(&(*start, id.group)).copied().unwrap_or_default();
            let mut before = self.got.range((*start, first)..(*start, *id));
            before.any(|(_, got)| got.at >= joined) || self.owed_from == OwedFrom::View
        };
        let is_sender_there = is_member(&id.sender);
        let to = sent.to.iter().copied().filter(move |_| is_sender_there);
        to.filter(is_member).filter(both_stayed).filter(has_heard)
    }

    fn sent_by(&self, sender: Start, group: GroupId) -> impl Iterator<Item = (&MessageId, &Sent)> {
        let message = |place| MessageId { sender, group, place };
        self.sent.range(message(Offset(0))..=message(Offset(u32::MAX)))
    }

    /// Records a confirmation that a node has received, and the confirmed messages that are not
    /// settled at a member. Without [`OwedFrom::View`], it is unknown which messages are owed.
    fn safe(&mut self, start: Start, safe: &Confirmed) {
        let up_to = self.place(start, safe.group, safe.up_to);
        if let Some(awaited) = self.awaited.get_mut(&(start.node, safe.group)) {
            awaited.is_there |= awaited.up_to.is_none_or(|place| place <= up_to);
        }
        if self.owed_from != OwedFrom::View {
            return;
        }
        let settled = self.sent_by(start, safe.group).filter(|(id, _)| id.place <= up_to);
        let owed = settled
            .flat_map(|(id, sent)| self.owed(id, sent).map(|receiver| (receiver, *id)))
            .filter(|at| !self.got.contains_key(at));
        let owed: Vec<(Start, MessageId)> = owed.collect();
        self.not_safe.extend(owed);
    }
}

impl Record for History {
    fn started(&mut self, node: NodeId) {
        *self.starts.entry(node).or_default() += 1;
    }

    fn died(&mut self, _now: Time, node: NodeId) {
        let start = self.start_of(node);
        self.members.values_mut().for_each(|members| _ = members.remove(&start));
    }

    fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        let start = self.start_of(node);
        self.joined.insert((start, group), now);
        self.members.entry(group).or_default().insert(start);
        self.views.insert((start, group), BTreeSet::new());
    }

    fn left(&mut self, now: Time, node: NodeId, group: GroupId) {
        let start = self.start_of(node);
        if let Some(members) = self.members.get_mut(&group) {
            members.remove(&start);
        }
        for other in self.views.remove(&(start, group)).unwrap_or_default() {
            self.gone.insert((start, group, other), now);
        }
    }

    fn event(&mut self, now: Time, node: NodeId, event: Event) {
        let receiver = self.start_of(node);
        match event {
            Event::Message(message) => self.delivered(now, receiver, &message),
            Event::Lost(lost) => self.lost(now, receiver, &lost),
            Event::View(change) => {
                let member = self.start_of(change.node);
                let view = self.views.entry((receiver, change.group)).or_default();
                let known = view.iter().find(|known| known.node == change.node).copied();
                if change.kind == ViewChangeKind::Joined {
                    view.insert(known.unwrap_or(member));
                } else if let Some(known) = known {
                    view.remove(&known);
                    self.gone.insert((receiver, change.group, known), now);
                }
            }
            Event::Confirmed(safe) => self.safe(receiver, &safe),
            _ => {}
        }
    }

    fn acknowledged_unstored(&mut self, group: GroupId, node: NodeId) {
        self.unstored.push((group, node));
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 | 1 => write!(f, "{}", self.node),
            number => write!(f, "{} in start {number}", self.node),
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = i64::from(self.place.0) - i64::from(BEFORE_FIRST) + 1;
        write!(f, "{} {} message at {place}", self.sender, self.group)
    }
}

/// Minimum size, in bytes, of a fragment other than the last one of its message.
const LEAST_FRAGMENT_BYTES: usize = 100;
/// Maximum number of losses recorded from one report. No run sends more messages.
const MAX_LOST: u32 = 100_000;
const BEFORE_FIRST: u32 = 1 << 30;
