use alloc::collections::BTreeMap;

use crate::{GroupId, Incarnation, Origin, SeqNo};

#[derive(Debug)]
pub(crate) struct RequestNumbers {
    next: BTreeMap<GroupId, u32>,
    first: u32,
}

const MAX_GROUPS: usize = 1024;

impl RequestNumbers {
    // Each incarnation begins with a different number, so that it repeats no earlier request.
    pub(crate) fn new(origin: Origin) -> Self {
        let first = match origin.incarnation {
            Incarnation(0) => 1,
            Incarnation(bits) => (bits >> 13) as u32,
        };
        Self { next: BTreeMap::new(), first }
    }

    pub(crate) fn next(&self, group: GroupId) -> u32 {
        self.next.get(&group).copied().unwrap_or(self.first)
    }

    /// Advances the request number of the group. If there are too many groups, forgets one without
    /// open requests, whose numbers are never used again.
    pub(crate) fn advance(&mut self, group: GroupId, is_open: impl Fn(GroupId) -> bool) {
        let next = self.next(group).wrapping_add(1);
        self.next.insert(group, next);
        if self.next.len() <= MAX_GROUPS {
            return;
        }
        let idle = self.next.keys().copied().find(|it| *it != group && !is_open(*it));
        if let Some(number) = idle.and_then(|idle| self.next.remove(&idle)) {
            self.first = SeqNo(self.first).later(SeqNo(number)).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn groups_are_forgotten_and_their_numbers_not_used_again() {
        let incarnation = Incarnation((u64::from(u32::MAX) - 2) << 13);
        let mut numbers = RequestNumbers::new(Origin { node: NodeId(1), incarnation });
        let mut used = alloc::collections::BTreeSet::new();
        for turn in 0..20_000 {
            let group = GroupId(turn % 5000);
            assert!(used.insert((group, numbers.next(group))), "twice in {group}");
            numbers.advance(group, |_| false);
            assert!(numbers.next.len() <= MAX_GROUPS);
        }
    }

    #[test]
    fn groups_with_open_requests_are_not_forgotten() {
        let origin = Origin { node: NodeId(1), incarnation: Incarnation(0) };
        let mut numbers = RequestNumbers::new(origin);
        (0..2000).for_each(|group| numbers.advance(GroupId(group), |group| group.0 < 3));
        (0..3).for_each(|group| assert!(numbers.next.contains_key(&GroupId(group))));
    }
}
