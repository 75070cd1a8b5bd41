use std::collections::BTreeMap;

use rangemap::RangeSet;

use crate::frame::{FetchFailure, FromReceiver, Ranges, Way};
use crate::limits::MAX_RANGES;

#[derive(Default)]
pub(crate) struct Outbox {
    have: BTreeMap<Way, RangeSet<u32>>,
    missed: RangeSet<u32>,
    wrong: u32,
    fetches_failed: Vec<(u32, u32, FetchFailure)>,
    is_urgent: bool,
}

impl Outbox {
    pub(crate) fn have(&mut self, way: Way, piece: u32) {
        self.have.entry(way).or_default().insert(piece..piece + 1);
        // A completed fetch makes room for another one.
        self.is_urgent |= way != Way::Stream;
    }

    pub(crate) fn missed(&mut self, piece: u32, is_wrong: bool) {
        self.missed.insert(piece..piece + 1);
        self.wrong += u32::from(is_wrong);
        self.is_urgent = true;
    }

    pub(crate) fn fetch_failed(&mut self, piece: u32, source: u32, why: FetchFailure) {
        self.fetches_failed.push((piece, source, why));
        self.is_urgent = true;
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.have.is_empty()
            && self.missed.is_empty()
            && self.wrong == 0
            && self.fetches_failed.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<FromReceiver> {
        let Self { have, missed, mut wrong, fetches_failed, .. } = std::mem::take(self);
        let mut frames = Vec::new();
        for (way, set) in have {
            frames.extend(parts(&set).map(|pieces| FromReceiver::Have { way, pieces }));
        }
        for pieces in parts(&missed) {
            frames.push(FromReceiver::Missed { pieces, wrong });
            wrong = 0;
        }
        let failed = fetches_failed.into_iter();
        frames.extend(failed.map(|(piece, source, why)| FromReceiver::FetchFailed {
            piece,
            source,
            why,
        }));
        frames
    }
}

fn parts(set: &RangeSet<u32>) -> impl Iterator<Item = Ranges> {
    let ranges: Vec<(u32, u32)> = set.iter().map(|range| (range.start, range.end - 1)).collect();
    let parts: Vec<Ranges> = ranges.chunks(MAX_RANGES).map(<[_]>::to_vec).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_joined_and_taken_once() {
        let mut outbox = Outbox::default();
        for piece in [3, 1, 2, 7] {
            outbox.have(Way::Stream, piece);
        }
        outbox.have(Way::Peer, 9);
        outbox.missed(5, true);
        outbox.fetch_failed(6, 2, FetchFailure::NotThere);
        let expected = [
            FromReceiver::Have { way: Way::Stream, pieces: vec![(1, 3), (7, 7)] },
            FromReceiver::Have { way: Way::Peer, pieces: vec![(9, 9)] },
            FromReceiver::Missed { pieces: vec![(5, 5)], wrong: 1 },
            FromReceiver::FetchFailed { piece: 6, source: 2, why: FetchFailure::NotThere },
        ];
        assert_eq!(outbox.take(), expected);
        assert!(outbox.is_empty());
        assert_eq!(outbox.take(), []);
    }

    #[test]
    fn many_ranges_are_several_frames() {
        let mut outbox = Outbox::default();
        (0..2 * MAX_RANGES as u32 + 1).for_each(|piece| outbox.have(Way::Stream, 2 * piece));
        assert_eq!(outbox.take().len(), 3);
    }
}
