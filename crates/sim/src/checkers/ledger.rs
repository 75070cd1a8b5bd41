//! What happened in a run, as the checkers read it.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{
    Event, GroupId, Lost, Message, NodeId, PacketId, Safe, SeqNo, Time, ViewChangeKind,
};

/// The book of one run: what was sent, what each node got and was told, who was in which view
/// when.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(super) sent: BTreeMap<MessageId, Sent>,
    pub(super) got: BTreeMap<(Start, MessageId), Got>,
    /// Packets of messages besides their first that nodes were told as lost, by their messages:
    /// each number, and how often.
    pub(super) lost_pieces: BTreeMap<(Start, MessageId), BTreeMap<u32, u32>>,
    /// Members of each group at present, as they would say themselves.
    pub(super) members: BTreeMap<GroupId, BTreeSet<Start>>,
    /// Each member's view at present. Which start of a node it has in it is the one that was the
    /// last when the member was told of the node.
    pub(super) views: BTreeMap<(Start, GroupId), BTreeSet<Start>>,
    /// When an observer last saw a node go from a group, or left the group itself.
    gone: BTreeMap<(Start, GroupId, Start), Time>,
    /// When each member joined.
    joined: BTreeMap<(Start, GroupId), Time>,
    /// How often each node was started.
    starts: BTreeMap<NodeId, u32>,
    /// The last start of each sender of which each node was told something.
    last_heard: BTreeMap<(Start, GroupId, NodeId), u32>,
    /// The number of the first message of each stream.
    firsts: BTreeMap<(Start, GroupId), u32>,
    /// When everything was put right.
    pub(super) healed: Option<Time>,
    owed_from: OwedFrom,
    /// Whether what is sent in the healed world must be delivered, and not only accounted for.
    pub(super) must_deliver: bool,
    /// Groups in which a node asked for confirmation after that.
    pub(super) awaited: BTreeMap<(NodeId, GroupId), Awaited>,
    /// Whom a node was told to have a message settled that it had not.
    pub(super) not_safe: Vec<(Start, MessageId)>,
    /// Senders that were still held back after that.
    pub(super) held_back: Vec<(NodeId, GroupId)>,
    /// What counters said at the end that breaks a promise of the protocol's own.
    pub(super) broken: Vec<(NodeId, String)>,
    /// Joins that the membership service acknowledged without having stored them.
    pub(super) unstored: Vec<(GroupId, NodeId)>,
    /// The members of each group by the account of the membership service, if there is one.
    pub(super) stored: Option<BTreeMap<GroupId, BTreeSet<NodeId>>>,
    /// How many processes the membership service has.
    pub(super) processes: usize,
    /// Members that wait for their membership service, in the healed world.
    pub(super) unsettled: Vec<NodeId>,
    /// The most bytes that an engine was seen to keep, and the limit.
    pub(super) memory: Option<(usize, usize)>,
}

/// From where on a receiver is owed a sender's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwedFrom {
    /// From when its sender learnt of it as a member.
    #[default]
    View,
    /// From the first that it heard of: a message that was followed by none may be unknown.
    FirstHeard,
}

/// A node in one of its starts, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    pub(super) node: NodeId,
    pub(super) number: u32,
}

/// A message by its sender, group and place in its sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageId {
    pub(super) sender: Start,
    pub(super) group: GroupId,
    pub(super) place: Place,
}

/// The place of a packet in its stream, whose numbers may wrap: the number, counted from so far
/// before the stream's first that no run goes back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u32);

/// A message as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Time,
    /// What.
    pub payload: Vec<u8>,
    /// Whether it is of no use after a while, so that it may rightly be lost.
    pub has_deadline: bool,
    /// Whom its sender knew as members then.
    pub(super) to: BTreeSet<Start>,
}

/// A confirmation that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    /// The last message that it must be for; `None` if nothing was sent.
    pub(super) up_to: Option<Place>,
    /// Whether it came.
    pub(super) is_there: bool,
}

/// What one node got of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// How often it was delivered.
    pub delivered: u32,
    /// How often it was reported lost.
    pub lost: u32,
    /// When it first was either.
    pub at: Time,
    /// Whether a delivery had another payload than was sent.
    pub is_altered: bool,
}

