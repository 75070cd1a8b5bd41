use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use carom_proto::{Event, SendOptions};
use futures_core::Stream;
use futures_sink::Sink;

use super::group::Group;
use super::publish::Published;
use crate::shared::error::PublishError;
use crate::shared::event_queue::Arrival;

/// A group handle that is a [`Sink`] of messages; see [`Group::split`].
///
/// It dereferences to its [`Group`].
pub struct Sender {
    group: Group,
    waiting: Option<Waiting>,
}

struct Waiting(Pin<Box<dyn Future<Output = Result<(), PublishError>> + Send>>);

/// A group handle that is a [`Stream`] of events; see [`Group::split`].
///
/// It dereferences to its [`Group`].
#[derive(Debug)]
pub struct Receiver {
    group: Group,
    arrival: Arrival,
}

impl Sender {
    pub(super) fn new(group: Group) -> Self {
        Self { group, waiting: None }
    }
}

impl Receiver {
    pub(super) fn new(group: Group) -> Self {
        Self { group, arrival: Arrival::default() }
    }
}

impl Sink<Bytes> for Sender {
    type Error = PublishError;

    fn poll_ready(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), PublishError>> {
        self.poll_flush(context)
    }

    fn start_send(mut self: Pin<&mut Self>, payload: Bytes) -> Result<(), PublishError> {
        match self.group.try_publish(payload) {
            Ok(_) => Ok(()),
            Err(PublishError::Full { payload, .. }) => {
                let handle = Arc::clone(self.group.handle());
                self.waiting = Some(Waiting(Box::pin(async move {
                    Published::when_room(&handle, payload, SendOptions::default()).await.map(drop)
                })));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), PublishError>> {
        let Some(Waiting(waiting)) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let outcome = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(outcome)
    }

    fn poll_close(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), PublishError>> {
        self.poll_flush(context)
    }
}

impl Stream for Receiver {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let Self { group, arrival } = &mut *self;
        group.handle().events.poll_next(context, arrival).map(|found| group.taken(found))
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Self::new(self.group.clone())
    }
}

impl Deref for Sender {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl Deref for Receiver {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.group).finish()
    }
}
