pub(crate) const MAX_NUMBER: u64 = 1 << 60;

/// A packet number. At a million packets per second, a stream takes 30,000 years to reach the
/// limit. Sums of valid numbers do not overflow.
pub(super) mod number {
    use super::MAX_NUMBER;
    use crate::codec::Field;
    use crate::wire::DecodeError;

    pub(in super::super) fn put(number: &u64, out: &mut Vec<u8>) {
        number.put(out);
    }

    pub(in super::super) fn take(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
        let number = u64::take(bytes)?;
        if number <= MAX_NUMBER { Ok(number) } else { Err(DecodeError::Value) }
    }
}

pub(super) mod ranges {
    use core::ops::Range;

    use super::MAX_NUMBER;
    use crate::codec::Field;
    use crate::rdcm::limits::MAX_RANGES;
    use crate::wire::DecodeError;

    pub(in super::super) fn put(ranges: &[Range<u64>], out: &mut Vec<u8>) {
        (ranges.len() as u16).put(out);
        ranges.iter().for_each(|range| (range.start, range.end).put(out));
    }

    pub(in super::super) fn take(bytes: &mut &[u8]) -> Result<Vec<Range<u64>>, DecodeError> {
        let pairs = Vec::<(u64, u64)>::take(bytes)?;
        let is_valid = |(start, end): &(u64, u64)| start < end && *end <= MAX_NUMBER;
        if pairs.len() > MAX_RANGES || !pairs.iter().all(is_valid) {
            return Err(DecodeError::Value);
        }
        Ok(pairs.into_iter().map(|(start, end)| start..end).collect())
    }
}
