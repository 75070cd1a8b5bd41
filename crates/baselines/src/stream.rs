use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{SeqNo, Time};

/// A sequence number extended to 64 bits, so that positions can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position(u64);

/// The owed part of a stream. Every owed packet is delivered, missing or lost, and is settled once.
#[derive(Debug)]
pub(crate) struct Stream {
    first: Position,
    next: Position,
    /// Missing packets with the times of their detection. Both are in ascending order.
    missing: BTreeMap<Position, Time>,
    lost: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The packet is new. The duration is the time for which it was known to be missing, if it was.
    Fresh(Option<Duration>),
    Repeated,
    NotOwed,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) missing: Vec<SeqNo>,
    /// Ranges of lost packets by first and last sequence number.
    pub(crate) lost: Vec<(SeqNo, SeqNo)>,
}

impl Position {
    fn seqno(self) -> SeqNo {
        SeqNo(self.0 as u32)
    }

    fn near(self, seqno: SeqNo) -> Self {
        Self(self.0.wrapping_add_signed(i64::from(seqno.distance_from(self.seqno()))))
    }

    fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

impl Stream {
    pub(crate) fn owed_from(first: SeqNo) -> Self {
        // Starts after one wrap (2^32), so that earlier packets have a position too.
        let first = Position((1 << 32) + u64::from(first.0));
        Self { first, next: first, missing: BTreeMap::new(), lost: 0 }
    }

    pub(crate) fn first(&self) -> SeqNo {
        self.first.seqno()
    }

    pub(crate) fn next(&self) -> SeqNo {
        self.next.seqno()
    }

    /// Records an arrival. If more than `max_missing` packets are missing, the oldest are lost.
    pub(crate) fn arrive(&mut self, now: Time, seqno: SeqNo, max_missing: usize) -> (Arrival, Gap) {
        let position = self.next.near(seqno);
        if position < self.first {
            return (Arrival::NotOwed, Gap::default());
        }
        if position < self.next {
            let noticed = self.missing.remove(&position);
            let fresh = noticed.map(|at| Arrival::Fresh(Some(now.since(at))));
            return (fresh.unwrap_or(Arrival::Repeated), Gap::default());
        }
        let gap = self.reach(now, seqno, max_missing);
        self.next = position.plus(1);
        (Arrival::Fresh(None), gap)
    }

    pub(crate) fn reach(&mut self, now: Time, next: SeqNo, max_missing: usize) -> Gap {
        let end = self.next.near(next);
        if end <= self.next {
            return Gap::default();
        }
        let mut lost = Vec::new();
        let start = Position(self.next.0.max(end.0.saturating_sub(max_missing as u64)));
        let kept_back = max_missing - (end.0 - start.0) as usize;
        while self.missing.len() > kept_back {
            let Some((oldest, _)) = self.missing.pop_first() else { break };
            add_lost(&mut lost, oldest..oldest.plus(1));
        }
        if start > self.next {
            add_lost(&mut lost, self.next..start);
        }
        let positions = (start.0..end.0).map(Position);
        self.missing.extend(positions.clone().map(|position| (position, now)));
        self.next = end;
        let lost = self.count_lost(lost);
        Gap { missing: positions.map(Position::seqno).collect(), lost }
    }

    pub(crate) fn is_missing(&self, seqno: SeqNo) -> bool {
        self.missing.contains_key(&self.next.near(seqno))
    }

    pub(crate) fn missing(&self) -> impl DoubleEndedIterator<Item = SeqNo> {
        self.missing.keys().map(|position| position.seqno())
    }

    pub(crate) fn missing_since_when(&self) -> impl Iterator<Item = (SeqNo, Time)> {
        self.missing.iter().map(|(position, at)| (position.seqno(), *at))
    }

    pub(crate) fn missing_count(&self) -> usize {
        self.missing.len()
    }

    pub(crate) fn missing_since(&self) -> Option<Time> {
        self.missing.first_key_value().map(|(_, at)| *at)
    }

    pub(crate) fn settled_to(&self) -> SeqNo {
        let first = self.missing.first_key_value().map(|(position, _)| *position);
        first.unwrap_or(self.next).seqno()
    }

    pub(crate) fn give_up(&mut self, noticed_by: Time) -> Vec<(SeqNo, SeqNo)> {
        let mut lost = Vec::new();
        while let Some(entry) = self.missing.first_entry().filter(|it| *it.get() <= noticed_by) {
            let position = entry.remove_entry().0;
            add_lost(&mut lost, position..position.plus(1));
        }
        self.count_lost(lost)
    }

