//! The event queue of a group, between its driver and its application. The driver adds events in
//! batches, each under one lock and with one wake-up. The application takes them one by one.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use carom_proto::Event;
use carom_proto::ring::{Answer, Outcome, RingNews};
use event_listener::{Event as Signal, EventListener};

/// The driver's end. Dropping it closes the queue.
#[derive(Debug)]
pub(crate) struct EventSender(Arc<Queue>);

#[derive(Clone, Debug)]
pub(crate) struct EventReceiver(Arc<Queue>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Wanted,
    NotWanted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Queue {
    content: Mutex<Content>,
    arrived: Signal,
    /// Backlog at or below which the driver is notified, so that not every event wakes it.
    enough_room: Waiting,
}

#[derive(Debug, Default)]
struct Content {
    events: VecDeque<Event>,
    bytes: usize,
    is_room_wanted: bool,
    is_closed: bool,
    is_discarding: bool,
}

pub(crate) fn event_queue(enough_room: Waiting) -> (EventSender, EventReceiver) {
    let (content, arrived) = (Mutex::new(Content::default()), Signal::new());
    let shared = Arc::new(Queue { content, arrived, enough_room });
    (EventSender(Arc::clone(&shared)), EventReceiver(shared))
}

impl EventSender {
    pub(crate) fn put(&self, events: &mut VecDeque<Event>) -> Waiting {
        let waiting = {
            let mut content = self.0.lock();
            if content.is_discarding {
                events.clear();
                return Waiting::default();
            }
            content.bytes += events.iter().map(bytes_of).sum::<usize>();
            content.events.append(events);
            content.waiting()
        };
        // All waiting tasks are notified, because a task that was notified earlier may not poll
        // again, for example, if it keeps a stream without polling it.
        self.0.arrived.notify(usize::MAX);
        waiting
    }

    /// Requests a notification with the event that leaves at most `enough_room` waiting.
    pub(crate) fn request_room(&self) -> Waiting {
        let mut content = self.0.lock();
        content.is_room_wanted = true;
        content.waiting()
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.0.lock().waiting()
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.arrived.notify(usize::MAX);
    }
}

impl EventReceiver {
    /// Takes the next event, or returns `None` once the queue is closed and empty. With
    /// [`Room::Wanted`], the caller must notify the driver of the room that this event leaves.
    pub(crate) fn take(&self) -> Poll<Option<(Event, Room)>> {
        let mut content = self.0.lock();
        let Some(event) = content.events.pop_front() else {
            return if content.is_closed { Poll::Ready(None) } else { Poll::Pending };
        };
        content.bytes -= bytes_of(&event);
        if content.events.is_empty() {
            content.events.shrink_to(KEPT_EVENTS);
        }
        if !content.is_room_wanted || !content.waiting().is_within(self.0.enough_room) {
            return Poll::Ready(Some((event, Room::NotWanted)));
        }
        content.is_room_wanted = false;
        Poll::Ready(Some((event, Room::Wanted)))
    }

    pub(crate) fn discard(&self) {
        let mut content = self.0.lock();
        content.is_discarding = true;
        let waiting = std::mem::take(&mut content.events);
        content.bytes = 0;
        drop(content);
        drop(waiting);
    }

    pub(crate) async fn next(&self) -> Option<(Event, Room)> {
        let mut arrival = Arrival::default();
        poll_fn(|context| self.poll_next(context, &mut arrival)).await
    }

    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
        arrival: &mut Arrival,
    ) -> Poll<Option<(Event, Room)>> {
        loop {
            if let Poll::Ready(next) = self.take() {
                arrival.0 = None;
                return Poll::Ready(next);
            }
            // An event that arrives before the task listens does not wake the task, so the task
            // checks once more.
            match &mut arrival.0 {
                None => arrival.0 = Some(self.0.arrived.listen()),
                Some(listener) => {
                    ready!(Pin::new(listener).poll(context));
                    arrival.0 = None;
                }
            }
        }
    }
}

/// A task's wait for an event. Dropping it passes a received wake-up on to the next task.
#[derive(Debug, Default)]
pub(crate) struct Arrival(Option<EventListener>);

