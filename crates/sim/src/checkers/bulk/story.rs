//! What happened in a run of a bulk group, as the checkers read it.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use carom_proto::rdcm::packet::Place;
use carom_proto::{
    Event, Lost, Message, NodeId, Safe, SendError, SeqNo, Time, ViewChange, ViewChangeKind,
};

/// The account of one run: what was sent, and what each member was told, in its order.
#[derive(Debug, Default)]
pub struct Story {
    pub(super) sent: BTreeMap<u64, Sent>,
    /// The messages whose first packet has this number in some stream of this sender.
    by_place: BTreeMap<(NodeId, u64), Vec<u64>>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) accounts: Vec<Account>,
    /// The account that is open of each node.
    open: BTreeMap<NodeId, usize>,
    messages: u64,
    /// The number before that of the first packet of each stream.
    before_first: u32,
    /// Refusals that no application has to reckon with.
    pub(super) refused: Vec<String>,
    /// The most bytes that an engine was seen to keep, and the limit.
    pub(super) memory: (usize, usize),
    /// How long after a sender has left its stream may go on at a member: views travel, and
    /// receivers wait for each other.
    pub(super) over_within: Duration,
    /// How it was in the end, or why nobody sends.
    pub(super) outcome: Option<Result<Healed, String>>,
}

/// A stream: the sender, and how many it had sent until then with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Who sends.
    pub sender: NodeId,
    /// Its streams are counted from 1.
    pub number: u32,
}

/// A place in a stream: before the packet with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The stream.
    pub stream: StreamId,
    /// The packet.
    pub next: u64,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It has got nothing.
    Nowhere,
    /// It has got, or was told that it has lost, everything of the stream before this.
    At(Mark),
}

/// A message as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) stream: StreamId,
    /// The number of its first packet, and how many it has.
    pub(super) first: u64,
    pub(super) packets: u64,
    pub(super) payload: Bytes,
}

/// A stream as its sender knows it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) begun: Time,
    /// Who was to get all of it.
    pub(super) receivers: BTreeSet<NodeId>,
    /// Those that the sender has met since.
    pub(super) joiners: BTreeSet<NodeId>,
    /// The accounts of those that were members then: a node that is restarted at the same time is
    /// not.
    pub(super) accounts: BTreeSet<usize>,
    /// The number after the last packet.
    pub(super) end: u64,
    /// Ends up to which a confirmation was asked for.
    pub(super) asked: Vec<u64>,
    pub(super) confirmed: Vec<(Time, Safe)>,
    pub(super) left_behind: Vec<(Time, NodeId)>,
    /// What the sender was told when it gave way to another.
    pub(super) given_up: Option<Lost>,
}

/// What a member was told from when it joined until it left or died.
#[derive(Debug)]
pub(super) struct Account {
    /// Its place among all accounts.
    pub(super) number: usize,
    pub(super) node: NodeId,
    pub(super) begun: Time,
    pub(super) ended: Option<Time>,
    /// Whether its application took nothing at times.
    pub(super) has_held: bool,
    pub(super) told: Vec<(Time, Told)>,
}

/// What a member was told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// A message, by its number in the run; what came, if nobody has sent that.
    Message(Result<u64, String>),
    Lost(Lost),
}

/// How it was in the end.
#[derive(Clone, Debug)]
pub struct Healed {
    /// Who sent last.
    pub sender: NodeId,
    /// All who took themselves for the sender.
    pub senders: Vec<NodeId>,
    /// The other members.
    pub receivers: Vec<NodeId>,
    /// Who was not known to have everything.
    pub unconfirmed: Vec<NodeId>,
    /// Bytes of messages that were not taken yet.
    pub waiting: usize,
    /// The places of the receivers that have one.
    pub places: BTreeMap<NodeId, Place>,
}

impl Story {
    /// Nothing has happened yet; each engine may keep so many bytes, and the stream of a sender
    /// that has left is over at each member within `over_within`. Streams begin with
    /// `first_number`.
    pub fn new(limit_bytes: usize, over_within: Duration, first_number: SeqNo) -> Self {
        let before_first = first_number.minus(1).0;
        Self { memory: (0, limit_bytes), over_within, before_first, ..Self::default() }
    }