impl Ledger {
    /// An empty book.
    pub fn new(owed_from: OwedFrom) -> Self {
        Self { owed_from, ..Self::default() }
    }

    /// A node came to life.
    pub fn born(&mut self, node: NodeId) {
        *self.starts.entry(node).or_default() += 1;
    }

    /// A node was killed.
    pub fn died(&mut self, node: NodeId) {
        let start = self.start_of(node);
        self.members.values_mut().for_each(|members| _ = members.remove(&start));
    }

    /// A node joined a group.
    pub fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        let start = self.start_of(node);
        self.joined.insert((start, group), now);
        self.members.entry(group).or_default().insert(start);
        self.views.insert((start, group), BTreeSet::new());
    }

    /// A node left a group: what it saw there is over.
    pub fn left(&mut self, now: Time, node: NodeId, group: GroupId) {
        let start = self.start_of(node);
        if let Some(members) = self.members.get_mut(&group) {
            members.remove(&start);
        }
        for other in self.views.remove(&(start, group)).unwrap_or_default() {
            self.gone.insert((start, group, other), now);
        }
    }

    /// A node sent a message.
    pub fn sent(&mut self, now: Time, id: PacketId, payload: Vec<u8>, has_deadline: bool) {
        let sender = self.start_of(id.sender);
        let to = self.views.get(&(sender, id.group)).cloned().unwrap_or_default();
        self.firsts.entry((sender, id.group)).or_insert(id.seqno.0);
        let place = self.place(sender, id.group, id.seqno);
        let id = MessageId { sender, group: id.group, place };
        self.sent.insert(id, Sent { at: now, payload, has_deadline, to });
    }

    /// A node was told something.
    pub fn told(&mut self, now: Time, node: NodeId, event: Event) {
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
            Event::Safe(safe) => self.safe(receiver, &safe),
            _ => {}
        }
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
            if let Some(message) = self.message_with_piece(id) {
                let pieces = self.lost_pieces.entry((receiver, message)).or_default();
                *pieces.entry(number.0).or_default() += 1;
                continue;
            }
            let got = self.got.entry((receiver, id)).or_insert(Got { at: now, ..Got::default() });
            got.lost += 1;
            self.hears(receiver, id);
        }
    }

    /// The packet that was reported lost. Starts of a node may use the same numbers: of those that
    /// did it is the first, from the one on that was heard of last, of which the receiver was not
    /// told yet what became of the packet; or an earlier one, if the receiver takes its late
    /// packets for current while the sender does not answer.
    fn lost_id(&self, receiver: Start, lost: &Lost, number: SeqNo) -> MessageId {
        let last = self.last_heard.get(&(receiver, lost.group, lost.sender)).copied();
        let is_open = |id: &MessageId| {
            let message = self.message_with_piece(*id);
            let of_piece = message.and_then(|message| self.lost_pieces.get(&(receiver, message)));
            let is_told = self.got.contains_key(&(receiver, *id))
                || of_piece.is_some_and(|pieces| pieces.contains_key(&number.0));
            (self.sent.contains_key(id) || message.is_some()) && !is_told
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

    /// The start that a node is in.
    fn start_of(&self, node: NodeId) -> Start {
        Start { node, number: self.starts.get(&node).copied().unwrap_or(0) }
    }

    /// What this number may mean: a packet of each start of its sender, the first start first.
    fn ids(&self, sender: NodeId, group: GroupId, seqno: SeqNo) -> impl Iterator<Item = MessageId> {
        let starts = 0..=self.start_of(sender).number;
        starts.map(move |number| self.id(Start { node: sender, number }, group, seqno))
    }

    fn id(&self, sender: Start, group: GroupId, seqno: SeqNo) -> MessageId {
        MessageId { sender, group, place: self.place(sender, group, seqno) }
    }

    /// The place of this number in the stream of this start.
    fn place(&self, sender: Start, group: GroupId, SeqNo(number): SeqNo) -> Place {
        let first = self.firsts.get(&(sender, group)).copied().unwrap_or(0);
        Place(number.wrapping_sub(first.wrapping_sub(BEFORE_FIRST)))
    }

    /// The message of which the packet with this number is a part but not the first: a message
    /// that does not fit a packet takes the numbers up to the next message's.
    fn message_with_piece(&self, id: MessageId) -> Option<MessageId> {
        let mut before = self.sent.range(MessageId { place: Place(0), ..id }..=id);
        let (message, sent) = before.next_back()?;
        let after = id.place.0 - message.place.0;
        (after > 0 && after as usize <= sent.payload.len() / LEAST_PIECE_BYTES).then_some(*message)
    }

    /// Everything is put right from now on; from here on all must be delivered, or at least
    /// accounted for.
    pub fn healed(&mut self, now: Time, must_deliver: bool) {
        self.healed = Some(now);
        self.must_deliver = must_deliver;
    }

    /// A node asks for confirmation in a group, in the healed world.
    pub fn awaits(&mut self, node: NodeId, group: GroupId) {
        let up_to = self.sent_by(self.start_of(node), group).map(|(id, _)| id.place).last();
        self.awaited.insert((node, group), Awaited { up_to, is_there: false });
    }

    /// A node cannot send, in the healed world.
    pub fn held_back(&mut self, node: NodeId, group: GroupId) {
        self.held_back.push((node, group));
    }

    /// A node's counters say that a promise of the protocol's own is broken.
    pub fn breaks(&mut self, node: NodeId, promise: String) {
        self.broken.push((node, promise));
    }

    /// The membership service has acknowledged a join that it has not stored.
    pub fn acknowledged_unstored(&mut self, group: GroupId, node: NodeId) {
        self.unstored.push((group, node));
    }

    /// These are the members of each group, as the membership service of so many processes has
    /// stored it.
    pub fn has_stored(&mut self, members: BTreeMap<GroupId, BTreeSet<NodeId>>, processes: usize) {
        (self.stored, self.processes) = (Some(members), processes);
    }

    /// These members wait for their membership service, in the healed world.
    pub fn are_unsettled(&mut self, nodes: Vec<NodeId>) {
        self.unsettled = nodes;
    }

    /// An engine keeps `bytes`, where it may keep `limit`.
    pub fn keeps(&mut self, bytes: usize, limit: usize) {
        let (most, _) = self.memory.unwrap_or_default();
        self.memory = Some((most.max(bytes), limit));
    }

    /// Whether all who asked for confirmation in the healed world have it.
    pub fn is_all_confirmed(&self) -> bool {
        self.awaited.values().all(|awaited| awaited.is_there)
    }

    /// Whether all views are those of the members, and nobody waits for a membership service.
    pub fn do_views_agree(&self) -> bool {
        let mut found = Vec::new();
        super::agreement::check(self, &mut found);
        found.is_empty() && self.unsettled.is_empty()
    }

    /// Who is owed the message: who was in the sender's view when it was sent, if neither has seen
    /// the other go since, and both are there still.
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
            // Who has left and come back in between, too fast for the sender to see, is another
            // member now.
            let joined = self.joined.get(&(start, id.group)).copied().unwrap_or_default();
            let has_seen_go = has_seen_go(sender, start) || has_seen_go(start, sender);
            in_view && joined <= sent.at && !has_seen_go
        };
        let has_heard = move |start: &Start| {
            let first = MessageId { place: Place(0), ..*id };
            let joined = self.joined.get(&(*start, id.group)).copied().unwrap_or_default();
            let mut before = self.got.range((*start, first)..(*start, *id));
            before.any(|(_, got)| got.at >= joined) || self.owed_from == OwedFrom::View
        };
        let is_sender_there = is_member(&id.sender);
        let to = sent.to.iter().copied().filter(move |_| is_sender_there);
        to.filter(is_member).filter(both_stayed).filter(has_heard)
    }

    /// What a node sent in a group in one of its starts.
    fn sent_by(&self, sender: Start, group: GroupId) -> impl Iterator<Item = (&MessageId, &Sent)> {
        let message = |place| MessageId { sender, group, place };
        self.sent.range(message(Place(0))..=message(Place(u32::MAX)))
    }

    /// A node was told that what it sent is settled at all members. That can be compared with what
    /// they got only where both are owed the same.
    fn safe(&mut self, start: Start, safe: &Safe) {
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

/// Bytes of a piece of a message but for the last, at the least.
const LEAST_PIECE_BYTES: usize = 100;
/// Losses of one report that are written down at most: more were never sent in a run.
const MAX_LOST: u32 = 100_000;
/// Numbers before the first of a stream that have a place.
const BEFORE_FIRST: u32 = 1 << 30;
