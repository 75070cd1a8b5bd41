//! Events on their way to a group's application, over a bounded queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_channel::{Receiver, Sender};
use carom_proto::rmp::{RingEvent, RingNews};
use carom_proto::{Event, GroupId, LossCause, Lost, NodeId, SeqNo};

/// The driver's end of a group's queue of events. What does not fit becomes [`Event::Lost`] with
/// [`LossCause::QueueFull`], which waits here and is delivered before anything later; or, in a
/// group that promises all messages in order, it waits here itself.
#[derive(Debug)]
pub(crate) struct Delivery {
    group: GroupId,
    /// Bounded by `capacity` here, where the only sender is: a channel that is bounded by itself
    /// takes the memory for all its events at once, megabytes for each group.
    queue: Sender<Event>,
    capacity: usize,
    keeps_all: bool,
    /// Bytes of the messages in the queue; they have a bound as well.
    bytes: Arc<AtomicUsize>,
    room_wanted: Arc<AtomicBool>,
    overflow: Overflow,
}

/// The application's end.
#[derive(Clone, Debug)]
pub(crate) struct Inlet {
    pub(crate) queue: Receiver<Event>,
    capacity: usize,
    bytes: Arc<AtomicUsize>,
    room_wanted: Arc<AtomicBool>,
}

/// What found no room.
#[derive(Debug, Default)]
struct Overflow {
    lost: BTreeMap<NodeId, VecDeque<(SeqNo, SeqNo)>>,
    ranges: usize,
    others: VecDeque<Event>,
    /// Of the messages among them.
    bytes: usize,
    dropped: u64,
}

impl Delivery {
    /// A queue for `capacity` events of `group`; whether it keeps what does not fit.
    pub(crate) fn new(group: GroupId, capacity: usize, keeps_all: bool) -> (Self, Inlet) {
        let capacity = capacity.max(1);
        let (queue, receiver) = async_channel::unbounded();
        let room_wanted = Arc::new(AtomicBool::new(false));
        let bytes = Arc::new(AtomicUsize::new(0));
        let (counted, wanted) = (Arc::clone(&bytes), Arc::clone(&room_wanted));
        let inlet = Inlet { queue: receiver, capacity, bytes: counted, room_wanted: wanted };
        let overflow = Overflow::default();
        (Self { group, queue, capacity, keeps_all, bytes, room_wanted, overflow }, inlet)
    }

    /// Hands `event` to the application, or keeps a note of it.
    pub(crate) fn deliver(&mut self, event: Event) {
        if !self.overflow.is_empty() {
            self.flush();
        }
        if !self.overflow.is_empty() {
            self.overflow.add(event, self.keeps_all);
            return;
        }
        if self.has_room_for(&event) {
            return self.enqueue(event);
        }
        self.overflow.add(event, self.keeps_all);
        // Asks for room, or finds that there is some by now.
        self.flush();
    }

    /// Delivers what is kept as far as there is room.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.overflow.pop(self.group) {
            // The application may have emptied the queue before it was asked for room, and would
            // never say so then: what it left behind counts only after it was asked.
            if !self.has_room_for(&event) {
                self.ask_for_room();
                if !self.has_room_for(&event) {
                    return self.overflow.put_back(event);
                }
            }
            self.enqueue(event);
        }
    }

    /// How much waits beyond the capacity, as a part of it: 1 is as much again, in events or in
    /// bytes.
    pub(crate) fn backlog(&self) -> f64 {
        let events = self.overflow.others.len() as f64 / self.capacity as f64;
        let bytes = self.overflow.bytes as f64 / QUEUE_BYTES as f64;
        events.max(bytes)
    }

    /// Events that found no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.overflow.dropped
    }

    fn has_room_for(&self, event: &Event) -> bool {
        let (bytes, waiting) = (bytes_of(event), self.bytes.load(Ordering::SeqCst));
        let are_too_many = bytes > 0 && waiting > 0 && waiting + bytes > QUEUE_BYTES;
        self.queue.len() < self.capacity && !are_too_many
    }

    /// If nobody receives any more it is gone.
    fn enqueue(&self, event: Event) {
        // Before the application can take it, so that it never takes off more than there is.
        self.bytes.fetch_add(bytes_of(&event), Ordering::SeqCst);
        let _ = self.queue.try_send(event);
    }

    fn ask_for_room(&self) {
        self.room_wanted.store(true, Ordering::SeqCst);
    }
}

impl Drop for Delivery {
    /// Nobody asks for what is kept once the queue is closed, and what is lost must not end
    /// untold: it is little, and goes beyond the capacity.
    fn drop(&mut self) {
        while let Some(event) = self.overflow.pop(self.group) {
            self.bytes.fetch_add(bytes_of(&event), Ordering::SeqCst);
            let _ = self.queue.try_send(event);
        }
    }
}

impl Inlet {
    /// The application has taken this event.
    pub(crate) fn took(&self, event: &Event) {
        self.bytes.fetch_sub(bytes_of(event), Ordering::SeqCst);
    }

