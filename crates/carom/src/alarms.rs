//! Timers of sleeping tasks.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use carom_proto::Time;

use crate::home::Home;

/// Tasks that sleep on one driver or in one simulated world, in the order of their wake-up times.
/// There are as many as the application has sleeping tasks: a timer whose task no longer waits is
/// removed.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Mutex<Set>);

#[derive(Debug, Default)]
struct Set {
    wakers: BTreeMap<AlarmKey, Waker>,
    next: u64,
    is_closed: bool,
}

/// Key of a timer: its time, and its number among timers of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AlarmKey(Time, u64);

impl Alarms {
    /// Returns the time of the earliest timer.
    pub(crate) fn next(&self) -> Option<Time> {
        self.lock().wakers.first_key_value().map(|(key, _)| key.0)
    }

    /// Wakes all tasks that are due by `now`.
    pub(crate) fn ring(&self, now: Time) {
        let due = {
            let set = &mut *self.lock();
            if set.wakers.first_key_value().is_none_or(|(key, _)| key.0 > now) {
                return;
            }
            let later = set.wakers.split_off(&AlarmKey(now, u64::MAX));
            std::mem::replace(&mut set.wakers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Wakes all tasks, and prevents further sleeping, because no timer will fire any more.
    pub(crate) fn close(&self) {
        let all = {
            let set = &mut *self.lock();
            set.is_closed = true;
            std::mem::take(&mut set.wakers)
        };
        all.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Future that completes at a time of its node's clock; see [`crate::Node::sleep`].
pub(crate) struct Sleep {
    home: Arc<Home>,
    until: Time,
    key: Option<AlarmKey>,
}

impl Sleep {
    pub(crate) fn new(home: Arc<Home>, until: Time) -> Self {
        Self { home, until, key: None }
    }

    /// Enters the timer, or its latest waker. Returns `true` if it is the earliest, and `None` if
    /// no timer will fire any more.
    fn enter(&mut self, waker: &Waker) -> Option<bool> {
        let waker = waker.clone();
        let (replaced, is_first) = {
            let set = &mut *self.home.alarms().lock();
            if set.is_closed {
                return None;
            }
            let key = *self.key.get_or_insert_with(|| {
                set.next += 1;
                AlarmKey(self.until, set.next)
            });
            let replaced = set.wakers.insert(key, waker);
            (replaced, set.wakers.first_key_value().is_some_and(|(first, _)| *first == key))
        };
        // The replaced waker is dropped here, without the lock: its destructor may run any code.
        Some(replaced.is_none() && is_first)
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.home.now() >= self.until {
            return Poll::Ready(());
        }
        let Some(is_first) = self.enter(context.waker()) else { return Poll::Ready(()) };
        if is_first {
            self.home.alarms_have_changed();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let removed = self.home.alarms().lock().wakers.remove(&key);
            // The lock is released: the destructor of a waker may run any code.
            drop(removed);
        }
    }
}

/// Returns the output of `future`, or `None` if `sleep` completes first.
pub(crate) async fn before<F: Future>(sleep: Sleep, future: F) -> Option<F::Output> {
    let (mut sleep, mut future) = (pin!(sleep), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
