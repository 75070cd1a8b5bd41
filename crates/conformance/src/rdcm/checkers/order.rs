//! The rules of order and completeness.
//!
//! No message is delivered twice or out of order, and the messages missing between two others are
//! exactly those reported as lost.

use std::collections::BTreeMap;

use carom_proto::{LossCause, Lost, NodeId, Time};

use crate::findings::Findings;
use crate::rdcm::history::{Account, History, Mark, Observed, Position, Sent, StreamId};

const ONCE: &str = "at most once";
const ORDER: &str = "in order";
const GAPS: &str = "gaps are reported exactly";
const INVENTION: &str = "no invention";

pub(super) fn check(history: &History, found: &mut Findings) {
    for account in &history.accounts {
        let mut reader = Reader::new(history, account);
        reader.read();
        found.0.append(&mut reader.found.0);
    }
}

pub(crate) fn position(history: &History, node: NodeId) -> Position {
    let Some(account) = history.account(node) else { return Position::Nowhere };
    let mut reader = Reader::new(history, account);
    reader.read();
    reader.position()
}

/// Returns the number after the last packet of a stream that a member had received at time `by`.
pub(super) fn had(history: &History, account: &Account, stream: StreamId, by: Time) -> Option<u64> {
    let of_stream = |observed: &(Time, Observed)| match &observed.1 {
        Observed::Message(Ok(number)) => {
            Some(&history.sent[number]).filter(|it| it.stream == stream)
        }
        _ => None,
    };
    let until = account.events.iter().take_while(|(at, _)| *at <= by);
    until.filter_map(of_stream).last().map(|sent| sent.first + sent.packets)
}

struct Reader<'a> {
    history: &'a History,
    account: &'a Account,
    /// `None` if nothing has arrived or the stream has ended.
    next: Option<Mark>,
    left: BTreeMap<StreamId, u64>,
    /// For each stream that losses ended before any message arrived: the position after the losses.
    /// Such a stream may continue if its sender was falsely declared gone.
    given_up: BTreeMap<StreamId, u64>,
    lost: Vec<(Time, Lost)>,
    found: Findings,
}

impl<'a> Reader<'a> {
    fn new(history: &'a History, account: &'a Account) -> Self {
        let (left, given_up) = (BTreeMap::new(), BTreeMap::new());
        let (lost, found) = (Vec::new(), Findings::default());
        Self { history, account, next: None, left, given_up, lost, found }
    }

    fn read(&mut self) {
        for (at, observed) in &self.account.events {
            match observed {
                Observed::Message(Ok(number)) => self.on_message(*at, &self.history.sent[number]),
                Observed::Message(Err(what)) => self.complain(INVENTION, what.clone()),
                Observed::Lost(lost) => self.on_lost(*at, *lost),
            }
        }
    }

    fn position(&self) -> Position {
        let next = match (self.lost.last(), self.next) {
            (Some((_, lost)), next) => {
                let end = u64::from(lost.last.0) + 1;
                // A loss that does not follow belongs to a later stream without delivered messages.
                let is_its = |mark: &Mark| {
                    mark.stream.sender == lost.sender && self.after_losses(mark.next) == end
                };
                let stream = next.filter(is_its).map(|mark| mark.stream);
                let stream = stream.or_else(|| self.history.stream_of(lost.sender));
                stream.map(|stream| Mark { stream, next: end })
            }
            (None, next) => next,
        };
        next.map_or(Position::Nowhere, Position::At)
    }

    fn on_message(&mut self, at: Time, sent: &Sent) {
        let Sent { stream, first, packets, .. } = *sent;
        let next = Some(first + packets).map(|next| Mark { stream, next });
        // Losses of another sender, or from before this stream began, belong to another stream.
        let begun = self.history.streams[&stream].begun;
        self.lost.retain(|(told_at, lost)| lost.sender == stream.sender && *told_at >= begun);
        if let Some(mark) = self.next.filter(|mark| mark.stream == stream) {
            let expected = self.after_losses(mark.next);
            if first < mark.next {
                self.complain(ONCE, format!("{stream}: {first} after {}", mark.next));
            } else if first != expected {
                let lost = &self.lost;
                let what = format!("{stream}: got {first} instead of {expected}; lost {lost:?}");
                self.complain(GAPS, what);
            }
        } else {
            self.begin(at, sent);
        }
        self.lost.clear();
        self.next = next;
    }