    /// The next message that somebody wants to send, and its number in the run.
    pub fn message(&mut self, bytes: usize) -> (u64, Bytes) {
        self.messages += 1;
        let mut payload = vec![self.messages as u8; bytes];
        if let Some(number) = payload.first_chunk_mut() {
            *number = self.messages.to_be_bytes();
        }
        (self.messages, payload.into())
    }

    /// A node joins the group.
    pub fn joined(&mut self, begun: Time, node: NodeId) {
        let number = self.accounts.len();
        self.open.insert(node, number);
        let (ended, told) = (None, Vec::new());
        self.accounts.push(Account { number, node, begun, ended, has_held: false, told });
    }

    /// A node has left the group, or is dead.
    pub fn left(&mut self, now: Time, node: NodeId) {
        if let Some(number) = self.open.remove(&node) {
            self.accounts[number].ended = Some(now);
        }
    }

    /// The application of a node takes nothing, or does again.
    pub fn held(&mut self, node: NodeId) {
        if let Some(number) = self.open.get(&node) {
            self.accounts[*number].has_held = true;
        }
    }

    /// A message was taken, and has got the number `seqno`. Whether a stream begins with it.
    pub fn sent(
        &mut self,
        now: Time,
        sender: NodeId,
        number: u64,
        seqno: SeqNo,
        packets: u64,
        payload: Bytes,
    ) -> bool {
        let first = u64::from(self.counted_from_one(seqno).0);
        let before = self.stream_of(sender).map_or(0, |stream| stream.number);
        let stream = StreamId { sender, number: before + u32::from(first == 1) };
        let entry = self.streams.entry(stream).or_default();
        if first == 1 {
            entry.begun = now;
        }
        entry.end = first + packets;
        self.by_place.entry((sender, first)).or_default().push(number);
        self.sent.insert(number, Sent { stream, first, packets, payload });
        first == 1
    }

    /// These are to get all of the stream that the sender has begun.
    pub fn begun(&mut self, sender: NodeId, receivers: BTreeSet<NodeId>) {
        let accounts = receivers.iter().filter_map(|node| self.open.get(node)).copied().collect();
        if let Some(stream) = self.last_stream(sender) {
            (stream.receivers, stream.accounts) = (receivers, accounts);
        }
    }

    /// A message was refused though nobody else sends and there is room.
    pub fn refused(&mut self, node: NodeId, error: &SendError) {
        self.refused.push(format!("node {node} may not send: {error}"));
    }

    /// The sender asks for a confirmation of all that was taken.
    pub fn asked_to_confirm(&mut self, sender: NodeId) {
        if let Some(stream) = self.last_stream(sender) {
            stream.asked.push(stream.end);
        }
    }

    /// An engine keeps so many bytes.
    pub fn keeps(&mut self, bytes: usize) {
        self.memory.0 = self.memory.0.max(bytes);
    }

    /// A member was told something.
    pub fn told(&mut self, now: Time, node: NodeId, event: Event) {
        let told = match event {
            Event::Message(message) => Told::Message(self.recognise(&message)),
            Event::Lost(lost) => {
                let (first, last) =
                    (self.counted_from_one(lost.first), self.counted_from_one(lost.last));
                let lost = Lost { first, last, ..lost };
                if lost.sender == node {
                    if let Some(stream) = self.last_stream(node) {
                        stream.given_up = Some(lost);
                    }
                    return;
                }
                Told::Lost(lost)
            }
            Event::Slow(slow) => {
                if let Some(stream) = self.last_stream(node) {
                    stream.left_behind.push((now, slow.node));
                }
                return;
            }
            Event::Safe(safe) => {
                let safe = Safe { up_to: self.counted_from_one(safe.up_to), ..safe };
                // Who does not send has nothing to be confirmed.
                if let Some(stream) = self.last_stream(node).filter(|_| safe.up_to.0 > 0) {
                    stream.confirmed.push((now, safe));
                }
                return;
            }
            Event::View(change) => return self.view_changed(node, change),
            _ => return,
        };
        if let Some(number) = self.open.get(&node) {
            self.accounts[*number].told.push((now, told));
        }
    }

