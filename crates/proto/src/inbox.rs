//! Bounded receive buffer between the network and the engines (Ricochet 3.2.5).

use crate::wire::{Datagram, Header};
use crate::{Endpoint, Rng};

/// Received datagrams that wait for the engines.
///
/// If the buffer is full, a new datagram replaces a *random* waiting datagram, which is counted as
/// dropped. An overload then causes scattered losses, which can be repaired. A full kernel buffer
/// would drop a run of consecutive datagrams instead.
///
/// The slots keep their memory, so pushing to a warm buffer does not allocate.
#[derive(Debug)]
pub struct Inbox {
    slots: Vec<Slot>,
    capacity: usize,
    taken: usize,
    filled: usize,
    rng: Rng,
    dropped: u64,
}

#[derive(Debug)]
struct Slot {
    source: Endpoint,
    header: Header,
    bytes: Vec<u8>,
}

impl Inbox {
    /// Default capacity in datagrams. The paper uses the same size: 1024 packets, or 1 MB.
    pub const DEFAULT_CAPACITY: usize = 1024;

    /// Creates a buffer for `capacity` datagrams. `seed` determines which ones are dropped.
    ///
    /// # Panics
    /// Panics if `capacity` is 0.
    pub fn new(capacity: usize, seed: u64) -> Self {
        assert!(capacity > 0, "the capacity of a receive buffer must not be 0");
        let slots = Vec::with_capacity(capacity);
        Self { slots, capacity, taken: 0, filled: 0, rng: Rng::new(seed), dropped: 0 }
    }

    /// Adds a datagram. Drops a random waiting datagram if the buffer is full.
    pub fn push(&mut self, source: Endpoint, datagram: &Datagram<'_>) {
        if self.filled < self.slots.len() {
            self.slots[self.filled].refill(source, datagram);
            self.filled += 1;
        } else if self.slots.len() < self.capacity {
            let (header, bytes) = (*datagram.header(), datagram.bytes().to_vec());
            self.slots.push(Slot { source, header, bytes });
            self.filled += 1;
        } else {
            self.replace_one(source, datagram);
        }
    }

    /// Removes and returns the oldest datagram, or returns `None` if the buffer is empty.
    pub fn pop(&mut self) -> Option<(Endpoint, Datagram<'_>)> {
        if self.is_empty() {
            return None;
        }
        let slot = &self.slots[self.taken];
        self.taken += 1;
        if self.taken == self.filled {
            self.taken = 0;
            self.filled = 0;
        }
        Some((slot.source, slot.datagram()))
    }

    /// Returns the waiting datagrams, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.slots[self.taken..self.filled].iter().map(Slot::datagram)
    }

    /// Returns the number of waiting datagrams.
    pub fn len(&self) -> usize {
        self.filled - self.taken
    }

    /// Returns `true` if no datagrams are waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of datagrams that were dropped because the buffer was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reuses the slot of a taken datagram, or else of a random waiting one. Keeps the order.
    fn replace_one(&mut self, source: Endpoint, datagram: &Datagram<'_>) {
        if self.taken > 0 {
            self.slots[..self.filled].rotate_left(self.taken);
            self.filled -= self.taken;
            self.taken = 0;
            self.slots[self.filled].refill(source, datagram);
            self.filled += 1;
            return;
        }
        let victim = self.rng.below(self.filled);
        self.slots[victim..self.filled].rotate_left(1);
        self.slots[self.filled - 1].refill(source, datagram);
        self.dropped += 1;
    }
}

impl Slot {
    fn datagram(&self) -> Datagram<'_> {
        Datagram::with_header(self.header, &self.bytes)
    }

    fn refill(&mut self, source: Endpoint, datagram: &Datagram<'_>) {
        self.source = source;
        self.header = *datagram.header();
        self.bytes.clear();
        self.bytes.extend_from_slice(datagram.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Protocol;
    use crate::{GroupId, NodeId};

    const SOURCE: Endpoint = Endpoint(core::net::SocketAddr::new(
        core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
        1,
    ));

    fn push(inbox: &mut Inbox, bytes: &[u8]) {
        let header = Header::new(Protocol::Lateral, 1, GroupId(1), NodeId(1));
        inbox.push(SOURCE, &Datagram::with_header(header, bytes));
    }

    fn drain(inbox: &mut Inbox) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((_, datagram)) = inbox.pop() {
            all.extend_from_slice(datagram.bytes());
        }
        all
    }

    #[test]
    fn datagrams_come_out_in_the_order_they_came() {
        let mut inbox = Inbox::new(4, 1);
        push(&mut inbox, b"a");
        push(&mut inbox, b"b");
        assert_eq!(drain(&mut inbox), b"ab");
        push(&mut inbox, b"c");
        assert_eq!(inbox.len(), 1);
        assert_eq!(drain(&mut inbox), b"c");
    }

    #[test]
    fn a_full_buffer_drops_any_of_the_waiting_and_counts_it() {
        let mut survived = [0; 8];
        for seed in 0..4_000 {
            let mut inbox = Inbox::new(4, seed);
            (0..8_u8).for_each(|byte| push(&mut inbox, &[byte]));
            assert_eq!(inbox.dropped(), 4);
            let left = drain(&mut inbox);
            assert!(left.is_sorted(), "{left:?} are out of order");
            assert_eq!(left.len(), 4);
            left.iter().for_each(|byte| survived[usize::from(*byte)] += 1);
        }
        assert_eq!(survived[7], 4_000, "the newest is always accommodated");
        // An early datagram survives four draws of one in four: 4000 * (3/4)^4 = 1266.
        assert!(survived[..4].iter().all(|count| (1_100..1_430).contains(count)), "{survived:?}");
    }

    #[test]
    fn room_that_was_taken_from_is_used_before_anything_is_dropped() {
        let mut inbox = Inbox::new(2, 1);
        push(&mut inbox, b"a");
        push(&mut inbox, b"b");
        assert!(inbox.pop().is_some());
        push(&mut inbox, b"c");
        assert_eq!(inbox.dropped(), 0);
        assert_eq!(drain(&mut inbox), b"bc");
    }
}
