//! Tasks that wait for a time.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use carom_proto::Time;

use crate::home::Home;

/// The tasks that sleep on one driver or in one simulated world, in the order in which they are to
/// be woken. As many as the application has tasks asleep: an alarm that nobody waits for any more
/// is taken out.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Mutex<Set>);

#[derive(Debug, Default)]
struct Set {
    wakers: BTreeMap<AlarmKey, Waker>,
    next: u64,
    is_closed: bool,
}

/// An alarm: when it rings, and its number among those of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AlarmKey(Time, u64);

impl Alarms {
    /// The time of the earliest.
    pub(crate) fn next(&self) -> Option<Time> {
        self.lock().wakers.first_key_value().map(|(key, _)| key.0)
    }

    /// Wakes everybody whose time has come by `now`.
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

    /// Nobody will ring any more: wakes all, and lets nobody sleep from now on.
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

/// Completes at a time of its node's clock; [`crate::Node::sleep`].
pub(crate) struct Sleep {
    home: Arc<Home>,
    until: Time,
    key: Option<AlarmKey>,
}

impl Sleep {
    pub(crate) fn new(home: Arc<Home>, until: Time) -> Self {
        Self { home, until, key: None }
    }

    /// Enters the alarm, or its newest waker; says whether it is the earliest of all. `None` if
    /// nobody would ring it.
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
        // What is replaced is dropped here, where the lock is free: a waker may own anything.
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
            // The lock is free again: a waker may own anything.
            drop(removed);
        }
    }
}

/// The output of `future`, or `None` if `sleep` is over before.
pub(crate) async fn before<F: Future>(sleep: Sleep, future: F) -> Option<F::Output> {
    let (mut sleep, mut future) = (pin!(sleep), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
