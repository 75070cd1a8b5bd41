//! A group's send queue between its application and the engine, and the list of the groups whose
//! send queues have messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use carom_proto::{GroupId, SendOptions};
use event_listener::{Event as Signal, EventListener};

use super::receipt::Receipt;

#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) payload: Bytes,
    pub(crate) options: SendOptions,
    /// Receipt for the caller that waits for the outcome, in an ordered group.
    pub(crate) receipt: Option<Receipt>,
}

/// The messages of one group that wait to be sent: the publishers' end. Large messages need one of
/// a few places, which bounds the queue in bytes as well. Waiting publishers continue when half of
/// the queue is free, so that not every message is a wake-up. Until then no publisher gets room,
/// because later ones would otherwise take it from those that wait.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    content: Mutex<Content>,
    room: Signal,
    /// `true` while the group is in the [`ReadyList`].
    is_listed: AtomicBool,
}

/// The driver's end of a send queue. It takes the messages in batches, so that publishers and
/// driver seldom contend for the lock. A message remains in it until the engine has accepted it.
#[derive(Debug)]
pub(crate) struct SendQueueReader {
    queue: Arc<SendQueue>,
    batch: VecDeque<Outgoing>,
}

#[derive(Debug, Default)]
struct Content {
    messages: VecDeque<Outgoing>,
    /// Number of messages ever added.
    published: u64,
    /// Large messages that the engine has not accepted.
    large: usize,
    /// Number of publishers that wait for room.
    waiting: usize,
    is_closed: bool,
}

struct Waiter<'a>(&'a SendQueue);

/// Result of adding a message whose publisher may wait for room.
enum Put {
    /// The message is in the queue, and has this number.
    In(u64),
    /// There is no room. The listener is notified when there is.
    Waits(Outgoing, EventListener),
}

/// Reason for which a message was not added.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room at present.
    Full(Outgoing),
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Groups of a node with queued messages, each at most once. Publishers enter their group, and wake
/// the driver only if the list was empty.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    groups: Mutex<Vec<GroupId>>,
}

impl ReadyList {
    /// Enters the group with this send queue. Returns `true` if the driver must be woken for it.
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
    /// Adds a message if there is room, and returns its number. The first message has the number 1.
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

    pub(crate) async fn put(&self, outgoing: Outgoing) -> Result<u64, Closed> {
        let mut outgoing = match self.try_put(outgoing) {
            Ok(number) => return Ok(number),
            Err(Refused::Closed) => return Err(Closed),
            Err(Refused::Full(outgoing)) => outgoing,
        };
        let waiter = Waiter::new(self);
        loop {
            match waiter.put_or_listen(outgoing)? {
                Put::In(number) => return Ok(number),
                Put::Waits(refused, room) => {
                    outgoing = refused;
                    room.await;
                }
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Moves up to `count` of the oldest messages to the end of `into`.
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

    /// Returns the oldest message, and takes up to `count` messages together if there is no batch.
    /// If there is none, the group leaves the [`ReadyList`], and the next message enters it again.
    pub(crate) fn front(&mut self, count: usize) -> Option<&Outgoing> {
        if self.batch.is_empty() {
            self.queue.take(count, &mut self.batch);
        }
        if self.batch.is_empty() {
            // A message that was added before the mark was cleared has not entered the group.
            self.queue.is_listed.store(false, Ordering::SeqCst);
            self.queue.take(count, &mut self.batch);
        }
        self.batch.front()
    }

    /// Removes the oldest message, which the engine has accepted, or which was given up.
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

    /// Closes the queue. Publishers, including waiting ones, receive an error.
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

    /// Adds a message, or returns a listener for room.
    fn put_or_listen(&self, outgoing: Outgoing) -> Result<Put, Closed> {
        let outgoing = match self.0.try_put(outgoing) {
            Ok(number) => return Ok(Put::In(number)),
            Err(Refused::Closed) => return Err(Closed),
            Err(Refused::Full(outgoing)) => outgoing,
        };
        // Room that was made before the listener existed does not notify it, so the queue is
        // checked once more.
        let room = self.0.room.listen();
        match self.0.try_put(outgoing) {
            Ok(number) => Ok(Put::In(number)),
            Err(Refused::Closed) => Err(Closed),
            Err(Refused::Full(outgoing)) => Ok(Put::Waits(outgoing, room)),
        }
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
/// Length of the queue at or below which waiting publishers continue.
const HALF: usize = QUEUE_MESSAGES / 2;
/// Maximum number of large messages among them.
const LARGE_MESSAGES: usize = 4;
/// Size in bytes above which a message is large.
const LARGE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::block_on::block_on;

    #[test]
    fn only_the_first_message_of_the_first_group_wakes_the_driver() {
        let (list, a, b) = (ReadyList::default(), SendQueue::default(), SendQueue::default());
        assert!(list.enter(GroupId(1), &a));
        assert!(!list.enter(GroupId(1), &a));
        assert!(!list.enter(GroupId(2), &b));
        let mut taken = VecDeque::new();
        list.take(&mut taken);
        assert_eq!(taken, [GroupId(1), GroupId(2)]);
        assert!(!list.enter(GroupId(1), &a), "its queue has not been emptied yet");
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

    fn is_full_for(queue: &SendQueue, bytes: usize) -> bool {
        matches!(queue.try_put(message(bytes)), Err(Refused::Full(_)))
    }

    #[test]
    fn few_large_messages_wait_beside_many_small_ones() {
        let (queue, mut reader) = queue();
        for _ in 0..LARGE_MESSAGES {
            queue.try_put(message(LARGE_BYTES + 1)).expect("there is a place");
        }
        assert!(is_full_for(&queue, LARGE_BYTES + 1));
        queue.try_put(message(LARGE_BYTES)).expect("it needs no place");
        reader.front(1).expect("a message");
        assert!(is_full_for(&queue, LARGE_BYTES + 1), "the engine has not accepted it yet");
        reader.pop().expect("a message");
        queue.try_put(message(LARGE_BYTES + 1)).expect("a place is free again");
        reader.close();
        assert_eq!(block_on(queue.put(message(LARGE_BYTES + 1))), Err(Closed));
    }

    #[test]
    fn a_large_message_that_finds_the_queue_full_takes_no_place() {
        let queue = SendQueue::default();
        (0..QUEUE_MESSAGES)
            .for_each(|_| assert!(queue.try_put(message(1)).is_ok(), "there is room"));
        (0..2 * LARGE_MESSAGES).for_each(|_| assert!(is_full_for(&queue, LARGE_BYTES + 1)));
        assert_eq!(queue.lock().large, 0);
    }

    /// Completes only if every waiting publisher is woken.
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
            matches!(Waiter::new(queue).put_or_listen(message(1)), Ok(Put::In(_)))
        });
    }

    /// Completes only if the waiting publisher is not starved by others that add messages whenever
    /// they can.
    fn does_not_starve(put_another: impl Fn(&SendQueue) -> bool) {
        let queue = SendQueue::default();
        let is_over = AtomicBool::new(false);
        (0..QUEUE_MESSAGES)
            .for_each(|_| assert!(queue.try_put(message(1)).is_ok(), "there is room"));
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
        (0..QUEUE_MESSAGES)
            .for_each(|_| assert!(queue.try_put(message(1)).is_ok(), "there is room"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(queue.put(message(1))));
            reader.close();
            assert_eq!(waiting.join().expect("it does not panic"), Err(Closed));
        });
    }
}
