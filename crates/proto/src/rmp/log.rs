//! The ACKs and New Lists of a ring, in order: the paper's OrderingQ without the data (4.2).
//!
//! A *round* is what one token site says: an ACK with the packets that it orders, or a New List.
//! Rounds follow each other without gaps: the first timestamp of one is the end of the one before.
//! What arrives too early waits.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::locks::LockName;
use super::names::{Process, Timestamp};
use super::view::Member;
use crate::SeqNo;

/// What one token site says, and whose turn is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its place in the order.
    pub at: Timestamp,
    /// The token site that says it.
    pub site: Process,
    /// The next token site.
    pub next: Process,
    /// What it says.
    pub what: What,
}

/// What a round is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An ACK: these packets take the places that follow its own. A NULL ACK has none.
    Order(Vec<Run>),
    /// A New List: the view changes here, once for each of these, each at a place of its own. A
    /// change of the members stands alone; changes of locks may share a list.
    List(Vec<ListChange>),
}

/// Consecutive packets of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Who sent them.
    pub source: Process,
    /// The first of them.
    pub first: SeqNo,
    /// How many.
    pub count: u16,
}

/// A change of the view, asked for by a member or somebody who wants to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Who asked.
    pub process: Process,
    /// Its number among the requests of that process, which are served in order.
    pub request: u32,
    /// What was asked for.
    pub kind: ListChangeKind,
}

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChangeKind {
    /// To be a member.
    Join {
        /// The member.
        member: Member,
        /// The [check](crate::GroupId::name_check) of the group's name as it knows it.
        name_check: u32,
    },
    /// Not to be one any more.
    Leave,
    /// To hold a lock.
    Lock {
        /// Which.
        name: LockName,
        /// Whether to wait for it if it is held.
        waits: bool,
    },
    /// To give it back, or not to wait for it any more.
    Unlock(LockName),
    /// Nothing: this lock is held, or there are too many. Only in New Lists.
    Refused(LockName),
}

/// The rounds of one ring.
#[derive(Debug)]
pub(super) struct Log {
    next: Timestamp,
    /// Applied, and not with all members yet.
    rounds: VecDeque<Round>,
    /// Ahead of `next`, or waiting for data.
    early: BTreeMap<Timestamp, Round>,
}

/// Changes that one New List serves at most: they fit the smallest datagram.
pub(super) const MAX_CHANGES: usize = 16;

/// What became of a round that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    New,
    Known,
    /// So far ahead that it is not kept.
    TooFar,
}

/// Rounds ahead of the next one that are kept: more than members of any ring.
const MAX_EARLY: usize = 1024;

impl Round {
    /// Where the next round begins.
    pub fn end(&self) -> Timestamp {
        let more: u64 = match &self.what {
            What::Order(runs) => runs.iter().map(|run| u64::from(run.count)).sum(),
            What::List(changes) => changes.len().saturating_sub(1) as u64,
        };
        self.at.plus(1 + more)
    }

    /// Whether it neither orders nor changes anything.
    pub fn is_null(&self) -> bool {
        matches!(&self.what, What::Order(runs) if runs.is_empty())
    }

    /// Whether it is a New List.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.what, What::List(_))
    }

    /// The changes of the view that it makes.
    pub(super) fn changes(&self) -> &[ListChange] {
        match &self.what {
            What::Order(_) => &[],
            What::List(changes) => changes,
        }
    }

    /// The member that it lets in, if it does.
    pub(super) fn joiner(&self) -> Option<Member> {
        match self.changes() {
            [ListChange { kind: ListChangeKind::Join { member, .. }, .. }] => Some(*member),
            _ => None,
        }
    }

    /// The packets that it orders.
    pub fn runs(&self) -> &[Run] {
        match &self.what {
            What::Order(runs) => runs,
            What::List(_) => &[],
        }
    }
}

impl ListChangeKind {
    /// Whether it adds or removes a member.
    pub(super) fn is_of_members(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Leave)
    }
}

impl Run {
    /// The number behind the last.
    pub fn end(&self) -> SeqNo {
        self.first.plus(self.count.into())
    }
}

impl Log {
    /// A log in which `next` is the next place.
    pub(super) fn new(next: Timestamp) -> Self {
        Self { next, rounds: VecDeque::new(), early: BTreeMap::new() }
    }

    /// Where the next round begins: everything before is applied.
    pub(super) fn next(&self) -> Timestamp {
        self.next
    }

    /// Takes a round that arrived.
    pub(super) fn offer(&mut self, round: Round) -> Offered {
        if round.at < self.next || self.early.contains_key(&round.at) {
            return Offered::Known;
        }
        if self.early.len() >= MAX_EARLY {
            return Offered::TooFar;
        }
        self.early.insert(round.at, round);
        Offered::New
    }

    /// The next round, if it is here.
    pub(super) fn ready(&self) -> Option<&Round> {
        self.early.get(&self.next)
    }

