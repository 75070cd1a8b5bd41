use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use carom_proto::Time;

use super::driver_handle::DriverHandle;
use super::timers::TimerKey;

pub(crate) struct Sleep {
    driver: Arc<dyn DriverHandle>,
    until: Time,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(driver: Arc<dyn DriverHandle>, until: Time) -> Self {
        Self { driver, until, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.driver.now() >= self.until {
            return Poll::Ready(());
        }
        let Self { driver, until, key } = &mut *self;
        let Some(is_first) = driver.timers().set(*until, key, context.waker()) else {
            return Poll::Ready(());
        };
        if is_first {
            driver.timers_changed();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.driver.timers().remove(key);
        }
    }
}

pub(crate) async fn before<F: Future>(sleep: Sleep, future: F) -> Option<F::Output> {
    let (mut sleep, mut future) = (pin!(sleep), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
