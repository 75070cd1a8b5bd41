//! Delivers a group's events to the application through a bounded queue.

use std::collections::{BTreeMap, VecDeque};

use carom_proto::ring::{RingEvent, RingNews};
use carom_proto::{Event, GroupId, LossCause, Lost, NodeId, SeqNo};

use crate::shared::event_queue::{EventReceiver, EventSender, Waiting, bytes_of, event_queue};

/// The delivery of one group. Messages that do not fit in the queue become
/// [`LossCause::QueueFull`], or wait here if the group guarantees all messages in order.
#[derive(Debug)]
pub(crate) struct Delivery {
    group: GroupId,
    queue: EventSender,
    capacity: usize,
    keeps_all: bool,
    staged: VecDeque<Event>,
    staged_bytes: usize,
    /// Upper bound on the waiting events: those staged, and those in the queue at the last check.
    waiting: Waiting,
    overflow: Overflow,
}

#[derive(Debug, Default)]
struct Overflow {
    lost: BTreeMap<NodeId, VecDeque<(SeqNo, SeqNo)>>,
    ranges: usize,
    others: VecDeque<Event>,
    bytes: usize,
    dropped: u64,
}

impl Delivery {
    pub(crate) fn new(group: GroupId, capacity: usize, keeps_all: bool) -> (Self, EventReceiver) {
        let capacity = capacity.max(1);
        let (queue, events) = event_queue(Waiting { events: capacity / 2, bytes: QUEUE_BYTES / 2 });
        let delivery = Self {
            group,
            queue,
            capacity,
            keeps_all,
            staged: VecDeque::new(),
            staged_bytes: 0,
            waiting: Waiting::default(),
            overflow: Overflow::default(),
        };
        (delivery, events)
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        if !self.overflow.is_empty() {
            self.flush();
        }
        if !self.overflow.is_empty() {
            self.overflow.add(event, self.keeps_all);
            return;
        }
        if self.has_room_for(&event) {
            return self.stage(event);
        }
        self.overflow.add(event, self.keeps_all);
        // This requests room, or uses room that was made in the meantime.
        self.flush();
    }

    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.overflow.pop(self.group) {
            // The application may have emptied the queue before room was requested, without
            // reporting it. The remaining events are therefore checked after the request.
            if !self.has_room_for(&event) {
                let waiting = self.queue.request_room();
                self.update_waiting(waiting);
                if !self.has_room_for(&event) {
                    return self.overflow.put_back(event);
                }
            }
            self.stage(event);
        }
    }

    pub(crate) fn hand_over(&mut self) {
        if !self.staged.is_empty() {
            self.waiting = self.queue.put(&mut self.staged);
            self.staged_bytes = 0;
        }
    }

    /// Returns the events that wait outside the full queue, as a fraction of its capacity.
    pub(crate) fn backlog(&self) -> f64 {
        let events = self.overflow.others.len() as f64 / self.capacity as f64;
        let bytes = self.overflow.bytes as f64 / QUEUE_BYTES as f64;
        events.max(bytes)
    }

    pub(crate) fn unread(&self) -> usize {
        self.queue.waiting().events + self.staged.len() + self.overflow.others.len()
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.queue.is_abandoned()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.overflow.dropped
    }

    fn has_room_for(&mut self, event: &Event) -> bool {
        if self.is_full_with(event) {
            let waiting = self.queue.waiting();
            self.update_waiting(waiting);
        }
        !self.is_full_with(event)
    }

    fn is_full_with(&self, event: &Event) -> bool {
        let (bytes, waiting) = (bytes_of(event), self.waiting);
        let are_too_many = bytes > 0 && waiting.bytes > 0 && waiting.bytes + bytes > QUEUE_BYTES;
        waiting.events >= self.capacity || are_too_many
    }

    fn update_waiting(&mut self, waiting: Waiting) {
        self.waiting = Waiting {
            events: waiting.events + self.staged.len(),
            bytes: waiting.bytes + self.staged_bytes,
        };
    }

    fn stage(&mut self, event: Event) {
        let bytes = bytes_of(&event);
        self.waiting.events += 1;
        self.waiting.bytes += bytes;
        self.staged_bytes += bytes;
        self.staged.push_back(event);
        // The application cannot make room while events are only staged.
        if self.staged.len() >= MAX_STAGED.min(self.capacity.div_ceil(4)) {
            self.hand_over();
        }
    }
}

