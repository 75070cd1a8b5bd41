use alloc::collections::VecDeque;

use super::super::context::Context;
use super::super::packet::{DataPacket, Way};
use super::repair_window::Arrival;

#[derive(Debug, Default)]
pub(super) struct RelayQueue {
    waiting: VecDeque<DataPacket>,
    pub(super) waiting_bytes: usize,
    next: u64,
}

impl RelayQueue {
    /// Returns `true` if a packet has to be relayed. Further copies are not relayed, so that they
    /// do not circulate while places change. A packet that arrived as a repair first is relayed.
    fn takes(&mut self, arrival: Arrival, data: &DataPacket) -> bool {
        let is_next = matches!(data.way, Way::Tree { .. }) && data.number >= self.next;
        if is_next {
            self.next = data.number + 1;
        }
        match arrival {
            // The packet will be sent again, and would then be relayed again.
            Arrival::Beyond => false,
            Arrival::New => true,
            Arrival::Known => is_next,
        }
    }

    fn push(&mut self, data: DataPacket) -> bool {
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting_bytes += data.fragment.bytes.len();
            self.waiting.push_back(data);
        }
        has_room
    }

    fn pop(&mut self) -> Option<DataPacket> {
        let data = self.waiting.pop_front()?;
        self.waiting_bytes -= data.fragment.bytes.len();
        Some(data)
    }

    /// Queues a packet to be relayed. If the queue is full, the receivers below must repair it.
    pub(super) fn offer(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        data: DataPacket,
        has_children: bool,
    ) {
        if self.takes(arrival, &data) && has_children && !self.push(data) {
            cx.counters.data_not_relayed += 1;
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, has_children: bool) -> Option<DataPacket> {
        while let Some(data) = self.pop() {
            if has_children {
                cx.counters.data_relayed += 1;
                return Some(data);
            }
            // These receivers now have another parent.
            cx.counters.data_not_relayed += 1;
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Maximum number of packets that wait for the network, as in an interface's transmit queue.
const MAX_WAITING: usize = 1024;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::super::packet::Fragment;
    use super::*;

    fn data(number: u64, way: Way) -> DataPacket {
        let fragment =
            Fragment { is_first: true, is_last: true, bytes: Bytes::from_static(&[7; 10]) };
        DataPacket { number, fragment, way, is_relayed: true }
    }

    #[test]
    fn each_packet_is_relayed_once_even_if_repaired_before() {
        let mut queue = RelayQueue::default();
        let mut takes = |arrival, number, way| queue.takes(arrival, &data(number, way));
        assert!(takes(Arrival::New, 5, Way::tree(1)));
        assert!(!takes(Arrival::Known, 5, Way::tree(1)), "twice");
        assert!(takes(Arrival::Known, 6, Way::tree(1)), "it was repaired before");
        assert!(!takes(Arrival::Known, 6, Way::tree(1)));
        assert!(takes(Arrival::New, 3, Way::tree(1)), "late");
        assert!(takes(Arrival::New, 4, Way::Again));
        assert!(!takes(Arrival::Known, 4, Way::Again));
        assert!(!takes(Arrival::Beyond, 9, Way::tree(1)), "it will come again");
    }

    #[test]
    fn packets_waiting_for_the_network_are_bounded() {
        let mut queue = RelayQueue::default();
        let taken = (0..5000).filter(|number| queue.push(data(*number, Way::tree(1)))).count();
        assert_eq!((taken, queue.waiting_bytes), (MAX_WAITING, 10 * MAX_WAITING));
        assert_eq!(queue.pop().map(|data| data.number), Some(0), "the first ones go on");
        while queue.pop().is_some() {}
        assert_eq!(queue.waiting_bytes, 0);
    }
}