    /// A sender notices that a receiver has come or gone. If one that is gone is a member all the
    /// same, the sender had counted an earlier start of it, or its earlier membership.
    fn view_changed(&mut self, sender: NodeId, change: ViewChange) {
        let account = self.open.get(&change.node).copied();
        let Some(stream) = self.last_stream(sender) else { return };
        match (change.kind, account) {
            (ViewChangeKind::Joined, _) => _ = stream.joiners.insert(change.node),
            (_, Some(account)) => _ = stream.accounts.remove(&account),
            (_, None) => {}
        }
    }

    /// How it was in the end.
    pub fn healed(&mut self, healed: Healed) {
        self.outcome = Some(Ok(healed));
    }

    /// There are members, and nobody could send.
    pub fn nobody_can_send(&mut self, who: String) {
        self.outcome = Some(Err(who));
    }

    /// The end of the stream that a node has sent last.
    pub fn end_of(&self, sender: NodeId) -> Option<Mark> {
        let stream = self.stream_of(sender)?;
        Some(Mark { stream, next: self.streams[&stream].end })
    }

    /// How far a member is.
    pub fn position(&self, node: NodeId) -> Position {
        let account = self.open.get(&node).map(|number| &self.accounts[*number]);
        account.map_or(Position::Nowhere, |account| super::order::position(self, account))
    }

    /// Whether all is confirmed that the sender asked for.
    pub fn is_confirmed(&self, sender: NodeId) -> bool {
        self.stream_of(sender).is_none_or(|stream| self.streams[&stream].unanswered().is_none())
    }

    /// The stream that a node has sent last.
    pub(super) fn stream_of(&self, sender: NodeId) -> Option<StreamId> {
        let id = |number| StreamId { sender, number };
        self.streams.range(id(0)..=id(u32::MAX)).next_back().map(|(stream, _)| *stream)
    }

    fn last_stream(&mut self, sender: NodeId) -> Option<&mut Stream> {
        let stream = self.stream_of(sender)?;
        self.streams.get_mut(&stream)
    }

    /// Returns the number that a packet would have if streams began with 1. Numbers may wrap; no
    /// run sends so many packets that these would.
    fn counted_from_one(&self, seqno: SeqNo) -> SeqNo {
        seqno.minus(self.before_first)
    }

    /// The message that this is.
    fn recognise(&self, message: &Message) -> Result<u64, String> {
        let first = u64::from(self.counted_from_one(message.seqno).0);
        let here = self.by_place.get(&(message.sender, first));
        let is_it = |number: &&u64| self.sent[number].payload == message.payload;
        here.into_iter().flatten().rev().find(is_it).copied().ok_or_else(|| {
            let bytes = message.payload.len();
            format!("{bytes} bytes as number {first} of node {}", message.sender)
        })
    }
}

impl Stream {
    /// An end up to which nothing was confirmed, though it was asked for.
    pub(super) fn unanswered(&self) -> Option<u64> {
        let is_answered =
            |end: &u64| self.confirmed.iter().any(|(_, safe)| u64::from(safe.up_to.0) + 1 == *end);
        self.asked.iter().copied().find(|end| !is_answered(end))
    }

    /// Whether a member was to get all of it.
    pub(super) fn is_owed_to(&self, account: &Account) -> bool {
        self.accounts.contains(&account.number)
    }

    /// Whether the sender has given a member a place.
    pub(super) fn has_placed(&self, node: NodeId) -> bool {
        self.receivers.contains(&node) || self.joiners.contains(&node)
    }

    /// Whether a receiver was left behind by then.
    pub(super) fn has_left_behind(&self, node: NodeId, by: Time) -> bool {
        self.left_behind.iter().any(|(at, it)| *it == node && *at <= by)
    }
}

impl Account {
    /// Returns `true` if it was a member throughout, and still was after `to`: events at the time
    /// at which it leaves may follow the leave.
    pub(super) fn spans(&self, from: Time, to: Time) -> bool {
        self.begun <= from && self.ended.is_none_or(|end| end > to)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} of node {}", self.number, self.sender)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}, a member since {:.3} s", self.node, self.begun.0 as f64 / 1e9)
    }
}