    /// Whether the driver should be told that there is room now. To be asked after an event was
    /// taken; half the queue must be empty, so that the driver is not woken for each event.
    pub(crate) fn has_wanted_room(&self) -> bool {
        let half = self.capacity / 2;
        self.room_wanted.load(Ordering::SeqCst)
            && self.queue.len() <= half
            && self.bytes.load(Ordering::SeqCst) <= QUEUE_BYTES / 2
            && self.room_wanted.swap(false, Ordering::SeqCst)
    }
}

impl Overflow {
    fn is_empty(&self) -> bool {
        self.ranges == 0 && self.others.is_empty()
    }

    fn add(&mut self, event: Event, keeps_all: bool) {
        match event {
            // Only the last one counts.
            event if is_of_stability(&event) && self.others.back().is_some_and(is_of_stability) => {
                self.others.pop_back();
                self.others.push_back(event);
            }
            event if keeps_all => {
                self.bytes += bytes_of(&event);
                self.others.push_back(event);
            }
            Event::Message(message) => {
                self.dropped += 1;
                self.add_lost(message.sender, message.seqno, message.seqno);
            }
            event if self.others.len() < MAX_OTHERS => self.others.push_back(event),
            Event::Lost(lost) => self.add_lost(lost.sender, lost.first, lost.last),
            _ => self.dropped += 1,
        }
    }

    /// Extends the sender's last range if the numbers are next to it. When there are too many
    /// ranges it is widened up to them, so that nothing lost goes untold.
    fn add_lost(&mut self, sender: NodeId, first: SeqNo, last: SeqNo) {
        let ranges = self.lost.entry(sender).or_default();
        if let Some(range) = ranges.back_mut() {
            let is_next = first == range.1.next() || last == range.0.minus(1);
            if is_next || ranges_are_many(self.ranges) {
                *range = (range.0.earlier(first), range.1.later(last));
                return;
            }
        }
        ranges.push_back((first, last));
        self.ranges += 1;
    }

    fn pop(&mut self, group: GroupId) -> Option<Event> {
        let Some(mut entry) = self.lost.first_entry() else {
            let event = self.others.pop_front()?;
            self.bytes -= bytes_of(&event);
            return Some(event);
        };
        let sender = *entry.key();
        let range = entry.get_mut().pop_front();
        if entry.get().is_empty() {
            entry.remove();
        }
        let (first, last) = range?;
        self.ranges -= 1;
        Some(Event::Lost(Lost { group, sender, first, last, cause: LossCause::QueueFull }))
    }

    fn put_back(&mut self, event: Event) {
        match event {
            Event::Lost(Lost { sender, first, last, cause: LossCause::QueueFull, .. }) => {
                self.lost.entry(sender).or_default().push_front((first, last));
                self.ranges += 1;
            }
            event => {
                self.bytes += bytes_of(&event);
                self.others.push_front(event);
            }
        }
    }
}

fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Message(message) => message.payload.len(),
        _ => 0,
    }
}

fn is_of_stability(event: &Event) -> bool {
    matches!(event, Event::Ring(RingEvent { news: RingNews::Stable { .. }, .. }))
}

fn ranges_are_many(ranges: usize) -> bool {
    ranges >= MAX_RANGES
}

