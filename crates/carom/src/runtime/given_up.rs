use std::collections::VecDeque;

/// The messages that this node has given up, numbered from 1 in the order of publishing.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    ranges: VecDeque<(u64, u64)>,
    /// Highest message number covered by a confirmation that failed because of given-up messages.
    reported: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    since: u64,
    pub(crate) last: u64,
    is_one: bool,
}

impl GivenUp {
    /// Adds messages, which must come after all those added before.
    pub(crate) fn add(&mut self, first: u64, last: u64) {
        match self.ranges.back_mut() {
            Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
            _ if first <= last => self.ranges.push_back((first, last)),
            _ => {}
        }
        if self.ranges.len() > MOST_RANGES
            && let Some((first, _)) = self.ranges.pop_front()
            && let Some((begin, _)) = self.ranges.front_mut()
        {
            // All messages in between count as given up, so that no lost message is ever confirmed.
            *begin = first;
        }
    }

    /// Returns the published messages that are not yet reported, or all if all are reported.
    pub(crate) fn covered(&self, published: u64) -> Covered {
        let since = if published > self.reported { self.reported } else { 0 };
        Covered { since, last: published, is_one: false }
    }

    pub(crate) fn has_any(&self, covered: Covered) -> bool {
        let overlaps = |(first, last): &(u64, u64)| *first <= covered.last && *last > covered.since;
        self.ranges.iter().any(overlaps)
    }

    pub(crate) fn note_reported(&mut self, covered: Covered) {
        if !covered.is_one {
            self.reported = self.reported.max(covered.last);
        }
    }
}

impl Covered {
    pub(crate) fn one(number: u64) -> Self {
        Self { since: number.saturating_sub(1), last: number, is_one: true }
    }
}

/// Maximum number of ranges. Beyond it, the two oldest are merged.
const MOST_RANGES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_reported_until_something_newer_is_published() {
        let mut given_up = GivenUp::default();
        assert!(!given_up.has_any(given_up.covered(0)) && !given_up.has_any(given_up.covered(3)));
        given_up.add(2, 3);
        let asked_before = given_up.covered(4);
        for published in [4, 4] {
            let covered = given_up.covered(published);
            assert!(given_up.has_any(covered), "{published}");
            given_up.note_reported(covered);
        }
        assert!(!given_up.has_any(given_up.covered(5)), "the loss is known");
        assert!(given_up.has_any(asked_before), "another caller covers it too");
    }

    #[test]
    fn message_is_given_up_or_not_whatever_was_reported() {
        let mut given_up = GivenUp::default();
        given_up.add(2, 3);
        given_up.add(4, 4);
        given_up.add(9, 8);
        given_up.add(6, 6);
        for _ in 0..2 {
            let lost: Vec<u64> =
                (1..8).filter(|number| given_up.has_any(Covered::one(*number))).collect();
            assert_eq!(lost, [2, 3, 4, 6]);
            given_up.note_reported(Covered::one(6));
            assert!(given_up.has_any(given_up.covered(7)), "one message does not cover all");
            given_up.note_reported(given_up.covered(7));
        }
    }

    #[test]
    fn losses_are_bounded_and_none_is_forgotten() {
        let mut given_up = GivenUp::default();
        (1..=1000).for_each(|number| given_up.add(2 * number, 2 * number));
        assert_eq!(given_up.ranges.len(), MOST_RANGES);
        assert!((1..=1000).all(|number| given_up.has_any(Covered::one(2 * number))));
        assert!(!given_up.has_any(Covered::one(1999)) && !given_up.has_any(Covered::one(1)));
    }
}
