//! The messages that a sender keeps while it waits for members to acknowledge them.

use std::collections::{BTreeSet, VecDeque};

use carom_proto::{NodeId, SeqNo, Time};

use crate::block::Block;

#[derive(Debug)]
pub(super) struct Window {
    pub(super) next: SeqNo,
    sent: VecDeque<Sent>,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Sent {
    pub(super) block: Block,
    pub(super) sent_at: Time,
    pub(super) waiting: BTreeSet<NodeId>,
    pub(super) retransmissions: u32,
}

impl Window {
    pub(super) fn new(next: SeqNo) -> Self {
        Self { next, sent: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn first(&self) -> SeqNo {
        self.next.minus(self.sent.len() as u32)
    }

    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn push(&mut self, now: Time, block: Block, waiting: BTreeSet<NodeId>) {
        self.next = self.next.next();
        self.bytes += block.bytes().len();
        self.sent.push_back(Sent { block, sent_at: now, waiting, retransmissions: 0 });
        self.slide();
    }

    pub(super) fn get_mut(&mut self, seqno: SeqNo) -> Option<&mut Sent> {
        let place = usize::try_from(seqno.distance_from(self.first())).ok()?;
        self.sent.get_mut(place)
    }

    /// Records that `node` has `seqno` and everything before `settled_to`.
    ///
    /// Returns `true` if this is new. Also returns the send time of `seqno` if `node` had not
    /// acknowledged it before and it was never retransmitted.
    pub(super) fn acknowledge(
        &mut self,
        node: NodeId,
        seqno: SeqNo,
        settled_to: SeqNo,
    ) -> (bool, Option<Time>) {
        let acknowledged = self.get_mut(seqno).filter(|sent| sent.waiting.contains(&node));
        let round_trip = acknowledged.filter(|sent| sent.retransmissions == 0);
        let round_trip_from = round_trip.map(|sent| sent.sent_at);
        let mut is_news = self.get_mut(seqno).is_some_and(|sent| sent.waiting.remove(&node));
        let settled = usize::try_from(settled_to.distance_from(self.first())).unwrap_or(0);
        for sent in self.sent.iter_mut().take(settled) {
            is_news |= sent.waiting.remove(&node);
        }
        self.slide();
        (is_news, round_trip_from)
    }

    /// Stops waiting for `node`. Returns the number of messages that it had not acknowledged.
    pub(super) fn forget(&mut self, node: NodeId) -> u32 {
        let waited = self.sent.iter_mut().filter_map(|it| it.waiting.remove(&node).then_some(()));
        let count = waited.count() as u32;
        self.slide();
        count
    }

    pub(super) fn furthest_behind(&self) -> Option<(NodeId, u32)> {
        let oldest = self.sent.front()?.waiting.first()?;
        Some((*oldest, self.sent.len() as u32))
    }

    pub(super) fn slide(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.waiting.is_empty()) {
            let gone = self.sent.pop_front().map_or(0, |sent| sent.block.bytes().len());
            self.bytes -= gone;
        }
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = SeqNo> {
        let first = self.first();
        let places = self.sent.iter().enumerate().filter(|(_, sent)| !sent.waiting.is_empty());
        places.map(move |(place, _)| first.plus(place as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [NodeId; 2] = [NodeId(1), NodeId(2)];

    fn window(messages: usize) -> Window {
        let mut window = Window::new(SeqNo(u32::MAX));
        let block = Block::of_message(Time(0), None, b"x");
        (0..messages).for_each(|_| window.push(Time(5), block.clone(), ALL.into()));
        window
    }

    #[test]
    fn a_window_slides_when_all_have_acknowledged() {
        let mut window = window(3);
        assert_eq!(window.acknowledge(NodeId(1), SeqNo(0), SeqNo(1)), (true, Some(Time(5))));
        assert_eq!(window.acknowledge(NodeId(1), SeqNo(0), SeqNo(1)), (false, None));
        assert_eq!(window.furthest_behind(), Some((NodeId(2), 3)));
        assert_eq!(window.acknowledge(NodeId(2), SeqNo(1), SeqNo(u32::MAX)), (true, Some(Time(5))));
        assert_eq!((window.first(), window.len()), (SeqNo(u32::MAX), 3));
        window.acknowledge(NodeId(2), SeqNo(0), SeqNo(1));
        assert_eq!((window.first(), window.len()), (SeqNo(1), 1));
        assert!(window.waiting().eq([SeqNo(1)]));
    }

    #[test]
    fn who_is_forgotten_is_not_waited_for() {
        let mut window = window(2);
        window.acknowledge(NodeId(1), SeqNo(0), SeqNo(1));
        assert_eq!(window.forget(NodeId(2)), 2);
        assert_eq!((window.len(), window.next, window.furthest_behind()), (0, SeqNo(1), None));
        assert_eq!(window.bytes, 0);
    }

    #[test]
    fn what_was_sent_again_measures_no_round_trip() {
        let mut window = window(1);
        window.get_mut(SeqNo(u32::MAX)).expect("the window contains it").retransmissions = 1;
        let acknowledged = window.acknowledge(NodeId(1), SeqNo(u32::MAX), SeqNo(0));
        assert_eq!(acknowledged, (true, None));
    }
}
