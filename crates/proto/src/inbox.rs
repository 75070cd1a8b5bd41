//! The bounded buffer between the network and the engines (Ricochet 3.2.5).

use crate::{Endpoint, Rng};

/// Arrived datagrams that wait for the engines. When it is full, a *random* waiting datagram makes
/// room for the new one and is counted, so that an overload costs losses that are spread and can
/// be repaired, where a full kernel buffer would drop everything that comes last.
///
/// The slots keep their memory, so that a warm buffer does not allocate.
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
    datagram: Vec<u8>,
}

impl Inbox {
    /// Datagrams that wait at most, as in the paper: 1024 packets, or 1 MB.
    pub const DEFAULT_CAPACITY: usize = 1024;

    /// An empty buffer for `capacity` datagrams that chooses its victims from `seed`.
    ///
    /// # Panics
    /// If `capacity` is 0: such a buffer would lose everything.
    pub fn new(capacity: usize, seed: u64) -> Self {
        assert!(capacity > 0, "a receive buffer needs room for a datagram");
        let slots = Vec::with_capacity(capacity);
        Self { slots, capacity, taken: 0, filled: 0, rng: Rng::new(seed), dropped: 0 }
    }

    /// Adds a datagram, at a random waiting one's cost if there is no room.
    pub fn push(&mut self, source: Endpoint, datagram: &[u8]) {
        if self.filled < self.slots.len() {
            self.slots[self.filled].refill(source, datagram);
            self.filled += 1;
        } else if self.slots.len() < self.capacity {
            self.slots.push(Slot { source, datagram: datagram.to_vec() });
            self.filled += 1;
        } else {
            self.replace_one(source, datagram);
        }
    }

    /// The datagram that has waited longest. Once the last is taken the buffer is empty again.
    pub fn pop(&mut self) -> Option<(Endpoint, &[u8])> {
        if self.is_empty() {
            return None;
        }
        let slot = &self.slots[self.taken];
        self.taken += 1;
        if self.taken == self.filled {
            self.taken = 0;
            self.filled = 0;
        }
        Some((slot.source, &slot.datagram))
    }

    /// The datagrams that wait, the one that has waited longest first.
    pub fn waiting(&self) -> impl Iterator<Item = &[u8]> {
        self.slots[self.taken..self.filled].iter().map(|slot| &slot.datagram[..])
    }

    /// How many datagrams wait.
    pub fn len(&self) -> usize {
        self.filled - self.taken
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many datagrams were dropped for want of room so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The victim leaves its place and the new datagram goes to the end, so that the others keep
    /// the order in which they came.
    fn replace_one(&mut self, source: Endpoint, datagram: &[u8]) {
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
    fn refill(&mut self, source: Endpoint, datagram: &[u8]) {
        self.source = source;
        self.datagram.clear();
        self.datagram.extend_from_slice(datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Endpoint = Endpoint(core::net::SocketAddr::new(
        core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
        1,
    ));

    fn drain(inbox: &mut Inbox) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((_, datagram)) = inbox.pop() {
            all.extend_from_slice(datagram);
        }
        all
    }

    #[test]
    fn datagrams_come_out_in_the_order_they_came() {
        let mut inbox = Inbox::new(4, 1);
        inbox.push(SOURCE, b"a");
        inbox.push(SOURCE, b"b");
        assert_eq!(drain(&mut inbox), b"ab");
        inbox.push(SOURCE, b"c");
        assert_eq!(inbox.len(), 1);
        assert_eq!(drain(&mut inbox), b"c");
    }

    #[test]
    fn a_full_buffer_drops_any_of_the_waiting_and_counts_it() {
        let mut survived = [0; 8];
        for seed in 0..4_000 {
            let mut inbox = Inbox::new(4, seed);
            (0..8_u8).for_each(|byte| inbox.push(SOURCE, &[byte]));
            assert_eq!(inbox.dropped(), 4);
            let left = drain(&mut inbox);
            assert!(left.is_sorted(), "{left:?} are out of order");
            assert_eq!(left.len(), 4);
            left.iter().for_each(|byte| survived[usize::from(*byte)] += 1);
        }
        assert_eq!(survived[7], 4_000, "the newest is always accommodated");
        // An early one survives four draws of a quarter each: 4000 * (3/4)^4 = 1266.
        assert!(survived[..4].iter().all(|count| (1_100..1_430).contains(count)), "{survived:?}");
    }

    #[test]
    fn room_that_was_taken_from_is_used_before_anything_is_dropped() {
        let mut inbox = Inbox::new(2, 1);
        inbox.push(SOURCE, b"a");
        inbox.push(SOURCE, b"b");
        assert!(inbox.pop().is_some());
        inbox.push(SOURCE, b"c");
        assert_eq!(inbox.dropped(), 0);
        assert_eq!(drain(&mut inbox), b"bc");
    }
}
