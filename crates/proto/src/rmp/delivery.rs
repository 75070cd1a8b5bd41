//! What a ring hands out, and in which order.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::locks::{LockName, LockNews};
use super::log::ListChange;
use super::names::{Place, Process, Timestamp};
use super::stream::Whole;
use super::view::RingView;
use crate::SeqNo;

/// What waits to be delivered in the total order.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    /// A packet that this round gave its place.
    Packet {
        /// The round.
        round: Timestamp,
        /// Its place.
        place: Place,
        /// Who sent it.
        source: Process,
        /// Its number.
        seqno: SeqNo,
    },
    /// A change of the view.
    View {
        /// The round that made it.
        round: Timestamp,
        /// What changed. Boxed, because packets are many and views are few.
        event: Box<ViewEvent>,
    },
    /// A caller that is not a member was flushed.
    Flushed {
        /// By this round.
        round: Timestamp,
        /// The caller.
        source: Process,
    },
}

/// What is delivered.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    /// A message.
    Message {
        /// Who sent it.
        source: Process,
        /// The message.
        whole: Whole,
        /// The round that gave it its place; `None` if it did not wait for one.
        round: Option<Timestamp>,
        /// Its place, if it has waited for that of all before it.
        place: Option<Place>,
    },
    /// A change of the view.
    View(Box<ViewEvent>),
    /// A lock that somebody asked for.
    Lock {
        /// Who asked.
        process: Process,
        /// The request that is answered; 0 for a lock that was waited for.
        request: u32,
        /// What became of it.
        news: LockNews,
    },
}

/// A lock that was granted by a view that was delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The round of the view.
    pub(super) round: Timestamp,
    /// The lock.
    pub(super) name: LockName,
    /// Who holds it now.
    pub(super) holder: Process,
}

/// A change of the view, at its place among the messages (virtual synchrony).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewEvent {
    /// The view from now on.
    pub view: RingView,
    /// Its place in the order.
    pub place: Place,
    /// Who is new.
    pub joined: Vec<Process>,
    /// Who left of its own will.
    pub left: Vec<Process>,
    /// Who was removed.
    pub failed: Vec<Process>,
    /// The member that decided.
    pub by: Process,
    /// The request that was answered, if it was one.
    pub answered: Option<ListChange>,
}

impl ViewEvent {
    /// The view from here on, decided by this member; nobody came or went.
    pub(super) fn of(view: RingView, at: Timestamp, by: Process) -> Self {
        let (joined, left, failed) = (Vec::new(), Vec::new(), Vec::new());
        let place = Place { ring: view.epoch, at };
        Self { view, place, joined, left, failed, by, answered: None }
    }
}
