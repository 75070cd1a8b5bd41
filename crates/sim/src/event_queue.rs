//! A queue of future events, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use carom_proto::Time;

/// Future events. Events at the same time are in the order in which they were added.
#[derive(Debug)]
pub struct EventQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    order: u64,
    event: T,
}

impl<T> EventQueue<T> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }

    /// Schedules `event` at `at`.
    pub fn add(&mut self, at: Time, event: T) {
        self.heap.push(Entry { at, order: self.added, event });
        self.added += 1;
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Returns the number of scheduled events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns `true` if no event is scheduled.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earlier entry is the greater one, because the heap returns the greatest first.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_order_of_time_and_then_of_adding() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            queue.add(Time(at), event);
        }
        assert_eq!(queue.next_at(), Some(Time(3)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
        assert!(queue.is_empty());
    }
}
