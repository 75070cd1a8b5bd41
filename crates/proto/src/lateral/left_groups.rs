//! Groups that this node has left. The positions of this node's own streams are kept so that no
//! number is reused. This node's positions in the streams of other nodes are kept so that no
//! message is delivered twice.
//!
//! Both kinds of positions are bounded in number. Of this node's forgotten streams, only the length
//! of the longest is kept. A new stream skips that many numbers.

use alloc::collections::BTreeMap;

use super::config::{Config, StreamStart};
use super::sender::{OwnStream, Position};
use super::streams::FormerStreams;
use crate::{GroupId, Incarnation, Rng};

#[derive(Debug, Default)]
pub(super) struct LeftGroups {
    by_id: BTreeMap<GroupId, (u64, LeftGroup)>,
    order: BTreeMap<u64, GroupId>,
    /// Number of the oldest leave whose senders are still remembered.
    first_with_senders: u64,
    leaves: u64,
    senders: usize,
    longest_forgotten: u32,
}

#[derive(Debug)]
pub(super) struct LeftGroup {
    pub(super) start: Position,
    pub(super) next: Position,
    /// Number of positions used, counted from the lowest one possible in the group.
    length: u32,
    pub(super) former: FormerStreams,
}

const MAX_GROUPS: usize = 1 << 16;
const MAX_SENDERS: usize = 1 << 16;
const ENTRY_BYTES: usize = 96;

impl LeftGroup {
    pub(super) fn new(own: &OwnStream, least: Position, former: FormerStreams) -> Self {
        let (start, next) = (own.start, own.accepted_to);
        Self { start, next, length: next.distance_from(least), former }
    }
}

/// Returns the lowest position at which a stream of the node in the group may begin. Unless it is
/// fixed, it depends on the incarnation, so that repairs and retransmissions of packets from a
/// former incarnation do not match packets of the current one.
pub(super) fn least_position(
    group: GroupId,
    Incarnation(bits): Incarnation,
    config: &Config,
) -> Position {
    let is_fixed = bits == 0 || config.stream_start == StreamStart::FromFirst;
    let offset = if is_fixed { 0 } else { Rng::new(bits ^ u64::from(group.0)).next_u64() };
    // The offset is below 2^31, so half of all numbers remain before the wrap by default.
    Position::of_first(config.first_number.plus(offset as u32 >> 1))
}

impl LeftGroups {
    pub(super) fn insert(&mut self, group: GroupId, left: LeftGroup) {
        self.leaves += 1;
        self.senders += left.former.len();
        self.order.insert(self.leaves, group);
        self.by_id.insert(group, (self.leaves, left));
        while self.by_id.len() > MAX_GROUPS {
            let (_, oldest) = self.order.pop_first().expect("every group is in the order");
            let (_, left) = self.by_id.remove(&oldest).expect("a group in the order is known");
            self.senders -= left.former.len();
            self.longest_forgotten = self.longest_forgotten.max(left.length);
        }
        self.forget_senders();
    }

    pub(super) fn take(&mut self, group: GroupId) -> Option<LeftGroup> {
        let (number, left) = self.by_id.remove(&group)?;
        self.order.remove(&number);
        self.senders -= left.former.len();
        Some(left)
    }

    pub(super) fn first_position(&self, least: Position) -> Position {
        least.plus(self.longest_forgotten)
    }

    pub(super) fn bytes(&self) -> usize {
        (self.by_id.len() + self.senders) * ENTRY_BYTES
    }

    pub(super) fn check(&self) {
        let senders: usize = self.by_id.values().map(|(_, left)| left.former.len()).sum();
        assert_eq!(senders, self.senders, "the senders of left groups were miscounted");
        assert!(senders <= MAX_SENDERS && self.by_id.len() <= MAX_GROUPS);
        assert_eq!(self.order.len(), self.by_id.len(), "a left group is not in the order");
    }

    fn forget_senders(&mut self) {
        while self.senders > MAX_SENDERS {
            let next = self.order.range(self.first_with_senders..).next();
            let (number, group) = next.expect("a group exists while senders are remembered");
            self.first_with_senders = number + 1;
            let (_, left) = self.by_id.get_mut(group).expect("a group in the order is known");
            self.senders -= left.former.len();
            left.former.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateral::streams::FormerStream;
    use crate::{NodeId, SeqNo};

    fn left(length: u32, senders: u64) -> LeftGroup {
        let mut former = FormerStreams::default();
        let stream = FormerStream { to: SeqNo(9), over_since: None };
        (0..senders).for_each(|node| former.note(NodeId(node), None, stream, usize::MAX));
        let start = Position::of_first(SeqNo(1));
        LeftGroup { start, next: start.plus(length), length, former }
    }

    #[test]
    fn oldest_group_is_forgotten_but_not_the_length_of_its_stream() {
        let mut groups = LeftGroups::default();
        groups.insert(GroupId(u32::MAX), left(77, 1));
        (0..MAX_GROUPS as u32 - 1).for_each(|group| groups.insert(GroupId(group), left(5, 0)));
        assert_eq!(groups.longest_forgotten, 0);
        groups.insert(GroupId(MAX_GROUPS as u32), left(5, 0));
        assert_eq!(groups.longest_forgotten, 77);
        assert!(groups.take(GroupId(u32::MAX)).is_none());
        assert_eq!(groups.take(GroupId(0)).map(|left| left.length), Some(5));
        groups.check();
    }

    #[test]
    fn numbers_that_a_stream_began_behind_count_as_used() {
        let least = Position::of_first(SeqNo(1));
        let mut groups = LeftGroups::default();
        let forget_all = |groups: &mut LeftGroups| {
            (1..=MAX_GROUPS as u32).for_each(|group| groups.insert(GroupId(group), left(5, 0)));
        };
        groups.insert(GroupId(0), left(77, 0));
        forget_all(&mut groups);
        for used in [127, 177] {
            assert!(groups.take(GroupId(0)).is_none());
            let mut own = OwnStream::new(groups.first_position(least));
            (0..50).for_each(|_| _ = own.take_number());
            assert_eq!(own.next, least.plus(used));
            groups.insert(GroupId(0), LeftGroup::new(&own, least, FormerStreams::default()));
            (1..=MAX_GROUPS as u32).for_each(|group| _ = groups.take(GroupId(group)));
            forget_all(&mut groups);
        }
    }

    #[test]
    fn remembered_group_resumes_its_stream_at_its_own_start() {
        let least = Position::of_first(SeqNo(1));
        let mut own = OwnStream::new(least.plus(7));
        own.take_number();
        let left = LeftGroup::new(&own, least, FormerStreams::default());
        let mut own = OwnStream::new(least.plus(500));
        own.resume_at(left.start, left.next);
        assert_eq!((own.start, own.next), (least.plus(7), least.plus(8)));
        own.add_member(NodeId(3));
        assert!(own.is_joiner(NodeId(3)), "a joiner gets the end of the stream");
    }

    #[test]
    fn senders_of_the_oldest_groups_are_forgotten_first() {
        let mut groups = LeftGroups::default();
        (0..40).for_each(|group| groups.insert(GroupId(100 - group), left(1, 4096)));
        groups.check();
        assert!(groups.bytes() < 16 << 20);
        let newest = groups.take(GroupId(100 - 39)).expect("the group is known");
        let oldest = groups.take(GroupId(100)).expect("the group is known");
        assert_eq!((newest.former.len(), oldest.former.len(), oldest.length), (4096, 0, 1));
        groups.check();
    }
}
