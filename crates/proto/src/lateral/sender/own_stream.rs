use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::lateral::config::MAX_AHEAD;
use crate::{NodeId, SeqNo, Time};

/// A position in a node's own stream. Positions do not wrap around, so that a member that has been
/// silent for 2^31 packets is still behind. The low half is the [`SeqNo`] on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

#[derive(Debug, Default)]
pub(crate) struct OwnStream {
    pub(crate) start: Position,
    pub(crate) next: Position,
    /// Position after all accepted messages. It is after `next` while packets are queued.
    pub(crate) accepted_to: Position,
    members: BTreeMap<NodeId, Member>,
    confirm: Option<Position>,
    held_back_since: Option<Time>,
    heartbeat_interval: Duration,
    joiners_interval: Duration,
    acks_requested_to: Position,
    /// Lower bound of the positions of all members for which the sender waits. While `next` is less
    /// than a window ahead of this bound, no member needs to be checked.
    confirmed_to: Position,
    /// Members that have left since the last confirmation, most recent first.
    departed: VecDeque<Member>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DueHeartbeat {
    pub(super) confirm: bool,
    pub(super) next_after: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Confirmation {
    pub(super) up_to: Position,
    pub(super) members: usize,
    pub(super) incomplete: Vec<(NodeId, u32)>,
}

const MAX_DEPARTED: usize = 64;
const CONFIRM_INTERVAL: Duration = Duration::from_millis(20);
/// Longest interval between requests for acknowledgments, as a multiple of the first interval.
const LONGEST_CONFIRM: u32 = 16;
const LONGEST_HEARTBEAT: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Member {
    node: NodeId,
    first: Position,
    settled_to: Position,
    /// Position before which the member has confirmed everything since it joined.
    acked_to: Option<Position>,
    /// End of the stream when the member joined. `None` once the member has confirmed it. The node
    /// may have been a member before, and may have missed packets before this end.
    join_end: Option<Position>,
    lost: u32,
    slow: bool,
}

impl Member {
    /// Excludes the rest of a message that was in flight when the member joined.
    fn behind(&self, next: Position) -> u32 {
        next.distance_from(self.settled_to)
    }
}

impl Position {
    pub(crate) fn of_first(seqno: SeqNo) -> Self {
        // With the offset of 2^32, the subtraction in `latest` never goes below 0.
        Self((1 << 32) + u64::from(seqno.0))
    }

    pub(crate) fn seqno(self) -> SeqNo {
        SeqNo(self.0 as u32)
    }

    pub(crate) fn plus(self, count: u32) -> Self {
        Self(self.0 + u64::from(count))
    }

    fn minus(self, count: u32) -> Self {
        Self(self.0.saturating_sub(u64::from(count)))
    }

    pub(crate) fn distance_from(self, other: Self) -> u32 {
        self.0.saturating_sub(other.0).try_into().unwrap_or(u32::MAX)
    }

    fn latest(self, seqno: SeqNo) -> Self {
        self.minus(self.seqno().0.wrapping_sub(seqno.0))
    }
}

impl OwnStream {
    pub(crate) fn new(start: Position) -> Self {
        Self {
            start,
            next: start,
            accepted_to: start,
            acks_requested_to: start,
            confirmed_to: start,
            ..Self::default()
        }
    }

    pub(crate) fn resume_at(&mut self, start: Position, next: Position) {
        *self = Self { start, ..Self::new(next) };
    }

    pub(super) fn accept(&mut self, packets: u32) -> Option<SeqNo> {
        let first = self.accepted_to;
        let end = first.plus(packets);
        if end.seqno().distance_from(self.next.seqno()) >= MAX_AHEAD {
            return None;
        }
        self.accepted_to = end;
        Some(first.seqno())
    }

    pub(crate) fn take_number(&mut self) -> SeqNo {
        let taken = self.next;
        self.next = taken.plus(1);
        self.accepted_to = self.accepted_to.max(self.next);
        taken.seqno()
    }

    /// Adds a member, which is not owed messages that were accepted earlier.
    pub(crate) fn add_member(&mut self, node: NodeId) {
        let (first, settled_to) = (self.accepted_to, self.accepted_to);
        let join_end = (self.next > self.start).then_some(self.next);
        let (acked_to, lost, slow) = (None, 0, false);
        let member = Member { node, first, settled_to, acked_to, join_end, lost, slow };
        self.members.entry(node).or_insert(member);
    }

    pub(super) fn remove_member(&mut self, node: NodeId) {
        if let Some(member) = self.members.remove(&node)
            && member.acked_to.is_some()
        {
            self.departed.truncate(MAX_DEPARTED - 1);
            self.departed.push_front(member);
        }
    }

    /// Returns the first number that the node is owed: after all accepted messages for non-members.
    pub(super) fn first_for(&self, node: NodeId) -> SeqNo {
        self.members.get(&node).map_or(self.accepted_to, |member| member.first).seqno()
    }

    pub(super) fn on_ack(&mut self, node: NodeId, settled_to: SeqNo, lost: u32, window: u32) {
        let next = self.next;
        let Some(member) = self.members.get_mut(&node) else { return };
        // A number beyond the next one denotes an old position.
        let settled_to = next.latest(settled_to);
        member.acked_to = member.acked_to.max(Some(settled_to));
        member.join_end = member.join_end.filter(|end| settled_to < *end);
        // An earlier position is outdated, or belongs to packets that the member is not owed.
        if settled_to < member.settled_to {
            return;
        }
        member.settled_to = settled_to;
        member.lost = lost;
        let behind = next.distance_from(settled_to);
        member.slow &= behind > window / 4;
        self.confirmed_to = self.confirmed_to.min(settled_to);
    }

    fn are_all_informed(&self) -> bool {
        self.next == self.start
            || self.members.values().all(|member| member.acked_to >= Some(self.next))
    }

    pub(super) fn joiners(&self) -> impl Iterator<Item = NodeId> {
        self.members.values().filter(|it| it.join_end.is_some()).map(|member| member.node)
    }

    fn furthest_behind(&self) -> Option<(NodeId, u32)> {
        let waited_for = self.members.values().filter(|member| !member.slow);
        waited_for
            .map(|member| (member.node, member.behind(self.next)))
            .max_by_key(|(_, behind)| *behind)
    }

    pub(super) fn held_back_by(&mut self, window: u32) -> Option<(NodeId, u32)> {
        if window == 0 || self.next.distance_from(self.confirmed_to) < window {
            return None;
        }
        let furthest = self.furthest_behind();
        self.confirmed_to = self.next.minus(furthest.map_or(0, |(_, behind)| behind));
        furthest.filter(|(_, behind)| *behind >= window)
    }

    /// Requests acknowledgments with one packet in every eighth of a window.
    pub(super) fn requests_acks(&mut self, window: u32) -> bool {
        let due =
            window > 0 && self.next.distance_from(self.acks_requested_to) >= (window / 8).max(1);
        if due {
            self.acks_requested_to = self.next;
        }
        due
    }

    pub(super) fn hold_back(&mut self, now: Time) -> bool {
        let begins = self.held_back_since.is_none();
        if begins {
            self.held_back_since = Some(now);
            self.heartbeat_interval = CONFIRM_INTERVAL;
        }
        begins
    }

    pub(super) fn release(&mut self, window: u32) -> bool {
        let ends = self.held_back_since.is_some() && self.held_back_by(window).is_none();
        if ends {
            self.held_back_since = None;
        }
        ends
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back_since.is_some()
    }

    pub(super) fn request_confirmation(&mut self) {
        self.confirm = Some(self.accepted_to);
        self.heartbeat_interval = CONFIRM_INTERVAL;
    }

    pub(super) fn awaits_confirmation(&self) -> bool {
        self.confirm.is_some()
    }

    pub(super) fn take_confirmation(&mut self) -> Option<Confirmation> {
        let up_to = self.confirm?;
        if self.unconfirmed(up_to).next().is_some() {
            return None;
        }
        self.confirm = None;
        let (members, incomplete) = (self.confirmed(up_to), self.take_incomplete());
        Some(Confirmation { up_to, members, incomplete })
    }

    /// Returns `false` if no heartbeats are needed, or if acknowledgments are being collected.
    pub(super) fn restart_heartbeats(&mut self, interval: Duration) -> bool {
        let restarts = !self.is_waiting() && !self.are_all_informed();
        if restarts {
            self.heartbeat_interval = interval;
        }
        restarts
    }

    /// Returns `None` if none is needed. `first` is the interval from a message to the first one.
    pub(super) fn next_heartbeat(&mut self, first: Option<Duration>) -> Option<DueHeartbeat> {
        let is_waiting = self.is_waiting();
        if !is_waiting && self.are_all_informed() {
            return None;
        }
        let interval = self.heartbeat_interval;
        let longest = if is_waiting {
            Some(CONFIRM_INTERVAL * LONGEST_CONFIRM)
        } else {
            first.map(|first| first * LONGEST_HEARTBEAT)
        };
        let doubled = longest.map(|longest| (interval * 2).min(longest));
        self.heartbeat_interval = doubled.unwrap_or(interval);
        // At the longest interval, acknowledgments are requested. The heartbeats of a paused stream
        // continue until all members have confirmed its end. Otherwise, a member that was
        // disconnected would never detect its losses.
        let confirm = is_waiting || longest.is_some_and(|longest| interval >= longest);
        Some(DueHeartbeat { confirm, next_after: doubled.map(|_| interval) })
    }

    pub(super) fn begin_joiner_heartbeats(&mut self, interval: Duration) {
        self.joiners_interval = interval;
    }

    pub(super) fn next_joiner_heartbeat(&mut self, first: Duration) -> Duration {
        let longest = first * LONGEST_HEARTBEAT;
        let next = (self.joiners_interval * 2).min(longest);
        core::mem::replace(&mut self.joiners_interval, next)
    }

    fn is_waiting(&self) -> bool {
        self.confirm.is_some() || self.held_back_since.is_some()
    }

    /// Marks members that are half a window or more behind as slow. Returns those newly marked.
    pub(super) fn give_up_waiting(&mut self, window: u32) -> Vec<(NodeId, u32)> {
        let next = self.next;
        let mut slow = Vec::new();
        for member in self.members.values_mut().filter(|member| !member.slow) {
            let behind = member.behind(next);
            if behind >= (window / 2).max(1) {
                member.slow = true;
                slow.push((member.node, behind));
            }
        }
        slow
    }

    pub(super) fn unconfirmed(&self, up_to: Position) -> impl Iterator<Item = NodeId> {
        let behind = move |member: &&Member| up_to > member.settled_to;
        self.members.values().filter(behind).map(|member| member.node)
    }

    /// Counts the members that are owed messages before `up_to`, and those that left with all.
    fn confirmed(&self, up_to: Position) -> usize {
        let is_owed = |member: &&Member| member.first < up_to || up_to == self.start;
        let has_left_whole = |member: &&Member| member.lost == 0 && member.acked_to >= Some(up_to);
        let departed = self.departed.iter().filter(is_owed).filter(has_left_whole).count();
        self.members.values().filter(is_owed).count() + departed
    }

    /// Returns the members that lost packets. The former ones among them are then forgotten.
    fn take_incomplete(&mut self) -> Vec<(NodeId, u32)> {
        let here = self.members.values().filter(|member| member.lost > 0);
        let mut all: Vec<_> = here.map(|member| (member.node, member.lost)).collect();
        let gone = self.departed.drain(..).filter(|member| member.lost > 0);
        all.extend(gone.map(|member| (member.node, member.lost)));
        all
    }

    pub(crate) fn is_joiner(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|member| member.join_end.is_some())
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    pub(super) fn check(&self) {
        for (node, member) in &self.members {
            assert_eq!(*node, member.node, "a member is listed under another id");
            assert!(member.settled_to <= self.accepted_to, "a confirmation is too high");
        }
        assert!(self.next <= self.accepted_to, "a packet was sent before it was accepted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 80;

    fn stream() -> OwnStream {
        let mut own = OwnStream::new(Position::of_first(SeqNo::FIRST));
        own.add_member(NodeId(1));
        own.add_member(NodeId(2));
        own
    }

    fn send(own: &mut OwnStream, count: u32) {
        (0..count).for_each(|_| _ = own.take_number());
    }

    #[test]
    fn member_that_left_with_everything_has_confirmed() {
        let mut own = stream();
        send(&mut own, 3);
        let up_to = own.next;
        own.on_ack(NodeId(1), up_to.seqno(), 0, WINDOW);
        own.on_ack(NodeId(2), SeqNo::FIRST.plus(2), 0, WINDOW);
        [NodeId(1), NodeId(2)].into_iter().for_each(|node| own.remove_member(node));
        assert_eq!((own.confirmed(up_to), own.take_incomplete()), (1, Vec::new()));
        assert_eq!(own.confirmed(up_to), 0, "the member is counted in one confirmation");
    }

    #[test]
    fn slowest_member_holds_back_until_it_confirms_or_is_slow() {
        let mut own = stream();
        send(&mut own, WINDOW);
        own.on_ack(NodeId(1), SeqNo(81), 0, WINDOW);
        assert_eq!(own.held_back_by(WINDOW), Some((NodeId(2), WINDOW)));
        own.on_ack(NodeId(2), SeqNo(2), 0, WINDOW);
        assert_eq!(own.held_back_by(WINDOW), None);
        send(&mut own, 1);
        assert_eq!(own.give_up_waiting(WINDOW), [(NodeId(2), WINDOW)]);
        assert_eq!(own.held_back_by(WINDOW), None);
        own.on_ack(NodeId(2), SeqNo(70), 0, WINDOW);
        send(&mut own, WINDOW);
        assert_eq!(own.held_back_by(WINDOW).map(|(_, behind)| behind), Some(92));
        own.check();
    }

    #[test]
    fn member_is_owed_what_is_sent_after_its_join() {
        let mut own = stream();
        send(&mut own, 5);
        own.add_member(NodeId(3));
        assert_eq!(own.first_for(NodeId(1)), SeqNo(1));
        assert_eq!(own.first_for(NodeId(3)), SeqNo(6));
        assert_eq!(own.first_for(NodeId(99)), SeqNo(6));
        assert!(own.unconfirmed(own.next).eq([NodeId(1), NodeId(2)]));
    }

    #[test]
    fn joiner_is_owed_nothing_of_queued_messages() {
        let mut own = stream();
        send(&mut own, 5);
        own.accepted_to = own.next.plus(100);
        own.add_member(NodeId(3));
        assert_eq!((own.first_for(NodeId(3)), own.first_for(NodeId(9))), (SeqNo(106), SeqNo(106)));
        own.on_ack(NodeId(3), SeqNo(6), 0, WINDOW);
        (1..3).for_each(|node| own.on_ack(NodeId(node), SeqNo(6), 0, WINDOW));
        assert_eq!(own.held_back_by(1), None, "the joiner is not behind");
        send(&mut own, 100);
        assert_eq!(own.accepted_to.seqno(), SeqNo(106));
        own.check();
        send(&mut own, 1);
        assert_eq!(own.accepted_to.seqno(), SeqNo(107));
        assert!(own.unconfirmed(own.next).eq([1, 2, 3].map(NodeId)));
    }

    #[test]
    fn old_acks_and_acks_of_the_future_are_ignored() {
        let mut own = stream();
        send(&mut own, 5);
        own.on_ack(NodeId(1), SeqNo(7), 0, WINDOW);
        own.on_ack(NodeId(1), SeqNo(4), 1, WINDOW);
        own.on_ack(NodeId(1), SeqNo(3), 0, WINDOW);
        own.on_ack(NodeId(1), SeqNo(4).plus(1 << 31), 0, WINDOW);
        own.on_ack(NodeId(1), SeqNo(6).plus(1 << 31), 0, WINDOW);
        let member = own.members[&NodeId(1)];
        assert_eq!((member.settled_to.seqno(), member.lost), (SeqNo(4), 1));
        own.check();
    }

    #[test]
    fn one_message_in_an_eighth_of_a_window_requests_acks() {
        let mut own = stream();
        let mut asked = 0;
        for _ in 0..800 {
            asked += u32::from(own.requests_acks(WINDOW));
            send(&mut own, 1);
        }
        assert_eq!(asked, 79);
        assert!(!own.requests_acks(0));
    }

    #[test]
    fn member_silent_for_half_the_numbers_has_not_confirmed() {
        let mut own = stream();
        send(&mut own, 5);
        (1..3).for_each(|node| own.on_ack(NodeId(node), SeqNo(6), 0, 0));
        own.next = own.next.plus(1 << 31);
        own.accepted_to = own.next;
        own.on_ack(NodeId(1), own.next.seqno(), 0, 0);
        assert!(own.unconfirmed(own.next).eq([NodeId(2)]));
        assert_eq!(own.furthest_behind(), Some((NodeId(2), 1 << 31)));
        send(&mut own, 1 << 8);
        own.next = own.next.plus(u32::MAX);
        own.accepted_to = own.next;
        assert!(own.unconfirmed(own.next).eq([NodeId(1), NodeId(2)]));
        own.check();
    }

    #[test]
    fn joiner_is_uninformed_until_it_confirms_the_end_at_its_join() {
        let mut own = stream();
        own.add_member(NodeId(3));
        assert_eq!(own.joiners().count(), 0, "nothing was sent before");
        send(&mut own, 5);
        (1..4).for_each(|node| own.on_ack(NodeId(node), SeqNo(6), 0, 0));
        assert!(own.are_all_informed());
        own.remove_member(NodeId(3));
        own.add_member(NodeId(3));
        assert!(own.joiners().eq([NodeId(3)]) && !own.are_all_informed());
        own.on_ack(NodeId(3), SeqNo(4), 0, 0);
        assert!(own.joiners().eq([NodeId(3)]));
        own.on_ack(NodeId(3), SeqNo(6), 2, 0);
        assert!(own.joiners().next().is_none() && own.are_all_informed());
        assert_eq!(own.take_incomplete(), [(NodeId(3), 2)]);
    }
}