impl Drop for Delivery {
    /// Queues the remaining events, because room is no longer requested and losses must be
    /// reported.
    fn drop(&mut self) {
        while let Some(event) = self.overflow.pop(self.group) {
            self.staged.push_back(event);
        }
        self.hand_over();
    }
}

impl Overflow {
    fn is_empty(&self) -> bool {
        self.ranges == 0 && self.others.is_empty()
    }

    fn add(&mut self, event: Event, keeps_all: bool) {
        match event {
            // Only the latest of these events matters.
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

    /// Records lost messages. If there are too many ranges, widens the sender's last one, so that
    /// every loss is reported.
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

fn is_of_stability(event: &Event) -> bool {
    matches!(event, Event::Ring(RingEvent { news: RingNews::Stable { .. }, .. }))
}

fn ranges_are_many(ranges: usize) -> bool {
    ranges >= MAX_RANGES
}

/// Maximum size of the messages in a queue, in bytes. A larger message fits if it is the only one.
const QUEUE_BYTES: usize = 64 << 20;
/// Maximum number of events handed over together, unless a quarter of the queue is smaller.
const MAX_STAGED: usize = 256;
const MAX_RANGES: usize = 1024;
const MAX_OTHERS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::block_on::block_on;
    use crate::shared::event_queue::Room;
    use carom_proto::ring::{Answer, Outcome, Request, RequestId};
    use carom_proto::{How, Message, Slow};
    use std::task::Poll;
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

    fn given(delivery: &mut Delivery, receiver: &EventReceiver) -> Option<Event> {
        delivery.hand_over();
        match receiver.take() {
            Poll::Ready(found) => found.map(|(event, _)| event),
            Poll::Pending => None,
        }
    }

    fn lost(sender: u64, first: u32, last: u32) -> Event {
        let (first, last) = (SeqNo(first), SeqNo(last));
        let cause = LossCause::QueueFull;
        Event::Lost(Lost { group: GROUP, sender: NodeId(sender), first, last, cause })
    }

    #[test]
    fn overflow_is_reported_as_lost_before_later_events() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 2, false);
        for seqno in 1..=9 {
            delivery.deliver(message(7, seqno));
        }
        let slow = Event::Slow(Slow { group: GROUP, node: NodeId(5), behind: 3 });
        delivery.deliver(slow.clone());
        assert!(!delivery.overflow.is_empty());
        delivery.hand_over();
        assert_eq!(
            receiver.take(),
            Poll::Ready(Some((message(7, 1), Room::Wanted))),
            "half of the queue is free"
        );
        assert_eq!(
            receiver.take(),
            Poll::Ready(Some((message(7, 2), Room::NotWanted))),
            "room was already reported"
        );
        delivery.deliver(message(7, 10));
        assert_eq!(given(&mut delivery, &receiver), Some(lost(7, 3, 9)));
        assert_eq!(given(&mut delivery, &receiver), Some(slow));
        delivery.flush();
        assert_eq!(given(&mut delivery, &receiver), Some(lost(7, 10, 10)));
        assert!(delivery.overflow.is_empty());
        assert_eq!(delivery.dropped(), 8);
    }

