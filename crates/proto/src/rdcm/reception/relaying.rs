//! Relaying of packets of the tree to the receivers listed in a receiver's place.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::super::around::Around;
use super::super::packet::{DataPacket, Packet, Way};
use super::super::window::Arrival;
use super::Reception;

/// Queue of packets to pass on.
#[derive(Debug, Default)]
pub(super) struct Relaying {
    /// Packets that wait until the network accepts them.
    waiting: VecDeque<DataPacket>,
    waiting_bytes: usize,
    /// Number after the last packet that arrived through the tree for the first time.
    next: u64,
}

impl Relaying {
    /// Returns `true` if a packet is to be passed on. Each packet is passed on once, even if it
    /// arrived as a repair first, so that it does not circulate while places change.
    fn takes(&mut self, arrival: Arrival, data: &DataPacket) -> bool {
        let is_next = matches!(data.way, Way::Tree { .. }) && data.number >= self.next;
        if is_next {
            self.next = data.number + 1;
        }
        match arrival {
            // It will be sent again, and would then be passed on again.
            Arrival::Beyond => false,
            Arrival::New => true,
            Arrival::Known => is_next,
        }
    }

    /// Adds a packet. Returns `false` if the queue is full.
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

    /// Returns the bytes in the queue.
    pub(super) fn held_bytes(&self) -> usize {
        self.waiting_bytes
    }
}

impl Reception {
    /// Passes on a packet of the tree. If the queue is full, the receivers below repair the packet
    /// for each other.
    pub(super) fn relay(&mut self, around: &mut Around<'_>, arrival: Arrival, data: DataPacket) {
        let is_to_go = self.relaying.takes(arrival, &data) && !self.place.relays.is_empty();
        if is_to_go && !self.relaying.push(data) {
            around.counters.data_not_relayed += 1;
        }
    }

    /// Returns `true` if a packet is waiting.
    pub(in super::super) fn has_to_relay(&self) -> bool {
        !self.relaying.waiting.is_empty()
    }

    /// Appends the next packet to pass on to `out`. Returns `false` if there is none.
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

/// Maximum number of packets that wait for the network, as in an interface's transmit queue.
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
    fn each_packet_is_relayed_once_even_if_repaired_before() {
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
    fn packets_waiting_for_the_network_are_bounded() {
        let mut relaying = Relaying::default();
        let taken = (0..5000).filter(|number| relaying.push(data(*number, Way::tree(1)))).count();
        assert_eq!((taken, relaying.held_bytes()), (MOST_WAITING, 10 * MOST_WAITING));
        assert_eq!(relaying.pop().map(|data| data.number), Some(0), "the first ones go on");
        while relaying.pop().is_some() {}
        assert_eq!(relaying.held_bytes(), 0);
    }
}
