//! The messages that a member keeps for a number of rounds, and lists in its digests.

use std::collections::{BTreeMap, VecDeque};

use carom_proto::{NodeId, SeqNo};

use super::packet::Range;
use crate::block::Block;

#[derive(Debug, Default)]
pub(super) struct History {
    /// Messages, ordered by sender and sequence number. Messages of one sender are contiguous,
    /// except that sequence numbers after a wrap-around sort first.
    blocks: BTreeMap<(NodeId, u32), Block>,
    /// Messages in order of arrival, each with the round of its arrival.
    order: VecDeque<(u32, NodeId, u32)>,
    pub(super) bytes: usize,
}

impl History {
    /// Keeps a message that arrived in `round`. Returns the number of messages that were evicted.
    pub(super) fn insert(
        &mut self,
        round: u32,
        sender: NodeId,
        seqno: SeqNo,
        block: Block,
        max: usize,
    ) -> u64 {
        if self.blocks.contains_key(&(sender, seqno.0)) {
            return 0;
        }
        self.bytes += block.bytes().len();
        self.blocks.insert((sender, seqno.0), block);
        self.order.push_back((round, sender, seqno.0));
        let mut dropped = 0;
        while self.order.len() > max {
            self.drop_oldest();
            dropped += 1;
        }
        dropped
    }

    pub(super) fn get(&self, sender: NodeId, seqno: SeqNo) -> Option<&Block> {
        self.blocks.get(&(sender, seqno.0))
    }

    pub(super) fn collect_garbage(&mut self, round: u32) {
        while self.order.front().is_some_and(|(came, _, _)| *came < round) {
            self.drop_oldest();
        }
    }

    /// Returns at most `max` ranges. The ranges with the most recent arrivals take precedence.
    pub(super) fn digest(&self, max: usize) -> Vec<Range> {
        let mut runs: Vec<(NodeId, u32, u32)> = Vec::new();
        for (sender, seqno) in self.blocks.keys() {
            match runs.last_mut() {
                Some((of, _, last)) if of == sender && last.checked_add(1) == Some(*seqno) => {
                    *last = *seqno;
                }
                _ => runs.push((*sender, *seqno, *seqno)),
            }
        }
        if runs.len() > max {
            runs = self.most_recent(&runs, max);
        }
        let range = |(sender, first, last)| Range::new(sender, SeqNo(first), SeqNo(last));
        runs.into_iter().map(range).collect()
    }

    /// Returns the `max` ranges with the most recent arrivals. `runs` must be sorted.
    fn most_recent(&self, runs: &[(NodeId, u32, u32)], max: usize) -> Vec<(NodeId, u32, u32)> {
        let mut chosen = std::collections::BTreeSet::new();
        for (_, sender, seqno) in self.order.iter().rev() {
            if chosen.len() == max {
                break;
            }
            chosen
                .insert(runs.partition_point(|(of, first, _)| (of, first) <= (sender, seqno)) - 1);
        }
        chosen.into_iter().map(|place| runs[place]).collect()
    }

    pub(super) fn check(&self, max: usize) {
        assert_eq!(self.blocks.len(), self.order.len(), "a message is in the history twice");
        assert!(!self.order.is_empty() || self.bytes == 0, "bytes of removed messages are counted");
        assert!(self.order.len() <= max, "the history exceeds its limit");
        let ends = self.order.front().zip(self.order.back());
        assert!(ends.is_none_or(|(first, last)| first.0 <= last.0), "rounds are out of order");
    }

    fn drop_oldest(&mut self) {
        if let Some((_, sender, seqno)) = self.order.pop_front() {
            let gone = self.blocks.remove(&(sender, seqno));
            self.bytes -= gone.map_or(0, |block| block.bytes().len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::Time;

    fn history(seqnos: &[u32]) -> History {
        let mut history = History::default();
        for (round, seqno) in seqnos.iter().enumerate() {
            let block = Block::of_message(Time(0), None, b"x");
            history.insert(round as u32, NodeId(1), SeqNo(*seqno), block, 6);
        }
        history.check(6);
        history
    }

    fn ranges(history: &History, max: usize) -> Vec<(u32, u32)> {
        let digest = history.digest(max);
        digest.iter().map(|range| (range.first().0, range.last().0)).collect()
    }

    #[test]
    fn a_digest_names_what_is_there_and_prefers_what_came_last() {
        let history = history(&[1, 2, 3, 7, 8, 5]);
        assert_eq!(ranges(&history, 9), [(1, 3), (5, 5), (7, 8)]);
        assert_eq!(ranges(&history, 2), [(5, 5), (7, 8)]);
        assert_eq!(ranges(&history, 1), [(5, 5)]);
    }

    #[test]
    fn messages_leave_with_their_rounds_and_for_want_of_room() {
        let mut history = history(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(ranges(&history, 9), [(2, 7)]);
        history.collect_garbage(4);
        history.check(6);
        assert_eq!(ranges(&history, 9), [(5, 7)]);
        assert!(history.get(NodeId(1), SeqNo(4)).is_none());
        assert!(history.get(NodeId(1), SeqNo(5)).is_some());
    }
}