    /// Drops the next round: it cannot be.
    pub(super) fn reject(&mut self) {
        self.early.remove(&self.next);
    }

    /// Applies the next round.
    pub(super) fn apply(&mut self) -> Option<Round> {
        let round = self.early.remove(&self.next)?;
        self.next = round.end();
        self.rounds.push_back(round.clone());
        Some(round)
    }

    /// Drops rounds that begin within one that was applied: they cannot be. Says how many.
    pub(super) fn drop_overlapped(&mut self) -> u64 {
        let known = self.early.len();
        if self.early.first_key_value().is_some_and(|(at, _)| *at < self.next) {
            self.early = self.early.split_off(&self.next);
        }
        (known - self.early.len()) as u64
    }

    /// Whether rounds are known that cannot be applied yet.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// The rounds that cannot be applied yet, in order.
    pub(super) fn early(&self) -> impl Iterator<Item = &Round> {
        self.early.values()
    }

    /// Where the first missing rounds end, if there are any.
    pub(super) fn gap_end(&self) -> Option<Timestamp> {
        let (first, _) = self.early.first_key_value()?;
        (*first > self.next).then_some(*first)
    }

    /// The last round that was applied and not forgotten.
    pub(super) fn last(&self) -> Option<&Round> {
        self.rounds.back()
    }

    /// What is known in `from..to`, in order.
    pub(super) fn range(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = &Round> {
        let known = self.rounds.iter().chain(self.early.values());
        known.filter(move |round| round.at >= from && round.at < to)
    }

    /// Forgets the rounds up to this one, which all members have; gives them back.
    pub(super) fn forget_to(&mut self, stable: Timestamp) -> Vec<Round> {
        // The last one stays: it says whose turn it is, whoever asks.
        let count = self.rounds.iter().take_while(|round| round.at <= stable).count();
        self.rounds.drain(..count.min(self.rounds.len().saturating_sub(1))).collect()
    }

    /// Asserts the invariants.
    pub(super) fn check(&self) {
        let mut at = None;
        for round in &self.rounds {
            assert!(at.is_none_or(|at| at == round.at), "a hole before {:?}", round.at);
            at = Some(round.end());
        }
        assert!(at.is_none_or(|at| at == self.next), "the last round does not end at the next");
        assert!(self.early.keys().all(|at| *at >= self.next), "an old round is kept as early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn process(node: u64) -> Process {
        Process { node: NodeId(node), life: 1 }
    }

    fn ack(at: u64, count: u16) -> Round {
        let run = Run { source: process(9), first: SeqNo(1), count };
        let what = What::Order(if count > 0 { vec![run] } else { Vec::new() });
        Round { at: Timestamp(at), site: process(1), next: process(2), what }
    }

    #[test]
    fn an_ack_of_two_packets_takes_three_places() {
        // The example of section 4.2: an ACK at 8 orders its packets at 9 and 10.
        assert_eq!(ack(8, 2).end(), Timestamp(11));
    }

    #[test]
    fn rounds_are_applied_in_order_whatever_order_they_come_in() {
        let mut log = Log::new(Timestamp(1));
        assert_eq!(log.offer(ack(4, 0)), Offered::New);
        assert_eq!((log.ready(), log.gap_end()), (None, Some(Timestamp(4))));
        assert_eq!(log.offer(ack(1, 2)), Offered::New);
        assert_eq!(log.gap_end(), None);
        assert_eq!(log.apply().map(|round| round.at), Some(Timestamp(1)));
        assert_eq!(log.apply().map(|round| round.at), Some(Timestamp(4)));
        assert_eq!((log.apply(), log.next()), (None, Timestamp(5)));
        assert_eq!(log.offer(ack(1, 2)), Offered::Known);
        log.check();
    }

    #[test]
    fn a_round_that_begins_within_another_is_dropped_when_that_one_is_applied() {
        let mut log = Log::new(Timestamp(1));
        [ack(2, 0), ack(3, 4), ack(4, 0)].into_iter().for_each(|round| _ = log.offer(round));
        log.offer(ack(1, 2));
        assert!(log.apply().is_some());
        assert_eq!((log.drop_overlapped(), log.next()), (2, Timestamp(4)));
        log.check();
        assert!(log.apply().is_some(), "the others are applied in their turn");
        assert_eq!(log.drop_overlapped(), 0);
    }

    #[test]
    fn what_is_stable_is_forgotten_but_for_the_last_word() {
        let mut log = Log::new(Timestamp(1));
        for at in 1..4 {
            log.offer(ack(at, 0));
            log.apply();
        }
        assert_eq!(log.forget_to(Timestamp(2)).len(), 2);
        assert_eq!(log.forget_to(Timestamp(9)).len(), 0);
        assert_eq!(log.last().map(|round| round.at), Some(Timestamp(3)));
        log.check();
    }
}
