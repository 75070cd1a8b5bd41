//! Fragmentation and pacing of messages that do not fit in one packet.
//!
//! Such a message and all later messages of its group are queued here until they have been sent.
//! Sequence numbers are assigned in the order in which the messages were accepted. A packet is sent
//! when it is its group's turn, the pace permits it, and no member is too far behind:
//!
//! - The *pace*, `pace_bytes_per_second`, applies to the node. All groups share it in turn. An
//!   unused allowance of up to [`BURST`] may be sent as a burst, so that moderately large messages
//!   are not delayed.
//! - The *flight*, `flight`, applies to a group. It is the maximum number of packets in flight to
//!   the slowest member. Acknowledgments are requested along the way, so that members slower than
//!   the pace determine the rate.
//!
//! Messages of one packet are queued only if other messages of their group are. Repairs, answers
//! and heartbeats are never queued.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use bytes::Bytes;

use crate::Time;
use crate::lateral::index::GroupIx;
use crate::lateral::packet::symbol::{Arena, Fragment, Symbol};

#[derive(Debug, Default)]
pub(super) struct Fragmenter {
    queued: BTreeMap<GroupIx, VecDeque<QueuedMessage>>,
    turns: VecDeque<GroupIx>,
    held_back: BTreeSet<GroupIx>,
    pub(super) bytes: usize,
    pace: Pace,
}

#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) payload: Bytes,
    pub(super) accepted_at: Time,
    pub(super) deadline: Option<Duration>,
    /// Next fragment to send. `None` if the message fits in one packet.
    pub(super) fragment: Option<Fragment>,
}

#[derive(Debug, Default)]
struct Pace {
    bytes_per_second: u64,
    used_up_to: Time,
}

const BURST: Duration = Duration::from_millis(4);
/// Time by which wakeups are delayed, so that several fragments are sent together.
const TRAIN: Duration = Duration::from_millis(1);

impl QueuedMessage {
    pub(super) fn packets(&self) -> u32 {
        self.fragment.map_or(1, |fragment| fragment.count())
    }

    fn next_symbol(&mut self, arena: &mut Arena) -> (Symbol, bool) {
        let Self { payload, accepted_at, deadline, fragment } = self;
        let Some(fragment) = fragment else {
            return (Symbol::of_message(arena, *accepted_at, *deadline, payload), true);
        };
        let symbol = Symbol::of_fragment(arena, *accepted_at, *deadline, *fragment, payload);
        fragment.index += 1;
        (symbol, fragment.index == fragment.count())
    }
}

impl Pace {
    fn allows(&self, now: Time) -> bool {
        self.bytes_per_second == 0 || self.used_up_to < now + BURST
    }

    fn use_up(&mut self, now: Time, bytes: usize) {
        if let Some(span_ns) = (bytes as u64 * 1_000_000_000).checked_div(self.bytes_per_second) {
            self.used_up_to = self.used_up_to.max(now) + Duration::from_nanos(span_ns);
        }
    }

    fn next_at(&self) -> Time {
        self.used_up_to.before(BURST) + TRAIN
    }
}

