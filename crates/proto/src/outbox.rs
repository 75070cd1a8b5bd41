//! Queue of outgoing datagrams in one reusable buffer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::Transmit;

/// Outgoing datagrams that the driver has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Offset of the first datagram that was not taken.
    taken_to: usize,
    /// Datagrams that were not taken, with the offsets of their ends.
    waiting: VecDeque<(Transmit, usize)>,
}

/// Maximum memory that is kept for reuse, in bytes.
const KEPT_BYTES: usize = 256 << 10;

impl Outbox {
    /// Adds the datagram that `write` appends. Returns its size in bytes.
    pub(crate) fn push(&mut self, transmit: Transmit, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.waiting.push_back((transmit, self.bytes.len()));
        self.bytes.len() - start
    }

    /// Removes and returns the last datagram, whose size is `bytes`.
    pub(crate) fn take_back(&mut self, bytes: usize) -> Vec<u8> {
        self.waiting.pop_back();
        self.bytes.split_off(self.bytes.len() - bytes)
    }

    /// Returns the size of all datagrams that were not taken, in bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.taken_to
    }

    /// Removes the first datagram and appends it to `out`.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, end) = self.waiting.pop_front()?;
        out.extend_from_slice(&self.bytes[self.taken_to..end]);
        self.taken_to = end;
        if self.waiting.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.taken_to = 0;
        }
        Some(transmit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Destination, NodeId};

    fn to(node: u64) -> Transmit {
        Transmit { destination: Destination::Node(NodeId(node)), class: Class::Data }
    }

    #[test]
    fn datagrams_leave_in_order_without_the_one_taken_back() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.push(to(1), |out| out.extend([1, 1])), 2);
        outbox.push(to(2), |out| out.extend([2, 2, 2]));
        assert_eq!(outbox.take_back(3), [2, 2, 2]);
        outbox.push(to(3), |out| out.push(3));
        assert_eq!(outbox.waiting_bytes(), 3);
        let mut out = vec![9];
        assert_eq!(outbox.pop(&mut out), Some(to(1)));
        assert_eq!(out, [9, 1, 1], "it is appended");
        out.clear();
        assert_eq!((outbox.pop(&mut out), &out[..]), (Some(to(3)), &[3][..]));
        assert_eq!((outbox.pop(&mut out), outbox.waiting_bytes()), (None, 0));
    }
}
