use crate::frame::Ranges;
use crate::limits::MAX_RANGES;

pub(crate) fn is_in_order(ranges: &Ranges) -> bool {
    let each = ranges.iter().all(|(first, last)| first <= last);
    each && ranges.len() <= MAX_RANGES && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

pub(crate) fn within(ranges: &Ranges, pieces: u32) -> impl Iterator<Item = u32> {
    ranges.iter().flat_map(move |(first, last)| *first..last.saturating_add(1).min(pieces))
}
