//! Reassembles pieces from blocks.
//!
//! The number of incomplete pieces is bounded. When a new piece would exceed the bound, the piece
//! that has waited longest for a block is given up, because the stream has moved past it. That
//! piece is fetched, and its further blocks are dropped.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use rangemap::RangeSet;

use crate::limits::MAX_BLOCKS_APART;
use crate::piece::PieceSet;
use crate::receiver::direct::ALIGNMENT;

pub(crate) struct Assembly {
    partial: BTreeMap<u32, Partial>,
    most: usize,
    given_up: PieceSet,
    blocks: u64,
    spare: Option<BytesMut>,
}

struct Partial {
    bytes: BytesMut,
    there: RangeSet<u32>,
    touched: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The block was processed. The number is that of the piece that was given up for it, if any.
    Kept(Option<u32>),
    /// All data of the block was already received.
    Duplicate,
    Dropped,
    Nonsense,
    Complete(Bytes),
}

impl Assembly {
    pub(crate) fn new(pieces: u32, most: usize) -> Self {
        assert!(most > 0, "at least one incomplete piece must be allowed");
        let given_up = PieceSet::none_of(pieces);
        Self { partial: BTreeMap::new(), most, given_up, blocks: 0, spare: None }
    }

    pub(crate) fn put(&mut self, piece: u32, length: u32, offset: u32, data: &Bytes) -> Put {
        let end = u32::try_from(data.len()).ok().and_then(|bytes| offset.checked_add(bytes));
        let Some(end) = end.filter(|end| *end <= length) else { return Put::Nonsense };
        if self.given_up.contains(piece) {
            return Put::Dropped;
        }
        if end - offset == length {
            // A block that contains a whole piece needs no buffer.
            self.partial.remove(&piece);
            return Put::Complete(data.clone());
        }
        let evicted = self.make_room(piece);
        self.blocks += 1;
        let spare = &mut self.spare;
        let partial =
            self.partial.entry(piece).or_insert_with(|| Partial::new(length, spare.take()));
        partial.touched = self.blocks;
        if !partial.put(offset..end, data) {
            return Put::Duplicate;
        }
        if partial.is_complete(length) {
            let complete = self.partial.remove(&piece).expect("it was just changed");
            return Put::Complete(complete.bytes.freeze());
        }
        if partial.there.len() > MAX_BLOCKS_APART {
            self.give_up(piece);
            return Put::Kept(Some(piece));
        }
        Put::Kept(evicted)
    }

    pub(crate) fn take_back(&mut self, complete: Bytes) {
        // Fails if the buffer is still shared.
        self.spare = complete.try_into_mut().ok();
    }

    pub(crate) fn give_up(&mut self, piece: u32) {
        self.given_up.insert(piece);
        self.partial.remove(&piece);
    }

    pub(crate) fn forget(&mut self, piece: u32) {
        self.partial.remove(&piece);
    }

    pub(crate) fn restart(&mut self) {
        self.given_up = PieceSet::none_of(self.given_up.pieces());
        self.partial.clear();
    }

    fn make_room(&mut self, piece: u32) -> Option<u32> {
        if self.partial.len() < self.most || self.partial.contains_key(&piece) {
            return None;
        }
        let silent = self.partial.iter().min_by_key(|(_, partial)| partial.touched);
        let silent = *silent.expect("a full assembly has incomplete pieces").0;
        self.give_up(silent);
        Some(silent)
    }
}

impl Partial {
    fn new(length: u32, spare: Option<BytesMut>) -> Self {
        let length = length as usize;
        let spare = spare.filter(|spare| spare.len() == length);
        let bytes = spare.unwrap_or_else(|| aligned(length));
        Self { bytes, there: RangeSet::new(), touched: 0 }
    }

    fn put(&mut self, at: Range<u32>, data: &[u8]) -> bool {
        let gaps: Vec<Range<u32>> = self.there.gaps(&at).collect();
        for gap in &gaps {
            let from = &data[(gap.start - at.start) as usize..(gap.end - at.start) as usize];
            self.bytes[gap.start as usize..gap.end as usize].copy_from_slice(from);
        }
        self.there.insert(at);
        !gaps.is_empty()
    }

    fn is_complete(&self, length: u32) -> bool {
        self.there.gaps(&(0..length)).next().is_none()
    }
}

