use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use carom_proto::Time;

/// The sleeping tasks of one driver or simulated world, in order of their wake-up times.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue(Mutex<Timers>);

#[derive(Debug, Default)]
struct Timers {
    wakers: BTreeMap<TimerKey, Waker>,
    next: u64,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey(Time, u64);

impl TimerQueue {
    pub(crate) fn next(&self) -> Option<Time> {
        self.lock().wakers.first_key_value().map(|(key, _)| key.0)
    }

    /// Sets a timer. Returns `true` if it is new and the earliest, or `None` after [`Self::close`].
    pub(crate) fn set(
        &self,
        until: Time,
        key: &mut Option<TimerKey>,
        waker: &Waker,
    ) -> Option<bool> {
        let waker = waker.clone();
        let (replaced, is_first) = {
            let timers = &mut *self.lock();
            if timers.is_closed {
                return None;
            }
            let key = *key.get_or_insert_with(|| {
                timers.next += 1;
                TimerKey(until, timers.next)
            });
            let replaced = timers.wakers.insert(key, waker);
            (replaced, timers.wakers.first_key_value().is_some_and(|(first, _)| *first == key))
        };
        // The replaced waker is dropped here, without the lock, because its destructor may run any
        // code.
        Some(replaced.is_none() && is_first)
    }

    pub(crate) fn remove(&self, key: TimerKey) {
        let removed = self.lock().wakers.remove(&key);
        // The lock is released, because the destructor of a waker may run any code.
        drop(removed);
    }

    pub(crate) fn wake_due(&self, now: Time) {
        let due = {
            let timers = &mut *self.lock();
            if timers.wakers.first_key_value().is_none_or(|(key, _)| key.0 > now) {
                return;
            }
            let later = timers.wakers.split_off(&TimerKey(now, u64::MAX));
            std::mem::replace(&mut timers.wakers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Wakes all tasks and prevents further sleeping, because no timer will fire any more.
    pub(crate) fn close(&self) {
        let all = {
            let timers = &mut *self.lock();
            timers.is_closed = true;
            std::mem::take(&mut timers.wakers)
        };
        all.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
