//! Blocking waits that also poll a condition.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Waits for `future`. Polls `gives_up` every 20 ms, and returns `None` once it returns `true`.
pub(crate) fn until<T>(
    future: impl Future<Output = T>,
    mut gives_up: impl FnMut() -> bool,
) -> Option<T> {
    poll(future, || (!gives_up()).then_some(STEP))
}

pub(crate) fn within<T>(future: impl Future<Output = T>, span: Duration) -> Option<T> {
    let end = Instant::now() + span;
    poll(future, || end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()))
}

/// Polls `future` until it completes, or `next` returns no time to wait until the next poll.
fn poll<T>(
    future: impl Future<Output = T>,
    mut next: impl FnMut() -> Option<Duration>,
) -> Option<T> {
    let mut future = pin!(future);
    let (parker, unparker) = parking::pair();
    let waker = Waker::from(unparker);
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        parker.park_timeout(next()?);
    }
}

/// Like [`until`], for `work` on a separate thread, which ends with the process at the latest.
pub(crate) fn done<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    mut gives_up: impl FnMut() -> bool,
) -> Option<T> {
    let waiter = thread::current();
    let worker = thread::spawn(move || {
        let done = work();
        waiter.unpark();
        done
    });
    while !worker.is_finished() {
        if gives_up() {
            return None;
        }
        thread::park_timeout(STEP);
    }
    Some(worker.join().expect("the work does not panic"))
}

const STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_is_had_although_nobody_wants_to_wait() {
        assert_eq!(until(std::future::ready(7), || true), Some(7));
    }

    #[test]
    fn work_is_waited_for_until_it_is_given_up() {
        assert_eq!(done(|| 7, || false), Some(7));
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let mut looks = 0;
        let gave_up = done(
            move || held.recv().is_ok(),
            || {
                looks += 1;
                looks == 3
            },
        );
        assert_eq!((gave_up, looks), (None, 3));
        drop(hold);
    }

    #[test]
    fn who_gives_up_gets_nothing() {
        let mut looks = 0;
        let gave_up = until(std::future::pending::<()>(), || {
            looks += 1;
            looks == 3
        });
        assert_eq!((gave_up, looks), (None, 3));
    }
}
