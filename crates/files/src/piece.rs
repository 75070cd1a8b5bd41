use fixedbitset::FixedBitSet;

use crate::limits::{MAX_PIECE_BYTES, MIN_PIECE_BYTES, PIECES_AIMED_AT};

/// A BLAKE3 hash.
pub type Hash = [u8; 32];

/// The position of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in the manifest of the file that contains the piece.
    pub entry: usize,
    /// Offset, in bytes, in the file's data without the holes.
    pub packed: u64,
    /// Length of the piece, in bytes.
    pub bytes: u32,
}

/// Depends only on the size of the data, so that the same content has the same id.
pub(crate) fn piece_bytes(total_bytes: u64) -> u32 {
    let mut size = MIN_PIECE_BYTES;
    while size < MAX_PIECE_BYTES && total_bytes.div_ceil(size.into()) > PIECES_AIMED_AT {
        size *= 2;
    }
    size
}

/// A set of pieces, with one bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSet {
    bits: FixedBitSet,
    count: u32,
}

impl PieceSet {
    /// Creates an empty set for a transfer of `pieces` pieces.
    pub fn none_of(pieces: u32) -> Self {
        Self { bits: FixedBitSet::with_capacity(pieces as usize), count: 0 }
    }

    /// Returns the number of pieces that the set can contain.
    pub fn pieces(&self) -> u32 {
        self.bits.len() as u32
    }

    /// Returns the number of pieces in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns `true` if the set contains all pieces.
    pub fn is_full(&self) -> bool {
        self.count == self.pieces()
    }

    /// Returns `true` if the set contains `piece`.
    pub fn contains(&self, piece: u32) -> bool {
        self.bits.contains(piece as usize)
    }

    /// Adds `piece`. Returns `false` if it was already in the set or does not exist.
    pub fn insert(&mut self, piece: u32) -> bool {
        let is_new = piece < self.pieces() && !self.bits.put(piece as usize);
        self.count += u32::from(is_new);
        is_new
    }

    /// Removes `piece`. Returns `false` if it was not in the set.
    pub fn remove(&mut self, piece: u32) -> bool {
        let was_in = self.contains(piece);
        if was_in {
            self.bits.set(piece as usize, false);
            self.count -= 1;
        }
        was_in
    }

    /// Returns the pieces in the set, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.bits.ones().map(|piece| piece as u32)
    }

    /// Returns the first piece, starting from `from`, that is not in the set.
    pub fn first_missing(&self, from: u32) -> Option<u32> {
        self.first(from, |word| !word)
    }

    /// Returns the first piece, starting from `from`, that is in the set.
    pub fn first_in(&self, from: u32) -> Option<u32> {
        self.first(from, |word| word)
    }

    fn first(&self, from: u32, seen: impl Fn(usize) -> usize) -> Option<u32> {
        let words = self.bits.as_slice();
        let mut at = from as usize;
        while at < self.bits.len() {
            let word = seen(words[at / WORD]) >> (at % WORD);
            if word != 0 {
                let found = at + word.trailing_zeros() as usize;
                return (found < self.bits.len()).then_some(found as u32);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// Encodes the set. The first piece is the lowest bit of the first byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.bits.len().div_ceil(8);
        let words = self.bits.as_slice().iter().flat_map(|word| word.to_le_bytes());
        words.take(bytes).collect()
    }

    /// Decodes a set for a transfer of `pieces` pieces. Returns `None` if the bytes do not have the
    /// size of such a set, or contain further pieces.
    pub fn from_bytes(bytes: &[u8], pieces: u32) -> Option<Self> {
        if bytes.len() != (pieces as usize).div_ceil(8) {
            return None;
        }
        let mut set = Self::none_of(pieces);
        for (index, byte) in bytes.iter().enumerate() {
            for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                if !set.insert(index as u32 * 8 + bit) {
                    return None;
                }
            }
        }
        Some(set)
    }
}

const WORD: usize = usize::BITS as usize;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_grow_with_the_transfer_up_to_a_bound() {
        assert_eq!(piece_bytes(0), MIN_PIECE_BYTES);
        assert_eq!(piece_bytes(64 << 30), MIN_PIECE_BYTES);
        assert_eq!(piece_bytes((64 << 30) + 1), 2 * MIN_PIECE_BYTES);
        assert_eq!(piece_bytes(u64::MAX), MAX_PIECE_BYTES);
    }

    proptest! {
        #[test]
        fn a_set_holds_what_was_put_in_and_survives_the_wire(
            pieces in 0_u32..300, put in prop::collection::vec(0_u32..310, 0..400),
            from in 0_u32..310,
        ) {
            let mut set = PieceSet::none_of(pieces);
            let mut expected = BTreeSet::new();
            for piece in put {
                prop_assert_eq!(set.insert(piece), piece < pieces && expected.insert(piece));
            }
            prop_assert_eq!(set.iter().collect::<BTreeSet<u32>>(), expected.clone());
            prop_assert_eq!(set.count() as usize, expected.len());
            let missing = (from..pieces).find(|piece| !expected.contains(piece));
            prop_assert_eq!(set.first_missing(from), missing);
            prop_assert_eq!(set.first_in(from), expected.range(from..).next().copied());
            prop_assert_eq!(PieceSet::from_bytes(&set.to_bytes(), pieces), Some(set.clone()));
            if let Some(first) = expected.first() {
                prop_assert!(set.remove(*first) && !set.remove(*first));
                prop_assert_eq!(set.count() as usize, expected.len() - 1);
            }
        }

        #[test]
        fn any_bytes_are_a_set_or_refused(bytes: Vec<u8>, pieces in 0_u32..100) {
            if let Some(set) = PieceSet::from_bytes(&bytes, pieces) {
                prop_assert_eq!(set.to_bytes(), bytes);
            }
        }
    }
}
