//! Datagrams that wait to be polled.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::{Class, Destination, Transmit};

/// Encoded datagrams in sending order. All of them share one buffer, which is reused once
/// everything has been polled, so that a warm outbox does not allocate. A datagram for several
/// nodes is stored once.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    queue: VecDeque<Outgoing>,
    dropped: u64,
    sent_bytes: u64,
}

#[derive(Debug)]
struct Outgoing {
    transmit: Transmit,
    datagram: Range<usize>,
}

/// Maximum number of queued datagrams. More are dropped and counted.
const MAX_WAITING: usize = 1 << 16;
const KEPT_BYTES: usize = 1 << 20;

impl Outbox {
    /// Adds the datagram that `encode` appends, once for each destination.
    pub(super) fn push(
        &mut self,
        class: Class,
        destinations: impl IntoIterator<Item = Destination>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.queue.len() >= MAX_WAITING {
            self.dropped += destinations.into_iter().count() as u64;
            return;
        }
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let datagram = start..self.bytes.len();
        for destination in destinations {
            self.sent_bytes += datagram.len() as u64;
            let transmit = Transmit { destination, class };
            self.queue.push_back(Outgoing { transmit, datagram: datagram.clone() });
        }
    }

    pub(super) fn poll(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let Outgoing { transmit, datagram } = self.queue.pop_front()?;
        out.extend_from_slice(&self.bytes[datagram]);
        if self.queue.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
        }
        Some(transmit)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn datagrams_come_out_in_order_once_for_each_destination() {
        let node = |id| Destination::Node(NodeId(id));
        let mut outbox = Outbox::default();
        outbox.push(Class::Repair, [node(1), node(2)], |out| out.extend_from_slice(b"one"));
        outbox.push(Class::Data, [node(3)], |out| out.extend_from_slice(b"two"));
        let mut all = Vec::new();
        let mut out = Vec::new();
        while let Some(transmit) = outbox.poll(&mut out) {
            all.push((transmit.destination, core::mem::take(&mut out)));
        }
        let expected = [(node(1), &b"one"[..]), (node(2), b"one"), (node(3), b"two")];
        assert!(all.iter().map(|(d, bytes)| (*d, &bytes[..])).eq(expected));
        assert_eq!(outbox.sent_bytes(), 9);
    }

    #[test]
    fn an_outbox_that_nobody_empties_is_bounded() {
        let mut outbox = Outbox::default();
        for _ in 0..MAX_WAITING + 3 {
            outbox.push(Class::Control, [Destination::Lan], |out| out.push(1));
        }
        assert_eq!(outbox.dropped(), 3);
    }
}
