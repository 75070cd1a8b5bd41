//! The queue of datagrams that wait to be polled.

use core::ops::Range;
use std::collections::VecDeque;

use carom_proto::{Class, Destination, Transmit};

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    queue: VecDeque<(Transmit, Range<usize>)>,
    dropped: u64,
    sent_bytes: u64,
}

/// Maximum number of waiting datagrams. It bounds the memory if the driver does not poll.
const MAX_WAITING: usize = 1 << 16;
/// Maximum capacity, in bytes, that the empty buffer keeps.
const KEPT_BYTES: usize = 1 << 20;

impl Outbox {
    pub(crate) fn push(
        &mut self,
        class: Class,
        destination: Destination,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.queue.len() >= MAX_WAITING {
            self.dropped += 1;
            return;
        }
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let datagram = start..self.bytes.len();
        self.sent_bytes += datagram.len() as u64;
        self.queue.push_back((Transmit { destination, class }, datagram));
    }

    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, datagram) = self.queue.pop_front()?;
        out.extend_from_slice(&self.bytes[datagram]);
        if self.queue.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
        }
        Some(transmit)
    }

    /// Returns the number of datagrams dropped at a full queue, and the total bytes queued.
    pub(crate) fn by_name(&self) -> [(&'static str, u64); 2] {
        [("outbox_dropped", self.dropped), ("bytes_sent", self.sent_bytes)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_leave_in_order_and_overflow_is_counted() {
        let mut outbox = Outbox::default();
        for byte in 0..MAX_WAITING + 3 {
            outbox.push(Class::Control, Destination::Lan, |out| out.push(byte as u8));
        }
        assert_eq!(outbox.by_name(), [("outbox_dropped", 3), ("bytes_sent", MAX_WAITING as u64)]);
        let mut out = Vec::new();
        for byte in 0..MAX_WAITING {
            assert!(outbox.poll(&mut out).is_some());
            assert_eq!(out, [byte as u8]);
            out.clear();
        }
        assert_eq!(outbox.poll(&mut out), None);
    }
}
