//! Messages on their way from the applications to the engine, over bounded queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use carom_proto::{GroupId, SendOptions};

use crate::published::Receipt;

/// A message that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) payload: Bytes,
    pub(crate) options: SendOptions,
    /// Who wants to know what becomes of it, in an ordered group.
    pub(crate) receipt: Option<Receipt>,
}

/// The messages of one group that wait to be sent. A channel that is bounded takes the memory for
/// all its messages at once, 64 KiB; it is made when somebody publishes.
#[derive(Debug, Default)]
pub(crate) struct Queue(OnceLock<Option<(Sender<Outgoing>, Receiver<Outgoing>)>>);

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
    pub(crate) fn inlet(&self) -> Option<&Sender<Outgoing>> {
        let ends = self.0.get_or_init(|| Some(async_channel::bounded(QUEUE_MESSAGES)));
        ends.as_ref().map(|(inlet, _)| inlet)
    }

    /// The message that has waited longest.
    pub(crate) fn take(&self) -> Option<Outgoing> {
        let (_, outlet) = self.0.get()?.as_ref()?;
        outlet.try_recv().ok()
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        let ends = self.0.get().and_then(Option::as_ref);
        ends.map_or(0, |(_, outlet)| outlet.len())
    }

    /// Nobody takes messages any more: who publishes, or waits for room, is told so.
    pub(crate) fn close(&self) {
        if let Some((inlet, _)) = self.0.get_or_init(|| None) {
            inlet.close();
        }
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
}