impl Waiting {
    fn is_within(self, limit: Self) -> bool {
        self.events <= limit.events && self.bytes <= limit.bytes
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn waiting(&self) -> Waiting {
        Waiting { events: self.events.len(), bytes: self.bytes }
    }
}

const KEPT_EVENTS: usize = 1024;

pub(crate) fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Message(message) => message.payload.len(),
        Event::Ring(event) => match &event.news {
            RingNews::Request(request) => request.payload.len(),
            RingNews::Answer(Answer { outcome: Outcome::Reply { payload, .. }, .. }) => {
                payload.len()
            }
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::block_on::block_on;
    use carom_proto::{GroupId, NodeId, Slow};
    use std::thread;

    const ROOM: Waiting = Waiting { events: 1, bytes: 0 };

    fn event(number: u32) -> Event {
        Event::Slow(Slow { group: GroupId(1), node: NodeId(2), behind: number })
    }

    fn put(sender: &EventSender, numbers: impl Iterator<Item = u32>) {
        sender.put(&mut numbers.map(event).collect());
    }

    fn wait_for_listeners(sender: &EventSender, count: usize) {
        while sender.0.arrived.total_listeners() < count {
            thread::yield_now();
        }
    }

    /// Returns the events that `takers` tasks receive, one each, while `put` runs.
    fn taken(
        takers: usize,
        receiver: &EventReceiver,
        put: impl FnOnce(),
    ) -> Vec<Option<(Event, Room)>> {
        thread::scope(|scope| {
            let take = |_| scope.spawn(|| block_on(receiver.next()));
            let takers: Vec<_> = (0..takers).map(take).collect();
            put();
            takers.into_iter().map(|taker| taker.join().expect("it does not panic")).collect()
        })
    }

    #[test]
    fn each_waiting_task_is_woken_for_an_event_of_a_batch() {
        let (sender, receiver) = event_queue(ROOM);
        let taken = taken(4, &receiver, || put(&sender, 0..4));
        assert_eq!(taken.iter().flatten().count(), 4);
        assert_eq!(receiver.take(), Poll::Pending);
    }

    #[test]
    fn two_batches_of_one_event_wake_both_waiting_tasks() {
        for _ in 0..2000 {
            let (sender, receiver) = event_queue(ROOM);
            let taken = taken(2, &receiver, || {
                wait_for_listeners(&sender, 2);
                put(&sender, 0..1);
                put(&sender, 1..2);
            });
            assert_eq!(taken.iter().flatten().count(), 2);
        }
    }

    #[test]
    fn stream_that_is_not_polled_keeps_no_wake_up_from_others() {
        let (sender, receiver) = event_queue(ROOM);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut idle = Arrival::default();
        assert!(receiver.poll_next(&mut context, &mut idle).is_pending());
        thread::scope(|scope| {
            let taker = scope.spawn(|| (0..20).filter_map(|_| block_on(receiver.next())).count());
            for number in 0..20 {
                wait_for_listeners(&sender, 2);
                put(&sender, number..number + 1);
                while receiver.0.lock().waiting().events > 0 {
                    thread::yield_now();
                }
            }
            assert_eq!(taker.join().expect("it does not panic"), 20);
        });
    }

    #[test]
    fn task_that_stops_waiting_passes_its_wake_up_on() {
        let (sender, receiver) = event_queue(ROOM);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut first = Box::pin(receiver.next());
        assert!(first.as_mut().poll(&mut context).is_pending());
        let taken = taken(1, &receiver, || {
            wait_for_listeners(&sender, 2);
            put(&sender, 7..8);
            drop(first);
        });
        assert_eq!(taken, [Some((event(7), Room::NotWanted))]);
    }

    #[test]
    fn all_waiting_tasks_see_the_end_after_the_earlier_events() {
        let (sender, receiver) = event_queue(ROOM);
        let taken = taken(3, &receiver, || {
            put(&sender, 0..1);
            drop(sender);
        });
        assert_eq!((taken.len(), taken.iter().flatten().count()), (3, 1));
    }

    #[test]
    fn room_is_reported_once_for_each_request() {
        let (sender, receiver) = event_queue(ROOM);
        put(&sender, 0..4);
        assert_eq!(sender.request_room(), Waiting { events: 4, bytes: 0 });
        let rooms = (0..4).map(|_| match receiver.take() {
            Poll::Ready(Some((_, room))) => room,
            found => panic!("{found:?}"),
        });
        let (wanted, not) = (Room::Wanted, Room::NotWanted);
        assert_eq!(rooms.collect::<Vec<_>>(), [not, not, wanted, not]);
    }
}