    #[test]
    fn lossless_queue_drops_nothing_and_reports_its_backlog() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 2, true);
        (1..=5).for_each(|seqno| delivery.deliver(message(7, seqno)));
        assert_eq!(delivery.backlog(), 1.5);
        for seqno in 1..=5 {
            assert_eq!(given(&mut delivery, &receiver), Some(message(7, seqno)));
            delivery.flush();
        }
        assert_eq!((delivery.backlog(), delivery.dropped()), (0.0, 0));
    }

    fn large(seqno: u32) -> Event {
        match message(7, seqno) {
            Event::Message(message) => {
                Event::Message(Message { payload: vec![0; QUEUE_BYTES / 2].into(), ..message })
            }
            other => other,
        }
    }

    #[test]
    fn backlog_of_a_slow_application_is_measured_in_bytes_too() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 1000, true);
        (1..=2).for_each(|seqno| delivery.deliver(large(seqno)));
        assert_eq!(delivery.backlog(), 0.0, "the queue has room for two");
        (3..=5).for_each(|seqno| delivery.deliver(large(seqno)));
        assert_eq!(delivery.backlog(), 1.5);
        for seqno in 1..=5 {
            assert!(given(&mut delivery, &receiver) == Some(large(seqno)), "nothing is dropped");
            delivery.flush();
        }
        assert_eq!((delivery.backlog(), delivery.overflow.bytes), (0.0, 0));
    }

    #[test]
    fn large_messages_are_bounded_by_their_bytes() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 1000, false);
        (1..=5).for_each(|seqno| delivery.deliver(large(seqno)));
        for seqno in 1..=2 {
            assert!(given(&mut delivery, &receiver) == Some(large(seqno)), "it had room");
        }
        for seqno in 3..=5 {
            delivery.flush();
            assert_eq!(given(&mut delivery, &receiver), Some(lost(7, seqno, seqno)));
        }
        delivery.deliver(large(6));
        assert!(given(&mut delivery, &receiver) == Some(large(6)), "the queue has room again");
        assert_eq!(delivery.queue.waiting(), Waiting::default());
    }

    #[test]
    fn large_requests_and_replies_are_bounded_by_their_bytes() {
        let payload = || vec![0; QUEUE_BYTES / 2].into();
        let id = RequestId { caller: NodeId(7), number: 1 };
        let outcome = Outcome::Reply { by: NodeId(7), payload: payload() };
        let request = Request {
            id,
            handler: None,
            payload: payload(),
            place: None,
            is_ours: false,
            is_again: false,
            may_be_done: false,
        };
        let (mut delivery, _receiver) = Delivery::new(GROUP, 1000, true);
        for news in [
            RingNews::Request(request.clone()),
            RingNews::Answer(Answer { id, outcome }),
            RingNews::Request(request),
        ] {
            delivery.deliver(Event::Ring(RingEvent { group: GROUP, news }));
        }
        assert_eq!(delivery.backlog(), 0.5, "the queue has room for two of them");
    }

    #[test]
    fn room_made_before_it_is_requested_is_used() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 1, false);
        delivery.deliver(message(7, 1));
        delivery.overflow.add(message(7, 2), false);
        delivery.hand_over();
        let taken = receiver.take();
        assert_eq!(
            taken,
            Poll::Ready(Some((message(7, 1), Room::NotWanted))),
            "no room was requested yet"
        );
        delivery.flush();
        assert_eq!(given(&mut delivery, &receiver), Some(lost(7, 2, 2)));
    }

    #[test]
    fn losses_are_reported_before_the_end() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 1, false);
        (1..=3).for_each(|seqno| delivery.deliver(message(7, seqno)));
        drop(delivery);
        let taken = [(); 2].map(|()| block_on(receiver.next()).map(|(event, _)| event));
        assert_eq!(taken, [Some(message(7, 1)), Some(lost(7, 2, 3))]);
        assert_eq!(receiver.take(), Poll::Ready(None));
    }

    #[test]
    fn application_taking_single_events_is_never_left_waiting() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 1, false);
        let (ask, asked) = std::sync::mpsc::channel();
        const MESSAGES: u32 = 20_000;
        let application = std::thread::spawn(move || {
            let mut settled = 0;
            while settled < MESSAGES {
                let (event, room) =
                    block_on(receiver.next()).expect("the driver reports every message");
                match event {
                    Event::Message(_) => settled += 1,
                    Event::Lost(lost) => settled += lost.count(),
                    _ => {}
                }
                if room == Room::Wanted {
                    ask.send(()).expect("the driver waits");
                }
            }
        });
        for seqno in 1..=MESSAGES {
            delivery.deliver(message(7, seqno));
            delivery.hand_over();
            while asked.try_recv().is_ok() {
                delivery.flush();
                delivery.hand_over();
            }
        }
        while asked.recv().is_ok() {
            delivery.flush();
            delivery.hand_over();
        }
        application.join().expect("it receives every message");
    }

    #[test]
    fn ranges_of_several_senders_are_kept_apart_up_to_a_bound() {
        let (mut delivery, receiver) = Delivery::new(GROUP, 1, false);
        delivery.deliver(message(1, 1));
        (0..3000).for_each(|it| delivery.deliver(message(2, 1 + 2 * it)));
        assert_eq!(delivery.overflow.ranges, MAX_RANGES);
        let mut told = 0;
        while given(&mut delivery, &receiver).is_some() {
            delivery.flush();
            told += 1;
        }
        assert_eq!(told, 1 + MAX_RANGES);
        assert!(delivery.overflow.is_empty());
    }
}
