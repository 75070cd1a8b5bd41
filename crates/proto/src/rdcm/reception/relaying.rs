//! A receiver passes on what comes by the tree to those of whom its place says so.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::super::around::Around;
use super::super::packet::{DataPacket, Packet, Way};
use super::super::window::Arrival;
use super::Reception;

/// What is passed on.
#[derive(Debug, Default)]
pub(super) struct Relaying {
    /// Packets that wait until the network takes them.
    waiting: VecDeque<DataPacket>,
    waiting_bytes: usize,
    /// The number after the last packet that came by the tree for the first time.
    next: u64,
}

impl Relaying {
    /// Whether a packet is one to be passed on: each is once, however it came to be here first, so
    /// that it goes in no circle while places change.
    fn takes(&mut self, arrival: Arrival, data: &DataPacket) -> bool {
        let is_next = matches!(data.way, Way::Tree { .. }) && data.number >= self.next;
        if is_next {
            self.next = data.number + 1;
        }
        match arrival {
            // Where it came from it is sent again, and it would be passed on again and again.
            Arrival::Beyond => false,
            Arrival::New => true,
            Arrival::Known => is_next,
        }
    }

    /// Takes a packet, if there is room for it.
    fn push(&mut self, data: DataPacket) -> bool {
        let has_room = self.waiting.len() < MOST_WAITING;
        if has_room {
            self.waiting_bytes += data.piece.bytes.len();
            self.waiting.push_back(data);
        }
        has_room
    }

    fn pop(&mut self) -> Option<DataPacket> {
        let data = self.waiting.pop_front()?;
        self.waiting_bytes -= data.piece.bytes.len();
        Some(data)
    }

    /// Bytes that wait.
    pub(super) fn held_bytes(&self) -> usize {
        self.waiting_bytes
    }
}

impl Reception {
    /// A packet that came by the tree is passed on. What there is no room for those below repair
    /// for each other.
    pub(super) fn relay(&mut self, around: &mut Around<'_>, arrival: Arrival, data: DataPacket) {
        let is_to_go = self.relaying.takes(arrival, &data) && !self.place.relays.is_empty();
        if is_to_go && !self.relaying.push(data) {
            around.counters.data_not_relayed += 1;
        }
    }

    /// Whether something is to be passed on.
    pub(in super::super) fn has_to_relay(&self) -> bool {
        !self.relaying.waiting.is_empty()
    }

    /// Appends the next packet that is passed on to `out`, if there is one.
    pub(in super::super) fn poll_data(
        &mut self,
        around: &mut Around<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        while let Some(data) = self.relaying.pop() {
            if self.place.relays.is_empty() {
                // They have another parent meanwhile.
                around.counters.data_not_relayed += 1;
                continue;
            }
            around.counters.data_relayed += 1;
            Packet::Data(data).encode(around.group, around.origin, around.stream, out);
            return true;
        }
        false
    }
}

/// Packets that wait for the network at most: as many as an interface's own queue takes.
const MOST_WAITING: usize = 1024;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::super::packet::Piece;
    use super::*;

    fn data(number: u64, way: Way) -> DataPacket {
        let piece = Piece { is_first: true, is_last: true, bytes: Bytes::from_static(&[7; 10]) };
        DataPacket { number, piece, way, is_relayed: true }
    }

    #[test]
    fn each_packet_is_passed_on_once_whether_it_was_repaired_before_or_not() {
        let mut relaying = Relaying::default();
        let mut takes = |arrival, number, way| relaying.takes(arrival, &data(number, way));
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
    fn what_waits_for_the_network_is_bounded() {
        let mut relaying = Relaying::default();
        let taken = (0..5000).filter(|number| relaying.push(data(*number, Way::tree(1)))).count();
        assert_eq!((taken, relaying.held_bytes()), (MOST_WAITING, 10 * MOST_WAITING));
        assert_eq!(relaying.pop().map(|data| data.number), Some(0), "the first ones go on");
        while relaying.pop().is_some() {}
        assert_eq!(relaying.held_bytes(), 0);
    }
}
