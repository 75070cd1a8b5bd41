use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(crate) fn block_on_for<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    let deadline = Instant::now().checked_add(timeout);
    let (parker, unparker) = parking::pair();
    let waker = Waker::from(unparker);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match deadline {
            None => parker.park(),
            Some(deadline) if Instant::now() >= deadline => return None,
            Some(deadline) => drop(parker.park_deadline(deadline)),
        }
    }
}

#[cfg(test)]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_for(Duration::MAX, future).expect("this time never ends")
}

#[cfg(test)]
mod tests {
    use std::thread;

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
