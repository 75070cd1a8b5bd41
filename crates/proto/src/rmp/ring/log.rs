//! The ACKs and New Lists of a ring, in order: the paper's OrderingQ without the data (4.2).
//!
//! A *round* is one packet of a token site: an ACK with the order of packets, or a New List. Rounds
//! follow each other without gaps: each begins where the previous one ends. Rounds that arrive too
//! early wait.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::stream::Arrival;
use crate::SeqNo;
use crate::ring::{ListChange, ListChangeKind, Member, Process, Timestamp};

/// One packet of a token site, with its place and the next token site.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Round {
    /// Place of the round in the total order.
    pub at: Timestamp,
    /// Token site that sent the round.
    pub site: Process,
    /// Token site after this round.
    pub next: Process,
    /// Content of the round.
    pub what: What,
}

/// Content of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum What {
    /// An ACK. The packets that it orders take the places after its own. A NULL ACK orders none.
    Order(#[cfg_attr(test, proptest(strategy = "crate::strategies::few()"))] Vec<Run>),
    /// A New List. Each of its changes has its own place. A change of the members stands alone.
    List(
        #[cfg_attr(test, proptest(strategy = "crate::strategies::some(1..=MAX_CHANGES)"))]
        Vec<ListChange>,
    ),
}

/// Consecutive packets of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Run {
    /// Source of the packets.
    pub source: Process,
    /// Number of the first packet.
    pub first: SeqNo,
    /// Number of packets.
    #[cfg_attr(test, proptest(strategy = "1_u16.."))]
    pub count: u16,
}

#[derive(Debug)]
pub(crate) struct Log {
    next: Timestamp,
    rounds: VecDeque<Round>,
    /// Early rounds, and the round at `next` while its data is missing.
    early: BTreeMap<Timestamp, Round>,
}

/// Maximum number of changes in a New List. They fit in the smallest datagram.
pub(crate) const MAX_CHANGES: usize = 16;

const MAX_EARLY: usize = 1024;

impl Round {
    /// Returns the place where the next round begins.
    pub fn end(&self) -> Timestamp {
        let more: u64 = match &self.what {
            What::Order(runs) => runs.iter().map(|run| u64::from(run.count)).sum(),
            What::List(changes) => changes.len().saturating_sub(1) as u64,
        };
        self.at.plus(1 + more)
    }

    /// Returns `true` if the round is a NULL ACK.
    pub fn is_null(&self) -> bool {
        matches!(&self.what, What::Order(runs) if runs.is_empty())
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.what, What::List(_))
    }

    pub(crate) fn changes(&self) -> &[ListChange] {
        match &self.what {
            What::Order(_) => &[],
            What::List(changes) => changes,
        }
    }

    pub(crate) fn joiner(&self) -> Option<Member> {
        match self.changes() {
            [ListChange { kind: ListChangeKind::Join { member, .. }, .. }] => Some(*member),
            _ => None,
        }
    }

    /// Returns the packets that the round orders.
    pub fn runs(&self) -> &[Run] {
        match &self.what {
            What::Order(runs) => runs,
            What::List(_) => &[],
        }
    }
}

impl Run {
    /// Returns the number that follows the last packet.
    pub fn end(&self) -> SeqNo {
        self.first.plus(self.count.into())
    }
}

impl Log {
    pub(crate) fn new(next: Timestamp) -> Self {
        Self { next, rounds: VecDeque::new(), early: BTreeMap::new() }
    }

    pub(crate) fn next(&self) -> Timestamp {
        self.next
    }

    pub(crate) fn offer(&mut self, round: Round) -> Arrival {
        if round.at < self.next || self.early.contains_key(&round.at) {
            return Arrival::Duplicate;
        }
        if self.early.len() >= MAX_EARLY {
            return Arrival::TooFar;
        }
        self.early.insert(round.at, round);
        Arrival::New
    }

    pub(crate) fn ready(&self) -> Option<&Round> {
        self.early.get(&self.next)
    }

    pub(crate) fn reject(&mut self) {
        self.early.remove(&self.next);
    }

    pub(crate) fn apply(&mut self) -> Option<Round> {
        let round = self.early.remove(&self.next)?;
        self.next = round.end();
        self.rounds.push_back(round.clone());
        Some(round)
    }

    /// Drops and counts rounds that begin within an applied round, which no correct member sends.
    pub(crate) fn drop_overlapped(&mut self) -> u64 {
        let known = self.early.len();
        if self.early.first_key_value().is_some_and(|(at, _)| *at < self.next) {
            self.early = self.early.split_off(&self.next);
        }
        (known - self.early.len()) as u64
    }

    pub(crate) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    pub(crate) fn early(&self) -> impl Iterator<Item = &Round> {
        self.early.values()
    }

    pub(crate) fn gap_end(&self) -> Option<Timestamp> {
        let (first, _) = self.early.first_key_value()?;
        (*first > self.next).then_some(*first)
    }

    pub(crate) fn last(&self) -> Option<&Round> {
        self.rounds.back()
    }

    pub(crate) fn at(&self, place: Timestamp) -> Option<&Round> {
        self.range(place, place.plus(1)).next()
    }

    pub(crate) fn range(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = &Round> {
        let known = self.rounds.iter().chain(self.early.values());
        known.filter(move |round| round.at >= from && round.at < to)
    }

    // All members have the rounds up to `stable`.
    pub(crate) fn forget_to(&mut self, stable: Timestamp) -> Vec<Round> {
        // The last one is kept, because it names the token holder to any member that requests it.
        let count = self.rounds.iter().take_while(|round| round.at <= stable).count();
        self.rounds.drain(..count.min(self.rounds.len().saturating_sub(1))).collect()
    }

    pub(crate) fn check(&self) {
        let mut at = None;
        for round in &self.rounds {
            assert!(at.is_none_or(|at| at == round.at), "a gap before {:?}", round.at);
            at = Some(round.end());
        }
        assert!(at.is_none_or(|at| at == self.next), "the last round does not end at `next`");
        assert!(self.early.keys().all(|at| *at >= self.next), "an old round is kept as early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::process;

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
    fn rounds_that_arrive_out_of_order_are_applied_in_order() {
        let mut log = Log::new(Timestamp(1));
        assert_eq!(log.offer(ack(4, 0)), Arrival::New);
        assert_eq!((log.ready(), log.gap_end()), (None, Some(Timestamp(4))));
        assert_eq!(log.offer(ack(1, 2)), Arrival::New);
        assert_eq!(log.gap_end(), None);
        assert_eq!(log.apply().map(|round| round.at), Some(Timestamp(1)));
        assert_eq!(log.apply().map(|round| round.at), Some(Timestamp(4)));
        assert_eq!((log.apply(), log.next()), (None, Timestamp(5)));
        assert_eq!(log.offer(ack(1, 2)), Arrival::Duplicate);
        log.check();
    }

    #[test]
    fn round_inside_another_is_dropped_when_the_outer_is_applied() {
        let mut log = Log::new(Timestamp(1));
        [ack(2, 0), ack(3, 4), ack(4, 0)].into_iter().for_each(|round| _ = log.offer(round));
        log.offer(ack(1, 2));
        assert!(log.apply().is_some());
        assert_eq!((log.drop_overlapped(), log.next()), (2, Timestamp(4)));
        log.check();
        assert!(log.apply().is_some(), "the next round is applied");
        assert_eq!(log.drop_overlapped(), 0);
    }

    #[test]
    fn stable_rounds_are_forgotten_except_the_last() {
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