fn aligned(length: usize) -> BytesMut {
    let mut bytes = BytesMut::zeroed(length + ALIGNMENT);
    let before = bytes.as_ptr().align_offset(ALIGNMENT);
    let _ = bytes.split_to(before);
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn full_assembly_gives_up_the_piece_silent_for_longest() {
        let mut assembly = Assembly::new(9, 2);
        assert_eq!(assembly.put(0, 4, 0, &Bytes::from_static(b"a")), Put::Kept(None));
        assert_eq!(assembly.put(1, 4, 0, &Bytes::from_static(b"a")), Put::Kept(None));
        assert_eq!(assembly.put(0, 4, 1, &Bytes::from_static(b"b")), Put::Kept(None));
        assert_eq!(assembly.put(2, 4, 0, &Bytes::from_static(b"a")), Put::Kept(Some(1)));
        assert_eq!(assembly.put(1, 4, 1, &Bytes::from_static(b"bcd")), Put::Dropped);
        assert_eq!(
            assembly.put(0, 4, 2, &Bytes::from_static(b"cd")),
            Put::Complete(Bytes::from_static(b"abcd"))
        );
        assembly.restart();
        assert_eq!(
            assembly.put(1, 1, 0, &Bytes::from_static(b"a")),
            Put::Complete(Bytes::from_static(b"a"))
        );
    }

    fn complete(assembly: &mut Assembly, piece: u32, byte: u8) -> Bytes {
        let half = Bytes::from(vec![byte; 5000]);
        assert_eq!(assembly.put(piece, 10_000, 0, &half), Put::Kept(None));
        let Put::Complete(bytes) = assembly.put(piece, 10_000, 5000, &half) else {
            panic!("piece {piece} has all its bytes");
        };
        assert_eq!(bytes, vec![byte; 10_000]);
        assert!(bytes.as_ptr().addr().is_multiple_of(ALIGNMENT));
        bytes
    }

    #[test]
    fn memory_is_reused_unless_it_is_still_borrowed() {
        let mut assembly = Assembly::new(9, 2);
        let first = complete(&mut assembly, 0, 1);
        let memory = first.as_ptr();
        assembly.take_back(first);
        let second = complete(&mut assembly, 1, 2);
        assert_eq!(second.as_ptr(), memory);
        assembly.take_back(second.clone());
        let third = complete(&mut assembly, 2, 3);
        assert_ne!(third.as_ptr(), memory);
        assert_eq!(second, vec![2; 10_000]);
    }

    #[test]
    fn blocks_outside_their_piece_are_nonsense() {
        let mut assembly = Assembly::new(9, 2);
        assert_eq!(assembly.put(0, 4, 4, &Bytes::from_static(b"a")), Put::Nonsense);
        assert_eq!(assembly.put(0, 4, 0, &Bytes::from_static(b"abcde")), Put::Nonsense);
        assert_eq!(assembly.put(0, 4, u32::MAX, &Bytes::from_static(b"ab")), Put::Nonsense);
    }

    #[test]
    fn a_piece_in_ever_smaller_parts_is_given_up() {
        let mut assembly = Assembly::new(1, 1);
        let parts = 0..2 * MAX_BLOCKS_APART as u32;
        let last = parts
            .map(|at| assembly.put(0, 1 << 20, 2 * at, &Bytes::from_static(b"x")))
            .find(|p| *p == Put::Dropped);
        assert_eq!(last, Some(Put::Dropped));
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_piece_once_complete(
            cuts in prop::collection::vec((0_usize..40, 1_usize..20), 0..60),
        ) {
            let piece: Vec<u8> = (1..=40).collect();
            let mut there = [false; 40];
            let mut assembly = Assembly::new(1, 1);
            for (from, bytes) in cuts {
                let to = (from + bytes).min(40);
                let is_new = there[from..to].contains(&false);
                there[from..to].fill(true);
                let part = Bytes::copy_from_slice(&piece[from..to]);
                let put = assembly.put(0, 40, from as u32, &part);
                if !there.contains(&false) {
                    prop_assert_eq!(put, Put::Complete(piece.clone().into()));
                    return Ok(());
                }
                prop_assert_eq!(put, if is_new { Put::Kept(None) } else { Put::Duplicate });
            }
        }
    }
}
