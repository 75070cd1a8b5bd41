use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::super::limits::MAX_RANGES;
use super::super::sack_set::SackSet;
use super::fields::number;
use crate::codec::Field;
use crate::wire::DecodeError;

/// Acknowledgment in one ring: of a receiver in its leaf ring, of its branch in its proxy ring.
///
/// | bytes | field |
/// |---|---|
/// | 4 | ring, by its vertex |
/// | 8 | first missing packet |
/// | 8 | number below which all missing packets are known |
/// | 8 | number after the last packet that is expected |
/// | 4 | packets that arrived through the tree, at the receiver or in its branch, modulo 2^32 |
/// | 2 | number of ranges |
/// | 8 each | range of present packets: offset from the first missing packet u32, length u32 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingAck {
    /// Ring in which the packets are acknowledged, identified by its vertex.
    pub ring: u32,
    /// The set of packets that are present.
    pub has: SackSet,
    /// Number below which all packets that are not present are known to be missing.
    pub known_to: u64,
    /// Number after the last packet that may be sent.
    pub limit: u64,
    /// Number of packets that the receiver, or all receivers of its branch together, got through
    /// the tree, modulo 2^32.
    pub by_tree: u32,
}

impl RingAck {
    /// Creates an acknowledgment in `ring`. It contains at most the first [`MAX_RANGES`] ranges of
    /// `has`, and lowers `known_to` if it omits others.
    pub fn new(ring: u32, has: &SackSet, known_to: u64, limit: u64, by_tree: u32) -> Self {
        let mut listed = SackSet::all_below(has.next());
        let mut known_to = known_to.max(has.next());
        for (count, range) in has.later().enumerate() {
            // Offsets have 32 bits, but sets of packets may extend further.
            let is_near = range.end - has.next() <= u64::from(u32::MAX);
            if count == MAX_RANGES || !is_near {
                known_to = known_to.min(listed.end());
                break;
            }
            listed.insert_range(range);
        }
        Self { ring, has: listed, known_to, limit, by_tree }
    }

    /// Returns the acknowledgment restricted to packets below `end`. An acknowledgment beyond `end`
    /// is forged, or comes from a receiver that is far ahead.
    pub fn below(&self, end: u64) -> Cow<'_, Self> {
        if self.known_to.max(self.has.end()) <= end {
            return Cow::Borrowed(self);
        }
        let (has, known_to) = (self.has.below(end), self.known_to.min(end));
        Cow::Owned(Self { has, known_to, ..*self })
    }
}

impl<'a> Field<'a> for RingAck {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { ring, has, known_to, limit, by_tree } = self;
        (*ring, has.next(), *known_to, *limit, *by_tree).put(out);
        (has.later().count() as u16).put(out);
        for range in has.later() {
            ((range.start - has.next()) as u32, (range.end - range.start) as u32).put(out);
        }
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (ring, next) = (Field::take(bytes)?, number::take(bytes)?);
        let (known_to, limit) = (number::take(bytes)?, number::take(bytes)?);
        let (by_tree, ranges): (_, Vec<(u32, u32)>) = Field::take(bytes)?;
        let mut has = SackSet::all_below(next);
        let mut last = next;
        for (after, count) in &ranges {
            let start = next + u64::from(*after);
            let end = start + u64::from(*count);
            if start <= last || *count == 0 {
                return Err(DecodeError::Value);
            }
            has.insert_range(start..end);
            last = end;
        }
        if known_to < next || ranges.len() > MAX_RANGES {
            return Err(DecodeError::Value);
        }
        Ok(Self { ring, has, known_to, limit, by_tree })
    }
}
