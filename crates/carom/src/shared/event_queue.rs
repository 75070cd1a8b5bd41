//! A group's event queue between its driver and its application. The driver adds the events of a
//! turn under one lock and with one wake-up, and the application takes them one by one.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use carom_proto::Event;
use event_listener::{Event as Signal, EventListener};

/// The driver's end. Dropping it closes the queue.
#[derive(Debug)]
pub(crate) struct EventSender(Arc<Queue>);

/// The application's end.
#[derive(Clone, Debug)]
pub(crate) struct EventReceiver(Arc<Queue>);

/// Result of taking an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// The next event. [`Room::Wanted`] if the driver waits for the room that there is now.
    Event(Event, Room),
    /// No event at present.
    Nothing,
    /// No event, and the queue is closed.
    End,
}

/// Request of the driver to be notified of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Wanted,
    NotWanted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) events: usize,
    /// Size of the messages among them.
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Queue {
    content: Mutex<Content>,
    arrived: Signal,
    /// Amount of waiting events at or below which the driver is notified of room, so that it is not
    /// woken for each event.
    enough_room: Waiting,
}

#[derive(Debug, Default)]
struct Content {
    events: VecDeque<Event>,
    bytes: usize,
    is_room_wanted: bool,
    is_closed: bool,
    /// `true` if the application wants no events.
    is_discarding: bool,
}

/// Creates the two ends of an event queue. The driver is notified of room when at most
/// `enough_room` waits.
pub(crate) fn event_queue(enough_room: Waiting) -> (EventSender, EventReceiver) {
    let (content, arrived) = (Mutex::new(Content::default()), Signal::new());
    let shared = Arc::new(Queue { content, arrived, enough_room });
    (EventSender(Arc::clone(&shared)), EventReceiver(shared))
}

impl EventSender {
    /// Adds these events. Returns the amount of waiting events.
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
        // All waiting tasks are notified. A task that was notified earlier may not poll for a long
        // time, or ever, such as a stream that is kept and not polled.
        self.0.arrived.notify(usize::MAX);
        waiting
    }

    /// Requests a notification of room. Returns the amount of waiting events. The notification
    /// comes with the event that leaves at most `enough_room` waiting.
    pub(crate) fn request_room(&self) -> Waiting {
        let mut content = self.0.lock();
        content.is_room_wanted = true;
        content.waiting()
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.0.lock().waiting()
    }

    /// Returns `true` if the application has dropped its end.
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
    pub(crate) fn take(&self) -> Found {
        let mut content = self.0.lock();
        let Some(event) = content.events.pop_front() else {
            return if content.is_closed { Found::End } else { Found::Nothing };
        };
        content.bytes -= bytes_of(&event);
        if content.events.is_empty() {
            content.events.shrink_to(KEPT_EVENTS);
        }
        let is_notified = content.is_room_wanted && content.waiting().is_within(self.0.enough_room);
        if !is_notified {
            return Found::Event(event, Room::NotWanted);
        }
        content.is_room_wanted = false;
        Found::Event(event, Room::Wanted)
    }

    /// Drops all events from now on, and those that wait.
    pub(crate) fn discard(&self) {
        let mut content = self.0.lock();
        content.is_discarding = true;
        let waiting = std::mem::take(&mut content.events);
        content.bytes = 0;
        drop(content);
        drop(waiting);
    }

    /// Waits for the next event; `None` at the end.
    pub(crate) fn next(&self) -> Next<'_> {
        Next { receiver: self, arrival: Arrival::default() }
    }

    /// Returns the next event or the end, or registers the task to be woken for either.
    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
        arrival: &mut Arrival,
    ) -> Poll<Option<(Event, Room)>> {
        loop {
            if let Some(next) = self.take().settled() {
                arrival.0 = None;
                return Poll::Ready(next);
            }
            // An event that arrives before the task listens does not wake it, so it checks once
            // more.
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

/// Listener of a waiting task. Dropping it passes a received wake-up on to the next task.
#[derive(Debug, Default)]
pub(crate) struct Arrival(Option<EventListener>);

/// Future of [`EventReceiver::next`].
#[derive(Debug)]
pub(crate) struct Next<'a> {
    receiver: &'a EventReceiver,
    arrival: Arrival,
}

impl Future for Next<'_> {
    type Output = Option<(Event, Room)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { receiver, arrival } = &mut *self;
        receiver.poll_next(context, arrival)
    }
}

impl Found {
    /// Returns the event or the end; `None` if there is nothing yet.
    fn settled(self) -> Option<Option<(Event, Room)>> {
        match self {
            Self::Event(event, room) => Some(Some((event, room))),
            Self::Nothing => None,
            Self::End => Some(None),
        }
    }
}

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

/// Capacity that an empty queue keeps.
const KEPT_EVENTS: usize = 1024;

/// Returns the size of the message; 0 for other events.
pub(crate) fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Message(message) => message.payload.len(),
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

    #[test]
    fn each_waiting_task_is_woken_for_an_event_of_a_batch() {
        let (sender, receiver) = event_queue(ROOM);
        thread::scope(|scope| {
            let takers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| block_on(receiver.next()))).collect();
            put(&sender, 0..4);
            for taker in takers {
                assert!(taker.join().expect("it does not panic").is_some());
            }
        });
        assert_eq!(receiver.take(), Found::Nothing);
    }

    #[test]
    fn two_batches_of_one_event_wake_both_waiting_tasks() {
        for _ in 0..2000 {
            let (sender, receiver) = event_queue(ROOM);
            thread::scope(|scope| {
                let takers = [0, 1].map(|_| scope.spawn(|| block_on(receiver.next())));
                while sender.0.arrived.total_listeners() < 2 {
                    thread::yield_now();
                }
                put(&sender, 0..1);
                put(&sender, 1..2);
                for taker in takers {
                    assert!(taker.join().expect("it does not panic").is_some());
                }
            });
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
                while sender.0.arrived.total_listeners() < 2 {
                    thread::yield_now();
                }
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
        let mut first = receiver.next();
        assert!(Pin::new(&mut first).poll(&mut context).is_pending());
        thread::scope(|scope| {
            let second = scope.spawn(|| block_on(receiver.next()));
            while sender.0.arrived.total_listeners() < 2 {
                thread::yield_now();
            }
            put(&sender, 7..8);
            drop(first);
            let taken = second.join().expect("it does not panic");
            assert_eq!(taken, Some((event(7), Room::NotWanted)));
        });
    }

    #[test]
    fn all_waiting_tasks_see_the_end_after_the_earlier_events() {
        let (sender, receiver) = event_queue(ROOM);
        thread::scope(|scope| {
            let takers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| block_on(receiver.next()))).collect();
            put(&sender, 0..1);
            drop(sender);
            let taken = takers.into_iter().map(|taker| taker.join().expect("it does not panic"));
            assert_eq!(taken.flatten().count(), 1);
        });
    }

    #[test]
    fn room_is_reported_once_for_each_request() {
        let (sender, receiver) = event_queue(ROOM);
        put(&sender, 0..4);
        assert_eq!(sender.request_room(), Waiting { events: 4, bytes: 0 });
        let rooms = (0..4).map(|_| match receiver.take() {
            Found::Event(_, room) => room,
            found => panic!("{found:?}"),
        });
        let (wanted, not) = (Room::Wanted, Room::NotWanted);
        assert_eq!(rooms.collect::<Vec<_>>(), [not, not, wanted, not]);
    }
}
