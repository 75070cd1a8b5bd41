//! Sets of received packet numbers.

use core::ops::Range;

use rangemap::RangeSet;

/// A set of packet numbers, most of which are contiguous from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SackSet {
    next: u64,
    /// Ranges beyond `next`. They are never adjacent to it.
    later: RangeSet<u64>,
}

impl SackSet {
    /// Returns the set of all packets below `next`.
    pub fn all_below(next: u64) -> Self {
        Self { next, later: RangeSet::new() }
    }

    /// Returns the first packet that is not in the set.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the first packet at or after `from` that is not in the set.
    pub fn next_from(&self, from: u64) -> u64 {
        let from = from.max(self.next);
        self.later.get(&from).map_or(from, |range| range.end)
    }

    /// Returns the number after the highest packet in the set.
    pub fn end(&self) -> u64 {
        self.later.last().map_or(self.next, |range| range.end)
    }

    /// Returns `true` if the set contains a packet.
    pub fn contains(&self, packet: u64) -> bool {
        packet < self.next || self.later.contains(&packet)
    }

    /// Returns `true` if the set contains all packets of a range.
    pub fn contains_all(&self, range: Range<u64>) -> bool {
        let beyond = range.start.max(self.next)..range.end;
        beyond.is_empty() || self.later.gaps(&beyond).next().is_none()
    }

    /// Adds a packet. Returns `true` if it is new.
    pub fn insert(&mut self, packet: u64) -> bool {
        if self.contains(packet) {
            return false;
        }
        if packet == self.next && self.later.is_empty() {
            self.next += 1;
        } else {
            self.later.insert(packet..packet + 1);
            self.settle();
        }
        true
    }

    /// Adds all packets of a range. An empty range adds nothing.
    pub fn insert_range(&mut self, range: Range<u64>) {
        let range = range.start.max(self.next)..range.end;
        if !range.is_empty() {
            self.later.insert(range);
            self.settle();
        }
    }

    /// Adds all packets of another set.
    pub fn absorb(&mut self, other: &Self) {
        self.insert_range(0..other.next);
        other.later.iter().for_each(|range| self.insert_range(range.clone()));
    }

    /// Returns the packets of the set below `end`.
    pub fn below(&self, end: u64) -> Self {
        let mut below = Self { next: self.next.min(end), later: self.later.clone() };
        if end < below.end() {
            below.later.remove(end..u64::MAX);
        }
        below
    }

    /// Returns the ranges of the set beyond [`SackSet::next`], in ascending order.
    pub fn later(&self) -> impl Iterator<Item = Range<u64>> {
        self.later.iter().cloned()
    }

    /// Returns the gaps below the highest packet in the set, in ascending order.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = core::iter::once(self.next).chain(self.later.iter().map(|range| range.end));
        starts.zip(self.later.iter()).map(|(start, range)| start..range.start)
    }

    fn settle(&mut self) {
        if let Some(first) = self.later.first().filter(|range| range.start == self.next).cloned() {
            self.next = first.end;
            self.later.remove(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_added(
            packets in proptest::collection::vec((0..60_u64, 0..8_u64, any::<bool>()), 0..40),
            others in proptest::collection::btree_set(0..60_u64, 0..30),
        ) {
            let mut set = SackSet::default();
            let mut model = BTreeSet::new();
            for (packet, count, is_one) in packets {
                if is_one {
                    prop_assert_eq!(set.insert(packet), model.insert(packet));
                } else {
                    set.insert_range(packet..packet + count);
                    model.extend(packet..packet + count);
                }
            }
            let mut other = SackSet::default();
            others.iter().for_each(|packet| assert!(other.insert(*packet)));
            set.absorb(&other);
            model.extend(&others);
            let next = (0..).find(|packet| !model.contains(packet)).expect("it ends");
            prop_assert_eq!(set.next(), next);
            prop_assert_eq!(set.end(), model.last().map_or(0, |last| last + 1));
            (0..70).for_each(|it| assert_eq!(set.contains(it), model.contains(&it)));
            for start in 0..70 {
                let is_all = (start..start + 7).all(|it| model.contains(&it));
                prop_assert_eq!(set.contains_all(start..start + 7), is_all);
            }
            for start in 0..70 {
                let lacking = (start..).find(|packet| !model.contains(packet));
                prop_assert_eq!(Some(set.next_from(start)), lacking);
            }
            let listed: Vec<u64> = (0..set.next()).chain(set.later().flatten()).collect();
            prop_assert_eq!(listed, model.iter().copied().collect::<Vec<u64>>());
            let mut below = other.clone();
            below.absorb(&set.below(20));
            prop_assert!((0..70).all(|it| below.contains(it) || !set.contains(it) || it >= 20));
            prop_assert!(set.below(20).end() <= 20);
            let missing: Vec<u64> = set.missing().flatten().collect();
            let lacks = (0..set.end()).filter(|packet| !model.contains(packet));
            prop_assert_eq!(missing, lacks.collect::<Vec<u64>>());
        }
    }
}
