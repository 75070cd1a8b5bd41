//! Holes of sparse files.
//!
//! The manifest lists the holes, and their content is never sent. Pieces are cut from the data that
//! remains after the holes are removed. Offsets in this data are called *packed*.

use crate::limits::MAX_FILE_BYTES;

/// The holes of one file, in order of their offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    holes: Vec<Hole>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    at: u64,
    bytes: u64,
    bytes_so_far: u64,
}

/// A range of data that is contiguous both in the file and in the packed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file.
    pub at: u64,
    /// Length in bytes.
    pub bytes: usize,
}

impl Holes {
    /// Appends a hole at offset `at` of a file of `file_bytes` bytes. Returns `false` and changes
    /// nothing if the hole is empty, is not separated from the previous hole by data, or exceeds
    /// the file, or if the file exceeds [`MAX_FILE_BYTES`].
    pub fn push(&mut self, at: u64, bytes: u64, file_bytes: u64) -> bool {
        let last = self.holes.last().copied();
        let is_behind = last.is_none_or(|last| at > last.at + last.bytes);
        let fits = file_bytes <= MAX_FILE_BYTES
            && at.checked_add(bytes).is_some_and(|end| end <= file_bytes);
        if bytes == 0 || !is_behind || !fits {
            return false;
        }
        let bytes_so_far = bytes + last.map_or(0, |last| last.bytes_so_far);
        self.holes.push(Hole { at, bytes, bytes_so_far });
        true
    }

    /// Returns the offset and the length of each hole, in bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.holes.iter().map(|hole| (hole.at, hole.bytes))
    }

    /// Returns the number of holes.
    pub fn len(&self) -> usize {
        self.holes.len()
    }

    /// Returns `true` if there are no holes.
    pub fn is_empty(&self) -> bool {
        self.holes.is_empty()
    }

    /// Returns the total size of all holes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.holes.last().map_or(0, |last| last.bytes_so_far)
    }

    /// Returns the ranges of the file that contain the `bytes` bytes at the offset `packed` of the
    /// packed data.
    pub fn segments(&self, packed: u64, bytes: usize) -> Vec<Segment> {
        // The packed offset of a hole is that of the data directly after the hole.
        let packed_at = |hole: &Hole| hole.at + hole.bytes - hole.bytes_so_far;
        let mut next = self.holes.partition_point(|hole| packed_at(hole) <= packed);
        let mut segments = Vec::new();
        let (mut from, mut left) = (packed, bytes);
        while left > 0 {
            let skipped = next.checked_sub(1).map_or(0, |last| self.holes[last].bytes_so_far);
            let until = self.holes.get(next).map_or(u64::MAX, packed_at);
            let here = usize::try_from(until - from).unwrap_or(usize::MAX).min(left);
            segments.push(Segment { at: from + skipped, bytes: here });
            from += here as u64;
            left -= here;
            next += 1;
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn holes_out_of_order_or_outside_are_refused() {
        let mut holes = Holes::default();
        assert!(holes.push(10, 5, 100));
        for (at, bytes) in [(0, 5), (12, 3), (15, 1), (20, 0), (90, 11), (90, u64::MAX)] {
            assert!(!holes.push(at, bytes, 100), "{at} {bytes}");
        }
        assert!(!holes.push(20, 1, u64::MAX));
        assert!(holes.push(99, 1, 100));
        assert_eq!((holes.len(), holes.bytes()), (2, 6));
    }

    proptest! {
        #[test]
        fn packed_bytes_are_those_outside_the_holes(
            parts in prop::collection::vec((1_u64..20, 1_u64..20), 0..10),
            tail in 0_u64..20, from in 0_usize..50, bytes in 0_usize..100,
        ) {
            let file_bytes = parts.iter().map(|(data, hole)| data + hole).sum::<u64>() + tail;
            let mut holes = Holes::default();
            let mut data = Vec::new();
            let mut at = 0;
            for (before, hole) in parts {
                data.extend(at..at + before);
                prop_assert!(holes.push(at + before, hole, file_bytes));
                at += before + hole;
            }
            data.extend(at..file_bytes);
            let from = from.min(data.len());
            let to = (from + bytes).min(data.len());
            let segments = holes.segments(from as u64, to - from);
            let found: Vec<u64> =
                segments.iter().flat_map(|s| s.at..s.at + s.bytes as u64).collect();
            prop_assert_eq!(found, &data[from..to]);
        }
    }
}