    pub(crate) fn give_up_one(&mut self, seqno: SeqNo) -> bool {
        let is_lost = self.missing.remove(&self.next.near(seqno)).is_some();
        self.lost = self.lost.wrapping_add(u32::from(is_lost));
        is_lost
    }

    /// Returns the number of packets lost so far, which wraps around.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    fn count_lost(&mut self, lost: Vec<Range<Position>>) -> Vec<(SeqNo, SeqNo)> {
        let count = |range: &Range<Position>| (range.end.0 - range.start.0) as u32;
        self.lost = lost.iter().map(count).fold(self.lost, u32::wrapping_add);
        let ends = |range: Range<Position>| (range.start.seqno(), range.end.seqno().minus(1));
        lost.into_iter().map(ends).collect()
    }

    pub(crate) fn check(&self, max_missing: usize) {
        assert!(self.first <= self.next, "the stream ends before it begins");
        assert!(self.missing.len() <= max_missing, "too many missing packets are tracked");
        let known = self.first..self.next;
        let ends = [self.missing.first_key_value(), self.missing.last_key_value()];
        let inside = ends.into_iter().flatten().all(|(position, _)| known.contains(position));
        assert!(inside, "a missing packet is outside the stream");
    }
}

fn add_lost(lost: &mut Vec<Range<Position>>, range: Range<Position>) {
    match lost.last_mut().filter(|last| last.end == range.start) {
        Some(last) => last.end = range.end,
        None => lost.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn numbers(seqnos: &[SeqNo]) -> Vec<u32> {
        seqnos.iter().map(|seqno| seqno.0).collect()
    }

    #[test]
    fn each_packet_is_fresh_once_across_the_wrap() {
        let mut stream = Stream::owed_from(SeqNo(u32::MAX - 1));
        let (arrival, gap) = stream.arrive(Time(0), SeqNo(1), 9);
        assert_eq!(
            (arrival, numbers(&gap.missing)),
            (Arrival::Fresh(None), vec![u32::MAX - 1, u32::MAX, 0],)
        );
        let later = Time(0) + SECOND;
        let late = stream.arrive(later, SeqNo(u32::MAX), 9).0;
        assert_eq!(late, Arrival::Fresh(Some(SECOND)));
        assert_eq!(stream.arrive(later, SeqNo(u32::MAX), 9).0, Arrival::Repeated);
        assert_eq!(stream.arrive(later, SeqNo(1), 9).0, Arrival::Repeated);
        assert_eq!(stream.arrive(later, SeqNo(u32::MAX - 2), 9).0, Arrival::NotOwed);
        assert_eq!((stream.settled_to(), stream.next()), (SeqNo(u32::MAX - 1), SeqNo(2)));
        stream.check(9);
    }

    #[test]
    fn excess_missing_packets_are_lost_oldest_first_in_ranges() {
        let mut stream = Stream::owed_from(SeqNo(1));
        stream.reach(Time(0), SeqNo(3), 4);
        let gap = stream.reach(Time(1), SeqNo(10), 4);
        assert_eq!(numbers(&gap.missing), [6, 7, 8, 9]);
        assert_eq!(gap.lost, [(SeqNo(1), SeqNo(5))]);
        assert_eq!(stream.arrive(Time(1), SeqNo(2), 4).0, Arrival::Repeated);
        assert_eq!(stream.reach(Time(1), SeqNo(4), 4), Gap::default());
        stream.check(4);
    }

    #[test]
    fn packets_missing_for_too_long_are_given_up_once() {
        let mut stream = Stream::owed_from(SeqNo(1));
        stream.reach(Time(5), SeqNo(3), 9);
        stream.arrive(Time(6), SeqNo(5), 9);
        stream.arrive(Time(7), SeqNo(1), 9);
        assert_eq!(stream.missing_since(), Some(Time(5)));
        assert_eq!(stream.give_up(Time(5)), [(SeqNo(2), SeqNo(2))]);
        assert!(stream.is_missing(SeqNo(4)) && stream.missing().eq([SeqNo(3), SeqNo(4)]));
        assert!(stream.give_up_one(SeqNo(3)) && !stream.give_up_one(SeqNo(3)));
        assert_eq!(stream.give_up(Time(6)), [(SeqNo(4), SeqNo(4))]);
        assert_eq!((stream.missing_since(), stream.missing_count()), (None, 0));
        assert_eq!(stream.lost(), 3);
    }
}