    fn begin(&mut self, at: Time, sent: &Sent) {
        let Sent { stream, first, .. } = *sent;
        if let Some(mark) = self.next.take() {
            self.left.insert(mark.stream, mark.next);
        }
        let of_sender = self.left.keys().filter(|it| it.sender == stream.sender);
        if of_sender.max().is_some_and(|last| last.number > stream.number) {
            self.complain(ORDER, format!("{stream} began after a later one"));
        }
        if let Some(next) = self.left.get(&stream).filter(|next| first < **next) {
            self.complain(ONCE, format!("{stream}: {first} after {next}"));
            return;
        }
        let is_again = self.left.contains_key(&stream);
        if !is_again && self.is_owed_all(stream, at) {
            let expected = self.after_losses(1);
            let goes_on =
                self.given_up.get(&stream).is_some_and(|next| first == self.after_losses(*next));
            if first != expected && !goes_on {
                let lost = &self.lost;
                let what =
                    format!("{stream} begins with {first} instead of {expected}; lost {lost:?}");
                self.complain(GAPS, what);
            }
        }
    }

    /// Returns `true` if the member was a receiver when the stream began. A member that was evicted
    /// before it had a place counts as a later joiner, because its losses are unknown to it.
    fn is_owed_all(&self, stream: StreamId, at: Time) -> bool {
        let (begun, node) = (&self.history.streams[&stream], self.account.node);
        let is_left_behind = self.lost.is_empty() && begun.has_left_behind(node, at);
        begun.is_owed_to(self.account) && !is_left_behind
    }

    fn after_losses(&self, next: u64) -> u64 {
        self.lost.iter().fold(next, |next, (_, lost)| match u64::from(lost.first.0) == next {
            true => u64::from(lost.last.0) + 1,
            false => next,
        })
    }

    fn on_lost(&mut self, at: Time, lost: Lost) {
        self.lost.retain(|(_, before)| before.sender == lost.sender);
        let first = u64::from(lost.first.0);
        let mark = self.next.filter(|mark| mark.stream.sender == lost.sender);
        let expected = mark.map(|mark| self.after_losses(mark.next));
        // The loss may belong to a later stream of the same sender, of which nothing has arrived.
        let is_of_later = |mark: Mark| {
            let mut streams = self.history.streams.iter();
            streams.any(|(id, stream)| {
                id.sender == lost.sender && *id > mark.stream && stream.begun <= at
            })
        };
        if let (Some(mark), Some(expected)) = (mark, expected)
            && first != expected
            && !is_of_later(mark)
        {
            let what = format!("{}: {lost:?}, but {expected} was expected next", mark.stream);
            self.complain(GAPS, what);
        }
        self.lost.push((at, lost));
        if lost.cause == LossCause::AttemptsSpent {
            // The stream has ended. The packets reported as lost will not arrive.
            let end = u64::from(lost.last.0) + 1;
            let is_of = |mark: &Mark| mark.stream.sender == lost.sender && Some(first) == expected;
            let mark = self.next.take();
            if let Some(mark) = mark {
                self.left.insert(mark.stream, if is_of(&mark) { end } else { mark.next });
            }
            if mark.is_none_or(|mark| !is_of(&mark))
                && let Some(stream) = self.history.stream_of(lost.sender)
            {
                self.given_up.insert(stream, end);
            }
            self.lost.clear();
        }
    }

    fn complain(&mut self, rule: &'static str, what: String) {
        self.found.add(rule, format!("{}: {what}", self.account));
    }
}
