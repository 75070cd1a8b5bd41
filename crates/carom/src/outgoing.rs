//! Messages on their way from the applications to the engine, over bounded queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use async_channel::{Receiver, Sender, TrySendError};
use bytes::Bytes;
use carom_proto::{GroupId, SendOptions};

use crate::published::Receipt;

/// A message that waits to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) payload: Bytes,
    pub(crate) options: SendOptions,
    /// Who wants to know what becomes of it, in an ordered group.
    pub(crate) receipt: Option<Receipt>,
    /// Its place among the large ones, if it is large.
    pub(crate) place: Option<Place>,
}

/// A place of a large message, until the engine has taken the message.
#[derive(Debug)]
pub(crate) struct Place(Receiver<()>);

/// The messages of one group that wait to be sent. A channel that is bounded takes the memory for
/// all its messages at once, 64 KiB; it is made when somebody publishes.
#[derive(Debug, Default)]
pub(crate) struct Queue(OnceLock<Option<Ends>>);

/// Where messages go in and out. Large ones need a place, of which there are few: so the queue is
/// bounded in bytes as well.
#[derive(Debug)]
pub(crate) struct Ends {
    inlet: Sender<Outgoing>,
    outlet: Receiver<Outgoing>,
    to_places: Sender<()>,
    places: Receiver<()>,
}

/// The groups of a node whose queues have something, each at most once. Publishers enter their
/// group and wake the driver only if it was not entered yet.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    groups: Mutex<Vec<GroupId>>,
}

/// Whether a group is in the [`ReadyList`].
#[derive(Debug, Default)]
pub(crate) struct ReadyMark(AtomicBool);

impl ReadyList {
    /// Enters `group`; says whether the driver must be woken for it.
    pub(crate) fn enter(&self, group: GroupId, mark: &ReadyMark) -> bool {
        if mark.0.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut groups = self.lock();
        groups.push(group);
        groups.len() == 1
    }

    /// Whether no group is entered.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Moves the entered groups to the end of `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<GroupId>) {
        into.extend(self.lock().drain(..));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<GroupId>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Where messages go in; `None` if it was closed before there were any.
    pub(crate) fn inlet(&self) -> Option<&Ends> {
        self.0.get_or_init(|| Some(Ends::new())).as_ref()
    }

    /// The message that has waited longest.
    pub(crate) fn take(&self) -> Option<Outgoing> {
        self.0.get()?.as_ref()?.outlet.try_recv().ok()
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        let ends = self.0.get().and_then(Option::as_ref);
        ends.map_or(0, |ends| ends.outlet.len())
    }

    /// Nobody takes messages any more: who publishes, or waits for room, is told so.
    pub(crate) fn close(&self) {
        if let Some(ends) = self.0.get_or_init(|| None) {
            ends.inlet.close();
            ends.to_places.close();
            // With a message goes its receipt: who waits for one is told that nobody will send it.
            while ends.outlet.try_recv().is_ok() {}
        }
    }
}

impl Ends {
    fn new() -> Self {
        let (inlet, outlet) = async_channel::bounded(QUEUE_MESSAGES);
        let (to_places, places) = async_channel::bounded(LARGE_MESSAGES);
        Self { inlet, outlet, to_places, places }
    }

    /// Puts a message in, if there is room.
    pub(crate) fn try_send(&self, mut outgoing: Outgoing) -> Result<(), TrySendError<Outgoing>> {
        if outgoing.needs_place() {
            match self.to_places.try_send(()) {
                Ok(()) => outgoing.place = Some(Place(self.places.clone())),
                Err(TrySendError::Full(())) => return Err(TrySendError::Full(outgoing)),
                Err(TrySendError::Closed(())) => return Err(TrySendError::Closed(outgoing)),
            }
        }
        self.inlet.try_send(outgoing)
    }

    /// Puts a message in once there is room.
    pub(crate) async fn send(&self, mut outgoing: Outgoing) -> Result<(), Closed> {
        if outgoing.needs_place() {
            self.to_places.send(()).await.map_err(|_| Closed)?;
            outgoing.place = Some(Place(self.places.clone()));
        }
        self.inlet.send(outgoing).await.map_err(|_| Closed)
    }

    /// As [`Ends::send`], blocking the thread.
    pub(crate) fn send_blocking(&self, mut outgoing: Outgoing) -> Result<(), Closed> {
        if outgoing.needs_place() {
            self.to_places.send_blocking(()).map_err(|_| Closed)?;
            outgoing.place = Some(Place(self.places.clone()));
        }
        self.inlet.send_blocking(outgoing).map_err(|_| Closed)
    }
}

/// Nobody takes messages any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Outgoing {
    fn needs_place(&self) -> bool {
        self.payload.len() > LARGE_BYTES && self.place.is_none()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is not there any more if the queue was closed.
        let _ = self.0.try_recv();
    }
}

impl ReadyMark {
    /// To be called before the group's queue is emptied: what comes later enters it anew.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Messages that a group's queue holds.
pub(crate) const QUEUE_MESSAGES: usize = 1024;
/// Of these, how many may be large.
const LARGE_MESSAGES: usize = 4;
/// A message of more bytes is large.
const LARGE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_message_of_the_first_group_wakes_the_driver() {
        let (list, a, b) = (ReadyList::default(), ReadyMark::default(), ReadyMark::default());
        assert!(list.enter(GroupId(1), &a));
        assert!(!list.enter(GroupId(1), &a));
        assert!(!list.enter(GroupId(2), &b));
        let mut taken = VecDeque::new();
        list.take(&mut taken);
        assert_eq!(taken, [GroupId(1), GroupId(2)]);
        assert!(!list.enter(GroupId(1), &a), "its queue has not been emptied yet");
        a.clear();
        assert!(list.enter(GroupId(1), &a));
    }

    fn message(bytes: usize) -> Outgoing {
        let payload = vec![0; bytes].into();
        Outgoing { payload, options: SendOptions::default(), receipt: None, place: None }
    }

    #[test]
    fn few_large_messages_wait_beside_many_small_ones() {
        let queue = Queue::default();
        let inlet = queue.inlet().expect("it is open");
        for _ in 0..LARGE_MESSAGES {
            inlet.try_send(message(LARGE_BYTES + 1)).expect("there is a place");
        }
        let refused = inlet.try_send(message(LARGE_BYTES + 1));
        assert!(matches!(refused, Err(TrySendError::Full(_))));
        inlet.try_send(message(LARGE_BYTES)).expect("it needs no place");
        let taken = queue.take().expect("there are some");
        let refused = inlet.try_send(message(LARGE_BYTES + 1));
        assert!(matches!(refused, Err(TrySendError::Full(_))), "the engine has not got it yet");
        drop(taken);
        inlet.try_send(message(LARGE_BYTES + 1)).expect("a place is free again");
        queue.close();
        assert_eq!(inlet.send_blocking(message(LARGE_BYTES + 1)), Err(Closed));
    }

    #[test]
    fn a_large_message_that_finds_the_queue_full_gives_its_place_back() {
        let queue = Queue::default();
        let inlet = queue.inlet().expect("it is open");
        (0..QUEUE_MESSAGES).for_each(|_| inlet.try_send(message(1)).expect("there is room"));
        for _ in 0..2 * LARGE_MESSAGES {
            let refused = inlet.try_send(message(LARGE_BYTES + 1));
            assert!(matches!(refused, Err(TrySendError::Full(_))));
        }
        assert_eq!(inlet.places.len(), 0);
    }
}
