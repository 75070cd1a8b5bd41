use std::pin::Pin;
use std::task::{Context, Poll};

use carom_proto::Event;
use carom_proto::ring::{LockNews, Request, RingEvent, RingNews};
use futures_core::Stream;

use super::group::Group;
use super::split::{Receiver, Sender};
use crate::shared::commands::{NodeCommand, Topic};
use crate::shared::event_queue::{Arrival, EventReceiver};

/// A stream of the requests that are delivered to this member of an ordered group; see
/// [`Group::requests`].
#[derive(Debug)]
pub struct Requests(pub(super) News);

/// A stream of the changes of this node's locks in an ordered group; see [`Group::locks`].
#[derive(Debug)]
pub struct Locks(pub(super) News);

#[derive(Debug)]
pub(super) struct News {
    pub(super) group: Group,
    events: Option<EventReceiver>,
    arrival: Arrival,
}

impl Group {
    /// Splits the handle into a sink of messages and a stream of events.
    pub fn split(self) -> (Sender, Receiver) {
        (Sender::new(self.clone()), Receiver::new(self))
    }

    /// Moves all further requests to a separate stream, until the stream is dropped. Another call
    /// ends the previous stream.
    ///
    /// The stream has the same bound as the event queue
    /// ([`Builder::queue`](crate::Builder::queue)), and a member that does not receive its requests
    /// [leaves the group](crate::Removal::TooSlow). Call this method before taking the lock of a
    /// handler, so that the stream contains all requests to the handler. If the program needs only
    /// this stream, call [`Group::discard_events`] too.
    pub async fn requests(&self) -> Requests {
        Requests(News::new(self, Topic::Requests).await)
    }

    /// Moves all further changes of this node's locks to a separate stream, like
    /// [`Group::requests`].
    pub async fn locks(&self) -> Locks {
        Locks(News::new(self, Topic::Locks).await)
    }

    /// Discards all waiting and further events of this group, except those of separate streams.
    ///
    /// [`Group::recv`] then waits until the group is closed, and returns `None`.
    pub fn discard_events(&self) {
        self.handle().events.discard();
        let group = self.id();
        self.handle().node.driver.send(NodeCommand::Room { group });
    }
}

impl Requests {
    /// Receives the next request. Returns `None` once the group is closed or the stream has ended.
    pub async fn recv(&mut self) -> Option<Request> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Locks {
    /// Receives the next change. Returns `None` once the group is closed or the stream has ended.
    pub async fn recv(&mut self) -> Option<LockNews> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for Requests {
    type Item = Request;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Request>> {
        self.0.poll_next(context).map(|news| match news {
            Some(RingNews::Request(request)) => Some(request),
            _ => None,
        })
    }
}

impl Stream for Locks {
    type Item = LockNews;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LockNews>> {
        self.0.poll_next(context).map(|news| match news {
            Some(RingNews::Lock(news)) => Some(news),
            _ => None,
        })
    }
}

impl News {
    async fn new(group: &Group, topic: Topic) -> Self {
        let shared = group.handle().shared();
        let command = |reply| NodeCommand::Subscribe { shared, topic, reply };
        let events = group.handle().node.call(command).recv().await.ok();
        Self { group: group.clone(), events, arrival: Arrival::default() }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<RingNews>> {
        let Some(events) = &self.events else { return Poll::Ready(None) };
        let next = events.poll_next(context, &mut self.arrival);
        next.map(|found| match self.group.taken(found) {
            Some(Event::Ring(RingEvent { news, .. })) => Some(news),
            _ => None,
        })
    }
}
