use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use carom_proto::rdcm::packet::Place;
use carom_proto::{
    Confirmed, Event, GroupId, Lost, Message, NodeId, SendError, SeqNo, Time, ViewChange,
    ViewChangeKind,
};

use crate::harness::Record;
use crate::memory::MemoryUse;

/// The record of one run, with the messages sent, and the events of each member in order of time.
#[derive(Debug, Default)]
pub struct History {
    pub(super) sent: BTreeMap<u64, Sent>,
    /// Messages by their sender and the number of their first packet in some stream of this sender.
    by_place: BTreeMap<(NodeId, u64), Vec<u64>>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) accounts: Vec<Account>,
    open: BTreeMap<NodeId, usize>,
    messages: u64,
    /// Number that precedes the first packet of each stream.
    before_first: u32,
    pub(super) refused: Vec<String>,
    pub memory: MemoryUse,
    /// Maximum time for which a stream continues at a member after its sender has left.
    pub(super) over_within: Duration,
    /// The state after the faults, or the members of which none can send.
    pub(super) outcome: Option<Result<FinalState, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    pub sender: NodeId,
    pub number: u32,
}

/// A position in a stream: the number of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub stream: StreamId,
    pub next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Nowhere,
    /// All packets of the stream before this one are received, or reported as lost.
    At(Mark),
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) stream: StreamId,
    pub(super) first: u64,
    pub(super) packets: u64,
    pub(super) payload: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) begun: Time,
    pub(super) receivers: BTreeSet<NodeId>,
    pub(super) joiners: BTreeSet<NodeId>,
    /// Accounts of the first receivers, except those whose earlier start the sender had counted.
    pub(super) accounts: BTreeSet<usize>,
    pub(super) end: u64,
    pub(super) asked: Vec<u64>,
    pub(super) confirmed: Vec<(Time, Confirmed)>,
    pub(super) left_behind: Vec<(Time, NodeId)>,
    pub(super) given_up: Option<Lost>,
}

#[derive(Debug)]
pub(super) struct Account {
    pub(super) number: usize,
    pub(super) node: NodeId,
    pub(super) begun: Time,
    pub(super) ended: Option<Time>,
    pub(super) has_held: bool,
    pub(super) events: Vec<(Time, Observed)>,
}

#[derive(Clone, Debug)]
pub(super) enum Observed {
    /// The number of a message in the run, or a description of a message that no node has sent.
    Message(Result<u64, String>),
    Lost(Lost),
}

#[derive(Clone, Debug)]
pub(super) struct FinalState {
    pub(super) sender: NodeId,
    /// All members that consider themselves the sender.
    pub(super) senders: Vec<NodeId>,
    pub(super) receivers: Vec<NodeId>,
    pub(super) unconfirmed: Vec<NodeId>,
    /// Number of bytes of messages that the engines have not accepted.
    pub(super) waiting: usize,
    pub(super) places: BTreeMap<NodeId, Place>,
}

impl History {
    /// Creates an empty record.
    ///
    /// Streams begin with `first_number`. After a sender has left, its stream ends at each member
    /// within `over_within`.
    pub fn new(over_within: Duration, first_number: SeqNo) -> Self {
        let before_first = first_number.minus(1).0;
        Self { over_within, before_first, ..Self::default() }
    }

    pub fn message(&mut self, bytes: usize) -> (u64, Bytes) {
        self.messages += 1;
        let mut payload = vec![self.messages as u8; bytes];
        if let Some(number) = payload.first_chunk_mut() {
            *number = self.messages.to_be_bytes();
        }
        (self.messages, payload.into())
    }

    pub fn held(&mut self, node: NodeId) {
        if let Some(number) = self.open.get(&node) {
            self.accounts[*number].has_held = true;
        }
    }

    /// Records a message that the engine has accepted. Returns `true` if it begins a stream.
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

    /// Records the receivers that are owed the whole stream that the sender has begun.
    pub fn begun(&mut self, sender: NodeId, receivers: BTreeSet<NodeId>) {
        let accounts = receivers.iter().filter_map(|node| self.open.get(node)).copied().collect();
        if let Some(stream) = self.last_stream(sender) {
            (stream.receivers, stream.accounts) = (receivers, accounts);
        }
    }

    /// Records a message that was refused for a reason other than another sender or a full queue.
    pub fn refused(&mut self, node: NodeId, error: &SendError) {
        self.refused.push(format!("node {node} cannot send: {error}"));
    }

    pub fn asked_to_confirm(&mut self, sender: NodeId) {
        if let Some(stream) = self.last_stream(sender) {
            stream.asked.push(stream.end);
        }
    }

