//! What happened in a run, as the checkers read it.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{Event, GroupId, NodeId, PacketId, Safe, Time, ViewChangeKind};

/// The book of one run: what was sent, what each node got and was told, who was in which view
/// when.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(super) sent: BTreeMap<MessageId, Sent>,
    pub(super) got: BTreeMap<(NodeId, MessageId), Got>,
    /// Packets of messages besides their first that nodes were told as lost, by their messages:
    /// each number, and how often.
    pub(super) lost_pieces: BTreeMap<(NodeId, MessageId), BTreeMap<u32, u32>>,
    /// Members of each group at present, as they would say themselves.
    pub(super) members: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Each member's view at present.
    pub(super) views: BTreeMap<(NodeId, GroupId), BTreeSet<NodeId>>,
    /// When an observer last saw a node go from a group, or left the group itself.
    gone: BTreeMap<(NodeId, GroupId, NodeId), Time>,
    /// When each member joined.
    joined: BTreeMap<(NodeId, GroupId), Time>,
    alive: BTreeSet<NodeId>,
    /// When everything was put right.
    pub(super) healed: Option<Time>,
    owed_from: OwedFrom,
    /// Whether what is sent in the healed world must be delivered, and not only accounted for.
    pub(super) must_deliver: bool,
    /// Groups in which a node asked for confirmation after that.
    pub(super) awaited: BTreeMap<(NodeId, GroupId), Awaited>,
    /// Whom a node was told to have a message settled that it had not.
    pub(super) not_safe: Vec<(NodeId, MessageId)>,
    /// Senders that were still held back after that.
    pub(super) held_back: Vec<(NodeId, GroupId)>,
    /// What counters said at the end that breaks a promise of the protocol's own.
    pub(super) broken: Vec<(NodeId, String)>,
    /// Joins that the membership service acknowledged without having stored them.
    pub(super) unstored: Vec<(GroupId, NodeId)>,
    /// The members of each group by the account of the membership service, if there is one.
    pub(super) stored: Option<BTreeMap<GroupId, BTreeSet<NodeId>>>,
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

/// A message by its sender, group and number. Runs are short: the number does not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageId {
    pub(super) sender: NodeId,
    pub(super) group: GroupId,
    pub(super) number: u32,
}

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
    pub to: BTreeSet<NodeId>,
}

