//! The send queue of a group, between its application and the engine, and the list of the groups
//! with queued messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use carom_proto::{GroupId, SendOptions};
use event_listener::Event as Signal;

use super::receipt::Receipt;

#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) payload: Bytes,
    pub(crate) options: SendOptions,
    pub(crate) receipt: Option<Receipt>,
}

/// The publishers' end. When the queue was full, waiting publishers continue once half of it is
/// free. Until then no publisher gets room, because later publishers would take it from those that
/// wait.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    content: Mutex<Content>,
    room: Signal,
    is_listed: AtomicBool,
}

/// The driver's end. Batches keep publishers and driver from contending for the lock.
#[derive(Debug)]
pub(crate) struct SendQueueReader {
    queue: Arc<SendQueue>,
    batch: VecDeque<Outgoing>,
}

#[derive(Debug, Default)]
struct Content {
    messages: VecDeque<Outgoing>,
    published: u64,
    large: usize,
    waiting: usize,
    is_closed: bool,
}

struct Waiter<'a>(&'a SendQueue);

#[derive(Debug)]
pub(crate) enum Refused {
    Full(Outgoing),
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// The groups with queued messages. Publishers wake the driver only if the list was empty.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    groups: Mutex<Vec<GroupId>>,
}

impl ReadyList {
    pub(crate) fn enter(&self, group: GroupId, queue: &SendQueue) -> bool {
        if queue.is_listed.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut groups = self.lock();
        groups.push(group);
        groups.len() == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn take(&self, into: &mut VecDeque<GroupId>) {
        into.extend(self.lock().drain(..));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<GroupId>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendQueue {
    /// Adds a message if there is room. Returns the message's number, counted from 1.
    pub(crate) fn try_put(&self, outgoing: Outgoing) -> Result<u64, Refused> {
        let mut content = self.lock();
        if content.is_closed {
            return Err(Refused::Closed);
        }
        if !content.has_room_for(&outgoing) {
            return Err(Refused::Full(outgoing));
        }
        content.large += usize::from(outgoing.is_large());
        content.messages.push_back(outgoing);
        content.published += 1;
        Ok(content.published)
    }

    pub(crate) async fn put(&self, mut outgoing: Outgoing) -> Result<u64, Closed> {
        let (mut waiter, mut room) = (None, None);
        loop {
            outgoing = match self.try_put(outgoing) {
                Ok(number) => return Ok(number),
                Err(Refused::Closed) => return Err(Closed),
                Err(Refused::Full(outgoing)) => outgoing,
            };
            waiter.get_or_insert_with(|| Waiter::new(self));
            // Room that was made before the listener existed does not notify it, so the queue is
            // checked once more.
            match room.take() {
                None => room = Some(self.room.listen()),
                Some(room) => room.await,
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn take(&self, count: usize, into: &mut VecDeque<Outgoing>) {
        let mut content = self.lock();
        let before = content.messages.len();
        into.extend(content.messages.drain(..count.min(before)));
        let after = content.messages.len();
        drop(content);
        if before > HALF && after <= HALF {
            self.room.notify(usize::MAX);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendQueueReader {
    pub(crate) fn new(queue: Arc<SendQueue>) -> Self {
        Self { queue, batch: VecDeque::new() }
    }

    /// Returns the first message. Fetches up to `count` if the batch is empty, and unlists an empty
    /// queue.
    pub(crate) fn front(&mut self, count: usize) -> Option<&Outgoing> {
        if self.batch.is_empty() {
            self.queue.take(count, &mut self.batch);
        }
        if self.batch.is_empty() {
            // A publisher that added its message before the flag was cleared has not added the
            // group to the list.
            self.queue.is_listed.store(false, Ordering::SeqCst);
            self.queue.take(count, &mut self.batch);
        }
        self.batch.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let outgoing = self.batch.pop_front()?;
        if outgoing.is_large() {
            self.queue.lock().large -= 1;
            self.queue.room.notify(usize::MAX);
        }
        Some(outgoing)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.lock().messages.len() + self.batch.len()
    }

    pub(crate) fn close(&self) {
        let mut content = self.queue.lock();
        content.is_closed = true;
        // Dropping a message drops its receipt, which notifies the caller that waits for its
        // outcome.
        let unsent = std::mem::take(&mut content.messages);
        drop(content);
        drop(unsent);
        self.queue.room.notify(usize::MAX);
    }
}

impl<'a> Waiter<'a> {
    fn new(queue: &'a SendQueue) -> Self {
        queue.lock().waiting += 1;
        Self(queue)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl Content {
    fn has_room_for(&self, outgoing: &Outgoing) -> bool {
        let has_place = !outgoing.is_large() || self.large < LARGE_MESSAGES;
        let is_kept_free = self.waiting > 0 && self.messages.len() > HALF;
        has_place && !is_kept_free && self.messages.len() < QUEUE_MESSAGES
    }
}

impl Outgoing {
    fn is_large(&self) -> bool {
        self.payload.len() > LARGE_BYTES
    }
}

const QUEUE_MESSAGES: usize = 1024;
const HALF: usize = QUEUE_MESSAGES / 2;
const LARGE_MESSAGES: usize = 4;
const LARGE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::block_on::block_on;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn only_the_first_message_of_the_first_group_wakes_the_driver() {
        let (list, a, b) = (ReadyList::default(), SendQueue::default(), SendQueue::default());
        assert!(list.enter(GroupId(1), &a));
        assert!(!list.enter(GroupId(1), &a));
        assert!(!list.enter(GroupId(2), &b));
        let mut taken = VecDeque::new();
        list.take(&mut taken);
        assert_eq!(taken, [GroupId(1), GroupId(2)]);
        assert!(!list.enter(GroupId(1), &a), "its queue is not empty yet");
        let a = Arc::new(a);
        assert!(SendQueueReader::new(Arc::clone(&a)).front(1).is_none());
        assert!(list.enter(GroupId(1), &a));
    }

    fn message(bytes: usize) -> Outgoing {
        let payload = vec![0; bytes].into();
        Outgoing { payload, options: SendOptions::default(), receipt: None }
    }

    fn queue() -> (Arc<SendQueue>, SendQueueReader) {
        let queue = Arc::new(SendQueue::default());
        (Arc::clone(&queue), SendQueueReader::new(queue))
    }

    fn fill(queue: &SendQueue) {
        (0..QUEUE_MESSAGES)
            .for_each(|_| assert!(queue.try_put(message(1)).is_ok(), "there is room"));
    }

    fn is_full_for(queue: &SendQueue, bytes: usize) -> bool {
        matches!(queue.try_put(message(bytes)), Err(Refused::Full(_)))
    }

    #[test]
    fn few_large_messages_wait_beside_many_small_ones() {
        let (queue, mut reader) = queue();
        for _ in 0..LARGE_MESSAGES {
            queue.try_put(message(LARGE_BYTES + 1)).expect("there is room for a large message");
        }
        assert!(is_full_for(&queue, LARGE_BYTES + 1));
        queue.try_put(message(LARGE_BYTES)).expect("it is not large");
        reader.front(1).expect("a message");
        assert!(is_full_for(&queue, LARGE_BYTES + 1), "the engine has not accepted it yet");
        reader.pop().expect("a message");
        queue.try_put(message(LARGE_BYTES + 1)).expect("there is room again");
        reader.close();
        assert_eq!(block_on(queue.put(message(LARGE_BYTES + 1))), Err(Closed));
    }

    #[test]
    fn a_large_message_that_finds_the_queue_full_takes_no_place() {
        let queue = SendQueue::default();
        fill(&queue);
        (0..2 * LARGE_MESSAGES).for_each(|_| assert!(is_full_for(&queue, LARGE_BYTES + 1)));
        assert_eq!(queue.lock().large, 0);
    }

    #[test]
    fn all_publishers_that_wait_for_room_continue() {
        const EACH: usize = 20 * QUEUE_MESSAGES;
        let (queue, mut reader) = queue();
        std::thread::scope(|scope| {
            let large = |it: usize| if it.is_multiple_of(64) { LARGE_BYTES + 1 } else { 1 };
            for _ in 0..3 {
                let queue = &queue;
                let put = move |it| {
                    assert!(block_on(queue.put(message(large(it)))).is_ok(), "it is open")
                };
                scope.spawn(move || (0..EACH).for_each(put));
            }
            let mut count = 0;
            while count < 3 * EACH {
                if reader.front(32).is_some() {
                    reader.pop().expect("a message");
                    count += 1;
                }
            }
        });
        assert_eq!((reader.len(), queue.lock().large), (0, 0));
    }

    #[test]
    fn repeated_attempts_leave_room_to_a_waiting_publisher() {
        does_not_starve(|queue| queue.try_put(message(1)).is_ok());
    }

    #[test]
    fn later_publisher_leaves_room_to_a_waiting_one() {
        does_not_starve(|queue| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(queue.put(message(1))).poll(&mut context).is_ready()
        });
    }

    fn does_not_starve(put_another: impl Fn(&SendQueue) -> bool) {
        let queue = SendQueue::default();
        let is_over = AtomicBool::new(false);
        fill(&queue);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                block_on(queue.put(message(2))).expect("it is open");
                is_over.store(true, Ordering::SeqCst);
            });
            while queue.lock().waiting == 0 {
                std::thread::yield_now();
            }
            let mut taken = VecDeque::new();
            while !is_over.load(Ordering::SeqCst) {
                queue.take(32, &mut taken);
                while put_another(&queue) {}
            }
            waiting.join().expect("it does not panic");
        });
        assert_eq!(queue.lock().waiting, 0);
    }

    #[test]
    fn waiting_publisher_fails_when_the_queue_closes() {
        let (queue, reader) = queue();
        fill(&queue);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(queue.put(message(1))));
            reader.close();
            assert_eq!(waiting.join().expect("it does not panic"), Err(Closed));
        });
    }
}