/// Bytes of messages in a queue at most; one that is larger fits while it is alone.
const QUEUE_BYTES: usize = 64 << 20;
/// Ranges of lost messages that are kept apart.
const MAX_RANGES: usize = 1024;
/// Events other than messages that are kept.
const MAX_OTHERS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::{How, Message, Slow};
    use std::time::Duration;

    const GROUP: GroupId = GroupId(1);

    fn message(sender: u64, seqno: u32) -> Event {
        Event::Message(Message {
            group: GROUP,
            sender: NodeId(sender),
            seqno: SeqNo(seqno),
            payload: "x".into(),
            how: How::Direct,
            age: None,
            missing_for: Duration::ZERO,
            place: None,
        })
    }

    fn lost(sender: u64, first: u32, last: u32) -> Event {
        let (first, last) = (SeqNo(first), SeqNo(last));
        let cause = LossCause::QueueFull;
        Event::Lost(Lost { group: GROUP, sender: NodeId(sender), first, last, cause })
    }

    #[test]
    fn what_finds_no_room_is_told_as_lost_before_anything_later() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 2, false);
        for seqno in 1..=9 {
            delivery.deliver(message(7, seqno));
        }
        let slow = Event::Slow(Slow { group: GROUP, node: NodeId(5), behind: 3 });
        delivery.deliver(slow.clone());
        assert!(!delivery.overflow.is_empty());
        assert!(!inlet.has_wanted_room(), "the queue is still full");
        assert_eq!(inlet.queue.try_recv(), Ok(message(7, 1)));
        assert!(inlet.has_wanted_room() && !inlet.has_wanted_room());
        assert_eq!(inlet.queue.try_recv(), Ok(message(7, 2)));
        delivery.deliver(message(7, 10));
        assert_eq!(inlet.queue.try_recv(), Ok(lost(7, 3, 9)));
        assert_eq!(inlet.queue.try_recv(), Ok(slow));
        delivery.flush();
        assert_eq!(inlet.queue.try_recv(), Ok(lost(7, 10, 10)));
        assert!(delivery.overflow.is_empty());
        assert_eq!(delivery.dropped(), 8);
    }

    #[test]
    fn a_queue_that_keeps_all_loses_nothing_and_says_how_much_waits() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 2, true);
        (1..=5).for_each(|seqno| delivery.deliver(message(7, seqno)));
        assert_eq!(delivery.backlog(), 1.5);
        for seqno in 1..=5 {
            assert_eq!(inlet.queue.try_recv(), Ok(message(7, seqno)));
            delivery.flush();
        }
        assert_eq!((delivery.backlog(), delivery.dropped()), (0.0, 0));
    }

    /// A message of half the bytes that a queue takes.
    fn large(seqno: u32) -> Event {
        match message(7, seqno) {
            Event::Message(message) => {
                Event::Message(Message { payload: vec![0; QUEUE_BYTES / 2].into(), ..message })
            }
            other => other,
        }
    }

    #[test]
    fn what_waits_for_a_slow_application_is_measured_in_bytes_as_well() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 1000, true);
        (1..=2).for_each(|seqno| delivery.deliver(large(seqno)));
        assert_eq!(delivery.backlog(), 0.0, "the queue has room for two");
        (3..=5).for_each(|seqno| delivery.deliver(large(seqno)));
        assert_eq!(delivery.backlog(), 1.5);
        for seqno in 1..=5 {
            let event = inlet.queue.try_recv().expect("nothing is dropped");
            assert!(event == large(seqno));
            inlet.took(&event);
            delivery.flush();
        }
        assert_eq!((delivery.backlog(), delivery.overflow.bytes), (0.0, 0));
    }

    #[test]
    fn large_messages_are_bounded_by_their_bytes() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 1000, false);
        (1..=5).for_each(|seqno| delivery.deliver(large(seqno)));
        for seqno in 1..=2 {
            let event = inlet.queue.try_recv().expect("it had room");
            assert!(event == large(seqno));
            inlet.took(&event);
        }
        for seqno in 3..=5 {
            assert_eq!(inlet.queue.try_recv(), Ok(lost(7, seqno, seqno)));
        }
        delivery.deliver(large(6));
        assert!(inlet.queue.try_recv() == Ok(large(6)), "there is room again");
        inlet.took(&large(6));
        assert_eq!(inlet.bytes.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn room_that_was_made_before_it_was_asked_for_is_used() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 1, false);
        delivery.deliver(message(7, 1));
        delivery.overflow.add(message(7, 2), false);
        assert_eq!(inlet.queue.try_recv(), Ok(message(7, 1)));
        assert!(!inlet.has_wanted_room(), "it was not asked for yet");
        delivery.flush();
        assert_eq!(inlet.queue.try_recv(), Ok(lost(7, 2, 2)));
    }

    #[test]
    fn what_was_lost_is_told_before_the_end() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 1, false);
        (1..=3).for_each(|seqno| delivery.deliver(message(7, seqno)));
        drop(delivery);
        assert_eq!(inlet.queue.try_recv(), Ok(message(7, 1)));
        assert_eq!(inlet.queue.try_recv(), Ok(lost(7, 2, 3)));
        assert!(inlet.queue.is_closed() && inlet.queue.is_empty());
    }

    #[test]
    fn an_application_that_takes_one_event_at_a_time_is_never_left_waiting() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 1, false);
        let (ask, asked) = std::sync::mpsc::channel();
        const MESSAGES: u32 = 20_000;
        let application = std::thread::spawn(move || {
            let mut settled = 0;
            while settled < MESSAGES {
                match inlet.queue.recv_blocking().expect("the driver tells all") {
                    Event::Message(_) => settled += 1,
                    Event::Lost(lost) => settled += lost.count(),
                    _ => {}
                }
                if inlet.has_wanted_room() {
                    ask.send(()).expect("the driver waits");
                }
            }
        });
        for seqno in 1..=MESSAGES {
            delivery.deliver(message(7, seqno));
            while asked.try_recv().is_ok() {
                delivery.flush();
            }
        }
        while asked.recv().is_ok() {
            delivery.flush();
        }
        application.join().expect("it has got all");
    }

    #[test]
    fn ranges_of_several_senders_are_kept_apart_up_to_a_bound() {
        let (mut delivery, inlet) = Delivery::new(GROUP, 1, false);
        delivery.deliver(message(1, 1));
        (0..3000).for_each(|it| delivery.deliver(message(2, 1 + 2 * it)));
        assert_eq!(delivery.overflow.ranges, MAX_RANGES);
        let mut told = 0;
        while inlet.queue.try_recv().is_ok() {
            delivery.flush();
            told += 1;
        }
        assert_eq!(told, 1 + MAX_RANGES);
        assert!(delivery.overflow.is_empty());
    }
}