/// A confirmation that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    /// The last message that it must be for; `None` if nothing was sent.
    pub(super) up_to: Option<u32>,
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
        self.alive.insert(node);
    }

    /// A node was killed.
    pub fn died(&mut self, node: NodeId) {
        self.alive.remove(&node);
        self.members.values_mut().for_each(|members| _ = members.remove(&node));
    }

    /// A node joined a group.
    pub fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        self.joined.insert((node, group), now);
        self.members.entry(group).or_default().insert(node);
        self.views.insert((node, group), BTreeSet::new());
    }

    /// A node left a group: what it saw there is over.
    pub fn left(&mut self, now: Time, node: NodeId, group: GroupId) {
        if let Some(members) = self.members.get_mut(&group) {
            members.remove(&node);
        }
        for other in self.views.remove(&(node, group)).unwrap_or_default() {
            self.gone.insert((node, group, other), now);
        }
    }

    /// A node sent a message.
    pub fn sent(&mut self, now: Time, id: PacketId, payload: Vec<u8>, has_deadline: bool) {
        let to = self.views.get(&(id.sender, id.group)).cloned().unwrap_or_default();
        self.sent.insert(id.into(), Sent { at: now, payload, has_deadline, to });
    }

    /// A node was told something.
    pub fn told(&mut self, now: Time, node: NodeId, event: Event) {
        match event {
            Event::Message(message) => {
                let (group, sender, seqno) = (message.group, message.sender, message.seqno);
                let id = MessageId { sender, group, number: seqno.0 };
                let sent = self.sent.get(&id);
                let got = self.got.entry((node, id)).or_insert(Got { at: now, ..Got::default() });
                got.delivered += 1;
                got.is_altered |= sent.is_none_or(|sent| sent.payload != message.payload);
            }
            Event::Lost(lost) => {
                for number in 0..lost.count().min(MAX_LOST) {
                    let number = lost.first.0.wrapping_add(number);
                    let id = MessageId { sender: lost.sender, group: lost.group, number };
                    if let Some(message) = self.message_with_piece(id) {
                        let pieces = self.lost_pieces.entry((node, message)).or_default();
                        *pieces.entry(number).or_default() += 1;
                        continue;
                    }
                    let got =
                        self.got.entry((node, id)).or_insert(Got { at: now, ..Got::default() });
                    got.lost += 1;
                }
            }
            Event::View(change) => {
                let view = self.views.entry((node, change.group)).or_default();
                if change.kind == ViewChangeKind::Joined {
                    view.insert(change.node);
                } else if view.remove(&change.node) {
                    self.gone.insert((node, change.group, change.node), now);
                }
            }
            Event::Safe(safe) => self.safe(node, &safe),
            _ => {}
        }
    }

    /// The message of which the packet with this number is a part but not the first: a message
    /// that does not fit a packet takes the numbers up to the next message's.
    fn message_with_piece(&self, id: MessageId) -> Option<MessageId> {
        let mut before = self.sent.range(MessageId { number: 0, ..id }..=id);
        let (message, sent) = before.next_back()?;
        let after = id.number - message.number;
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
        let up_to = self.sent_by(node, group).map(|(id, _)| id.number).last();
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

    /// These are the members of each group, as the membership service has stored it.
    pub fn has_stored(&mut self, members: BTreeMap<GroupId, BTreeSet<NodeId>>) {
        self.stored = Some(members);
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
    ) -> impl Iterator<Item = NodeId> + 'a {
        let members = self.members.get(&id.group);
        let is_member = move |node: &NodeId| members.is_some_and(|all| all.contains(node));
        let has_seen_go = |observer: NodeId, node: NodeId| {
            let gone = self.gone.get(&(observer, id.group, node));
            gone.is_some_and(|at| *at >= sent.at)
        };
        let both_stayed = move |node: &NodeId| {
            let (sender, node) = (id.sender, *node);
            let in_view = self.views.get(&(node, id.group)).is_some_and(|it| it.contains(&sender));
            // Who has left and come back in between, too fast for the sender to see, is another
            // member now.
            let joined = self.joined.get(&(node, id.group)).copied().unwrap_or_default();
            in_view && joined <= sent.at && !has_seen_go(sender, node) && !has_seen_go(node, sender)
        };
        let has_heard = move |node: &NodeId| {
            let first = MessageId { number: 0, ..*id };
            let joined = self.joined.get(&(*node, id.group)).copied().unwrap_or_default();
            let mut before = self.got.range((*node, first)..(*node, *id));
            before.any(|(_, got)| got.at >= joined) || self.owed_from == OwedFrom::View
        };
        let is_sender_there = is_member(&id.sender);
        let to = sent.to.iter().copied().filter(move |_| is_sender_there);
        to.filter(is_member).filter(both_stayed).filter(has_heard)
    }

    /// What a node sent in a group.
    fn sent_by(&self, node: NodeId, group: GroupId) -> impl Iterator<Item = (&MessageId, &Sent)> {
        let message = |number| MessageId { sender: node, group, number };
        self.sent.range(message(0)..=message(u32::MAX))
    }

    /// A node was told that what it sent is settled at all members. That can be compared with what
    /// they got only where both are owed the same.
    fn safe(&mut self, node: NodeId, safe: &Safe) {
        if let Some(awaited) = self.awaited.get_mut(&(node, safe.group)) {
            awaited.is_there |= awaited.up_to.is_none_or(|number| number <= safe.up_to.0);
        }
        if self.owed_from != OwedFrom::View {
            return;
        }
        let settled = self.sent_by(node, safe.group).filter(|(id, _)| id.number <= safe.up_to.0);
        let owed = settled
            .flat_map(|(id, sent)| self.owed(id, sent).map(|receiver| (receiver, *id)))
            .filter(|at| !self.got.contains_key(at));
        let owed: Vec<(NodeId, MessageId)> = owed.collect();
        self.not_safe.extend(owed);
    }
}

impl From<PacketId> for MessageId {
    fn from(id: PacketId) -> Self {
        Self { sender: id.sender, group: id.group, number: id.seqno.0 }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} #{}", self.sender, self.group, self.number)
    }
}

/// Bytes of a piece of a message but for the last, at the least.
const LEAST_PIECE_BYTES: usize = 100;
/// Losses of one report that are written down at most: more were never sent in a run.
const MAX_LOST: u32 = 100_000;