    /// Records that a sender notices a change of its receivers. If a receiver that is gone is still
    /// a member, the sender had counted an earlier start or membership of it.
    fn view_changed(&mut self, sender: NodeId, change: ViewChange) {
        let account = self.open.get(&change.node).copied();
        let Some(stream) = self.last_stream(sender) else { return };
        match (change.kind, account) {
            (ViewChangeKind::Joined, _) => _ = stream.joiners.insert(change.node),
            (_, Some(account)) => _ = stream.accounts.remove(&account),
            (_, None) => {}
        }
    }

    pub fn end_of(&self, sender: NodeId) -> Option<Mark> {
        let stream = self.stream_of(sender)?;
        Some(Mark { stream, next: self.streams[&stream].end })
    }

    /// Returns `true` if all messages for which the sender requested confirmation are confirmed.
    pub fn is_confirmed(&self, sender: NodeId) -> bool {
        self.stream_of(sender).is_none_or(|stream| self.streams[&stream].unanswered().is_none())
    }

    pub(super) fn account(&self, node: NodeId) -> Option<&Account> {
        self.open.get(&node).map(|number| &self.accounts[*number])
    }

    fn end_account(&mut self, now: Time, node: NodeId) {
        if let Some(number) = self.open.remove(&node) {
            self.accounts[number].ended = Some(now);
        }
    }

    pub(super) fn stream_of(&self, sender: NodeId) -> Option<StreamId> {
        let id = |number| StreamId { sender, number };
        self.streams.range(id(0)..=id(u32::MAX)).next_back().map(|(stream, _)| *stream)
    }

    fn last_stream(&mut self, sender: NodeId) -> Option<&mut Stream> {
        let stream = self.stream_of(sender)?;
        self.streams.get_mut(&stream)
    }

    /// Returns the number that a packet would have if streams began with 1. Packet numbers may
    /// wrap, but no run sends enough packets for these numbers to wrap.
    fn counted_from_one(&self, seqno: SeqNo) -> SeqNo {
        seqno.minus(self.before_first)
    }

    fn recognize(&self, message: &Message) -> Result<u64, String> {
        let first = u64::from(self.counted_from_one(message.seqno).0);
        let here = self.by_place.get(&(message.sender, first));
        let is_it = |number: &&u64| self.sent[number].payload == message.payload;
        here.into_iter().flatten().rev().find(is_it).copied().ok_or_else(|| {
            let bytes = message.payload.len();
            format!("{bytes} unknown bytes as number {first} of node {}", message.sender)
        })
    }
}

impl Record for History {
    fn joined(&mut self, begun: Time, node: NodeId, _group: GroupId) {
        let number = self.accounts.len();
        self.open.insert(node, number);
        let (ended, events) = (None, Vec::new());
        self.accounts.push(Account { number, node, begun, ended, has_held: false, events });
    }

    fn leaves(&mut self, now: Time, node: NodeId, _group: GroupId) {
        self.end_account(now, node);
    }

    fn died(&mut self, now: Time, node: NodeId) {
        self.end_account(now, node);
    }

    fn event(&mut self, now: Time, node: NodeId, event: Event) {
        let observed = match event {
            Event::Message(message) => Observed::Message(self.recognize(&message)),
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
                Observed::Lost(lost)
            }
            Event::Slow(slow) => {
                if let Some(stream) = self.last_stream(node) {
                    stream.left_behind.push((now, slow.node));
                }
                return;
            }
            Event::Confirmed(confirmed) => {
                let confirmed =
                    Confirmed { up_to: self.counted_from_one(confirmed.up_to), ..confirmed };
                // A member that does not send has no messages to be confirmed.
                if let Some(stream) = self.last_stream(node).filter(|_| confirmed.up_to.0 > 0) {
                    stream.confirmed.push((now, confirmed));
                }
                return;
            }
            Event::View(change) => return self.view_changed(node, change),
            _ => return,
        };
        if let Some(number) = self.open.get(&node) {
            self.accounts[*number].events.push((now, observed));
        }
    }
}

impl Stream {
    pub(super) fn unanswered(&self) -> Option<u64> {
        let is_answered = |end: &u64| {
            self.confirmed.iter().any(|(_, confirmed)| u64::from(confirmed.up_to.0) + 1 == *end)
        };
        self.asked.iter().copied().find(|end| !is_answered(end))
    }

    pub(super) fn is_owed_to(&self, account: &Account) -> bool {
        self.accounts.contains(&account.number)
    }

    pub(super) fn has_placed(&self, node: NodeId) -> bool {
        self.receivers.contains(&node) || self.joiners.contains(&node)
    }

    pub(super) fn has_left_behind(&self, node: NodeId, by: Time) -> bool {
        self.left_behind.iter().any(|(at, it)| *it == node && *at <= by)
    }
}

impl Account {
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
        write!(f, "node {} (member since {:.3} s)", self.node, self.begun.0 as f64 / 1e9)
    }
}
