use std::collections::BTreeMap;

use carom_proto::Time;

/// A queue of future events. Events with equal times are returned in the order they were added.
#[derive(Debug)]
pub struct EventQueue<T> {
    events: BTreeMap<(Time, u64), T>,
    added: u64,
}

impl<T> EventQueue<T> {
    /// Schedules `event` at `at`.
    pub fn add(&mut self, at: Time, event: T) {
        self.events.insert((at, self.added), event);
        self.added += 1;
    }

    /// Returns the time of the next event, or `None` if the queue is empty.
    pub fn next_at(&self) -> Option<Time> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Removes and returns the next event with its time.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), added: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_order_of_time_and_then_of_adding() {
        let mut queue = EventQueue::default();
        for (at, event) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            queue.add(Time(at), event);
        }
        assert_eq!(queue.next_at(), Some(Time(3)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
        assert_eq!(queue.next_at(), None);
    }
}
