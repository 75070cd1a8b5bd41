use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Range;

use crate::Time;

/// A timer queue: a set of keys, each with one due time.
///
/// Due keys are returned in order of time. Keys with equal times are returned in their own order,
/// so that the result is deterministic.
#[derive(Debug)]
pub struct Timers<K> {
    due_times: BTreeMap<K, Time>,
    queue: BTreeSet<(Time, K)>,
}

impl<K: Copy + Ord> Timers<K> {
    /// Creates an empty timer queue.
    pub fn new() -> Self {
        Self { due_times: BTreeMap::new(), queue: BTreeSet::new() }
    }

    /// Sets the due time of `key`, and replaces the previous time.
    pub fn set(&mut self, key: K, at: Time) {
        self.cancel(key);
        self.due_times.insert(key, at);
        self.queue.insert((at, key));
    }

    /// Sets the due time of `key` to `at`, unless the key already has this time or a later one.
    /// Returns `true` if the time was set.
    pub fn set_no_earlier(&mut self, key: K, at: Time) -> bool {
        let is_later = self.due_times.get(&key).is_none_or(|due| *due < at);
        if is_later {
            self.set(key, at);
        }
        is_later
    }

    /// Sets the due time of `key` to `at`, unless the key already has this time or an earlier one.
    pub fn set_no_later(&mut self, key: K, at: Time) {
        if self.due_times.get(&key).is_none_or(|due| *due > at) {
            self.set(key, at);
        }
    }

    /// Removes `key`. Returns `true` if it was set.
    pub fn cancel(&mut self, key: K) -> bool {
        match self.due_times.remove(&key) {
            Some(at) => self.queue.remove(&(at, key)),
            None => false,
        }
    }

    /// Removes the keys in `range`.
    pub fn cancel_range(&mut self, range: Range<K>) {
        while let Some(key) = self.due_times.range(range.clone()).map(|(key, _)| *key).next() {
            self.cancel(key);
        }
    }

    /// Returns `true` if `key` is set.
    pub fn is_set(&self, key: K) -> bool {
        self.due_times.contains_key(&key)
    }

    /// Returns the keys that are set, in ascending order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = K> {
        self.due_times.keys().copied()
    }

    /// Returns the earliest due time, or `None` if no key is set.
    pub fn next_due(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Returns the key that is due next, with its due time.
    pub fn first(&self) -> Option<(Time, K)> {
        self.queue.first().copied()
    }

    /// Removes and returns the first key that is due at `now`, or returns `None` if no key is due.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        let (at, key) = *self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.remove(&(at, key));
        self.due_times.remove(&key);
        Some(key)
    }

    /// Returns the number of keys that are set.
    pub fn len(&self) -> usize {
        self.due_times.len()
    }

    /// Returns `true` if no key is set.
    pub fn is_empty(&self) -> bool {
        self.due_times.is_empty()
    }
}

impl<K: Copy + Ord> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_keys_come_out_in_order_and_only_once() {
        let mut timers = Timers::new();
        timers.set('b', Time(5));
        timers.set('a', Time(5));
        timers.set('c', Time(3));
        timers.set('d', Time(9));
        assert_eq!(timers.next_due(), Some(Time(3)));
        let due: Vec<char> = core::iter::from_fn(|| timers.pop_due(Time(5))).collect();
        assert_eq!(due, ['c', 'a', 'b']);
        assert_eq!(timers.len(), 1);
    }

    #[test]
    fn setting_again_moves_a_key_and_cancel_forgets_it() {
        let mut timers = Timers::new();
        timers.set(1, Time(5));
        timers.set(1, Time(8));
        timers.set_no_later(1, Time(9));
        assert_eq!(timers.pop_due(Time(7)), None);
        assert!(timers.cancel(1));
        assert!(!timers.cancel(1));
        assert!(timers.is_empty());
    }
}
