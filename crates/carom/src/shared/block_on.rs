//! Waiting for a future on the calling thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Returns the output of `future`, or `None` if it takes longer than `timeout`. Needs no async
/// runtime.
pub(crate) fn block_on_for<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    let deadline = Instant::now().checked_add(timeout);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        }
    }
}

#[cfg(test)]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_for(Duration::MAX, future).expect("this time never ends")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_wait_ends_with_the_value_or_at_the_time_limit() {
        let (sender, receiver) = async_channel::bounded(1);
        assert_eq!(block_on_for(Duration::from_millis(1), receiver.recv()), None);
        let other = thread::spawn(move || sender.send_blocking(7));
        assert_eq!(block_on_for(Duration::MAX, receiver.recv()), Some(Ok(7)));
        other.join().expect("the other thread ends").expect("it has sent");
    }
}