impl Fragmenter {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let pace = Pace { bytes_per_second, ..Pace::default() };
        Self { pace, ..Self::default() }
    }

    pub(super) fn holds(&self, group: GroupIx) -> bool {
        self.queued.contains_key(&group)
    }

    pub(super) fn first_turn(&self) -> Option<GroupIx> {
        self.turns.front().copied()
    }

    pub(super) fn paced_until(&self, now: Time) -> Option<Time> {
        (!self.pace.allows(now)).then(|| self.pace.next_at())
    }

    pub(super) fn hold_back_first(&mut self) {
        self.held_back.extend(self.turns.pop_front());
    }

    pub(super) fn resume(&mut self, group: GroupIx) {
        if self.held_back.remove(&group) {
            self.turns.push_back(group);
        }
    }

    pub(super) fn push(&mut self, group: GroupIx, message: QueuedMessage) {
        self.bytes += message.payload.len();
        let queue = self.queued.entry(group).or_default();
        if queue.is_empty() {
            self.turns.push_back(group);
        }
        queue.push_back(message);
    }

    pub(super) fn pop(&mut self, now: Time, arena: &mut Arena) -> Option<(GroupIx, Symbol)> {
        let group = self.turns.pop_front()?;
        let queue = self.queued.get_mut(&group).expect("a group has a turn while messages wait");
        let message = queue.front_mut().expect("a group has a turn while messages wait");
        let (symbol, is_last) = message.next_symbol(arena);
        self.pace.use_up(now, symbol.bytes().len());
        if is_last {
            self.bytes -= message.payload.len();
            queue.pop_front();
        }
        if queue.is_empty() {
            self.queued.remove(&group);
        } else {
            self.turns.push_back(group);
        }
        Some((group, symbol))
    }

    pub(super) fn forget(&mut self, group: GroupIx) -> usize {
        self.turns.retain(|other| *other != group);
        self.held_back.remove(&group);
        let queue = self.queued.remove(&group).unwrap_or_default();
        self.bytes -= queue.iter().map(|message| message.payload.len()).sum::<usize>();
        queue.len()
    }

    pub(super) fn check(&self) {
        let waiting = self.queued.values().flatten().map(|message| message.payload.len());
        assert_eq!(waiting.sum::<usize>(), self.bytes, "the queued bytes were miscounted");
        let (turns, held) = (&self.turns, &self.held_back);
        assert_eq!(turns.len() + held.len(), self.queued.len(), "a group has no turn");
        let is_waiting = |group: &GroupIx| self.queued.contains_key(group);
        assert!(turns.iter().chain(held).all(is_waiting), "a group has a useless turn");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupIx = GroupIx(0);
    const OTHER: GroupIx = GroupIx(1);

    fn message(bytes: usize, fragment_bytes: u16) -> QueuedMessage {
        let fragment = Fragment { index: 0, fragment_bytes, message_bytes: bytes as u32 };
        let fragment = (bytes > usize::from(fragment_bytes)).then_some(fragment);
        let payload = (0..bytes).map(|place| place as u8).collect::<Vec<u8>>().into();
        QueuedMessage { payload, accepted_at: Time(1), deadline: None, fragment }
    }

    #[test]
    fn groups_take_turns_packet_by_packet() {
        let (mut fragmenter, mut arena) = (Fragmenter::new(0), Arena::default());
        fragmenter.push(GROUP, message(25, 10));
        fragmenter.push(GROUP, message(3, 10));
        fragmenter.push(OTHER, message(15, 10));
        assert_eq!(fragmenter.bytes, 43);
        let mut left = Vec::new();
        while let Some((group, symbol)) = fragmenter.pop(Time(1), &mut arena) {
            let fragment = symbol.fragment().map(|(fragment, bytes)| (fragment.index, bytes.len()));
            left.push((group.0, fragment));
            fragmenter.check();
        }
        let (a, b) = (GROUP.0, OTHER.0);
        let fragments = |index, bytes| Some((index, bytes));
        let expected = [
            (a, fragments(0, 10)),
            (b, fragments(0, 10)),
            (a, fragments(1, 10)),
            (b, fragments(1, 5)),
            (a, fragments(2, 5)),
            (a, None),
        ];
        assert_eq!(left, expected);
        assert_eq!((fragmenter.bytes, fragmenter.holds(GROUP)), (0, false));
    }

    #[test]
    fn pace_allows_a_burst_and_then_a_train_per_millisecond() {
        let mut pace = Pace { bytes_per_second: 1_000_000, used_up_to: Time::ZERO };
        let mut now = Time(1_000_000_000);
        let mut train = |now| {
            let mut sent = 0;
            while pace.allows(now) {
                pace.use_up(now, 100);
                sent += 1;
            }
            (sent, pace.next_at())
        };
        let (burst, next) = train(now);
        assert_eq!(burst, 40, "4 ms of 1000 bytes each");
        now = next;
        for _ in 0..5 {
            let (sent, next) = train(now);
            assert_eq!((sent, next.since(now)), (10, TRAIN));
            now = next;
        }
    }

    #[test]
    fn unsent_messages_of_a_left_group_are_counted() {
        let mut fragmenter = Fragmenter::new(0);
        fragmenter.push(GROUP, message(25, 10));
        fragmenter.push(GROUP, message(3, 10));
        fragmenter.push(OTHER, message(15, 10));
        assert_eq!(fragmenter.forget(GROUP), 2);
        assert_eq!(
            (fragmenter.bytes, fragmenter.holds(GROUP), fragmenter.holds(OTHER)),
            (15, false, true)
        );
        fragmenter.check();
    }
}
