use alloc::collections::VecDeque;
use core::ops::Range;

use crate::{Class, Destination, Transmit};

/// Outgoing datagrams that the driver has not taken yet, in one buffer. The buffer is reused when
/// all of them have been taken, so a warm outbox does not allocate.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    kept_bytes: usize,
    taken_to: usize,
    waiting: VecDeque<(Transmit, Range<usize>)>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::keeping(256 << 10)
    }
}

impl Outbox {
    /// Creates an outbox whose buffer keeps at most this capacity, in bytes, when it is empty.
    pub fn keeping(kept_bytes: usize) -> Self {
        Self { bytes: Vec::new(), kept_bytes, taken_to: 0, waiting: VecDeque::new() }
    }

    /// Adds the datagram that `write` appends, and returns its size in bytes.
    pub fn push(&mut self, transmit: Transmit, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let Transmit { destination, class } = transmit;
        self.push_to_each(class, [destination], write)
    }

    /// Stores one copy of the datagram that `write` appends, for all destinations. Returns the
    /// total size, in bytes, of the datagrams to be sent.
    pub(crate) fn push_to_each(
        &mut self,
        class: Class,
        destinations: impl IntoIterator<Item = Destination>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let datagram = start..self.bytes.len();
        let copies = destinations.into_iter().map(|destination| {
            self.waiting.push_back((Transmit { destination, class }, datagram.clone()));
            datagram.len()
        });
        copies.sum()
    }

    /// Returns `true` if no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of waiting datagrams.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn take_back(&mut self, bytes: usize) -> Vec<u8> {
        self.waiting.pop_back();
        self.bytes.split_off(self.bytes.len() - bytes)
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.taken_to
    }

    /// Removes the first datagram, and appends it to `out`.
    #[inline]
    pub fn pop(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, datagram) = self.waiting.pop_front()?;
        self.taken_to = datagram.end;
        out.extend_from_slice(&self.bytes[datagram]);
        if self.waiting.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(self.kept_bytes);
            self.taken_to = 0;
        }
        Some(transmit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

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
        assert_eq!(out, [9, 1, 1], "the datagram is appended");
        out.clear();
        assert_eq!((outbox.pop(&mut out), &out[..]), (Some(to(3)), &[3][..]));
        assert_eq!((outbox.pop(&mut out), outbox.waiting_bytes()), (None, 0));
    }

    #[test]
    fn datagrams_come_out_in_order_once_for_each_destination() {
        let node = |id| Destination::Node(NodeId(id));
        let mut outbox = Outbox::default();
        let bytes =
            outbox.push_to_each(Class::Repair, [node(1), node(2)], |out| out.extend(b"one"));
        assert_eq!(bytes + outbox.push(to(3), |out| out.extend(b"two")), 9);
        for (to, bytes) in [(1, b"one"), (2, b"one"), (3, b"two")] {
            let mut out = Vec::new();
            assert_eq!(outbox.pop(&mut out).map(|it| it.destination), Some(node(to)));
            assert_eq!(out, bytes);
        }
    }
}
